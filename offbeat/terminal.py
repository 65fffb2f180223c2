"""What a person sees: text on stdout, progress on stderr as a bar on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

LINE_AFTER_S = 2.0
LINE_EVERY_S = 5.0
"""Where there is no terminal: when work is first told of, and then how often."""

UNBROKEN = 100_000
"""Characters of a line where there is no terminal to break it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """``advance`` tells how much is done by now, of the total; ``say`` prints a line beside it."""

    advance: Callable[[int], None]
    say: Callable[[str], None]


class _ToReader(io.FileIO):
    """Where text ends that somebody reads, who may have seen enough: a pipe that is closed takes the rest and forgets
    it, so that the exit code still says what was found.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


class _Answer(_ToReader):
    """What cannot be written of an answer is told as that."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _unwritable(error.strerror) from error


def guard_output() -> None:
    """From now on what stdout does not take raises ``OutputError``, as this does where there is no stdout; and nobody
    need read stdout or stderr to their ends.
    """
    if sys.__stdout__ is None:
        raise _unwritable("it is closed")
    sys.stdout = _guarded(sys.__stdout__, _Answer)
    if sys.__stderr__ is None:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "w")), "utf-8")
    else:
        sys.stderr = _guarded(sys.__stderr__, _ToReader)


def _guarded(given: io.TextIOWrapper, end: type[_ToReader]) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(end(given.fileno(), "w", closefd=False))
    at_once = given.line_buffering or given.write_through
    return io.TextIOWrapper(buffer, given.encoding, given.errors, line_buffering=at_once)


def _unwritable(why: str | None) -> OutputError:
    return OutputError(f"the output cannot be written: {why}; send it where there is room for it")


def printable(text: str) -> str:
    """A text on one line that tells a terminal nothing: who sends messages may write what they like into them."""
    return _escaped(text, "")


def _escaped(text: str, but: str) -> str:
    return "".join(c if c.isprintable() or c in but else ascii(c)[1:-1] for c in text)


def console(*, stderr: bool = False) -> Console:
    """Where people read; without a terminal no line is broken and nothing is coloured. Texts are escaped."""
    from rich.console import Console
    from rich.text import Text

    class Escaping(Console):
        """Every text that is printed, in a table or alone, becomes one of rich's here."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(_escaped(text, "\n\t"), **options)

    out = Escaping(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal:
        out.width = UNBROKEN
    return out


def print_json(answer: Any) -> None:
    """Print one JSON value for a program."""
    print(json.dumps(answer, indent=1, ensure_ascii=False, allow_nan=False))


def note(line: str) -> None:
    """Tell on stderr what is under way."""
    print(printable(line), file=sys.stderr, flush=True)


def counted(count: int, what: str) -> str:
    """``1 rank``, ``2 ranks``; ``2 processes``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Progress]:
    """Show that something takes a while, and how far it is where ``total`` is known."""
    if sys.stderr.isatty():
        with _bar(what, total) as shown:
            yield shown
    else:
        beginning = threading.Timer(LINE_AFTER_S, note, [f"{what} ..."])
        beginning.daemon = True
        beginning.start()
        try:
            yield Progress(_lines(what, total), note)
        finally:
            beginning.cancel()


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Progress]:
    from rich import progress as rich

    amount = [] if total is None else [rich.BarColumn(), rich.MofNCompleteColumn()]
    columns = [rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False), *amount]
    err = console(stderr=True)
    with rich.Progress(*columns, rich.TimeElapsedColumn(), console=err, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield Progress(lambda done: bar.update(task, completed=done), err.print)


def _lines(what: str, total: int | None) -> Callable[[int], None]:
    told_at = time.monotonic()

    def advance(done: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= LINE_EVERY_S:
            told_at = time.monotonic()
            note(f"{what}: {done}" + ("" if total is None else f" of {total}"))

    return advance
