"""Logs of hosts that only queue their calls: what a channel's delay says there, and what it does not."""

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.job import Communicator, Job, Place
from diagnosis.operator_graph.attribution import Walk, walk
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.delays import Delays, measure
from diagnosis.operator_graph.logs import Logs
from schemas.catalogue import COMM_OPS
from tests.diagnosis.answering import answered

MS = 1_000_000
CALLS, BASELINE, IRREGULAR = 4, tuple(range(10)), 10
JOB = Job("j", (Place(0, "h"), Place(1, "h")), (Communicator("g", (0, 1)),))


def log(*, behind_ms: float, slow_ms: float, spacing_ms: float = 1.0, op: str = "all_reduce") -> pa.Table:
    """Two ranks call four operators, the second 1.5 ms after the first, and go on when their GPUs are done, 20 ms on.

    In the irregular iteration that takes ``slow_ms`` longer, and rank 1 goes on ``behind_ms`` after rank 0.
    """
    noise = np.random.default_rng(4).uniform(0, 0.05, (IRREGULAR + 2, 2))
    rows = []
    for rank in range(2):
        at, seq = 1000.0 + 1.5 * rank, 0
        for i in range(IRREGULAR + 2):
            for k in range(CALLS):
                call = at + k * spacing_ms + noise[i, rank]
                rows.append({"rank": rank, "communicator": "g", "seq": seq, "position": k, "iteration": i})
                rows[-1] |= {"op": op, "call_ns": int(call * MS), "call_order": seq}
                seq += 1
            at += CALLS * spacing_ms + 20 + (slow_ms if i == IRREGULAR else 0)
            at += behind_ms * rank * ((i == IRREGULAR) - (i == IRREGULAR + 1))
    return pa.Table.from_batches([COMM_OPS.from_rows(rows)])


def measured(table: pa.Table) -> Delays:
    logs = Logs(JOB, tuple(range(IRREGULAR + 2)))
    answered(logs.fetch_whole_with_peers(JOB.ranks), table)
    return measure(logs.view, logs.view.clocks, BASELINE)


def walked(table: pa.Table) -> Walk:
    logs = Logs(JOB, (*BASELINE, IRREGULAR, IRREGULAR + 1))
    found, _ = answered(walk(logs, IRREGULAR, BASELINE, [0], 100 * MS, AttributionSettings()), table)
    return found


def test_who_goes_on_last_is_measured_where_calls_are_queued() -> None:
    delays = measured(log(behind_ms=5, slow_ms=100))
    late = delays.behind[delays.rows(1, [IRREGULAR])] / MS
    assert late[:-1] == pytest.approx([0, 0, 0], abs=0.2)
    assert late[-1] == pytest.approx(5, abs=0.2)
    assert delays.behind[delays.rows(0, [IRREGULAR])] == pytest.approx([0] * CALLS, abs=0.2 * MS)


def test_nothing_is_told_of_it_where_calls_wait() -> None:
    assert np.isnan(measured(log(behind_ms=1, slow_ms=100, spacing_ms=3.0)).behind).all()


def test_who_goes_on_before_the_last_has_come_may_have_had_nobody_to_wait_for() -> None:
    """As the root of a broadcast, where calls wait as well."""
    assert np.isnan(measured(log(behind_ms=5, slow_ms=100, op="broadcast")).behind).all()


def test_who_keeps_the_others_computes_slowly() -> None:
    [leaf] = walked(log(behind_ms=5, slow_ms=100)).leaves
    assert (leaf.rank, leaf.communicator, leaf.members) == (1, None, (1,))
    assert leaf.operator.rank == 1
    assert leaf.path == (0, 1)
    assert leaf.excess_ns == pytest.approx(100 * MS, rel=0.05)


def test_a_channel_that_releases_all_alike_is_slow_itself() -> None:
    [leaf] = walked(log(behind_ms=0, slow_ms=100)).leaves
    assert (leaf.communicator, leaf.members) == ("g", (0, 1))
