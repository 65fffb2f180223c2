"""Operators are told while telemetry comes in, by what is known of them once they are over."""

from __future__ import annotations

import pytest

from diagnosis.traffic.volume import ring_bytes
from diagnosis.traffic.windows import NicWindow, Surroundings, WindowRules
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import MB, MS, SECOND, Sent, poll, queue_pairs

MEMBERS = {"data": (0, 1, 2, 3)}
AROUND = Surroundings(MEMBERS, lambda one, other: one == other)


@pytest.mark.parametrize("step_ns", [500 * MS, 800 * MS, 4 * SECOND])
def test_an_algorithm_is_not_told_by_an_operator_that_still_runs(step_ns: int) -> None:
    """Halfway around a ring a rank has sent what it would have sent in all along a tree."""
    payload = 1000 * MB
    caller = Caller(0, MEMBERS)
    caller.call("data", "all_reduce", payload, 10 * MS)
    ring = Sent(7, 11 * MS, ring_bytes("all_reduce", payload, 4), rate_bytes_per_s=1e9)
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll([ring], at * SECOND, (at + 1) * SECOND) for at in range(4)])
    told = [
        told
        for until_ns in range(step_ns, 4 * SECOND + 1, step_ns)
        if (told := window.tell(until_ns, calls(caller), queue_pairs((7, 0, 1)), AROUND)) is not None
    ]
    [row] = [row for one in told for row in one.metrics.to_pylist()]
    assert (row["algorithm"], row["state"]) == ("ring", "complete")
    assert row["sent_bytes"] == ring.size
