"""Spikes that may be nobody's fault (a step beyond Holmes, which weighs all irregular iterations alike).

Where a job's regular iterations scatter, some exceed delta without any fault, and whoever was held up then is named by
its search. And what holds up several at once for a moment comes from elsewhere: other traffic, the storage, other work
of a host. Findings on such moments speak for nobody, unless their run lasts, or their culprit is named so often that it
is no chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from diagnosis.incidents.agreement import compatible
from diagnosis.incidents.evidence import DEGRADATION, FLUCTUATION, SPIKE, Evidence, Ranks, hangs
from diagnosis.incidents.spans import run_of


@dataclass(frozen=True, slots=True)
class MomentSettings:
    """A spike is a moment if its excess is less than ``prominence`` times what one in ten of the regular iterations
    before it took beyond their mean, or if more than ``most_at_once`` culprits of it have nothing in common, each with
    a ``comparable_share`` of what the others explain. A culprit of moments is named if one would be named as often with
    a probability below ``chance``, were ranks drawn at random. Prominence 0 and many at once: there are none.
    """

    prominence: float = 4.0
    most_at_once: int = 2
    comparable_share: float = 0.5
    chance: float = 0.01


def momentary(recent: Sequence[Evidence], world: int | None, settings: MomentSettings) -> frozenset[str]:
    """The ids of those of a job's findings that speak for nobody; of how many ranks (``world``) the job is may not be
    known, nor what is chance then.
    """
    moments = _moments(recent, settings)
    if world is None:
        return frozenset(known.id for known in moments)
    return frozenset(known.id for known in moments if chance(known, moments, world) >= settings.chance)


def chance(finding: Evidence, moments: Sequence[Evidence], world: int) -> float:
    """How probable it is that any of a job's ranks are named in as many moments as those of a finding are, if whom each
    search names is drawn at random: the tail of a binomial distribution, times how many there are to name.
    """
    named: defaultdict[int, set[int]] = defaultdict(set)
    for known in moments:
        if known.method == finding.method:
            named[known.at].update(known.ranks)
    hits = {known.at for known in moments if known.method == finding.method and compatible(known, finding)}
    wide = len(finding.ranks) / world
    share = sum(min(1.0, len(ranks) * wide) for ranks in named.values()) / len(named)
    return min(1.0, _at_least(len(hits), len(named), share) / wide)


def _moments(recent: Sequence[Evidence], settings: MomentSettings) -> list[Evidence]:
    lasting = {run_of(known) for known in recent if known.pattern in {FLUCTUATION, DEGRADATION}}
    spikes: defaultdict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for known in recent:
        if known.active and known.pattern == SPIKE and not hangs(known.cause) and run_of(known) not in lasting:
            spikes[known.method, known.at].append(known)
    return [
        known
        for of_iteration in spikes.values()
        for known in of_iteration
        if known.ranks and (_is_faint(known, settings) or _at_once(known, of_iteration, settings))
    ]


def _is_faint(finding: Evidence, settings: MomentSettings) -> bool:
    return finding.prominence is not None and finding.prominence < settings.prominence


def _at_once(finding: Evidence, of_iteration: Sequence[Evidence], settings: MomentSettings) -> bool:
    """Whether too many others of an iteration explain a comparable part of it and have nothing in common with it."""
    least = settings.comparable_share * finding.share
    others: set[Ranks] = {
        known.ranks
        for known in of_iteration
        if known.ranks
        and known.share >= least
        and not compatible(known, finding)
        and set(known.ranks).isdisjoint(finding.ranks)
    }
    return 1 + len(others) > settings.most_at_once


def _at_least(hits: int, of: int, share: float) -> float:
    """The probability of so many hits or more, of so many, each with a probability of ``share``."""
    return sum(comb(of, k) * share**k * (1.0 - share) ** (of - k) for k in range(hits, of + 1))
