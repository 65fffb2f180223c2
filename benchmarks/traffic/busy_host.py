"""What the agents of one host tell whose NICs send over many queue pairs at once, poll by poll."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnosis.job import Communicator, Job, Place
from producers.collectors.nic_clock import Offset
from producers.collectors.poll import Poll, batches
from producers.simulation.nic.hardware import Hardware
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode
from schemas.topic import Topic

Ints = npt.NDArray[np.int64]

POLL_NS = 1_000_000_000
CHANNELS = 2
STARTED_NS = 1_800_000_000 * POLL_NS
FIRST_NS, PERIOD_NS, LAUNCH_NS = 2_000_000, 50_000_000, 300_000
"""The first operator of a poll begins, another one begins, and it is called before."""

OPERATORS = POLL_NS // PERIOD_NS
"""Of each NIC and poll."""

_JOB, _HOST = "busy", "h0"
_FIRST_QPN, _APART = 1024, 997


@dataclass(frozen=True, slots=True)
class BusyHost:
    """A host with ``nics`` NICs, each of a rank that sends to ``flows`` / 2 others at once over two queue pairs each,
    again and again; or, around a ``ring`` of as many ranks, over all queue pairs to the next one.

    While an operator lasts, which is for the share ``sending`` of the time, the line is full. Queue pairs are counted
    as by a NIC, in steps of 4 KB.
    """

    nics: int
    flows: int
    line_gbps: float
    sending: float
    ring: bool = False
    hardware: Hardware = field(default=Hardware())

    @property
    def job(self) -> Job:
        """The host's ranks, and a host for each rank that is sent to."""
        others = range(self.nics, self.nics + self.nics * self._peers)
        places = [Place(rank, _HOST, rank, (_nic(rank),)) for rank in range(self.nics)]
        places += [Place(rank, f"h{rank}", 0, (_nic(0),)) for rank in others]
        groups = [Communicator(_communicator(nic), (nic, *self._receivers(nic))) for nic in range(self.nics)]
        return Job(_JOB, tuple(places), tuple(groups), None, STARTED_NS)

    def messages(self, poll: int) -> Iterator[Message]:
        """All that is told of one poll: epochs in one or more records, calls, and with the first one queue pairs."""
        if poll == 0:
            yield _encoded(QUEUE_PAIRS, self._queue_pairs(), poll)
        for rows in batches(self._polled(nic, poll) for nic in range(self.nics)):
            yield _encoded(NIC_EPOCHS, rows, poll)
        yield _encoded(OP_CALLS, self._calls(poll), poll)

    @property
    def epochs_a_poll(self) -> int:
        """Epochs of each queue pair, with traffic or without."""
        return POLL_NS // self.hardware.epoch_ns

    @property
    def flow_bytes(self) -> int:
        """What one queue pair sends in one operator, headers included."""
        return int(self.line_gbps / 8 * self._sending_ns / self.flows)

    @property
    def _sending_ns(self) -> int:
        return int(self.sending * PERIOD_NS)

    @property
    def _peers(self) -> int:
        return self.flows // CHANNELS

    def _receivers(self, nic: int) -> range:
        first = self.nics + nic * self._peers
        return range(first, first + self._peers)

    def _polled(self, nic: int, poll: int) -> Poll:
        began = STARTED_NS + poll * POLL_NS
        flow, epoch, units = self._epochs(nic)
        return Poll(
            nic=_nic(nic),
            source="dpa",
            from_ns=began,
            to_ns=began + POLL_NS,
            epoch_ns=self.hardware.epoch_ns,
            unit_bytes=self.hardware.unit_bytes,
            aggregation_bytes=self.hardware.aggregation_bytes,
            qpn=(flow + _FIRST_QPN).astype(np.uint32),
            epoch=epoch.astype(np.uint32),
            units=units.astype(np.uint32),
            aged_qpns=np.zeros(0, dtype=np.uint32),
            offset=Offset(0, 1_000),
        )

    def _epochs(self, nic: int) -> tuple[Ints, Ints, Ints]:
        """Queue pair, epoch and units of the epochs of a poll in which any were counted, in this order."""
        step = self.hardware.aggregation_bytes
        edges = np.arange(self.epochs_a_poll + 1) * self.hardware.epoch_ns - FIRST_NS
        operator = np.floor_divide(edges, PERIOD_NS)
        sent = (operator + np.clip((edges - operator * PERIOD_NS) / self._sending_ns, 0.0, 1.0)) * self.flow_bytes
        found = []
        for flow in range(self.flows):
            counted = np.diff(np.floor((sent + (flow + nic) * _APART % step) / step).astype(np.int64))
            epoch = np.flatnonzero(counted)
            found.append((np.full(len(epoch), flow), epoch, counted[epoch] * (step // self.hardware.unit_bytes)))
        flows, epochs, units = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return flows, epochs, units

    def _calls(self, poll: int) -> pa.RecordBatch:
        """Before each operator's traffic an all-reduce, or a send to and a receive from each peer, in a group."""
        began = STARTED_NS + poll * POLL_NS + FIRST_NS - LAUNCH_NS
        each = 1 if self.ring else 2 * self._peers
        count = each * OPERATORS
        called = np.tile(np.repeat(began + np.arange(OPERATORS) * PERIOD_NS, each), self.nics)
        numbers = np.tile(poll * count + np.arange(count), self.nics)
        rank = np.repeat(np.arange(self.nics), count)
        peers = [np.tile(np.repeat(self._receivers(nic), 2), OPERATORS) for nic in range(self.nics)]
        grouped = not self.ring
        return OP_CALLS.batch(
            {
                "rank": rank.astype(np.int32),
                "call_id": numbers,
                "communicator": [_communicator(nic) for nic in rank.tolist()],
                "communicator_rank": np.zeros(len(rank), dtype=np.int32),
                "seq": numbers,
                "op": ["send", "recv"] * (len(rank) // 2) if grouped else ["all_reduce"] * len(rank),
                "dtype": ["uint8"] * len(rank),
                "count": np.full(len(rank), int(self._sent_bytes / self.hardware.overhead)),
                "peer": np.concatenate(peers).astype(np.int32) if grouped else [None] * len(rank),
                "stream": ["0x7f10"] * len(rank),
                "call_ns": called,
                "group_start_ns": called if grouped else [None] * len(rank),
                "group_end_ns": called if grouped else [None] * len(rank),
            }
        )

    @property
    def _sent_bytes(self) -> float:
        """What a call has to be of, for its rank to send what it does: an all-reduce sends all but one part twice."""
        if not self.ring:
            return self.flow_bytes * CHANNELS
        ranks = 1 + self._peers
        return self.flow_bytes * self.flows * ranks / (2 * (ranks - 1))

    def _queue_pairs(self) -> pa.RecordBatch:
        nic, flow = (grid.ravel() for grid in np.mgrid[: self.nics, : self.flows])
        peer = self.nics + nic * self._peers + (0 if self.ring else flow // CHANNELS)
        return QUEUE_PAIRS.batch(
            {
                "nic": [_nic(at) for at in nic.tolist()],
                "gid": [f"fe80::1:{at:x}" for at in nic.tolist()],
                "qpn": flow + _FIRST_QPN,
                "source_rank": nic.astype(np.int32),
                "destination_rank": peer.astype(np.int32),
                "destination_gid": [f"fe80::{rank + 1:x}" for rank in peer.tolist()],
                "destination_qpn": flow + _FIRST_QPN,
                "valid_from_ns": np.full(len(flow), STARTED_NS),
            }
        )


def _nic(rank: int) -> str:
    return f"mlx5_{rank}"


def _communicator(nic: int) -> str:
    return f"exchange{nic}"


def _encoded(topic: Topic, batch: pa.RecordBatch, poll: int) -> Message:
    watermark_ns = STARTED_NS + (poll + 1) * POLL_NS
    return encode(topic, batch, job=_JOB, key=f"{_JOB}/{_HOST}", watermark_ns=watermark_ns, headers={"host": _HOST})
