"""What a step of the pipeline is: the same object under both runners and in every test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from schemas.errors import UndecodableMessage, WrongSchema
from schemas.message import Message
from schemas.topic import Topic

Read = TypeVar("Read")


@runtime_checkable
class Processor(Protocol):
    """A step; one instance a partition number.

    ``process`` alone changes state, and its now is the message's time, so that a replay repeats itself.
    ``tick`` only publishes: a time-out is a record on the step's own input. ``safe_offsets`` names the next
    offset that is needed after a restart, per input; an input that holds nothing back may be absent.
    A ``MessageError`` from ``process`` sends the message to dead_letters, and is raised before any state is
    changed. So does what no check foresaw: a ``ValueError``, ``ArithmeticError`` or ``LookupError``. Any other
    error stops the worker. Of the job of such a message what had changed by then stays changed, and what
    ``process`` had yielded is published.

    ``process`` may be a generator, which does nothing until it is iterated: whoever calls it takes all that it yields.
    """

    name: str
    reads: tuple[Topic, ...]
    writes: tuple[Topic, ...]

    def process(self, message: Message) -> Iterable[Message]: ...

    def tick(self, now_ns: int) -> Iterable[Message]: ...

    def safe_offsets(self) -> Mapping[Topic, int]: ...


@runtime_checkable
class Waiting(Processor, Protocol):
    """A processor that waits for others, each time until a deadline.

    ``next_deadline_ns`` is the earliest time at which ``tick`` has something to publish; None: it waits for
    nobody. In process, where time does not pass by itself, it passes to the next deadline when nothing else can
    happen.
    """

    def next_deadline_ns(self) -> int | None: ...


@runtime_checkable
class Holding(Processor, Protocol):
    """A processor that needs inputs again for as long as what they tell of goes on, be it a hang of hours.

    ``holds`` is whether it does: then only what ``safe_offsets`` names is to be committed, else all that it has taken.
    """

    def holds(self) -> bool: ...


@runtime_checkable
class Sink(Processor, Protocol):
    """A processor that delivers to the outside; ``flush`` returns once everything taken so far is safe there, but for
    what ``safe_offsets`` holds back: a sink that would take too long may leave that to the next flush.
    """

    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a processor saved of one job: its state and the next offset it needs of each input (by topic name)."""

    offsets: Mapping[str, int]
    format: str
    state: bytes

    def in_format(self, form: str) -> bytes:
        """The state; raises ``WrongSchema`` where it was saved in another form than this version reads."""
        if self.format != form:
            raise WrongSchema(f"a saved state has the form {self.format!r}, this version reads {form!r}")
        return self.state

    def read(self, form: str, parse: Callable[[bytes], Read]) -> Read:
        """What ``parse`` makes of the state.

        Raises ``WrongSchema`` for another form, and ``UndecodableMessage`` where ``parse`` finds it damaged.
        """
        state = self.in_format(form)
        try:
            return parse(state)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise UndecodableMessage(
                f"a saved state of the form {form!r} cannot be read: {type(error).__name__}: {str(error)[:300]}"
            ) from error


@runtime_checkable
class Tunable(Processor, Protocol):
    """A processor whose settings may change between two messages; which they are is its own affair."""

    def tune(self, settings: Any) -> None: ...


@runtime_checkable
class Stateful(Processor, Protocol):
    """A processor that saves its state instead of reading its inputs again.

    ``changed_states`` returns the states changed since it was last asked (None: the job ended, drop it); they
    are saved before the offsets are committed, those of a sink before it delivers and after it. ``restore`` gives
    back what was saved, before any message; it raises ``MessageError`` for a state that this version cannot read.
    What a sink has yet to deliver is in its state, or is held back by the state's offsets, which never fall.
    """

    def changed_states(self) -> Mapping[str, SavedState | None]: ...

    def restore(self, states: Mapping[str, SavedState]) -> None: ...
