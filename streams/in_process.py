"""The runner without a broker: the same encoded bytes through the same processors, one partition, first in first out.

Time is the messages' own: an output without a time of its own takes that of the message it came from. Deadlines
are kept only when nothing else can happen: all sources are at their end, nothing is under way and somebody still
waits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from schemas.message import Message, TopicKey
from schemas.processor import Processor, Waiting
from streams.step import Step

START_ID = "in-process"
FLUSH_EVERY = 1000
"""Messages between two flushes of the sinks."""


class Source(Protocol):
    """Where messages come from. ``advance`` returns the next ones (maybe none yet), None at the end."""

    name: str

    def advance(self) -> Iterable[Message] | None: ...


class Recorded:
    """A source of messages that were told before."""

    name = "recorded"

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)

    def advance(self) -> Iterable[Message] | None:
        """The next message; None after the last."""
        message = next(self._messages, None)
        return None if message is None else (message,)


def run(
    sources: Sequence[Source],
    processors: Sequence[Processor],
    *,
    on_message: Callable[[Message], None] | None = None,
    flush_every: int = FLUSH_EVERY,
) -> None:
    """Move everything that the sources bring through the processors, until nobody has anything more to say.

    A message goes to its readers in the order of ``processors`` (the view of control.jobs comes first, so that it
    knows a job before the others ask). Sources take turns; what one brings is worked off before the next. Sinks
    are flushed every ``flush_every`` messages and at the end. ``on_message`` sees every message as the bus holds
    it: stamped, with its offset, dead letters included.

    Raises ``TooMuchPoison`` and whatever a source or a processor raises.
    """
    bus = _Bus([Step(processor) for processor in processors], on_message, flush_every)
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        messages = source.advance()
        if messages is not None:
            bus.publish(source.name, messages, now_ns=0)
            bus.work_off()
            waiting.append(source)
    bus.keep_deadlines()
    bus.flush()


class _Bus:
    """Topics of one partition whose messages are handed on as soon as their turn comes, and then forgotten."""

    def __init__(self, steps: list[Step], on_message: Callable[[Message], None] | None, flush_every: int) -> None:
        self._steps = steps
        self._waiting = [step.processor for step in steps if isinstance(step.processor, Waiting)]
        self._readers: dict[str, list[Step]] = {}
        for step in steps:
            for topic in step.processor.reads:
                self._readers.setdefault(topic.name, []).append(step)
        self._on_message = on_message
        self._flush_every = flush_every
        self._unflushed = 0
        self._queue: deque[Message] = deque()
        self._offsets: Counter[str] = Counter()
        self._sent: Counter[tuple[str, TopicKey]] = Counter()

    def publish(self, producer: str, messages: Iterable[Message], now_ns: int) -> None:
        for message in messages:
            at = message.timestamp_ns or now_ns
            place = (producer, (message.topic, message.key))
            stamped = message.stamped(f"{producer}/{START_ID}", self._sent[place], at)
            self._sent[place] += 1
            placed = replace(stamped, partition=0, offset=self._offsets[message.topic], timestamp_ns=at)
            self._offsets[message.topic] += 1
            self._queue.append(placed)

    def work_off(self) -> None:
        while self._queue:
            message = self._queue.popleft()
            if self._on_message is not None:
                self._on_message(message)
            for step in self._readers.get(message.topic, ()):
                self.publish(step.processor.name, step.take(message), message.timestamp_ns)
            self._unflushed += 1
        if self._unflushed >= self._flush_every:
            self.flush()

    def keep_deadlines(self) -> None:
        """Let time pass to the next deadline, again and again, until nobody waits any more."""
        while (deadline_ns := self._next_deadline()) is not None:
            for step in self._steps:
                self.publish(step.processor.name, step.tick(deadline_ns), deadline_ns)
            if not self._queue:
                late = [processor.name for processor in self._waiting if processor.next_deadline_ns() == deadline_ns]
                if late:
                    raise RuntimeError(f"{late[0]} waits until {deadline_ns} ns and publishes nothing when it comes")
            self.work_off()

    def flush(self) -> None:
        for step in self._steps:
            step.flush()
        self._unflushed = 0

    def _next_deadline(self) -> int | None:
        deadlines = [processor.next_deadline_ns() for processor in self._waiting]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
