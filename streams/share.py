"""What one worker processes between two rebalances: one processor instance for each partition number it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.message import Message
from schemas.processor import Processor, SavedState, Stateful
from streams.bus import Outbox
from streams.checkpoints import Checkpoints
from streams.control_view import Jobs
from streams.losses import Losses
from streams.metrics import Metrics
from streams.step import Step

Place = tuple[str, int]
"""A topic's name and a partition number of it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a processor instance is made for and may look things up in."""

    partition: int
    jobs: Jobs


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an input is processed: its first offset in this assignment, the next one, and the last message's time."""

    first: int
    following: int
    at_ns: int


class Share:
    """The processors of one assignment. An instance is made when the first message of its partition number comes, or
    when it is opened.

    ``saved`` gives the checkpoints that an instance starts from, as they are by then, ``saved_as`` is whose they are.
    ``reached`` tells of the inputs that have brought something, ``held`` of those whose processor may hold offsets
    back, and which were safe when last delivered, ``counted`` of the inputs that saved states have counted in, and up
    to which offset. Any thread may read these.
    """

    def __init__(
        self,
        make_processor: Callable[[Context], Processor],
        *,
        jobs: Jobs,
        saved: Callable[[], Checkpoints],
        outbox: Outbox,
        metrics: Metrics,
        saved_as: str | None = None,
    ) -> None:
        self._make_processor = make_processor
        self._saved_as = saved_as
        self._jobs = jobs
        self._saved = saved
        self._outbox = outbox
        self._metrics = metrics
        self._steps: dict[int, Step] = {}
        self._committed: dict[Place, int] = {}
        self._losses = Losses()
        self.reached: dict[Place, Reached] = {}
        self.held: Mapping[Place, int] = {}
        self.counted: Mapping[Place, int] = {}

    def committed_offset(self, place: Place) -> int:
        """The offset from which a restart would bring an input again that has brought something."""
        return self._committed.get(place, self.reached[place].first)

    def take(self, messages: Sequence[Message]) -> None:
        """Process messages and send what comes of them.

        Raises ``TooMuchPoison``, ``DeliveryError``, and whatever a processor raises.
        """
        for message in messages:
            step = self._step(message.partition)
            buried = step.dead_letters.count
            self._send(step.take(message))
            self._metrics.took(message.topic, lost=self._losses.take(message))
            self._metrics.dead_letters.inc(step.dead_letters.count - buried)
            place = message.topic, message.partition
            first = self.reached[place].first if place in self.reached else message.offset
            self.reached[place] = Reached(first, message.offset + 1, message.timestamp_ns)

    def open(self, partitions: Iterable[int]) -> None:
        """Make the instances of these partition numbers now: what they have saved may be due without a message."""
        for partition in partitions:
            self._step(partition)

    def deliver(self, now_ns: int) -> dict[Place, int]:
        """Tick, then make outputs, saved states and sinks safe, in this order; the offsets that may be committed.

        What a sink has to deliver is saved before it delivers, or after a crash it might go back to something older
        than what it had delivered; what it has delivered is saved after it. Raises ``DeliveryError`` and what a sink
        raises: then nothing may be committed. States are saved even so: they tell what a sink that got half way has
        delivered.
        """
        steps = self._steps.values()
        for step in steps:
            self._send(step.tick(now_ns))
        self._outbox.flush()
        self._save_states()
        try:
            for step in steps:
                step.flush()
        finally:
            self._save_states()
        safe = {place: offset for number, step in self._steps.items() for place, offset in _offsets(step, number)}
        held = {number for number, step in self._steps.items() if step.holds}
        self.held = {place: offset for place, offset in safe.items() if place[1] in held}
        return {place: offset for place, offset in safe.items() if offset != self._committed.get(place)}

    def committed(self, offsets: Mapping[Place, int]) -> None:
        """Note what was committed, and drop the saved states of the jobs that are over."""
        self._committed.update(offsets)
        for number, step in self._steps.items():
            own = {topic: offset for (topic, partition), offset in self._committed.items() if partition == number}
            self._send(step.committed(own))

    def _step(self, partition: int) -> Step:
        if partition not in self._steps:
            processor = self._make_processor(Context(partition, self._jobs))
            saved = self._saved()
            states = saved.of(partition) if isinstance(processor, Stateful) else {}
            self.counted = {**self.counted, **_counted(states.values(), partition)}
            self._steps[partition] = Step(
                processor,
                partition=partition,
                saved=states,
                bad_in_a_row=saved.bad_in_a_row(partition),
                saved_as=self._saved_as,
            )
        return self._steps[partition]

    def _save_states(self) -> None:
        states = [state for step in self._steps.values() for state in step.changed_states()]
        if states:
            self._send(states)
            self._outbox.flush()

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._outbox.send(message)
            self._metrics.published(message.topic)


def _counted(states: Iterable[SavedState], partition: int) -> dict[Place, int]:
    """Up to which offset of each input any of the states has counted in what was there."""
    most: dict[Place, int] = {}
    for state in states:
        for topic, offset in state.offsets.items():
            most[topic, partition] = max(offset, most.get((topic, partition), 0))
    return most


def _offsets(step: Step, partition: int) -> list[tuple[Place, int]]:
    return [((topic, partition), offset) for topic, offset in step.offsets().items()]
