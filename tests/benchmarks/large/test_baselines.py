"""The simpler methods, on losses that are made up."""

from __future__ import annotations

from benchmarks.large.baselines import by_loss, by_walk
from benchmarks.large.rankings import shared_place
from tests.benchmarks.large.runs import slow_nic

JOB = slow_nic().job
NEAR = next(c for c in JOB.communicators_of[0] if JOB.on_one_host(JOB.members[c]))
FAR = next(c for c in JOB.communicators_of[0] if not JOB.on_one_host(JOB.members[c]))


def test_what_was_lost_is_held_against_what_the_operators_ran_on() -> None:
    scores = by_loss(JOB, {(0, NEAR): 1.0, (0, FAR): 3.0})
    assert scores[JOB.gpu(0).device] == 1.0
    assert scores[JOB.nics(0)[0].device] == 0.75
    assert scores["nvlink:h0"] == 0.25
    assert scores["cpu:h0"] == 1.0 / 8
    assert by_loss(JOB, {}) == {}


def test_of_the_simpler_methods_equal_scores_share_a_place() -> None:
    scores = {"a": 3.0, "b": 2.0, "c": 2.0, "d": 1.0}
    assert [shared_place([name], scores) for name in "abcd"] == [1, 2, 2, 3]
    assert shared_place(["d", "b"], scores) == 2
    assert shared_place(["e"], scores) is None


def test_the_walk_goes_where_most_was_lost() -> None:
    other = JOB.members[FAR][-1]

    def nic(lost: float) -> float:
        return by_walk(JOB, {(0, FAR): lost, (other, FAR): lost, (0, NEAR): 1.0}, [0])[JOB.nics(other)[0].device]

    assert nic(9.0) > nic(1.0) > nic(0.1) > 0
    assert JOB.gpu(other).device in by_walk(JOB, {(0, FAR): 1.0, (other, FAR): 1.0}, [0])
    assert by_walk(JOB, {}, [0]) == {}
