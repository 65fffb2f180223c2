"""A bus in memory on which one processor is killed and comes back, at any point of its journey.

It keeps to the order of a commit: outputs, saved states, sinks and what these changed, offsets, tombstones. A kill may
come after any of these; the next life starts from the offsets and states that were committed by then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from schemas import catalogue
from schemas.message import Message, decode
from schemas.processor import Processor, Stateful, Waiting
from schemas.topic import Topic
from streams.checkpoints import Checkpoints
from streams.control_view import Jobs
from streams.retirement import tombstone
from streams.step import Step


class Killed(IntEnum):
    """How far a delivery came before the kill."""

    BEFORE = 0
    AFTER_STATES = 1
    AFTER_SINKS = 2
    ALL_SAFE = 3
    AFTER_COMMIT = 4
    NOT = 5


@dataclass(frozen=True)
class Case:
    """A processor with what it is fed, for one run.

    ``others`` answer it and are never killed; ``judged`` are the outputs that must come out the same whatever
    happens. ``delivered`` tells what a sink has outside.
    """

    name: str
    make: Callable[[Jobs], Processor]
    inputs: Callable[[], Sequence[Message]]
    judged: tuple[Topic, ...] = ()
    others: Callable[[Jobs], Sequence[Processor]] = lambda _: ()
    delivered: Callable[[], Iterable[object]] = tuple


@dataclass
class Journey:
    """One run of a case. ``published`` are all messages on the bus, ``states`` what control.state holds."""

    case: Case
    published: list[Message] = field(default_factory=list)
    states: list[Message] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        self._jobs = Jobs()
        self._offsets: Counter[str] = Counter()
        self._others = [Step(processor) for processor in self.case.others(self._jobs)]
        self._committed: dict[str, int] = {}
        self._publish(self.case.inputs())
        self.step = self._live()

    def take(self, count: int | None = None) -> int:
        """Let the processor take its next messages (None: all that are there); how many there were."""
        taken = 0
        while (count is None or taken < count) and (message := self._next()) is not None:
            self._publish(self.step.take(message))
            taken += 1
        return taken

    def deliver(self, killed: Killed = Killed.NOT) -> None:
        """Deliver and commit, as far as the kill lets it; then a new life begins."""
        if killed > Killed.BEFORE:
            self._save(self.step.changed_states())
        if killed > Killed.AFTER_STATES:
            self.step.flush()
        if killed > Killed.AFTER_SINKS:
            self._save(self.step.changed_states())
        offsets = self.step.offsets()
        if killed > Killed.ALL_SAFE:
            self._committed.update(offsets)
        if killed > Killed.AFTER_COMMIT:
            self._save(self.step.committed(offsets))
        else:
            self.step = self._live()

    def retire(self, job: str) -> None:
        """Drop a job that is over."""
        self._jobs.process(tombstone(job))

    def finish(self) -> "Journey":
        """Let everything come to its end, deadlines included."""
        while self.take() or self._wait():
            self.deliver()
        self.deliver()
        return self

    def outcome(self) -> set[object]:
        """What came of it, without regard to order and repetition: the judged outputs and what a sink delivered."""
        topics = {topic.name: topic for topic in self.case.judged}
        return set(self.case.delivered()) | {
            (message.topic, message.job, repr(decode(message, topics[message.topic]).to_pylist()))
            for message in self.published
            if message.topic in topics
        }

    def letters(self) -> list[Message]:
        return [message for message in self.published if message.topic == catalogue.DEAD_LETTERS.name]

    def _live(self) -> Step:
        self.lives += 1
        self._at = 0
        processor = self.case.make(self._jobs)
        checkpoints = Checkpoints(processor.name)
        for state in self.states:
            checkpoints.take(state)
        saved = checkpoints.of(0) if isinstance(processor, Stateful) else None
        return Step(processor, saved=saved, bad_in_a_row=checkpoints.bad_in_a_row(0))

    def _next(self) -> Message | None:
        reads = {topic.name for topic in self.step.processor.reads}
        while self._at < len(self.published):
            message = self.published[self._at]
            self._at += 1
            if message.topic in reads and message.offset >= self._committed.get(message.topic, 0):
                return message
        return None

    def _wait(self) -> bool:
        processor = self.step.processor
        deadline_ns = processor.next_deadline_ns() if isinstance(processor, Waiting) else None
        if deadline_ns is None:
            return False
        self._publish(self.step.tick(deadline_ns))
        return True

    def _publish(self, messages: Iterable[Message]) -> None:
        for message in messages:
            placed = replace(message, offset=self._offsets[message.topic])
            self._offsets[message.topic] += 1
            self.published.append(placed)
            if placed.topic == catalogue.JOBS.name:
                self._jobs.process(placed)
            for step in self._others:
                if placed.topic in {topic.name for topic in step.processor.reads}:
                    self._publish(step.take(placed))

    def _save(self, states: Iterable[Message]) -> None:
        self.states.extend(replace(state, offset=len(self.states)) for state in states)
