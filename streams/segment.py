"""The step that finds operators in NIC traffic: epochs, calls and queue pairs of a host in, operators out (Pulse 4, 5).

Epochs and calls are read again after a restart, from where open operators need them, and calls until it is known what
communicators serve. The rest is saved: where each host is, whom its queue pairs serve, which algorithms are known, what
communicators serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from diagnosis.job import Job
from diagnosis.traffic.host import HostTraffic, StepRules
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.found_in_traffic import found_in_traffic
from schemas.host_telemetry import take_in
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode
from schemas.processor import SavedState
from schemas.topic import Topic
from streams.held_offsets import HeldOffsets, needed_of_all
from streams.over import forget_retired

FORMAT = "segment/3"
SAVE_EVERY_NS = 10_000_000_000
_GONE_NS = 600_000_000_000
"""A host of which no epochs or no calls have come for as long is forgotten: of either alone nothing is told, and what
waits for the other would be held for ever."""

_BEHIND_NS = 3_600_000_000_000
"""An input that has brought nothing at all is no further behind the other than this: else nothing is to come of it."""

_GOING_ON = (catalogue.NIC_EPOCHS.name, catalogue.OP_CALLS.name)
"""Inputs in which a host tells something for as long as it is there; of its queue pairs it tells once."""


@dataclass
class _Followed:
    """One host of a job; ``saved_ns``: up to when it had told what was found as it was last saved, ``heard_ns``: when
    the last message of each input came that goes on."""

    traffic: HostTraffic
    offsets: HeldOffsets = field(default_factory=HeldOffsets)
    saved_ns: int = 0
    heard_ns: dict[str, int] = field(default_factory=dict)

    def take(self, message: Message, batch: pa.RecordBatch) -> None:
        """Take a message in, and hold it for as long as what it tells of is needed."""
        self.offsets.hold(message, take_in(self.traffic, message, batch))
        if message.topic in _GOING_ON:
            self.heard_ns[message.topic] = message.timestamp_ns

    def save(self, until_ns: int) -> SavedState:
        """The state, with the offsets from which on what is not in it is to be read again."""
        traffic, self.saved_ns = self.traffic, until_ns
        offsets = self.offsets.save(
            {
                catalogue.NIC_EPOCHS.name: traffic.needed_from_ns,
                catalogue.OP_CALLS.name: traffic.calls_needed_from_ns,
            }
        )
        return SavedState(offsets, FORMAT, json.dumps(traffic.to_state()).encode())


class Segment:
    """Finds operators host by host, a step of time after the other. What a host tells after its job is over is passed
    over, and epochs that somebody has asked an agent for."""

    name = "segment"
    reads: tuple[Topic, ...] = (catalogue.NIC_EPOCHS, catalogue.OP_CALLS, catalogue.QUEUE_PAIRS)
    writes: tuple[Topic, ...] = (catalogue.OPERATORS, catalogue.TRAFFIC_METRICS)

    def __init__(
        self, jobs: Mapping[str, Job], rules: StepRules | None = None, save_every_ns: int = SAVE_EVERY_NS
    ) -> None:
        """Each host's state is saved every ``save_every_ns`` of its time; what follows is read again."""
        self._jobs = jobs
        self._save_every_ns = save_every_ns
        self._rules = rules or StepRules()
        self._hosts: dict[str, _Followed] = {}
        self._ended: dict[str, set[str]] = {}
        self._changed: dict[str, SavedState | None] = {}
        self._read_ns: dict[str, int] = {}
        self._look_at_ns = 0

    def process(self, message: Message) -> Iterable[Message]:
        batch, job = decode(message, catalogue.TOPICS[message.topic]), self._jobs[message.job]
        host = message.key.removeprefix(f"{message.job}/")
        if host == message.key or not host:
            raise WrongSchema(f"{message.topic}: the key is {message.key!r}, expected job/host")
        if host in self._ended.get(message.job, ()) or not job.monitoring or REQUEST_ID in message.headers:
            return
        followed = self._hosts.get(message.key)
        if followed is None:
            began = dict.fromkeys(_GOING_ON, message.timestamp_ns)
            followed = self._hosts[message.key] = _Followed(HostTraffic(host, self._rules), heard_ns=began)
        traffic = followed.traffic
        followed.take(message, batch)
        for until_ns, found in traffic.steps(job):
            yield from found_in_traffic(message.job, host, until_ns, found)
        if traffic.is_over(job):
            self._end(message.key, message.job, host)
        elif traffic.at_ns is not None and traffic.at_ns - followed.saved_ns >= self._save_every_ns:
            self._changed[message.key] = followed.save(traffic.at_ns)
        if message.topic in _GOING_ON:
            self._forget_silent(message)

    def tune(self, rules: StepRules) -> None:
        """Step by other rules; what is open on a NIC ends as it began."""
        self._rules = rules
        for followed in self._hosts.values():
            followed.traffic.rules = rules

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return needed_of_all(followed.offsets for followed in self._hosts.values())

    def holds(self) -> bool:
        return bool(self.safe_offsets())

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for key, saved in states.items():
            traffic = saved.read(FORMAT, lambda state: HostTraffic.from_state(self._rules, json.loads(state)))
            self._hosts[key] = _Followed(traffic, HeldOffsets(saved.offsets), saved_ns=traffic.at_ns or 0)

    def _end(self, key: str, job: str, host: str) -> None:
        self._ended.setdefault(job, set()).add(host)
        forget_retired(self._ended, self._jobs)
        del self._hosts[key]
        self._changed[key] = None

    def _forget_silent(self, message: Message) -> None:
        """Forget hosts of which nothing has come in one of the inputs, as far as both are read: one that is read ahead
        of the other says nothing of what the other will bring.
        """
        self._read_ns[message.topic] = max(message.timestamp_ns, self._read_ns.get(message.topic, 0))
        newest_ns = max(self._read_ns.values())
        now_ns = min(self._read_ns.get(topic, newest_ns - _BEHIND_NS) for topic in _GOING_ON)
        if now_ns < self._look_at_ns:
            return
        self._look_at_ns = now_ns + self._save_every_ns
        for key, followed in list(self._hosts.items()):
            last_ns = min(followed.heard_ns.setdefault(topic, newest_ns) for topic in _GOING_ON)  # it may be restored
            if last_ns < now_ns - _GONE_NS:
                del self._hosts[key]
                self._changed[key] = None
