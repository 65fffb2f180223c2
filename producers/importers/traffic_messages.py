"""Recorded NIC traffic as the agents of its hosts would tell it: a second after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from producers.importers.traffic import Traffic
from producers.parts import encode_parts
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode
from schemas.topic import Topic

_SECOND_NS = 1_000_000_000


def messages(job: Job, traffic: Traffic) -> Iterator[Message]:
    """Records of telemetry.queue_pairs, nic_epochs and op_calls of a job, host by host within each second of their
    time; every row has a host. A poll is told in the second in which it ended.
    """
    epochs = traffic.nic_epochs
    offset = pc.fill_null(epochs.column("host_minus_nic_ns"), 0)
    tables = (
        (QUEUE_PAIRS, traffic.queue_pairs, traffic.queue_pairs.column("valid_from_ns")),
        (NIC_EPOCHS, epochs, pc.add(epochs.column("poll_to_ns"), offset)),
        (OP_CALLS, traffic.op_calls, traffic.op_calls.column("call_ns")),
    )
    hosts = sorted({host for _, table, _ in tables for host in pc.unique(table.column("host")).to_pylist()})
    own = {host: [_OfHost.of(host, *one) for one in tables] for host in hosts}
    for second in sorted(
        {second for told in own.values() for one in told for second in np.unique(one.seconds).tolist()}
    ):
        for host, told in own.items():
            for one in told:
                yield from _told(job, host, one.topic, one.within(second), second)


@dataclass(frozen=True, slots=True, eq=False)
class _OfHost:
    """A host's rows of a topic, and the second of each, ascending."""

    topic: Topic
    rows: pa.Table
    seconds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, host: str, topic: Topic, table: pa.Table, at_ns: pa.ChunkedArray) -> _OfHost:
        here = np.flatnonzero(np.asarray(pc.equal(table.column("host").cast(pa.string()), host)))
        seconds = np.asarray(at_ns)[here] // _SECOND_NS
        order = np.argsort(seconds, kind="stable")
        return cls(topic, table.take(pa.array(here[order])), seconds[order])

    def within(self, second: int) -> pa.Table:
        """The rows of a second."""
        first, last = np.searchsorted(self.seconds, [second, second + 1])
        return self.rows.slice(first, last - first)


def _told(job: Job, host: str, topic: Topic, rows: pa.Table, second: int) -> Iterator[Message]:
    """What a host tells on a topic at a second's end: of calls that there were none as well, a poll a record."""
    told_ns, key, headers = (second + 1) * _SECOND_NS, f"{job.job}/{host}", {"host": host}
    if topic is NIC_EPOCHS:
        for row in range(rows.num_rows):
            polled = rows.slice(row, 1)
            batch = topic.batch({name: polled.column(name) for name in topic.schema.names})
            yield encode(topic, batch, job=job.job, key=key, watermark_ns=told_ns, headers=headers)
    elif rows.num_rows or topic is OP_CALLS:
        yield from encode_parts(topic, rows, job=job.job, key=key, watermark_ns=told_ns, headers=headers)
