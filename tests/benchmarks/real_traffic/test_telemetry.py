"""A run is told as agents tell it, and boundaries found are held against what ranks logged."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.network import address
from benchmarks.real_traffic.capture import Packets, flow_key
from benchmarks.real_traffic.connections import Ends, Lane
from benchmarks.real_traffic.judged import boundaries
from benchmarks.real_traffic.plan import PORT, Plan
from benchmarks.real_traffic.rank import RankLog
from benchmarks.real_traffic.telemetry import Recorded, job_of, messages
from diagnosis.job import Job
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS, TOPICS
from schemas.message import decode

BEGAN_NS = 1_800_000_000 * 10**9
PLAN = Plan(ranks=3, channels=1, iterations=1)
SIZE = 8192
"""Of each packet: two events."""


def call(communicator: str, op: str, operator: int, number: int, at_ns: int) -> dict[str, Any]:
    return {
        "operator": operator,
        "call_id": number,
        "communicator": communicator,
        "seq": 0,
        "op": op,
        "count": 10,
        "peer": 1 if op == "send" else None,
        "call_ns": BEGAN_NS + at_ns,
        "group_start_ns": None,
        "group_end_ns": None,
    }


def ends_of(lane: Lane, rank: int) -> Ends:
    """A connection's ends as one of its ranks sees them: the source opened it, by a port of its own."""
    source = address(lane.source), 40_000 + lane.destination
    destination = address(lane.destination), PORT
    return Ends(*source, *destination) if rank == lane.source else Ends(*destination, *source)


def made() -> Recorded:
    """Three ranks that each send one packet a second to every other, and one that nobody has told of."""
    lanes = [Lane(one, other, 0) for one in range(3) for other in PLAN.peers(one)]
    logs = []
    for rank in range(3):
        log = RankLog(rank)
        log.ends = [(lane, ends_of(lane, rank)) for lane in lanes if rank in lane[:2]]
        log.calls = [call("data", "all_reduce", 0, 0, 10**8), call("experts", "send", 1, 1, 2 * 10**9)]
        log.began_ns = {0: BEGAN_NS + 10**8, 1: BEGAN_NS + 2 * 10**9}
        log.ended_ns = [(0, rank - 1 if rank else 2, BEGAN_NS + 10**9), (1, (rank + 1) % 3, BEGAN_NS + 3 * 10**9)]
        logs.append(log)
    sent = [
        (BEGAN_NS + second * 10**9 + 10**8, lane.source, flow_key(address(lane.destination), port, PORT))
        for second in range(4)
        for lane in lanes
        for port in (40_000 + lane.destination,)
    ]
    sent.append((BEGAN_NS + 10**9, 0, flow_key("10.1.1.1", 1, 1)))
    times, nics, flows = zip(*sent, strict=True)
    packets = Packets(
        np.array(times), np.array(nics), np.array(flows, dtype=np.uint64), np.full(len(sent), SIZE), dropped=0
    )
    return Recorded(PLAN, logs, packets, BEGAN_NS, BEGAN_NS + 5 * 10**9)


def told(run: Recorded) -> dict[str, list[tuple[str, pa.RecordBatch]]]:
    by_topic: dict[str, list[tuple[str, pa.RecordBatch]]] = {}
    for message in messages(run):
        by_topic.setdefault(message.topic, []).append((message.key, decode(message, TOPICS[message.topic])))
    return by_topic


def test_polls_tell_all_that_was_sent_and_cover_the_time() -> None:
    polls = [(key, row) for key, batch in told(made())[NIC_EPOCHS.name] for row in batch.to_pylist()]
    units: Counter[str] = Counter()
    for key, row in polls:
        units[key] += sum(row["units"])
    assert units == {"namespaces/host0": 9 * 256, "namespaces/host1": 8 * 256, "namespaces/host2": 8 * 256}
    own = [row for key, row in polls if key == "namespaces/host1"]
    assert [row["poll_from_ns"] for row in own[1:]] == [row["poll_to_ns"] for row in own[:-1]]
    assert own[0]["poll_from_ns"] < BEGAN_NS + PLAN.epoch_ns
    assert own[-1]["poll_to_ns"] > BEGAN_NS + 5 * 10**9 - PLAN.epoch_ns


def test_epochs_begin_at_a_time_of_their_own_on_each_nic() -> None:
    rows = [row for _, batch in told(made())[NIC_EPOCHS.name] for row in batch.to_pylist()]
    assert len({row["poll_from_ns"] % PLAN.epoch_ns for row in rows}) == PLAN.ranks


def test_both_ends_of_a_connection_are_told_once_and_name_each_other() -> None:
    pairs = [(key, row) for key, batch in told(made())[QUEUE_PAIRS.name] for row in batch.to_pylist()]
    assert len(pairs) == 3 * 2 * 2
    by_number = {(row["gid"], row["qpn"]): row for _, row in pairs}
    assert len(by_number) == len(pairs)
    for _, row in pairs:
        back = by_number[row["destination_gid"], row["destination_qpn"]]
        assert (back["source_rank"], back["destination_rank"]) == (row["destination_rank"], row["source_rank"])
        assert back["destination_qpn"] == row["qpn"]


def test_each_flow_that_was_told_of_is_counted_under_its_number() -> None:
    by_topic = told(made())
    pairs = {
        (key, row["qpn"]): row["destination_rank"]
        for key, batch in by_topic[QUEUE_PAIRS.name]
        for row in batch.to_pylist()
    }
    sent: Counter[tuple[str, int | None]] = Counter()
    for key, batch in by_topic[NIC_EPOCHS.name]:
        for row in batch.to_pylist():
            for number, units in zip(row["qpn"], row["units"], strict=True):
                sent[key, pairs.get((key, number))] += units
    assert sent["namespaces/host0", 1] == sent["namespaces/host0", 2] == 4 * 256
    assert sent["namespaces/host0", None] == 256


def test_a_lost_packet_leaves_no_poll_whole() -> None:
    run = made()
    lossy = Packets(run.packets.time_ns, run.packets.nic, run.packets.flow, run.packets.size, dropped=3)
    told_of = told(Recorded(run.plan, run.logs, lossy, run.began_ns, run.ended_ns))[NIC_EPOCHS.name]
    assert all(row["events_dropped"] for _, batch in told_of for row in batch.to_pylist())


def test_every_call_is_told_once() -> None:
    run = made()
    rows = [row for _, batch in told(run)[OP_CALLS.name] for row in batch.to_pylist()]
    assert sorted((row["rank"], row["call_id"]) for row in rows) == [(rank, n) for rank in range(3) for n in range(2)]


def test_the_job_is_over_before_telemetry_is() -> None:
    job: Job = job_of(made())
    assert job.ended_ns is not None
    assert all(message.watermark_ns <= made().ended_ns for message in messages(made()))
    assert job.ended_ns < made().ended_ns - 2 * PLAN.epoch_ns


@pytest.mark.parametrize(
    ("late_ns", "right"), [(0, True), (2 * PLAN.epoch_ns, True), (3 * PLAN.epoch_ns, False), (None, False)]
)
def test_boundaries_are_held_against_the_logs(late_ns: int | None, right: bool) -> None:
    run = made()
    rows = [
        {
            "rank": rank,
            "communicator": communicator,
            "seq": 0,
            "op": op,
            "start_ns": None if late_ns is None else run.logs[rank].began_ns[operator] + late_ns,
            "end_ns": BEGAN_NS + (1 + 2 * operator) * 10**9,
        }
        for rank in range(3)
        for communicator, op, operator in (("data", "all_reduce", 0), ("experts", "custom", 1))
    ]
    found = boundaries(run, pa.Table.from_pylist(rows), delta_ns=128_000_000)
    assert [(one.rank, one.operator, one.op) for one in found[:2]] == [(0, 0, "all_reduce"), (0, 1, "custom")]
    assert len(found) == 6
    assert all(one.right is right and one.apart for one in found)


def test_operators_without_a_silence_in_between_are_not_apart() -> None:
    found = boundaries(
        made(), pa.Table.from_pylist([{"rank": 9, "communicator": "data", "seq": 0}]), delta_ns=2 * 10**9
    )
    assert not any(one.apart or one.right for one in found)


def test_a_plan_and_a_log_are_read_as_they_were_written() -> None:
    plan, log = Plan(ranks=5, throttled=2, seed=3), made().logs[1]
    assert Plan.from_json(plan.to_json()) == plan
    again = RankLog.from_json(log.to_json())
    assert (again.ends, again.calls, again.began_ns) == (log.ends, log.calls, log.began_ns)
    assert [tuple(one) for one in again.ended_ns] == log.ended_ns


def test_a_ring_visits_each_rank_once() -> None:
    plan = Plan(ranks=6, seed=3)
    assert sorted(plan.ring) == list(range(6))
    assert all(plan.predecessor(plan.successor(rank)) == rank for rank in range(6))


def test_only_a_rank_that_there_is_can_be_throttled() -> None:
    with pytest.raises(ValueError, match="rank 4 of 4"):
        Plan(ranks=4, throttled=4)
