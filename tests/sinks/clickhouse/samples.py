"""A small story for the store: one job with a slow GPU and a slow NIC, and what its recording tells of them."""

from typing import Any

import pyarrow as pa

from schemas.catalogue import COMM_OPS, FINDINGS, INCIDENTS, ITERATIONS, TRAFFIC_METRICS
from schemas.message import Message, encode
from schemas.topic import Topic
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.store import Store

JOB = "llm-7b"
START_NS = 1_768_000_000_000_000_000
ITERATION_NS = 2_000_000_000
GPU = {"device": "gpu:host1/3", "kind": "gpu", "downside_nics": None}
NIC = {"device": "nic:host2/eth1", "kind": "nic", "downside_nics": 1}
NIC_TOO = {"device": "nic:host2/eth2", "kind": "nic", "downside_nics": 1}
STAGE = {"phase": "forward", "pipeline_stage": 1, "microbatch": None, "op": "all_reduce"}


def message(topic: Topic, rows: list[dict[str, Any]], offset: int = 0, *, job: str = JOB) -> Message:
    """A record as a sink gets it."""
    return at(encode(topic, topic.from_rows(rows), job=job), offset)


def at(message: Message, offset: int, *, partition: int = 0) -> Message:
    """The message as a partition holds it."""
    return Message(message.topic, message.key, message.value, message.headers, partition, offset, message.timestamp_ns)


def finding(number: int, **changes: Any) -> dict[str, Any]:
    """A row of analysis.findings: a GPU found slow, unless changed."""
    iteration = 10 + number
    row = {
        "id": f"f{number:03}",
        "method": "operator_graph",
        "active": True,
        "iteration": iteration,
        "pivot": 0,
        "pattern": "persistent_degradation",
        "period": None,
        "first_iteration": 10,
        "last_iteration": iteration,
        "step_from": 15 if iteration >= 15 else None,
        "cause": "compute_slow",
        "level": "device",
        "ranks": [11],
        "candidates": [],
        "devices": [GPU],
        "root_operator": {"rank": 11, "communicator": "tp5", "position": 4, "op": "all_reduce"},
        "stage": STAGE,
        "excess_ns": 400_000_000,
        "run_excess_ns": 400_000_000 * (number + 1),
        "step_excess_ns": 400_000_000 * (iteration - 14) if iteration >= 15 else None,
        "iteration_ns": ITERATION_NS + 400_000_000,
        "expected_ns": ITERATION_NS,
        "scatter_ns": 30_000_000,
        "evidence": {
            "delta": 1.1,
            "irregularity_rate": 0.9,
            "share": 0.97,
            "operator_ns": [1, 2, 3],
            "iteration_ns": [4, 5, 6],
            "path": [0, 8, 11],
            "clock_error_ns": 20_000,
            "fetched_bytes": 123_456,
        },
        "rule": None,
        "measures": [],
        "waits": [{"waiting_rank": 8, "awaited_rank": 11, "communicator": "tp5", "op": "all_reduce"}],
        "coverage": 1.0,
        "bounded": False,
        "last_record_ns": START_NS + iteration * ITERATION_NS,
        "found_ns": START_NS + iteration * ITERATION_NS + 123_456_789,
        "last": None,
    }
    return row | changes


def incident(**changes: Any) -> dict[str, Any]:
    """A row of analysis.incidents: the slow GPU's, unless changed."""
    row = {
        "id": "i-gpu",
        "revision": 1,
        "state": "open",
        "cause": "compute_slow",
        "level": "device",
        "ranks": [11],
        "candidates": [],
        "devices": [GPU],
        "first_iteration": 10,
        "last_iteration": 19,
        "pattern": "persistent_degradation",
        "period": None,
        "confidence": 0.97,
        "lost_ns": 4_000_000_000,
        "lost_gpu_seconds": 64.0,
        "stage": STAGE,
        "network": None,
        "methods": ["operator_graph"],
        "explanation": "GPU 3 of host1 computes slower than its peers.",
        "opened_ns": START_NS + 12 * ITERATION_NS,
        "updated_ns": START_NS + 19 * ITERATION_NS,
        "resolved_ns": None,
        "findings": [f"f{number:03}" for number in range(10)],
    }
    return row | changes


def findings() -> list[dict[str, Any]]:
    """The slow GPU ten times, the NICs that nothing tells apart three times, a search that named nobody, a clearing."""
    nics: dict[str, Any] = {
        "cause": "communication_slow",
        "level": "machine",
        "ranks": [17, 18],
        "candidates": [[17], [18]],
        "devices": [NIC, NIC_TOO],
        "pattern": "abnormal_spike",
        "period": None,
    }
    nobody: dict[str, Any] = {
        **dict.fromkeys(("cause", "level", "root_operator", "stage", "excess_ns", "evidence")),
        **{name: [] for name in ("ranks", "devices", "waits")},
        "coverage": 0.4,
    }
    over: dict[str, Any] = {"active": False, "ranks": [], "devices": [], "iteration": None, "evidence": None}
    return [
        *(finding(number) for number in range(10)),
        *(finding(number, **nics) for number in range(10, 13)),
        finding(13, **nobody),
        finding(14, **over),
    ]


def incidents() -> list[dict[str, Any]]:
    """The GPU's in two revisions, the second resolved; the NICs', open; one without known loss."""
    resolved = START_NS + 30 * ITERATION_NS
    nics: dict[str, Any] = {
        "id": "i-nic",
        "cause": "communication_slow",
        "level": "machine",
        "ranks": [17, 18],
        "candidates": [[17], [18]],
        "devices": [NIC, NIC_TOO],
        "first_iteration": 20,
        "last_iteration": 22,
        "pattern": "abnormal_spike",
        "period": None,
        "lost_ns": 1_500_000_000,
        "lost_gpu_seconds": 24.0,
        "explanation": "The NICs of host2 are slow; the data cannot tell which.",
        "findings": ["f010", "f011", "f012"],
    }
    return [
        incident(),
        incident(revision=2, state="resolved", updated_ns=resolved, resolved_ns=resolved, lost_ns=8_000_000_000),
        incident(**nics),
        incident(id="i-new", lost_ns=None, lost_gpu_seconds=None, devices=[], opened_ns=START_NS),
    ]


def iterations() -> list[dict[str, Any]]:
    """Forty iterations as two pivots saw them: slow from 10 to 19, unknown at 30."""
    rows = []
    for iteration in range(40):
        slow, known = 10 <= iteration < 20, iteration != 30
        duration = ITERATION_NS + (400_000_000 if slow else 0)
        rows += [
            {
                "iteration": iteration,
                "pivot": pivot,
                "start_ns": START_NS + iteration * ITERATION_NS,
                "duration_ns": duration + pivot if known else None,
                "expected_ns": ITERATION_NS if iteration >= 5 else None,
                "delta": 1.1,
                "irregular": slow if known and iteration >= 5 else None,
                "pattern": "persistent_degradation" if slow else None,
                "pattern_from": 10 if slow else None,
                "pattern_ordinal": iteration - 9 if slow else None,
                "step_ordinal": iteration - 14 if 15 <= iteration < 20 else None,
                "step_from": 15 if 15 <= iteration < 20 else None,
                "pattern_state": "open" if slow else None,
                "period": 6.94 if slow else None,
                "excess_ns": 400_000_000 * (iteration - 9) if slow else None,
                "step_excess_ns": 400_000_000 * (iteration - 14) if 15 <= iteration < 20 else None,
                "scatter_ns": 30_000_000 if slow else None,
                "baseline": list(range(5, 10)) if slow else None,
                "last": iteration == 39 or None,
                "job_from": 0,
            }
            for pivot in (0, 5)
        ]
    return rows


def comm_ops(*, call_ns: int = START_NS, rows: int = 64) -> list[dict[str, Any]]:
    """Operators of eight ranks, one collective after the other; rank 3 is late, the last ends were not seen."""
    return [
        {
            "rank": rank,
            "communicator": "dp0",
            "seq": seq,
            "position": seq,
            "call_order": seq,
            "op": "all_reduce",
            "bytes": 1 << 20,
            "iteration": 10,
            "phase": "gradient",
            "call_ns": (call := call_ns + seq * 10_000_000 + (4_000_000 if rank == 3 else rank * 1000)),
            "start_ns": call + 1000,
            "end_ns": None if seq == rows // 8 - 1 else call_ns + seq * 10_000_000 + 6_000_000,
        }
        for seq in range(rows // 8)
        for rank in range(8)
    ]


def ran(rank: int, parallelism: str, start: int, end: int, seq: int = 0, peers: tuple[int, ...] = ()) -> dict[str, Any]:
    """An operator of one rank, as analysis.traffic_metrics tells it; from and to milliseconds after the start."""
    start_ns, end_ns = (START_NS + ms * 1_000_000 for ms in (start, end))
    return {
        "communicator": parallelism, "seq": seq, "rank": rank, "op": "custom" if peers else "all_reduce",
        "parallelism": parallelism, "call_ns": start_ns, "start_ns": start_ns, "end_ns": end_ns,
        "state": "complete", "visibility": "network", "peers": list(peers), "peer_sent_bytes": [1] * len(peers),
        "peer_actual_time_ns": [1] * len(peers), "epoch_ns": 32_000, "coverage": 1.0,
    }  # fmt: skip


def traffic_metrics() -> list[dict[str, Any]]:
    """Gradients and microbatches of one rank over three iterations."""
    gradients = [ran(3, "dp", at, at + 80, seq) for seq, at in enumerate((900, 1_900, 2_900))]
    return gradients + [ran(3, "pp", at, at + 5, at, (7,)) for at in range(0, 3_000, 100)]


def story() -> list[Message]:
    """All of it, a record a topic and row set."""
    told = (
        (ITERATIONS, iterations()),
        (COMM_OPS, comm_ops()),
        (TRAFFIC_METRICS, traffic_metrics()),
        (FINDINGS, findings()),
        (INCIDENTS, incidents()),
    )
    return [message(topic, rows) for topic, rows in told]


def stored_in(store: Store) -> None:
    """Have a sink store all of it."""
    sink = ClickHouseSink(store)
    for one in story():
        sink.process(one)
    sink.flush()


def as_batch(topic: Topic, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as a batch of the topic."""
    return topic.from_rows(rows)
