"""The step that finds operators in NIC traffic: epochs, calls and queue pairs of a host in, operators out (Pulse 4, 5).

Epochs and calls are read again after a restart, from where open operators need them, and calls until it is known what
communicators serve. The rest is saved: where each host is, whom its queue pairs serve, which algorithms are known, what
communicators serve.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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
from streams.over import forget_retired

FORMAT = "segment/3"
SAVE_EVERY_NS = 10_000_000_000
_GONE_NS = 600_000_000_000
"""A host of which no epoch has come for as long is forgotten: it would hold offsets for ever."""


@dataclass
class _Followed:
    """One host of a job.

    ``needed``: the first offset that a restart needs of each input of which it needs any, as was last saved. ``held``:
    messages of each input that are still needed, by offset, with the newest time that each tells of.
    """

    traffic: HostTraffic
    needed: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    following: dict[str, int] = field(default_factory=dict)
    saved_ns: int = 0
    heard_ns: int = 0

    def hold(self, message: Message, newest_ns: int | None) -> None:
        """Note a message, and up to when it is needed; None: it is saved."""
        self.needed.setdefault(message.topic, message.offset)
        self.following[message.topic] = message.offset + 1
        if message.topic == catalogue.NIC_EPOCHS.name:  # nothing is told of calls alone
            self.heard_ns = message.timestamp_ns
        if newest_ns is not None:
            self.held.setdefault(message.topic, {})[message.offset] = newest_ns

    def save(self, until_ns: int) -> SavedState:
        """The state, with the offsets from which on what is not in it is to be read again."""
        for topic, held in self.held.items():
            of_calls = topic == catalogue.OP_CALLS.name
            before = self.traffic.calls_needed_from_ns if of_calls else self.traffic.needed_from_ns
            self.held[topic] = {offset: newest for offset, newest in held.items() if newest >= before}
        offsets = {topic: min(self.held.get(topic, {}), default=next_) for topic, next_ in self.following.items()}
        self.needed, self.saved_ns = {topic: min(held) for topic, held in self.held.items() if held}, until_ns
        return SavedState(offsets, FORMAT, json.dumps(self.traffic.to_state()).encode())


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

    def process(self, message: Message) -> Iterable[Message]:
        batch, job = decode(message, catalogue.TOPICS[message.topic]), self._jobs[message.job]
        host = message.key.removeprefix(f"{message.job}/")
        if host == message.key or not host:
            raise WrongSchema(f"{message.topic}: the key is {message.key!r}, expected job/host")
        if host in self._ended.get(message.job, ()) or not job.monitoring or REQUEST_ID in message.headers:
            return
        followed = self._hosts.get(message.key)
        if followed is None:
            followed = self._hosts[message.key] = _Followed(HostTraffic(host, self._rules))
        traffic = followed.traffic
        followed.hold(message, take_in(traffic, message, batch))
        for until_ns, found in traffic.steps(job):
            yield from found_in_traffic(message.job, host, until_ns, found)
        if traffic.is_over(job):
            self._end(message.key, message.job, host)
        elif traffic.at_ns is not None and traffic.at_ns - followed.saved_ns >= self._save_every_ns:
            self._changed[message.key] = followed.save(traffic.at_ns)
            self._forget_silent(message.timestamp_ns)

    def tune(self, rules: StepRules) -> None:
        """Step by other rules; what is open on a NIC ends as it began."""
        self._rules = rules
        for followed in self._hosts.values():
            followed.traffic.rules = rules

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        needed: dict[Topic, int] = {}
        for followed in self._hosts.values():
            for name, offset in followed.needed.items():
                topic = catalogue.TOPICS[name]
                needed[topic] = min(offset, needed.get(topic, offset))
        return needed

    def holds(self) -> bool:
        return any(followed.needed for followed in self._hosts.values())

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for key, saved in states.items():
            traffic = saved.read(FORMAT, lambda state: HostTraffic.from_state(self._rules, json.loads(state)))
            self._hosts[key] = _Followed(traffic, dict(saved.offsets), {}, dict(saved.offsets), traffic.at_ns or 0)

    def _end(self, key: str, job: str, host: str) -> None:
        self._ended.setdefault(job, set()).add(host)
        forget_retired(self._ended, self._jobs)
        del self._hosts[key]
        self._changed[key] = None

    def _forget_silent(self, now_ns: int) -> None:
        for followed in self._hosts.values():
            followed.heard_ns = followed.heard_ns or now_ns  # restored, and not heard since
        gone = [key for key, followed in self._hosts.items() if followed.heard_ns < now_ns - _GONE_NS]
        for key in gone:
            del self._hosts[key]
            self._changed[key] = None
