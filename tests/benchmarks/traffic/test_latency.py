"""What counts as the delay of a finding: from when the slow collective really ended, on the hosts' way to the store."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from benchmarks.traffic.detection import HANG_NS
from benchmarks.traffic.latency import Delay, Watched
from producers.simulation.nic.truth import OPERATORS, FaultTruth

S = 1_000_000_000
BEGAN_NS = 1000 * S
"""This machine's clock less the simulated one."""


def watched(*, hung: bool = False, at_s: int = 0, **row: Any) -> Watched:
    ends = [(0, "a", 3, 5 * S), (2, "a", 3, 6 * S), (2, "b", 3, 8 * S)]
    columns = {"rank": 0, "communicator": 1, "iteration": 2, "end_ns": 3}
    rows = [{name: end[at] for name, at in columns.items()} for end in ends]
    fault = FaultTruth("pcie_downgrade", "communication_slow", 0.2, at_s * S, (2,), "h1", "mlx5_0")
    truth = SimpleNamespace(faults=(fault,), hung=hung, operators=pa.Table.from_pylist(rows, schema=OPERATORS))
    run: Any = SimpleNamespace(truth=truth)
    nobody: Any = None
    found = {"active": True, "ranks": [2], "iteration": 3, "root_operator": {"communicator": "a"}, **row}
    return Watched(
        run,
        nobody,
        nobody,
        nobody,
        polled_at=[(host, (5 + at) * S, BEGAN_NS + (6 + at) * S) for at in range(3) for host in ("h0", "h1")],
        segmented_at=[("h0", 6 * S, BEGAN_NS + 8 * S), ("h1", 5 * S, BEGAN_NS), ("h1", 7 * S, BEGAN_NS + 9 * S)],
        found_at={"f": (found, BEGAN_NS + 10 * S)},
        stored_at={"f": BEGAN_NS + 11 * S},
    )


def test_a_delay_counts_from_the_last_end_among_the_ranks_to_the_last_host() -> None:
    assert list(watched().delays(BEGAN_NS)) == [Delay(polled=1.0, segmented=3.0, found=4.0, stored=5.0)]


def test_only_what_names_the_faulty_rank_counts() -> None:
    assert list(watched(ranks=[0, 1]).delays(BEGAN_NS)) == []
    assert list(watched(active=False).delays(BEGAN_NS)) == []
    assert list(watched(root_operator=None).delays(BEGAN_NS)) == []
    [with_others] = watched(ranks=[1, 2]).delays(BEGAN_NS)
    assert with_others.stored == 5.0


def test_what_hangs_counts_from_its_time_out() -> None:
    [delay] = watched(hung=True, at_s=1, root_operator=None).delays(BEGAN_NS - HANG_NS)
    assert (delay.found, delay.stored) == (9.0, 10.0)
