"""What comparing ranks ends in: who is at fault, of what, and how far the evidence reaches (Pulse 6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diagnosis.causes import Cause, Level
from diagnosis.job import Job

BESIDE = 5.0
"""A deviation that is this much smaller than another is its consequence."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer.

    ``ranks`` are the culprits: of ``level`` machine all ranks of the host, of group all members, since the evidence
    reaches no further; of ``imbalance`` those that had more to do, and no device is at fault. ``candidates``: sets
    that the evidence cannot tell apart, whose union ``ranks`` is; empty where there is one. ``method`` names the rule,
    ``communicator`` and ``instance`` the operator that showed it, ``evidence`` its numbers. ``coverage``: share of the
    ranks compared whose telemetry was there. ``weaker``: what else showed the same, less clearly.
    """

    cause: Cause
    level: Level
    ranks: tuple[int, ...]
    method: str
    communicator: str | None = None
    instance: int | None = None
    candidates: tuple[tuple[int, ...], ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)
    coverage: float = 1.0
    weaker: tuple[Verdict, ...] = ()


def distinct(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts on the same culprits of the same cause once: the one with the strongest evidence speaks.

    What deviates far less than another does so because of it.
    """
    verdicts = list(verdicts)
    most = max((strength(verdict) for verdict in verdicts), default=0.0)
    same: dict[tuple[str, tuple[int, ...]], list[Verdict]] = {}
    for verdict in verdicts:
        if strength(verdict) * BESIDE >= most:
            same.setdefault((verdict.cause, verdict.ranks), []).append(verdict)
    return [_united(each) for each in same.values()]


def by_machine(verdicts: Iterable[Verdict], job: Job) -> list[Verdict]:
    """Verdicts on several devices of one machine as one: what they share is slow, not each by itself."""
    together: dict[tuple[str, tuple[int, ...] | str], list[Verdict]] = {}
    for verdict in verdicts:
        hosts = {job.clock(rank) for rank in verdict.ranks}
        together.setdefault((verdict.cause, hosts.pop() if len(hosts) == 1 else verdict.ranks), []).append(verdict)
    return [_united(same) for same in together.values()]


def either(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts of which one alone is the cause, but it is not known which: of one kind they are its candidates.

    Where kinds differ nothing is said of either together.
    """
    if len(verdicts) < 2 or len({verdict.cause for verdict in verdicts}) > 1:
        return list(verdicts)
    first, levels = verdicts[0], {verdict.level for verdict in verdicts}
    sets = {ranks for verdict in verdicts for ranks in (verdict.candidates or (verdict.ranks,))}
    return [
        replace(
            first,
            level=first.level if len(levels) == 1 else "group",
            ranks=tuple(sorted({rank for ranks in sets for rank in ranks})),
            candidates=tuple(sorted(sets)) if len(sets) > 1 else (),
            coverage=min(verdict.coverage for verdict in verdicts),
            weaker=tuple(verdicts[1:]),
        )
    ]


def _united(verdicts: Sequence[Verdict]) -> Verdict:
    strongest, *weaker = sorted(verdicts, key=strength, reverse=True)
    ranks = tuple(sorted({rank for verdict in verdicts for rank in verdict.ranks}))
    return replace(
        strongest,
        level="machine" if len(ranks) > len(strongest.ranks) else strongest.level,
        ranks=ranks,
        coverage=min(verdict.coverage for verdict in verdicts),
        weaker=(*strongest.weaker, *weaker),
    )


def strength(verdict: Verdict) -> float:
    """By how much the culprit differs from the others."""
    return abs(verdict.evidence.get("ratio", 1.0) - 1.0)
