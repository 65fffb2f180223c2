"""A slow host is told from a slow GPU on it, and from slow NVLinks, whether ends are logged or not."""

import pytest

from diagnosis.operator_graph.locate import COMPUTE, HOST, NETWORK
from producers.simulation import Fault, Kind
from tests.diagnosis.operator_graph.small_jobs import FAULTY, gpu_slow, located, run

HOSTS_OF_FOUR = {"dp": 4, "gpus_per_host": 4}
"""Two tensor parallel groups a host."""


def slow(kind: Kind, rank: int) -> Fault:
    return Fault(kind, rank, FAULTY, slowdown=1.4)


@pytest.mark.parametrize("iteration", FAULTY)
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_all_ranks_of_a_slow_host_are_named_with_its_cpu(ends: bool, iteration: int) -> None:
    location, _ = located(run(slow(Kind.CPU_SLOW, 4), ends=ends, **HOSTS_OF_FOUR), iteration)
    first = location.culprits[0]
    assert (first.cause, first.level, first.ranks) == (HOST, "machine", (4, 5, 6, 7))
    assert [(device.device, device.kind) for device in first.devices] == [("cpu:h1", "cpu")]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_a_slow_gpu_does_not_make_its_host_slow(ends: bool) -> None:
    location, _ = located(run(gpu_slow(5), ends=ends, **HOSTS_OF_FOUR))
    assert [(culprit.cause, culprit.ranks) for culprit in location.culprits] == [(COMPUTE, (5,))]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_slow_nvlinks_do_not_make_their_host_slow(ends: bool) -> None:
    location, _ = located(run(slow(Kind.NVLINK_SLOW, 4), ends=ends, **HOSTS_OF_FOUR))
    assert {culprit.cause for culprit in location.culprits} == {NETWORK}


def test_mates_that_do_not_answer_tell_nothing() -> None:
    """The rank alone is known to have computed slowly."""
    simulated = run(slow(Kind.CPU_SLOW, 4), **HOSTS_OF_FOUR)
    told, _ = located(simulated)
    rank = told.culprits[0].operator.rank
    location, _ = located(simulated, missing=sorted({4, 5, 6, 7} - {rank}))
    assert all(culprit.cause != HOST for culprit in location.culprits)


def test_a_host_of_two_ranks_is_not_judged() -> None:
    location, _ = located(run(slow(Kind.CPU_SLOW, 4)))
    assert all(culprit.cause != HOST for culprit in location.culprits)
