"""Everything that is collected on one host: calls of its training processes, and what its NICs sent (Pulse 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue

from producers.collectors import epoch_dump, poll
from producers.collectors.addresses import Address
from producers.collectors.call_log import CallLog
from producers.collectors.job_calls import JobCalls
from producers.collectors.nic_clock import NicClock
from producers.collectors.poll import Poll
from producers.collectors.port_counters import PortCounters
from producers.live.registration import folders, sweep
from schemas.catalogue import ADDRESSES, NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.errors import InputError
from schemas.message import Message, decode

log = logging.getLogger(__name__)

REFUSED = "refused"
"""What the last dump that could not be read is kept as, for people to look at."""


class HostCollector:
    """Collects on the host ``name``.

    ``calls`` is where preloaded processes log, ``dumps`` where NIC agents put a file for each poll, under its name
    only once it is whole, ``ports`` counts for NICs without an agent; what is None is not collected. What NICs sent is
    told under each job that has processes here, or where there is none, under ``job``.
    """

    reads = (ADDRESSES,)
    writes = (ADDRESSES, OP_CALLS, QUEUE_PAIRS, NIC_EPOCHS)

    def __init__(
        self,
        name: str,
        *,
        calls: Path | None = None,
        dumps: Path | None = None,
        ports: PortCounters | None = None,
        job: str | None = None,
    ) -> None:
        self.dropped_calls: dict[str, int] = {}
        """Calls that were not logged, by job."""
        self.lost_events: dict[str, int] = {}
        """Counts that NICs lost before they were dumped, by NIC."""
        self.refused_dumps = 0
        self._name = name
        self._calls, self._dumps, self._ports, self._job = calls, dumps, ports, job
        self._seen: set[Path] = set()
        self._jobs: dict[str, JobCalls] = {}
        self._clocks: dict[str, NicClock] = {}
        self._heard: dict[tuple[str, str], Message] = {}
        self._news: SimpleQueue[tuple[Message, dict[Address, int]]] = SimpleQueue()

    def step(self, now_ns: int) -> Iterator[Message]:
        """What there is to tell by now.

        Whoever asks for the next message has made the last one safe: only then is what was told let go of.
        """
        self._hear()
        if self._calls is not None:
            self._discover(self._calls)
        for name, job in list(self._jobs.items()):
            before = job.dropped
            yield from job.step(now_ns)
            self.dropped_calls = {**self.dropped_calls, name: self.dropped_calls.get(name, 0) + job.dropped - before}
            if job.ended:
                del self._jobs[name]
        yield from self._of_nics(() if self._ports is None else self._ports.polls())
        for path in [] if self._dumps is None else sorted(self._dumps.glob(f"[!.]*{epoch_dump.SUFFIX}")):
            if path.is_file() and not path.is_symlink():
                yield from self._of_dump(path)

    def process(self, message: Message) -> None:
        """Take the addresses of a host; another thread than that of ``step`` may.

        Raises ``MessageError`` for a bad record.
        """
        if message.topic == ADDRESSES.name and message.key != f"{message.job}/{self._name}":
            self._news.put((message, _ranks(message)))

    def _hear(self) -> None:
        """Note what other hosts have told meanwhile."""
        while not self._news.empty():
            message, ranks = self._news.get()
            if message.value is None:
                self._heard.pop((message.job, message.key), None)
            else:
                self._heard[message.job, message.key] = message
            if message.job in self._jobs:
                self._jobs[message.job].addresses.tell(message.key, ranks)

    def _discover(self, calls: Path) -> None:
        sweep(calls)
        found = set(folders(calls))
        self._seen &= found
        for folder in sorted(found - self._seen):
            self._seen.add(folder)
            try:
                process = CallLog(folder)
            except (OSError, ValueError, InputError) as error:
                log.warning("passed over: %s", error)
                continue
            name = process.registration.job
            if name not in self._jobs:
                self._jobs[name] = JobCalls(name, self._name)
                for message in self._heard.values():
                    if message.job == name:
                        self._jobs[name].addresses.tell(message.key, _ranks(message))
            self._jobs[name].add(process)

    def _of_dump(self, path: Path) -> Iterator[Message]:
        polls: list[Poll] = []
        try:
            for dump in epoch_dump.read(path):
                clock = self._clocks.setdefault(dump.poll.nic, NicClock())
                clock.take(dump.readings)
                polls.append(dump.poll.aligned(clock))
                lost = self.lost_events.get(dump.poll.nic, 0) + dump.poll.events_dropped
                self.lost_events = {**self.lost_events, dump.poll.nic: lost}
        except InputError as error:
            log.warning("%s; what comes before is told, and the file kept as %s", error, path.with_name(REFUSED))
            path.replace(path.with_name(REFUSED))
            self.refused_dumps += 1
        yield from self._of_nics(polls)
        path.unlink(missing_ok=True)

    def _of_nics(self, polls: Iterable[Poll]) -> Iterator[Message]:
        told = list(polls)
        for job in list(self._jobs) or ([] if self._job is None else [self._job]):
            yield from poll.messages(told, job, self._name)


def _ranks(message: Message) -> dict[Address, int]:
    rows = [] if message.value is None else decode(message, ADDRESSES).to_pylist()
    return {(row["kind"], row["name"], row["number"]): row["rank"] for row in rows}
