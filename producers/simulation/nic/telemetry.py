"""What agents tell of a run: NIC epochs, calls, and the map of queue pairs, a record of each a host and poll."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from producers.collectors.nic_clock import Offset
from producers.collectors.poll import Poll, batches
from producers.simulation.nic.calls import calls_of
from producers.simulation.nic.clocks import Clocks
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.execution import Execution
from producers.simulation.nic.losses import Losses
from producers.simulation.nic.names import Names, QueuePairs
from producers.simulation.nic.programs import Programs
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.traffic import Traffic
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode
from schemas.topic import Topic


class Telemetry:
    """The records of a run, host by host and poll by poll, in the order of their time."""

    def __init__(
        self, scenario: NicScenario, programs: Programs, execution: Execution, traffic: Traffic, names: Names,
        pairs: QueuePairs, clocks: Clocks,
    ) -> None:  # fmt: skip
        self._scenario, self._names, self._pairs, self._clocks = scenario, names, pairs, clocks
        self._traffic, self._end_s = traffic, execution.end_s
        self._losses = Losses(scenario)
        about = scenario, programs, execution, names, clocks, self._losses
        self._calls = [calls_of(*about, host) for host in range(scenario.hosts)]
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
        if not self._losses.poll(host, poll):
            for batch in batches(self._polled(poll, nic, end_s) for nic in self._nics(host)):
                yield self._record(NIC_EPOCHS, batch, host, told_ns)
        yield self._record(OP_CALLS, self._calls_between(poll, host, end_s), host, told_ns)

    def _record(self, topic: Topic, batch: pa.RecordBatch, host: int, told_ns: int) -> Message:
        job = self._names.job_id
        key = f"{job}/{self._names.hosts[host]}"
        return encode(topic, batch, job=job, key=key, watermark_ns=told_ns, headers={"host": self._names.hosts[host]})

    def _nics(self, host: int) -> range:
        return range(host * self._scenario.tp, (host + 1) * self._scenario.tp)

    def _polled(self, poll: int, nic: int, end_s: float) -> Poll:
        """A NIC's poll: whole epochs up to its end."""
        hardware = self._scenario.hardware
        begin_s = end_s - self._scenario.poll_s if poll else 0.0
        first, last = (self._traffic.epoch_at(nic, max(time_s, 0.0)) for time_s in (begin_s, end_s))
        qpn, epoch, events = self._traffic.between(nic, first, last)
        lost = self._losses.counts(nic, poll, epoch - first)
        aged = np.setdiff1d(self._traffic.flows_between(nic, first - (last - first), first), qpn)
        host = self._scenario.host_of(nic)
        return Poll(
            nic=self._names.nic(nic),
            source="dpa",
            from_ns=self._clocks.nic_ns(nic, self._traffic.begins_ns(nic, first)),
            to_ns=self._clocks.nic_ns(nic, self._traffic.begins_ns(nic, last)),
            epoch_ns=hardware.epoch_ns,
            unit_bytes=hardware.unit_bytes,
            aggregation_bytes=hardware.aggregation_bytes,
            qpn=qpn[~lost].astype(np.uint32),
            epoch=(epoch - first)[~lost].astype(np.uint32),
            units=(events * (hardware.aggregation_bytes // hardware.unit_bytes))[~lost].astype(np.uint32),
            events_dropped=int(events[lost].sum()),
            aged_qpns=aged.astype(np.uint32),
            offset=Offset(*self._clocks.host_minus_nic(host, nic, poll, round(end_s * 1e9))),
        )

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
        some = some[~self._losses.pairs(host, len(some))]
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
