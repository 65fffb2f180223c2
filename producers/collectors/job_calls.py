"""What the training processes of one job on this host call, whom they reach, and where they are met."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from producers.collectors.addresses import Address, Addresses
from producers.collectors.call_log import CallLog, Member, QueuePair
from producers.parts import encode_parts
from schemas.catalogue import ADDRESSES, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message
from schemas.topic import Topic

log = logging.getLogger(__name__)


_Row = dict[str, object]
"""Of telemetry.queue_pairs."""


@dataclass(frozen=True, slots=True)
class _Connected:
    """An open queue pair, and whom it reaches as far as that was told."""

    rank: int
    pair: QueuePair
    destination_rank: int | None = None


class JobCalls:
    """One job's processes on this host; other hosts' addresses come by ``addresses``."""

    def __init__(self, job: str, host: str) -> None:
        self.job = job
        self.addresses = Addresses()
        self.dropped = 0
        """Calls that were not logged, for lack of room."""
        self._key = f"{job}/{host}"
        self._processes: list[CallLog] = []
        self._met: dict[Address, int] = {}
        self._pairs: dict[tuple[str, int], _Connected] = {}
        self._told_met: dict[Address, int] | None = None

    @property
    def ended(self) -> bool:
        """Whether all processes are no more, and told."""
        return not self._processes

    def add(self, process: CallLog) -> None:
        """Take a process that has appeared."""
        self._processes.append(process)

    def step(self, now_ns: int) -> Iterator[Message]:
        """What there is to tell by now.

        Whoever asks for the next message has made the last one safe: only then is what was told let go of.
        """
        rows: list[dict[str, object]] = []
        for process in list(self._processes):
            try:
                self.dropped += process.look()
                facts = list(process.facts())
            except (OSError, ValueError) as error:
                log.warning("rank %d of %s is passed over from now on: %s", process.rank, self.job, error)
                self._processes.remove(process)
                rows += self._close(process.rank, now_ns)
                continue
            for fact in facts:
                rows += self._learn(process.rank, fact)
        yield from self._of_addresses(now_ns)
        rows += self._reach()
        batches = [process.calls(self.addresses, now_ns) for process in self._processes]
        over = [process for process in self._processes if not process.alive]
        for process in over:
            rows += self._close(process.rank, now_ns)
        if rows:
            yield from self._encoded(QUEUE_PAIRS, QUEUE_PAIRS.from_rows(rows), now_ns)
        told_ns = min((process.told_ns for process in self._processes), default=now_ns)
        yield from self._encoded(OP_CALLS, pa.Table.from_batches(batches, OP_CALLS.schema), told_ns)
        for process in self._processes:
            process.release()
        for process in over:
            self._processes.remove(process)
            process.remove()
        if self.ended:
            yield Message(ADDRESSES.name, self._key, None, {"schema": ADDRESSES.schema_id, "job": self.job})

    def _learn(self, rank: int, fact: Member | QueuePair) -> list[_Row]:
        """Take in what a process told; the row of the queue pair that is over by it, if any."""
        if isinstance(fact, Member):
            self._met["communicator", fact.communicator, fact.place] = rank
            return []
        before = self._pairs.pop((fact.nic, fact.qpn), None)
        if before is not None:
            self._met.pop(("queue_pair", before.pair.gid, fact.qpn), None)
        if not fact.closed:
            self._pairs[fact.nic, fact.qpn] = _Connected(rank, fact)
            self._met["queue_pair", fact.gid, fact.qpn] = rank
        return [] if before is None or before.destination_rank is None else [_row(before, fact.at_ns)]

    def _reach(self) -> list[_Row]:
        """Look up whom queue pairs reach; the rows of those of which it has become known."""
        rows = []
        for place, connected in self._pairs.items():
            pair = connected.pair
            if connected.destination_rank is None:
                found = self.addresses.rank_at(pair.destination_gid, pair.destination_qpn)
                if found is not None:
                    self._pairs[place] = replace(connected, destination_rank=found)
                    rows.append(_row(self._pairs[place], None))
        return rows

    def _close(self, rank: int, now_ns: int) -> list[_Row]:
        """Let go of a process that is no more, or is not read any more; the rows of its queue pairs, which are over."""
        over = [connected for connected in self._pairs.values() if connected.rank == rank]
        self._pairs = {place: connected for place, connected in self._pairs.items() if connected.rank != rank}
        self._met = {place: met for place, met in self._met.items() if met != rank}
        told = [connected for connected in over if connected.destination_rank is not None]
        return [_row(connected, max(now_ns, connected.pair.at_ns)) for connected in told]

    def _of_addresses(self, now_ns: int) -> Iterator[Message]:
        """All of this host's addresses, where they are others than were told."""
        if self._met == self._told_met:
            return
        self._told_met = dict(self._met)
        self.addresses.tell(self._key, self._told_met)
        rows = [{"rank": rank, "kind": kind, "name": name, "number": n} for (kind, name, n), rank in self._met.items()]
        yield from self._encoded(ADDRESSES, ADDRESSES.from_rows(rows), now_ns)

    def _encoded(self, topic: Topic, rows: pa.RecordBatch | pa.Table, told_ns: int) -> Iterable[Message]:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        table = table.unify_dictionaries()
        for message in encode_parts(topic, table, job=self.job, watermark_ns=told_ns, headers={}):
            yield replace(message, key=self._key)


def _row(connected: _Connected, until_ns: int | None) -> _Row:
    pair = connected.pair
    return {
        "nic": pair.nic,
        "gid": pair.gid,
        "qpn": pair.qpn,
        "source_rank": connected.rank,
        "destination_rank": connected.destination_rank,
        "destination_gid": pair.destination_gid,
        "destination_qpn": pair.destination_qpn,
        "valid_from_ns": pair.at_ns,
        "valid_to_ns": until_ns,
    }
