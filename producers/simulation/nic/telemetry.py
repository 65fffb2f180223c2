"""What agents tell of a run: NIC epochs, calls, and the map of queue pairs, a record of each a host and poll."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from producers.simulation.nic.calls import calls_of
from producers.simulation.nic.clocks import Clocks
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.execution import Execution
from producers.simulation.nic.names import Names, QueuePairs
from producers.simulation.nic.programs import Programs
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.traffic import Traffic
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode

MOST_VALUES = 500_000
"""Of a record: what is more goes into parts."""


class Telemetry:
    """The records of a run, host by host and poll by poll, in the order of their time."""

    def __init__(
        self, scenario: NicScenario, programs: Programs, execution: Execution, traffic: Traffic, names: Names,
        pairs: QueuePairs, clocks: Clocks,
    ) -> None:  # fmt: skip
        self._scenario, self._names, self._pairs, self._clocks = scenario, names, pairs, clocks
        self._traffic, self._end_s = traffic, execution.end_s
        self._calls = [calls_of(scenario, programs, execution, names, clocks, host) for host in range(scenario.hosts)]
        self._polled_at = [float(stream(scenario.seed, Purpose.POLLS, h).random()) for h in range(scenario.hosts)]

    def messages(self) -> Iterator[Message]:
        """All records."""
        polls = int(self._end_s / self._scenario.poll_s) + 2
        order = sorted(
            (poll + self._polled_at[h], poll, h) for poll in range(polls) for h in range(self._scenario.hosts)
        )
        for _, poll, host in order:
            yield from self._poll(poll, host)

    def _poll(self, poll: int, host: int) -> Iterator[Message]:
        end_s = (poll + self._polled_at[host]) * self._scenario.poll_s
        told_ns = int(self._clocks.host_ns(host, end_s))
        yield self._record(QUEUE_PAIRS, self._map(host) if poll == 0 else QUEUE_PAIRS.from_rows([]), host, told_ns)
        chance = stream(self._scenario.seed, Purpose.POLLS, host + 1, poll)
        if chance.random() >= self._scenario.noise.lost_polls:
            for batch in self._epochs(poll, host, end_s):
                yield self._record(NIC_EPOCHS, batch, host, told_ns)
        yield self._record(OP_CALLS, self._calls_between(poll, host, end_s), host, told_ns)

    def _record(self, topic: Any, batch: pa.RecordBatch, host: int, told_ns: int) -> Message:
        job = self._names.job_id
        key = f"{job}/{self._names.hosts[host]}"
        return encode(topic, batch, job=job, key=key, watermark_ns=told_ns, headers={"host": self._names.hosts[host]})

    def _nics(self, host: int) -> range:
        return range(host * self._scenario.tp, (host + 1) * self._scenario.tp)

    def _epochs(self, poll: int, host: int, end_s: float) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        values = 0
        for nic in self._nics(host):
            for row in self._nic_rows(poll, host, nic, end_s):
                if rows and values + len(row["epoch"]) > MOST_VALUES:
                    yield NIC_EPOCHS.from_rows(rows)
                    rows, values = [], 0
                rows.append(row)
                values += len(row["epoch"])
        yield NIC_EPOCHS.from_rows(rows)

    def _nic_rows(self, poll: int, host: int, nic: int, end_s: float) -> Iterator[dict[str, Any]]:
        """A NIC's poll: whole epochs up to its end, parts by queue pairs."""
        hardware = self._scenario.hardware
        polls_s = self._scenario.poll_s
        first, last = (self._traffic.epoch_at(nic, max(t, 0.0)) for t in (end_s - polls_s if poll else 0.0, end_s))
        qpn, epoch, events = self._traffic.between(nic, first, last)
        aged = np.setdiff1d(self._traffic.flows_between(nic, first - (last - first), first), qpn)
        begin_ns = self._traffic.begins_ns(nic, first)
        distance, error = self._clocks.host_minus_nic(host, nic, poll, round(end_s * 1e9))
        # a part begins with the queue pair that the value belongs to which would be one too many
        starts = np.unique(np.searchsorted(qpn, qpn[::MOST_VALUES])).tolist() or [0]
        for part, (one, other) in enumerate(zip(starts, [*starts[1:], len(qpn)], strict=True)):
            yield {
                "nic": self._names.nic(nic),
                "poll_from_ns": self._clocks.nic_ns(nic, begin_ns),
                "poll_to_ns": self._clocks.nic_ns(nic, self._traffic.begins_ns(nic, last)),
                "epoch_ns": hardware.epoch_ns,
                "unit_bytes": hardware.unit_bytes,
                "aggregation_bytes": hardware.aggregation_bytes,
                "source": "dpa",
                "host_minus_nic_ns": distance,
                "clock_error_ns": error,
                "events_dropped": 0,
                "aged_qpns": aged.tolist() if part == 0 else [],
                "part": part,
                "parts": len(starts),
                "qpn": qpn[one:other],
                "epoch": epoch[one:other] - first,
                "units": events[one:other] * (hardware.aggregation_bytes // hardware.unit_bytes),
            }

    def _calls_between(self, poll: int, host: int, end_s: float) -> pa.RecordBatch:
        table = self._calls[host]
        last = np.searchsorted(np.asarray(table["call_ns"]), self._clocks.host_ns(host, end_s))
        before = self._clocks.host_ns(host, end_s - self._scenario.poll_s)
        first = np.searchsorted(np.asarray(table["call_ns"]), before) if poll else 0
        return table.slice(int(first), int(last - first))

    def _map(self, host: int) -> pa.RecordBatch:
        """Both ends of all connections that a host's NICs have."""
        pairs, names = self._pairs, self._names
        own = np.concatenate([pairs.source, pairs.destination])
        other = np.concatenate([pairs.destination, pairs.source])
        numbers = np.concatenate([pairs.data, pairs.control])
        others = np.concatenate([pairs.control, pairs.data])
        some = np.flatnonzero(own // self._scenario.tp == host)
        return QUEUE_PAIRS.batch(
            {
                "nic": [names.nic(nic) for nic in own[some].tolist()],
                "gid": [names.gid(nic) for nic in own[some].tolist()],
                "qpn": numbers[some],
                "source_rank": names.rank[own[some]],
                "destination_rank": names.rank[other[some]],
                "destination_gid": [names.gid(nic) for nic in other[some].tolist()],
                "destination_qpn": others[some],
                "valid_from_ns": np.full(len(some), int(self._clocks.host_ns(host, 0.0))),
            }
        )
