"""Where a search ends and what it passed: the plain results that every search of the operator graph gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from diagnosis.operators import UNKNOWN, Operators

MOST_WAITS = 256
"""As many waits are told of one search; a rank waits for another in thousands of operators of an iteration."""


@dataclass(frozen=True, slots=True)
class OperatorRef:
    """One operator, as a person finds it in the log."""

    rank: int
    communicator: str
    position: int
    op: str
    phase: str | None = None
    microbatch: int | None = None
    call_ns: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank waited for another in an operator of a communicator, ``ns`` longer than usual."""

    waiting_rank: int
    awaited_rank: int
    communicator: str
    op: str
    ns: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a walk ended: ``rank`` lost ``excess_ns`` itself, computing or (``communicator``) transferring.

    ``members`` share the transfers: the communicator's ranks, or the two ends of a point-to-point channel.
    ``iteration`` is where most of it was lost: the one that is explained, or the one before. ``shared``: most others
    lost as much, so that it is nobody's fault, unless it is that of what they share. ``goes_on_late``: that it computed
    is told by when it went on after operators whose ends it did not log.
    """

    rank: int
    communicator: str | None
    members: tuple[int, ...]
    excess_ns: int
    iteration: int
    operator: OperatorRef
    path: tuple[int, ...]
    shared: bool = False
    goes_on_late: bool = False


def largest_waits(waits: Iterable[Wait]) -> tuple[Wait, ...]:
    """The waits with those of one rank for another in the same communicator and op put together: the ``MOST_WAITS``
    longest, in the order in which the search passed them.
    """
    lost: Counter[tuple[int, int, str, str]] = Counter()
    for wait in waits:
        lost[wait.waiting_rank, wait.awaited_rank, wait.communicator, wait.op] += wait.ns
    longest = dict(lost.most_common(MOST_WAITS))
    return tuple(Wait(*who, ns) for who, ns in lost.items() if who in longest)


def reference(operators: Operators, row: int) -> OperatorRef:
    """What a person needs to find the operator of a row again."""
    phase, microbatch = int(operators.phase[row]), int(operators.microbatch[row])
    return OperatorRef(
        rank=int(operators.rank[row]),
        communicator=operators.communicators[operators.communicator[row]],
        position=int(operators.position[row]),
        op=operators.ops[operators.op[row]],
        phase=operators.phases[phase] if phase != UNKNOWN else None,
        microbatch=microbatch if microbatch != UNKNOWN else None,
        call_ns=int(operators.call_ns[row]),
    )
