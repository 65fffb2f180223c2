"""Segmentation beside the NICs (Pulse 3.2): operators and metrics are told, raw telemetry stays here until it is asked
for.

The same steps over the same telemetry as in ``streams/segment.py``, so the same rows. Everything that is taken is kept
first, on disk: an agent that starts goes on from what was saved last, and tells again what came after that.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.job import Job
from diagnosis.traffic.host import HostTraffic, StepRules
from producers.collectors.traffic_ring import Kept, TrafficRing
from producers.segments import private
from producers.whole_files import replacing
from schemas.catalogue import LOG_REQUESTS, NIC_EPOCHS, OP_CALLS, OPERATORS, QUEUE_PAIRS, TOPICS, TRAFFIC_METRICS
from schemas.errors import MessageError, StoreError
from schemas.found_in_traffic import found_in_traffic
from schemas.host_telemetry import take_in
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL, AnswerHeaders
from schemas.log_requests import EPOCHS
from schemas.message import Message, decode, encode

log = logging.getLogger(__name__)

SAVE_EVERY_NS = 10_000_000_000
FORGOTTEN_AFTER_S = 3600.0
"""How long what was told of a job is kept for whoever asks, once nothing more comes."""
_MOST_ASKED_BYTES = 16 << 20
"""What of the ring an answer is made of at most, the newest of it: it takes some seven times as much memory, and half a
second in which nothing is kept."""

_SPAN = ("poll_from_ns", "poll_to_ns")
_OF_A_POLL = ["nic", *_SPAN, "host_minus_nic_ns", "part", "parts"]
_RAW = frozenset({NIC_EPOCHS.name, OP_CALLS.name, QUEUE_PAIRS.name})
_STATE = "state.json"
_WHOSE = "job.json"


class Edge:
    """Segments what a host's collector tells; raw telemetry is kept in ``folder``, up to ``keep_bytes`` a job.

    ``described`` gives the jobs: of one that is not known yet telemetry is kept, and looked at once it is. ``step`` and
    ``process`` may be called by two threads. What earlier agents kept is still given to whoever asks. Raises
    ``StoreError`` where the folder cannot be used.
    """

    reads = (LOG_REQUESTS,)
    writes = (OPERATORS, TRAFFIC_METRICS, NIC_EPOCHS)

    def __init__(self, folder: Path, keep_bytes: int, rules: StepRules, described: Callable[[str], Job | None]) -> None:
        self._folder, self._keep_bytes, self._rules, self._described = folder, keep_bytes, rules, described
        self._jobs: dict[str, EdgeJob] = {}
        self._lock = threading.Lock()
        for kept in [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else ():
            whose = _whose(kept)
            if time.time() - max((path.stat().st_mtime for path in kept.iterdir()), default=0) > FORGOTTEN_AFTER_S:
                shutil.rmtree(kept, ignore_errors=True)
            elif whose is not None:
                self._jobs["/".join(whose)] = EdgeJob(*whose, kept, keep_bytes, rules)

    @property
    def jobs(self) -> list[EdgeJob]:
        """What is looked at."""
        return list(self._jobs.values())

    def step(self, messages: Iterable[Message]) -> Iterator[Message]:
        """What there is to tell in place of what was collected; other messages pass.

        Whoever asks for the next message has made the last one safe. Raises ``StoreError`` where the disk is full.
        """
        for message in messages:
            if message.topic not in _RAW:
                yield message
                continue
            with self._lock:
                job = self._jobs.get(message.key)
                if job is None:
                    kept = self._folder / blake2b(message.key.encode(), digest_size=16).hexdigest()
                    host = message.key.removeprefix(f"{message.job}/")
                    job = self._jobs[message.key] = EdgeJob(message.job, host, kept, self._keep_bytes, self._rules)
                told = list(job.take(message, self._described(message.job)))
            yield from told
        with self._lock:
            for key in [key for key, job in self._jobs.items() if job.is_silent]:
                self._jobs.pop(key).forget()

    def process(self, message: Message) -> list[Message]:
        """Answer a request for epochs, unless nobody waits for the answer any more. Raises ``MessageError`` for a bad
        one."""
        asked = [row for row in decode(message, LOG_REQUESTS).to_pylist() if row["what"] == EPOCHS]
        rows = [row for row in asked if row["deadline_ns"] > time.time_ns()]
        with self._lock:
            jobs = [job for job in self._jobs.values() if job.name == message.job]
            return [answer for job in jobs for row in rows for answer in job.answer(row, self._described(job.name))]


class EdgeJob:
    """One job on this host, with what is kept of it in ``folder``.

    ``dropped``: records that had to go before the operators in them were told: a restart would not find them.
    Raises ``StoreError`` where the folder cannot be used.
    """

    def __init__(self, name: str, host: str, folder: Path, keep_bytes: int, rules: StepRules) -> None:
        self.name, self.host = name, host
        try:
            self.ring = TrafficRing(folder, keep_bytes)
            with open(folder / _WHOSE, "w", encoding="utf-8", opener=private) as file:
                json.dump([name, host], file)
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be used: {error}: make it a folder that this user may write to"
            ) from error
        self.dropped = 0
        self._folder, self._rules = folder, rules
        self._traffic: HostTraffic | None = None
        self._over = False
        self._saved_ns = 0
        self._heard = time.monotonic()

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for so long that nobody asks any more."""
        return time.monotonic() - self._heard > FORGOTTEN_AFTER_S

    def take(self, message: Message, job: Job | None) -> Iterator[Message]:
        """Keep a message, and tell what can be told by now. What comes after the job's end is passed over."""
        self._heard = time.monotonic()
        if self._over:
            return
        known = job is not None and job.monitoring
        if self._traffic is None and known:
            self._traffic = self._resumed()
        elif self._traffic is not None and (self._traffic.at_ns or 0) - self._saved_ns >= SAVE_EVERY_NS:
            self._save(self._traffic)  # what was told before this message is safe by now
        batch = decode(message, TOPICS[message.topic])
        if batch.num_rows:
            self._keep(message, batch)
        if self._traffic is not None and job is not None:
            take_in(self._traffic, message, batch)
            for until_ns, found in self._traffic.steps(job):
                yield from found_in_traffic(self.name, self.host, until_ns, found)
            self._over = self._traffic.is_over(job)

    def answer(self, asked: Mapping[str, Any], job: Job | None) -> Iterator[Message]:
        """Epochs that a row of control.log_requests asks for, of this host's ranks; nothing where it asks for none."""
        here = self._nics_of(job)
        ranks = sorted(set(asked["ranks"] or ()) & set(here))
        nics = {nic for rank in ranks for nic in here[rank] if asked["nic"] in {None, nic}}
        if not nics:
            return
        polled = self.ring.polled or (0, 0)
        from_ns = polled[0] if asked["from_ns"] is None else asked["from_ns"]
        to_ns = polled[1] if asked["to_ns"] is None else asked["to_ns"]
        kept = self.ring.epochs(from_ns, to_ns)
        given = _newest(kept, _MOST_ASKED_BYTES)
        rows = [row for one in given for row in _of_nics(self.ring.read(one), nics)]
        whole = len(given) == len(kept) and _without_a_hole(rows, from_ns, to_ns)
        outcome = OVERWRITTEN if not rows else COMPLETE if whole else PARTIAL
        parts = rows or [NIC_EPOCHS.from_rows([])]
        for part, row in enumerate(parts):
            said = AnswerHeaders(asked["request_id"], self.host, tuple(ranks), outcome, part, len(parts))
            key, headers = f"{self.name}/{self.host}", said.to_headers()
            yield encode(NIC_EPOCHS, row, job=self.name, key=key, watermark_ns=polled[1], headers=headers)

    def forget(self) -> None:
        """Let go of what is kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _keep(self, message: Message, batch: pa.RecordBatch) -> None:
        try:
            lost = self.ring.append(message, batch)
        except OSError as error:
            raise StoreError(f"{message.topic} cannot be kept: {error}: make room") from error
        needed_ns = 0 if self._traffic is None else self._traffic.needed_from_ns
        dropped = sum(one.topic != QUEUE_PAIRS.name and one.to_ns >= needed_ns for one in lost)
        if dropped and not self.dropped:
            log.warning(
                "%s: what operators need that are not told yet had to go for what came later: set a higher "
                "OFFBEAT_COLLECT__KEEP_BYTES",
                self.name,
            )
        self.dropped += dropped

    def _resumed(self) -> HostTraffic:
        """As it was saved last, with what was kept since; anew where it never was saved, or by another version."""
        traffic, path = HostTraffic(self.host, self._rules), self._folder / _STATE
        try:
            traffic = HostTraffic.from_state(self._rules, json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            log.info("%s: operators are looked for in what its NICs tell", self.name)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be used, operators are looked for in all that is kept: %s", path, error)
        self._saved_ns = traffic.at_ns or 0
        for kept in self.ring.since(traffic.calls_needed_from_ns):
            try:
                take_in(traffic, kept, decode(kept, TOPICS[kept.topic]))
            except MessageError as error:
                log.warning("%s: a record that is kept is passed over: %s", self.name, error)
        return traffic

    def _save(self, traffic: HostTraffic) -> None:
        path = self._folder / _STATE
        try:
            with replacing(path, private) as file:
                file.write(json.dumps(traffic.to_state()).encode())
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error}: make room") from error
        self._saved_ns = traffic.at_ns or 0

    def _nics_of(self, job: Job | None) -> dict[int, set[str]]:
        """The NICs of this host's ranks: those that the job names, and those of their queue pairs."""
        nics: dict[int, set[str]] = {}
        if job is not None:
            nics = {rank: set(job.place[rank].nics) for rank in job.ranks_of_host.get(self.host, ())}
        for row in () if self._traffic is None else self._traffic.pairs.values():
            nics.setdefault(row["source_rank"], set()).add(row["nic"])
        return nics


def _whose(folder: Path) -> tuple[str, str] | None:
    """The job and host that a folder is of; None: it does not say."""
    try:
        job, host = json.loads((folder / _WHOSE).read_text("utf-8"))
        return str(job), str(host)
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s: what is kept there is given to nobody until its job tells again: %s", folder, error)
        return None


def _newest(kept: Sequence[Kept], most_bytes: int) -> list[Kept]:
    """The newest that are no larger in all, at least one, the oldest of them first."""
    chosen: list[Kept] = []
    for one in reversed(kept):
        most_bytes -= one.frame.size
        if chosen and most_bytes < 0:
            break
        chosen.append(one)
    return chosen[::-1]


def _without_a_hole(rows: Sequence[pa.RecordBatch], from_ns: int, to_ns: int) -> bool:
    """Whether the polls of each NIC follow each other, whole, over a span of the host's time."""
    polls: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        [poll] = row.select(_OF_A_POLL).to_pylist()
        polls.setdefault(poll["nic"], []).append(poll)
    return all(_follow(own, from_ns, to_ns) for own in polls.values())


def _follow(polls: Sequence[Mapping[str, Any]], from_ns: int, to_ns: int) -> bool:
    parts = Counter(began for began, _ in {(poll["poll_from_ns"], poll["part"]) for poll in polls})
    began, ended = ({poll[name]: poll["host_minus_nic_ns"] or 0 for poll in polls} for name in _SPAN)
    joined = set(began) - {min(began)} <= set(ended)
    whole = all(parts[poll["poll_from_ns"]] >= (poll["parts"] or 1) for poll in polls)
    first, last = min(began), max(ended)
    return joined and whole and first + began[first] <= from_ns and to_ns <= last + ended[last]


def _of_nics(message: Message, nics: set[str]) -> Iterator[pa.RecordBatch]:
    """The polls of NICs, one by one: each fits into a record."""
    batch = decode(message, NIC_EPOCHS)
    chosen = batch.filter(pc.is_in(batch["nic"].cast(pa.string()), pa.array(sorted(nics))))
    for row in range(chosen.num_rows):
        yield chosen.slice(row, 1)
