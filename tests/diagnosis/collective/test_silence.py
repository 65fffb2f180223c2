"""Which NICs are alive while an operator hangs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from diagnosis.collective.hangs import localise_hang
from diagnosis.collective.participation import Participation
from diagnosis.collective.silence import alive, heard, silent_alone
from diagnosis.collective.verdict import Verdict
from tests.diagnosis.collective.made_metrics import MB, MS, SECOND, Told, job


def stuck(
    sent_ms: Mapping[int, float | None], state: Mapping[int, str], peers: Mapping[int, tuple[int, ...]]
) -> Participation:
    """One exchange of single ranks on hosts; ``sent_ms``: when each one's NIC last sent, None: it was not seen to."""
    told = Told(per_host=1)
    for rank, at in sent_ms.items():
        to = peers[rank]
        lacking = to if state.get(rank) else ()
        told.tell(
            "c", 0, rank, 10 * MS, MS, op="custom", state=state.get(rank, "complete"),
            peers=dict.fromkeys(to, MB), incomplete=lacking, call_ns=10 * MS,
        )  # fmt: skip
        call = told.rows[-1]["call_ns"]
        told.rows[-1]["nic_sent_ns"] = None if at is None or not state.get(rank) else call + int(at * MS)
    return told.table


RING = {rank: ((rank + 1) % 4,) for rank in range(4)}


def test_a_nic_that_sends_for_anyone_is_alive() -> None:
    state = dict.fromkeys(range(4), "incomplete")
    table = stuck({0: 900.0, 1: 3.0, 2: None, 3: 150.0}, state, RING)
    assert alive(table) == {0: True, 1: False, 2: False, 3: True}
    assert alive(stuck(dict.fromkeys(range(4)), state, RING)) == {}, "nothing says that NICs were looked at"


def test_of_candidates_the_one_with_a_silent_nic_is_left() -> None:
    """Ranks 1 and 2 do not get through to each other."""
    pairs = {rank: (3 - rank,) for rank in range(4)}
    state = {1: "incomplete", 2: "incomplete"}
    (either,) = localise_hang(stuck({0: None, 1: None, 2: None, 3: None}, state, pairs), job(4, 1))
    assert either.candidates == ((1,), (2,))
    (found,) = localise_hang(stuck({0: 900.0, 1: 2.0, 2: 800.0, 3: 900.0}, state, pairs), job(4, 1))
    assert (found.cause, found.level, found.ranks, found.candidates) == ("hang_hardware", "device", (1,), ())


def test_who_never_begins_has_a_nic_that_is_down_where_it_is_silent_alone() -> None:
    state = {0: "incomplete", 1: "incomplete", 2: "missing_start", 3: "incomplete"}
    silent = stuck({0: 900.0, 1: 700.0, 2: 2.0, 3: 400.0}, state, RING)
    (found,) = localise_hang(silent, job(4, 1))
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (2,))
    sending = stuck({0: 900.0, 1: 700.0, 2: 300.0, 3: 400.0}, state, RING)
    (found,) = localise_hang(sending, job(4, 1))
    assert (found.cause, found.ranks) == ("hang_not_entered", (2,))
    quiet = stuck({0: 1.0, 1: 700.0, 2: 2.0, 3: 900.0}, state, RING)
    (found,) = localise_hang(quiet, job(4, 1))
    assert found.cause == "hang_not_entered", "where several are silent, silence says nothing"


@pytest.mark.parametrize(
    ("silent", "cause", "named"), [(None, "hang_not_entered", 9), (5, "hang_hardware", 5), (9, "hang_hardware", 9)]
)
def test_a_nic_that_sends_for_others_is_not_down(silent: int | None, cause: str, named: int) -> None:
    """One of a host's ranks does not begin, and its NIC goes on with other traffic: it waits for whose does not."""
    told = Told(per_host=4)
    for gpu in range(4):
        for host in range(4):
            rank, state = 4 * host + gpu, "missing_start" if (host, gpu) == (2, 1) else "incomplete"
            told.tell(f"dp{gpu}", 3, rank, 50 * MS, state=state, sent=60 * MB, peers={(rank + 4) % 16: 60 * MB})
            told.rows[-1]["nic_sent_ns"] = told.rows[-1]["call_ns"] + (MS if rank == silent else SECOND)
    (found,) = localise_hang(told.table, job(4, 4))
    assert (found.cause, found.ranks) == (cause, (named,))


@pytest.mark.parametrize(
    ("silent", "most_known"), [((4,), True), ((9,), True), ((4,), False), ((9,), False), ((4, 9), True)]
)
def test_machines_that_do_not_begin_wait_for_the_nic_that_alone_is_silent(
    silent: tuple[int, ...], most_known: bool
) -> None:
    """Ranks of two machines have not called what others wait in. Where few NICs are known to be alive, only one of
    these machines is beyond doubt."""
    absent = Verdict("hang_not_entered", "machine", (4, 5, 6, 7), "missing_start")
    other = replace(absent, ranks=(0, 1, 2, 3))
    sending = {rank: rank not in silent for rank in (4, 8, 9, 12)}
    found = heard([absent, other], sending, 7 if most_known else 16)
    if silent == (4,) or (silent == (9,) and most_known):
        assert [(v.cause, v.level, v.ranks) for v in found] == [("hang_hardware", "device", silent)]
    else:
        assert found == [absent, other]


def test_who_is_named_by_its_rule_and_alone_is_silent_keeps_the_rules_evidence() -> None:
    named = Verdict("hang_hardware", "device", (4,), "volume", evidence={"share": 0.2})
    assert heard([named], {4: False, 5: True, 6: True}, 4) == [named]


@pytest.mark.parametrize("alive_too", [True, None])
def test_a_send_of_a_pipeline_is_not_stuck_because_of_nics_that_are_alive(alive_too: bool | None) -> None:
    either_end = Verdict("hang_hardware", "device", (4, 12), "own_lateness", candidates=((4,), (12,)))
    sending = dict.fromkeys(range(8), True) | ({} if alive_too is None else {12: alive_too})
    (found,) = heard([either_end], sending, 16)
    assert found == (replace(either_end, cause="hang_not_entered") if alive_too else either_end)


def test_of_a_group_that_has_sent_equally_little_the_silent_nic_is_down() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        told.tell("c", 0, rank, 10 * MS, MS, state="incomplete", sent=60 * MB, peers={(rank + 1) % 4: 60 * MB})
        told.rows[-1]["nic_sent_ns"] = told.rows[-1]["call_ns"] + (2 * MS if rank == 2 else SECOND)
    (found,) = localise_hang(told.table, job(4, 1))
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (2,))


def test_where_operators_show_nobody_a_nic_that_is_silent_alone_is_down() -> None:
    (found,) = silent_alone({0: True, 1: True, 2: False})
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (2,))
    assert silent_alone({0: True, 2: False}) == [], "too few to compare with"
    assert silent_alone({0: True, 1: True, 2: False, 3: False}) == []
    assert silent_alone({0: True, 1: True, 2: True}) == []


def test_what_was_sent_before_the_last_rank_called_shows_nobody_alive() -> None:
    """Rank 3 called 400 ms after the others, and nothing was sent since: all may just wait for it."""
    told = Told(per_host=1)
    for rank in range(4):
        call = (410 if rank == 3 else 10) * MS
        told.tell("c", 0, rank, call, MS, op="custom", state="incomplete", peers={rank ^ 1: MB}, incomplete=[rank ^ 1])
        told.rows[-1]["nic_sent_ns"] = told.rows[-1]["call_ns"] + (2 * MS if rank == 3 else 300 * MS)
    assert alive(told.table) == dict.fromkeys(range(4), False)


def test_who_has_ended_operators_since_is_alive() -> None:
    """Rank 0 has none that is open, and rank 3 neither, but nothing is known of it."""
    told = Told(per_host=1)
    told.tell("c", 0, 0, 400 * MS, 10 * MS, op="custom", peers={1: MB})
    told.tell("c", 0, 1, None, op="custom", state="missing_start", call_ns=10 * MS)
    told.tell("c", 0, 2, 10 * MS, MS, op="custom", state="incomplete", peers={1: MB}, incomplete=[1], call_ns=10 * MS)
    told.tell("c", 0, 3, 10 * MS, MS, op="custom", peers={1: MB})
    told.rows[2]["nic_sent_ns"] = told.rows[2]["call_ns"] + SECOND
    assert alive(told.table) == {0: True, 1: False, 2: True}
