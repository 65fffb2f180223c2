"""What agents tell of a run, a record of each kind a host and poll: counts of packets, calls, the map of queue pairs.

A flow stands for a queue pair: credits and data of a connection are one each, as of the two ends of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from benchmarks.network import LINE, address
from benchmarks.real_traffic.capture import Keys, Packets, flow_key
from benchmarks.real_traffic.counting import AGGREGATION_BYTES, UNIT_BYTES, count
from benchmarks.real_traffic.plan import Plan
from benchmarks.real_traffic.rank import RankLog
from diagnosis.job import Communicator, Job, Place
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode

JOB = "namespaces"
POLL_EPOCHS = 32
"""A second of 32 ms."""

_FIRST_QPN = 1000
_LAST_NS = 200_000_000
"""A job is over a little before it is known of all hosts that it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A run: what each rank logged, by rank, and the packets between ``began_ns`` and ``ended_ns``."""

    plan: Plan
    logs: Sequence[RankLog]
    packets: Packets
    began_ns: int
    ended_ns: int


def job_of(run: Recorded) -> Job:
    """Ranks, each on a host of its own, and their communicators."""
    ranks = tuple(range(run.plan.ranks))
    places = tuple(Place(rank, _host(rank), 0, (LINE,)) for rank in ranks)
    groups = Communicator("data", ranks), Communicator("experts", ranks)
    return Job(JOB, places, groups, started_ns=run.began_ns, ended_ns=run.ended_ns - _LAST_NS)


def messages(run: Recorded) -> Iterator[Message]:
    """All records, in the order of their time."""
    numbers = [_flows(run, rank) for rank in range(run.plan.ranks)]
    told = [
        (told_ns, rank, polled)
        for rank in range(run.plan.ranks)
        for told_ns, polled in _polls(run, rank, numbers[rank])
    ]
    mapped = set()
    for told_ns, rank, polled in sorted(told, key=lambda one: one[:2]):
        calls = run.logs[rank].calls
        since_ns = told_ns - POLL_EPOCHS * run.plan.epoch_ns
        new = [_call(call, rank) for call in calls if since_ns <= call["call_ns"] < told_ns]
        pairs = _pairs(run, rank, numbers) if rank not in mapped else []
        mapped.add(rank)
        for topic, rows in ((QUEUE_PAIRS, pairs), (OP_CALLS, new), (NIC_EPOCHS, [polled])):
            key, headers = f"{JOB}/{_host(rank)}", {"host": _host(rank)}
            yield encode(topic, topic.from_rows(rows), job=JOB, key=key, watermark_ns=told_ns, headers=headers)


def _polls(run: Recorded, rank: int, numbers: Keys) -> Iterator[tuple[int, dict[str, Any]]]:
    """When each poll of a NIC ended, and its row. Epochs of each NIC begin at a time of their own."""
    epoch_ns = run.plan.epoch_ns
    begins_ns = run.began_ns + Random(f"{run.plan.seed} {rank}").randrange(epoch_ns)
    counted = count(run.packets, rank, begins_ns, epoch_ns)
    epochs = (run.ended_ns - begins_ns) // epoch_ns
    for first in range(0, epochs, POLL_EPOCHS):
        last = min(first + POLL_EPOCHS, epochs)
        own = counted.between(first, last)
        yield (
            begins_ns + last * epoch_ns,
            {
                "nic": LINE,
                "poll_from_ns": begins_ns + first * epoch_ns,
                "poll_to_ns": begins_ns + last * epoch_ns,
                "epoch_ns": epoch_ns,
                "unit_bytes": UNIT_BYTES,
                "aggregation_bytes": AGGREGATION_BYTES,
                "source": "dpa",
                "host_minus_nic_ns": 0,  # the kernel stamps packets by the clock that calls are told by
                "clock_error_ns": 0,
                "events_dropped": run.packets.dropped,  # nothing tells when: no poll is whole then
                "aged_qpns": [],
                "part": 0,
                "parts": 1,
                "qpn": _FIRST_QPN + np.searchsorted(numbers, own.flow),
                "epoch": own.epoch - first,
                "units": own.units,
            },
        )


def _flows(run: Recorded, rank: int) -> Keys:
    """The flows of a NIC, ascending: those that were told and those that were seen. They are numbered so."""
    told = [flow_key(ends.peer_host, ends.port, ends.peer_port) for _, ends in run.logs[rank].ends]
    seen = run.packets.flow[run.packets.nic == rank]
    return np.union1d(np.array(told, dtype=np.uint64), seen)


def _pairs(run: Recorded, rank: int, numbers: Sequence[Keys]) -> list[dict[str, Any]]:
    rows = []
    for lane, ends in run.logs[rank].ends:
        peer = lane.destination if lane.source == rank else lane.source
        own = flow_key(ends.peer_host, ends.port, ends.peer_port)
        back = flow_key(ends.host, ends.peer_port, ends.port)
        rows.append(
            {
                "nic": LINE,
                "gid": address(rank),
                "qpn": _FIRST_QPN + int(np.searchsorted(numbers[rank], np.uint64(own))),
                "source_rank": rank,
                "destination_rank": peer,
                "destination_gid": address(peer),
                "destination_qpn": _FIRST_QPN + int(np.searchsorted(numbers[peer], np.uint64(back))),
                "valid_from_ns": run.began_ns,
                "valid_to_ns": None,
            }
        )
    return rows


def _call(call: dict[str, Any], rank: int) -> dict[str, Any]:
    told = {name: value for name, value in call.items() if name != "operator"}
    return {**told, "rank": rank, "communicator_rank": rank, "dtype": "float32"}


def _host(rank: int) -> str:
    return f"host{rank}"
