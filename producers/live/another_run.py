"""Recognises another run under the name of a job: its processes begin anew what was logged before they started.

A process that goes on after what was logged, or goes back to a checkpoint of it, is of the same run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from producers import kept_iterations
from producers.kept_iterations import UNREADABLE
from producers.live.rank_log import RankLog
from producers.segments import Segments

log = logging.getLogger(__name__)

Stretch = tuple[int, int]
"""First and last of some iterations."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Which iterations are kept of a job, those that had to go included, and when the last one had ended."""

    first: int
    last: int
    until_ns: int


def kept_in(folder: Path) -> Kept | None:
    """What is kept of a job, as its last iteration says that can be read; None: nothing is."""
    segments = Segments(folder, 0, for_reading=True)
    for frame in reversed(segments.frames):
        try:
            _, about = kept_iterations.about(segments.read(frame))
            return Kept(int(about["first"]), frame.number, int(about["watermark_ns"]))
        except UNREADABLE:  # told by whoever reads them all
            continue
    return None


def logged_before(rank_log: RankLog, others: Iterable[RankLog], kept: Kept | None) -> Stretch | None:
    """What a job had logged when a process of it started, as what is kept and earlier processes of its rank tell.

    None: nothing.
    """
    of_rank = [other for other in others if other.rank == rank_log.rank]
    earlier = [other for other in of_rank if other.appended and other.started_ns < rank_log.started_ns]
    logged = [(first, other.newest) for other in earlier if (first := other.oldest_here) is not None]
    if kept is not None and (earlier or kept.until_ns < rank_log.started_ns):
        logged.append((kept.first, kept.last))
    return (min(first for first, _ in logged), max(last for _, last in logged)) if logged else None


def begins_anew(rank_log: RankLog, before: Stretch) -> bool:
    """Whether a process, which has logged something, is of another run than what was logged before."""
    begins = rank_log.oldest_here
    return begins is not None and begins <= before[0]


def tell(job: str, rank_log: RankLog, last: int) -> None:
    """Say that a process logs iterations again that a job has ended."""
    what = "all of this run" if rank_log.another_run else "what comes up to that"
    log.warning(
        "%s: rank %d begins with iteration %d, but this job has ended its iteration %d, and %s is passed over: give a "
        "run that begins anew a name of its own",
        job,
        rank_log.rank,
        rank_log.oldest_here,
        last,
        what,
    )
