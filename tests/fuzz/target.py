"""What is fuzzed: a name, good inputs, and the function under test."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import OffbeatError
from tests.fuzz.mutations import mutated

READ = "read"
"""What becomes of an input that is good, or good enough."""

ROOMS = ("/schemas/", "/diagnosis/", "/producers/", "/streams/", "/sinks/", "/offbeat/")


@dataclass(frozen=True)
class Trial:
    """A target made ready: ``seeds`` are good inputs, ``feed`` takes any.

    It raises one of ``refusals`` for a bad input, and nothing else ever.
    """

    seeds: Sequence[bytes]
    feed: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (OffbeatError,)


@dataclass(frozen=True)
class Target:
    """``make`` makes it ready in an empty folder; it may take ``memory_bytes`` more than its good inputs take.

    ``weight`` is its part of all inputs: what is quick to try is tried more often.
    """

    name: str
    make: Callable[[Path], Trial]
    weight: float = 3.0
    memory_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Failure:
    """What must not become of an input: ``what`` it was, and where."""

    what: str
    where: str = ""


def damaged(trial: Trial, seed: int, target: str, ordinal: int) -> bytes:
    """The input of an ordinal, always the same."""
    return mutated(trial.seeds, random.Random(f"{seed}/{target}/{ordinal}"))


def failures_of_seeds(trial: Trial) -> list[Failure]:
    """What good inputs do that none may: there is nothing."""
    return [found for found in (outcome(trial, seed) for seed in trial.seeds) if isinstance(found, Failure)]


def outcome(trial: Trial, data: bytes) -> str | Failure:
    """What becomes of an input: read, the name of the refusal, or a failure."""
    try:
        trial.feed(data)
    except trial.refusals as error:
        if hidden := _shortage(error):
            return Failure("asks for too much memory", _where(hidden))
        return type(error).__name__
    except MemoryError as error:
        return Failure("asks for too much memory", _where(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Failure(f"{type(error).__name__}: {str(error)[:120]}", _where(error))
    return READ


def _shortage(error: BaseException) -> MemoryError | None:
    """The lack of memory that a refusal was made of."""
    cause = error.__cause__ or error.__context__
    while cause is not None and not isinstance(cause, MemoryError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _where(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if any(room in frame.filename for room in ROOMS)] or frames
    return f"{'/'.join(Path(ours[-1].filename).parts[-2:])}:{ours[-1].lineno} {ours[-1].name}" if ours else ""
