"""All machines that compute for longer than they did."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.comparing import SLOW, Comparer
from diagnosis.collective.course import Iteration
from diagnosis.collective.everywhere import all_computing_longer, computed_by_host
from diagnosis.collective.grid import ComparisonRules, Work, grids
from diagnosis.collective.own_lateness import computed_of_itself
from diagnosis.irregularity.monitor import IterationMonitor
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job
from tests.diagnosis.collective.one_f_one_b import pipelines, replica

JOB = job()
USUALLY_MS = 40.0


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 5), st.integers(4, 10), st.floats(1.2, 3.0), st.data())
def test_pipelines_compute_longer_by_what_their_own_stages_do_whatever_the_clocks_say(
    stages: int, microbatches: int, times: float, data: st.DataObject
) -> None:
    """Most stages of a pipeline all of which are slow; one that is paced by the next does not show it. The pipeline
    beside it computes as it did."""
    apart = data.draw(st.lists(st.floats(-1e9, 1e9), min_size=stages, max_size=stages))
    as_usual, slow = (
        replica(stages, microbatches, {}),
        replica(stages, microbatches, dict.fromkeys(range(stages), times)),
    )
    usual = computed_of_itself(pipelines([as_usual, as_usual], [0.0] * stages)).reshape(stages, 2)
    shifted = computed_of_itself(pipelines([as_usual, as_usual], apart)).reshape(stages, 2)
    now = computed_of_itself(pipelines([as_usual, slow], apart)).reshape(stages, 2)
    grown = now - shifted
    assert np.abs(grown[:, 0]).max() <= 1e3
    assert np.mean(grown[:, 1] >= 0.6 * (times - 1.0) * usual[:, 1]) > 2 / 3


def test_all_are_named_only_if_most_hosts_compute_longer_and_that_is_why() -> None:
    usual = {(f"h{at}", 20, 0): 40.0 * MS for at in range(4)}
    longer = {work: ns + 12.0 * MS for work, ns in usual.items()}
    (found,) = all_computing_longer(longer, usual, JOB, 72.0 * MS, 60.0 * MS)
    assert (found.cause, found.level, found.ranks) == ("compute_slow", "group", JOB.ranks)
    assert found.evidence["lost_ns"] == pytest.approx(12 * MS)
    some = {**longer, ("h1", 20, 0): 40.0 * MS, ("h2", 20, 0): 40.0 * MS}
    little = {work: ns + 5.0 * MS for work, ns in usual.items()}
    more_to_do = {(host, rows + 4, size): ns for (host, rows, size), ns in longer.items()}
    unseen = {work: ns for work, ns in longer.items() if work[0] in {"h0", "h1"}}
    for now in (some, little, more_to_do, unseen, usual, {}):
        assert all_computing_longer(now, usual, JOB, 72.0 * MS, 60.0 * MS) == []
    assert all_computing_longer(longer, usual, JOB, 90.0 * MS, 60.0 * MS) == [], "most was lost otherwise"
    behind = {work: ns - 500.0 * MS for work, ns in usual.items()}
    assert all_computing_longer({w: ns - 500.0 * MS for w, ns in longer.items()}, behind, JOB, 72.0 * MS, 60.0 * MS)


def iteration(number: int, computed_ms: Mapping[int, float], lasting_ms: float = 10.0) -> Iteration:
    """An all-reduce, a while of computing on each host, and an all-reduce for which the others wait."""
    told = Told()
    last = max(computed_ms.get(host, USUALLY_MS) for host in range(4))
    for rank in JOB.ranks:
        own = computed_ms.get(rank // 2, USUALLY_MS)
        lasts = int((last - own + lasting_ms) * MS)
        told.tell(f"dp{rank % 2}", 2 * number, rank, 0, 10 * MS)
        told.tell(f"dp{rank % 2}", 2 * number + 1, rank, int((10 + own) * MS), lasts, 10 * MS)
    return Iteration(number, int((10 + last + lasting_ms) * MS), told.table)


def judged(slow: Iteration) -> list[tuple[str, tuple[int, ...]]]:
    """What is said of an iteration after four usual ones and a restart."""
    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))
    for number in range(4):
        assert comparer.judge(iteration(number, {}), JOB).verdicts == ()
    known = Comparer.from_state(comparer.rules, comparer.metric, SLOW, json.loads(json.dumps(comparer.to_state())))
    compared = known.judge(slow, JOB)
    assert compared.judgement.irregular
    return [(one.cause, one.ranks) for one in compared.verdicts]


def test_iterations_that_last_longer_because_all_compute_longer_name_all() -> None:
    assert judged(iteration(4, dict.fromkeys(range(4), 52.0))) == [("compute_slow", JOB.ranks)]
    assert judged(iteration(4, {1: 70.0})) == [("compute_slow", (2, 3))]
    more_still = {**dict.fromkeys(range(4), 58.0), 1: 73.0}
    assert judged(iteration(4, more_still)) == [("compute_slow", JOB.ranks)], "one is late by less than all are"
    assert ("compute_slow", JOB.ranks) not in judged(iteration(4, {}, lasting_ms=22.0)), "they wait for longer"


@pytest.mark.parametrize("seen", [True, False])
def test_ranks_that_wait_for_those_of_their_host_do_not_compute_longer(seen: bool) -> None:
    """The NIC of rank 4 sends at half its rate. Seven of eight ranks of a host wait for the one that it holds up, and
    one of the all-reduces that it prolongs was not seen whole: it seems to have cost less than all compute longer. Who
    waits for rank 4 knows that communication lasts, even if that rank itself was not seen."""
    hosts, per_host = 4, 8
    places = job(hosts, per_host)

    def collectives(number: int, slow: bool) -> Iteration:
        told = Told(per_host)
        at = 0
        for seq in range(4):
            prolonged = 15 * MS if slow and seq < 3 else 0
            for rank in (rank for rank in range(hosts * per_host) if seen or rank != 4):
                held_up = prolonged if rank % per_host == 4 else 0
                unseen = slow and (rank, seq) == (12, 1)
                sends = 10 * MS + (prolonged if rank == 4 else 0)
                told.tell(
                    f"dp{rank % per_host}", 4 * number + seq, rank, None if unseen else at, 10 * MS + held_up, sends,
                    call_ns=at, state="unknown" if unseen else "complete",
                )  # fmt: skip
            at += (10 + 20) * MS + prolonged
        return Iteration(number, at, told.table)

    comparer = Comparer(ComparisonRules(), "actual_time", IterationMonitor(SLOW))
    for number in range(4):
        assert comparer.judge(collectives(number, slow=False), places).verdicts == ()
    found = comparer.judge(collectives(4, slow=True), places).verdicts
    assert [(one.cause, one.ranks) for one in found] == ([("communication_slow", (4,))] if seen else [])


@pytest.mark.parametrize(("slow", "named"), [({0: 1.4, 1: 1.4}, True), ({1: 1.4}, False), ({}, False)])
def test_stages_of_pipelines_are_named_together(slow: Mapping[int, float], named: bool) -> None:
    """Two stages of two hosts, whose clocks differ."""
    layout = [(0, 4), (1, 5), (2, 6), (3, 7)]

    def computed(slower: Mapping[int, float]) -> dict[Work, float]:
        told = Told()
        for first, second in layout:
            stages = replica(2, 6, slower if named or first < 2 else {})
            for stage, (rank, peer) in enumerate(((first, second), (second, first))):
                for seq, (_, at, _) in enumerate(stages[stage]):
                    told.tell(f"pp{first}", seq, rank, int(at * MS), MS, op="custom", peers={peer: MB}, expected=MB)
        return computed_by_host(told.table, grids(told.table), JOB, layout)

    usual, now = computed({}), computed(slow)
    grown = max(now[work] - usual[work] for work in usual)
    assert bool(all_computing_longer(now, usual, JOB, 100.0 * MS + grown, 100.0 * MS)) == named
