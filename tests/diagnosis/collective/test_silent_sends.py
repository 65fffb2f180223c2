"""Which host of a slow group is the busy one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.collective.participation import Participation
from diagnosis.collective.silent_sends import Sends, SilentSends, sends_by_host
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job, Place
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job

HOSTS, PER_HOST = 4, 2
JOB = job(HOSTS, PER_HOST)
GROUP = Verdict(
    "host_slow",
    "group",
    tuple(range(HOSTS * PER_HOST)),
    "duration",
    candidates=tuple(sorted(JOB.ranks_of_host.values())),
    evidence={"duration_ratio": 1.5},
)

Silent = Mapping[int, int]


def made(silent: Silent, part: float = 0.3, op: str = "send") -> Told:
    """Eight sends of each rank to the next host, as many of which as told go silent for a part of their time."""
    told = Told(PER_HOST)
    for rank in range(HOSTS * PER_HOST):
        peer = (rank + PER_HOST) % (HOSTS * PER_HOST)
        for seq in range(8):
            lasts = int(MS * (1 - part)) if seq < silent.get(rank, 0) else MS
            told.tell(f"pp{rank}", seq, rank, 10 * seq * MS, MS, lasts, op=op, peers={peer: MB})
    return told


def sends(silent: Silent, part: float = 0.3, op: str = "send") -> Participation:
    return made(silent, part, op).table


def narrowed(iterations: Sequence[Silent], known: SilentSends | None = None, part: float = 0.3) -> Verdict:
    """The verdict on the last of some iterations."""
    known, verdict = known or SilentSends(), GROUP
    for number, silent in enumerate(iterations, start=100):
        verdict = known.narrowed(GROUP, number, 1, sends(silent, part), JOB)
    return verdict


def test_the_host_whose_sends_go_silent_is_the_busy_one() -> None:
    found = narrowed([{2: 4, 3: 4, 6: 1}, {2: 4, 3: 2}])
    assert (found.cause, found.level, found.ranks, found.method) == ("host_slow", "machine", (2, 3), "silent_sends")
    assert found.candidates == ()
    assert found.evidence == {
        "duration_ratio": 1.5,
        "silent_share": 14 / 32,
        "others": 1 / 32,
        "silence_ns": pytest.approx(0.9 * MS),
    }


@pytest.mark.parametrize(
    "silent",
    [{}, {2: 2}, {2: 4, 3: 4, 6: 4, 7: 3}, {2: 8, 3: 8, 6: 6, 7: 6}],
    ids=["none are silent", "few are", "those of two hosts are", "those of another are nearly as often"],
)
def test_otherwise_the_group_is_all_that_can_be_told(silent: Silent) -> None:
    assert narrowed([silent, silent]) == GROUP


def test_what_is_as_short_as_an_epoch_in_a_long_send_is_no_silence() -> None:
    assert narrowed(3 * [{2: 8, 3: 8}], part=0.04) == GROUP
    assert narrowed(3 * [{2: 8, 3: 8}], part=0.06).ranks == (2, 3)


def test_a_single_iteration_proves_nothing() -> None:
    """All that a host sends goes silent together."""
    assert narrowed([{2: 8, 3: 8}]) == GROUP


def test_iterations_count_together() -> None:
    assert narrowed([{2: 2}, {2: 2}]) == GROUP
    assert narrowed([{2: 2}, {2: 2}, {3: 2}]).ranks == (2, 3)


def test_those_that_are_long_past_do_not() -> None:
    assert narrowed([{2: 4}, *([{}] * 8), {3: 4}]).ranks == (2, 3)
    assert narrowed([{2: 4}, *([{}] * 9), {3: 4}]) == GROUP


def test_what_an_iteration_shares_with_others_counts_once() -> None:
    """Of jobs of few exchanges the rows of ten iterations are compared together."""
    known = SilentSends()
    for number in range(100, 115):
        assert known.narrowed(GROUP, number, 10, sends({2: 2}), JOB) == GROUP
        assert len(known.recent) == 1
    usual = SilentSends()
    for number in range(15):
        usual.learn(number, 10, sends({}), JOB)
    assert len(usual.usual) == 2


@pytest.mark.parametrize("past", [{2: 8, 3: 8}, {}])
def test_a_host_that_is_busy_no_more_is_not_named_for_what_it_was(past: Silent) -> None:
    """Whether another one is by now or none."""
    assert narrowed([{2: 8, 3: 8}, {2: 8, 3: 8}, past]).ranks == ((2, 3) if past else GROUP.ranks)
    assert narrowed([*3 * [{2: 8, 3: 8}], {6: 1}]) == GROUP


def test_a_host_whose_sends_always_go_silent_is_not_busy() -> None:
    """With few slots some do where nothing is wrong."""
    known = SilentSends()
    known.learn(1, 1, sends({2: 5, 3: 5}), JOB)
    assert narrowed([{2: 6, 3: 5}, {2: 5, 3: 6}], known) == GROUP
    assert narrowed([{2: 6, 3: 5}, {2: 5, 3: 6}]).ranks == (2, 3)
    busy = narrowed([{2: 5, 3: 5, 4: 8, 5: 8}] * 3, SilentSends(usual=known.usual))
    assert busy.ranks == (4, 5)


def test_only_silence_beyond_what_is_usual_is_lost() -> None:
    known = SilentSends()
    for number in range(4):
        known.learn(number, 1, sends({2: 1, 3: 1}), JOB)
    found = narrowed([{2: 8, 3: 8}] * 2, known)
    assert found.evidence["silence_ns"] == pytest.approx(0.3 * MS * 7)


@pytest.mark.parametrize("lost", [{2, 3}, {4, 5}], ids=["the busy one's", "another's"])
@pytest.mark.parametrize("state", ["unknown", None], ids=["unknown", "no rows"])
def test_where_a_host_was_not_seen_its_neighbour_is_not_blamed(lost: set[int], state: str | None) -> None:
    """Sends to a busy host go silent, too."""
    told = made({0: 3, 1: 3, 2: 8, 3: 8})
    told.rows = [
        row | {"state": state if row["rank"] in lost and row["seq"] > 2 else "complete"}
        for row in told.rows
        if state is not None or row["rank"] not in lost
    ]
    known = SilentSends()
    for number in (1, 2):
        assert known.narrowed(GROUP, number, 1, told.table, JOB) == GROUP
    known = SilentSends()
    found = [known.narrowed(GROUP, number, 1, sends({0: 3, 1: 3, 2: 8, 3: 8}), JOB) for number in (1, 2)]
    assert found[-1].ranks == (2, 3)


def test_only_what_goes_to_single_ranks_counts() -> None:
    assert sends_by_host(sends({0: 8}, op="all_reduce"), JOB) == {}
    assert sends_by_host(sends({0: 8}, op="custom"), JOB)["h0"] == Sends(8, 16, 8 * 3 * MS // 10)


def test_a_restart_goes_on_with_what_was_counted() -> None:
    known = SilentSends()
    for number in range(3):
        known.learn(number, 1, sends({}), JOB)
    assert narrowed([{2: 2}, {2: 2}], known) == GROUP
    again = SilentSends.from_state(json.loads(json.dumps(known.to_state())))
    assert again == known
    assert again.narrowed(GROUP, 102, 1, sends({3: 3}), JOB).ranks == (2, 3)


def test_a_slow_iteration_is_not_what_is_usual() -> None:
    known = SilentSends()
    narrowed([{2: 8}], known)
    known.learn(100, 1, sends({2: 8}), JOB)
    assert not known.usual


def test_of_two_hosts_nothing_is_told() -> None:
    pair = replace(GROUP, ranks=(0, 1, 2, 3))
    known = SilentSends()
    assert [known.narrowed(pair, number, 1, sends({2: 8, 3: 8}), JOB) for number in range(3)] == 3 * [pair]


def test_where_hosts_are_not_known_no_machine_is_told() -> None:
    scattered = Job("j", tuple(Place(rank) for rank in range(HOSTS * PER_HOST)), JOB.communicators)
    known = SilentSends()
    found = [known.narrowed(GROUP, number, 1, sends({2: 8}), scattered) for number in range(3)]
    assert found == 3 * [GROUP]


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 50), st.integers(1, 50))
def test_of_two_at_most_one_goes_silent_oftener(silent: int, whole: int, other_silent: int, other_whole: int) -> None:
    one, other = Sends(min(silent, whole), whole), Sends(min(other_silent, other_whole), other_whole)
    assert not (one.oftener(other) and other.oftener(one))
    assert not one.oftener(one)
    if one.oftener(other):
        assert one.share >= 1.5 * other.share
    assert one.oftener(Sends()) == (one.silent > 0)


def test_chance_is_what_the_binomial_says() -> None:
    """Of five silent sends all are of one of two alike in one case of 32, of four in one of 16."""
    assert Sends(5, 100).oftener(Sends(0, 100))
    assert not Sends(4, 100).oftener(Sends(0, 100))
    random = np.random.default_rng(1)
    draws = random.binomial(40, 0.5, size=4000)
    assert np.mean([Sends(int(d), 500).oftener(Sends(int(40 - d), 500)) for d in draws]) < 0.05
