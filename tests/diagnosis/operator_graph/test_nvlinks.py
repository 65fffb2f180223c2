"""A ring across hosts is slow: whether it is NVLinks that it crosses, or a NIC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from diagnosis.job import Job, Place
from diagnosis.operator_graph.attribution import walk
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.nvlinks import slow_links, slow_with_links
from diagnosis.operator_graph.separation import Separation, SeparationSettings
from producers.simulation import Fault, Kind, Omissions, Scenario, simulate
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Training
from tests.diagnosis.operator_graph.small_jobs import FAULTY, located

MEMBERS = (0, 1, 2, 3)
GROUPS = {"ring": MEMBERS, "row0": (0, 1), "row1": (2, 3)}


def told(
    extra_ms: Mapping[str, float], apart: Separation | None = None, a_host: int = 2
) -> tuple[tuple[int, ...] | None, Asked]:
    """Whose NVLinks a slow ring of four ranks is put down to; None: to nobody's."""
    programs = {
        rank: [
            step
            for name in (f"row{rank // 2}", "ring")
            for step in (Compute(), Collective(name, extra_ms=extra_ms.get(name, 0)))
        ]
        for rank in MEMBERS
    }
    training = Training(programs, GROUPS)
    places = tuple(Place(rank, f"h{rank // a_host}", rank % a_host, (f"nic{rank % a_host}",)) for rank in MEMBERS)
    job = replace(training.job(), places=places)
    logs = Logs(job, tuple(range(training.iterations)))
    settings = AttributionSettings()
    found, _ = answered(walk(logs, training.irregular, training.baseline, (0,), 100 * MS, settings), training.table())
    leaf = next(leaf for leaf in found.leaves if leaf.communicator == "ring")
    channels = [(leaf, apart or Separation(MEMBERS, ()))]
    logs = Logs(job, tuple(range(training.iterations)))
    slow, asked = answered(slow_links(logs, channels, training.baseline, SeparationSettings()), training.table())
    return slow.get(leaf), asked


def test_those_that_are_slow_for_others_too_slow_the_ring() -> None:
    assert told({"ring": 60, "row1": 20})[0] == (2, 3)


@pytest.mark.parametrize(
    "extra_ms",
    [
        pytest.param({"ring": 60}, id="no NVLinks are slow"),
        pytest.param({"ring": 60, "row1": 3}, id="hardly any"),
        pytest.param({"ring": 60, "row0": 20, "row1": 20}, id="those of both hosts are"),
    ],
)
def test_nobody_is_told_where_it_may_as_well_be_a_nic(extra_ms: Mapping[str, float]) -> None:
    assert told(extra_ms)[0] is None


@pytest.mark.parametrize("apart", [Separation(MEMBERS, (2,)), Separation(MEMBERS, (), (2,))])
def test_whose_nic_is_told_is_not_asked_about(apart: Separation) -> None:
    slow, asked = told({"ring": 60, "row1": 20}, apart)
    assert slow is None
    assert not asked.needs


@pytest.mark.parametrize(
    ("apart", "lost_ms", "mates"),
    [
        pytest.param(Separation(MEMBERS, (0,)), 70, (2, 3), id="NVLinks of another host lost more"),
        pytest.param(Separation(MEMBERS, (), (1,)), 70, (2, 3), id="so they did"),
        pytest.param(Separation(MEMBERS, (0,)), 50, None, id="they lost less"),
        pytest.param(Separation(MEMBERS, (3,)), 70, None, id="it is one of theirs"),
        pytest.param(Separation(MEMBERS, ()), 70, None, id="nobody seems to slow it"),
    ],
)
def test_what_crosses_nvlinks_that_lost_more_is_slow_with_them(
    apart: Separation, lost_ms: int, mates: tuple[int, ...] | None
) -> None:
    job = Job("j", tuple(Place(rank, f"h{rank // 2}", rank % 2, (f"nic{rank % 2}",)) for rank in MEMBERS), ())
    ring, row, computed = (
        Leaf(members[0], name, members, ms * MS, 12, OperatorRef(members[0], name or "ring", 0, "all_reduce"), ())
        for name, members, ms in (("ring", MEMBERS, 60), ("row1", (2, 3), lost_ms), (None, (0,), 90))
    )
    found = slow_with_links(job, [(ring, apart)], [computed, ring, row])
    assert found == ({} if mates is None else {ring: mates})


def test_a_ring_of_hosts_of_one_member_each_crosses_no_nvlinks() -> None:
    slow, asked = told({"ring": 60, "row1": 20}, a_host=1)
    assert slow is None
    assert not asked.needs


@pytest.mark.parametrize("without_ends", [False, True])
def test_nvlinks_that_gradients_cross_are_named_and_no_nic(without_ends: bool) -> None:
    job = Scenario(5, tp=2, pp=2, dp=4, microbatches=4, layers=4, iterations=18, gpus_per_host=4, compute_ms=200.0)
    fault = Fault(Kind.NVLINK_SLOW, 5, FAULTY, slowdown=1.4)
    run = simulate(replace(job, faults=(fault,), omissions=Omissions(ends=without_ends)))
    location, _ = located(run)
    assert {device.device for culprit in location.culprits for device in culprit.devices} == {"nvlink:h1"}
