"""By how much the clocks of hosts are ahead, told by what NICs send: a built-in collective ends for all at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diagnosis.collective.grid import Grid
from diagnosis.collective.participation import UNKNOWN
from diagnosis.job import Job

Clocks = dict[str, float]
"""Nanoseconds by which each host's clock is ahead, up to what is common to all of them."""


def clocks(own: Sequence[Grid], job: Job) -> list[Clocks]:
    """How far clocks are ahead, by groups of hosts that collectives connect with each other; the largest group first.

    Of several collectives between two hosts the median counts.
    """
    apart = _apart(own, job)
    found: list[Clocks] = []
    for host in apart:
        if not any(host in known for known in found):
            found.append(_reached(host, apart))
    return sorted(found, key=len, reverse=True)


def _apart(own: Sequence[Grid], job: Job) -> dict[str, dict[str, float]]:
    """By how much each host is ahead of those that share a collective with it."""
    several: dict[str, dict[str, list[float]]] = {}
    for grid in own:
        chosen = grid.choose(grid.complete & ~grid.custom & (grid.row != UNKNOWN).all(axis=0))
        if not len(chosen.instance):
            continue
        ahead = np.median(chosen.end - np.median(chosen.end, axis=0), axis=1)
        told = [(job.clock(int(rank)), float(value)) for rank, value in zip(grid.rank, ahead, strict=True)]
        for host, value in told:
            others = several.setdefault(host, {})
            for other, its in told:
                if other != host:
                    others.setdefault(other, []).append(value - its)
    return {host: {other: float(np.median(each)) for other, each in others.items()} for host, others in several.items()}


def _reached(first: str, apart: dict[str, dict[str, float]]) -> Clocks:
    """The hosts that are connected with one, breadth first: errors add up along the way."""
    ahead = {first: 0.0}
    queue = [first]
    for host in queue:
        for other, by in apart[host].items():
            if other not in ahead:
                ahead[other] = ahead[host] - by
                queue.append(other)
    return ahead
