"""Which host of a slow group is the busy one."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.collective.participation import Participation
from diagnosis.collective.silent_sends import Sends, SilentSends
from diagnosis.collective.verdict import Verdict
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job

HOSTS, PER_HOST, RECENT = 4, 2, 10
JOB = job(HOSTS, PER_HOST)
GROUP = Verdict("host_slow", "group", tuple(range(HOSTS * PER_HOST)), "duration", evidence={"duration_ratio": 1.5})


def sends(silent: Mapping[int, int], each: int = 8, part: float = 0.3) -> Participation:
    """Sends of each rank to the next host, as many of which as told go silent for a part of their time."""
    made = Told(PER_HOST)
    for rank in range(HOSTS * PER_HOST):
        peer = (rank + PER_HOST) % (HOSTS * PER_HOST)
        for seq in range(each):
            lasts = int(MS * (1 - part)) if seq < silent.get(rank, 0) else MS
            made.tell(f"pp{rank}", seq, rank, 10 * seq * MS, MS, lasts, op="send", peers={peer: MB})
    return made.table


def narrowed(iterations: list[Mapping[int, int]], known: SilentSends | None = None, part: float = 0.3) -> Verdict:
    """The verdict on the last of some iterations."""
    known, verdict = known or SilentSends(), GROUP
    for number, silent in enumerate(iterations):
        verdict = known.narrowed(GROUP, sends(silent, part=part), JOB, number, RECENT)
    return verdict


def test_the_host_whose_sends_go_silent_is_the_busy_one() -> None:
    found = narrowed([{2: 4, 3: 4, 6: 1}])
    assert (found.cause, found.level, found.ranks, found.method) == ("host_slow", "machine", (2, 3), "silent_sends")
    assert found.evidence == {
        "duration_ratio": 1.5,
        "silent_share": 0.5,
        "others": 1 / 16,
        "silence_ns": pytest.approx(1.2 * MS),
    }


@pytest.mark.parametrize(
    "silent",
    [{}, {2: 2}, {2: 4, 3: 4, 6: 4, 7: 3}],
    ids=["none are silent", "few are", "those of two hosts are"],
)
def test_otherwise_the_group_is_all_that_can_be_told(silent: Mapping[int, int]) -> None:
    assert narrowed([silent]) == GROUP


def test_what_is_as_short_as_an_epoch_in_a_long_send_is_no_silence() -> None:
    assert narrowed([{2: 8, 3: 8}], part=0.04) == GROUP


def test_iterations_count_together() -> None:
    assert narrowed([{2: 2}]) == narrowed([{2: 2}, {2: 2}]) == GROUP
    assert narrowed([{2: 2}, {2: 2}, {3: 2}]).ranks == (2, 3)


def test_those_that_are_long_past_do_not() -> None:
    assert narrowed([{2: 3}, *([{}] * (RECENT - 1)), {3: 2}]) == GROUP


def test_a_host_that_is_busy_no_more_is_not_named_for_what_it_was() -> None:
    """Another one is by now."""
    assert narrowed([{2: 8}, {2: 8}, {6: 8}]) == GROUP


def test_a_host_whose_sends_always_go_silent_is_not_busy() -> None:
    """With few slots some do where nothing is wrong."""
    known = SilentSends()
    known.learn(sends({2: 5, 3: 5}), JOB)
    assert narrowed([{2: 6, 3: 5}], known) == GROUP
    assert narrowed([{2: 6, 3: 5}]).ranks == (2, 3)
    assert narrowed([{4: 8, 5: 8}], known).ranks == (4, 5)


def test_a_restart_goes_on_with_what_was_counted() -> None:
    known = SilentSends()
    for _ in range(3):
        known.learn(sends({}), JOB)
    assert narrowed([{2: 2}, {2: 2}], known) == GROUP
    again = SilentSends.from_state(json.loads(json.dumps(known.to_state())))
    assert again == known
    assert again.narrowed(GROUP, sends({3: 2}), JOB, 2, RECENT).ranks == (2, 3)


def test_of_two_hosts_nothing_is_told() -> None:
    pair = Verdict("host_slow", "group", (0, 1, 2, 3), "duration")
    assert SilentSends().narrowed(pair, sends({2: 8, 3: 8}), JOB, 0, RECENT) == pair


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 50), st.integers(1, 50))
def test_of_two_at_most_one_goes_silent_oftener(silent: int, whole: int, other_silent: int, other_whole: int) -> None:
    one, other = Sends(min(silent, whole), whole), Sends(min(other_silent, other_whole), other_whole)
    assert not (one.oftener(other) and other.oftener(one))
    assert not one.oftener(one)
    if one.oftener(other):
        assert one.share > other.share
    assert one.oftener(Sends()) == (one.silent > 0)
