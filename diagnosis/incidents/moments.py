"""Spikes that may be nobody's fault (a step beyond Holmes, which weighs all irregular iterations alike).

Where a job's regular iterations scatter, some exceed delta without any fault, and whoever was held up then is named by
its search. And what holds up several at once for a moment comes from elsewhere: other traffic, the storage, other work
of a host. So a spike is held against a culprit by what it alone explains of it, beside what regular iterations scatter.
Findings on mere moments speak for nobody, unless their run lasts, or their culprit is named in so many of them that it
is no chance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from diagnosis.incidents.agreement import are_spines, compatible, is_switch
from diagnosis.incidents.evidence import Evidence, Ranks, Run, hangs
from diagnosis.incidents.spans import run_of
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION, SPIKE
from diagnosis.topology import Device

_Culprit = tuple[str, str | None, str | None, Ranks, tuple[Device, ...]]
"""Whom a method names, and for what: findings that are alike in this are about the same."""


@dataclass(slots=True)
class _Named:
    """Who was named in a run of spikes: ranks by themselves, switches, and ranks with these."""

    ranks: set[int] = field(default_factory=set)
    switches: set[tuple[Device, ...]] = field(default_factory=set)
    below: set[int] = field(default_factory=set)

    def add(self, finding: Evidence) -> None:
        if is_switch(finding):
            self.switches.add(finding.devices)
            self.below.update(finding.ranks)
        else:
            self.ranks.update(finding.ranks)

    def drawn(self, wide: float, of_switches: float | None) -> float:
        """How probable it is that one of them is a culprit whose ranks are a part of all ranks as ``wide``, and which
        is that part of the switches of its kind, or no switch (None).
        """
        if of_switches is None:
            return min(1.0, len(self.ranks | self.below) * wide)
        return min(1.0, len(self.ranks) * wide + len(self.switches) * of_switches)


@dataclass(frozen=True, slots=True)
class MomentSettings:
    """When a spike is a moment for a culprit, which accuses nobody; Holmes counts all.

    Its own part of a spike is its share, divided by the number of culprits with comparable shares that have nothing in
    common.
    """

    prominence: float = 2.5
    """A spike counts if the culprit's own part of its excess is at least so many times what one in ten of the regular
    iterations before it took beyond their mean (of fewer than 20 the longest); a higher value takes more spikes for
    moments."""
    chance: float = 0.01
    """Moments count as well if ranks drawn at random would name anybody in as many of them with a probability of at
    most this; with 1 all count."""


def momentary(
    recent: Sequence[Evidence], world: int | None, settings: MomentSettings, comparable: float, spines: int = 0
) -> frozenset[str]:
    """The ids of those of a job's findings that speak neither for nor against anybody.

    Of two findings on an iteration one is of no account beside the other if its share is less than a ``comparable``
    part. What is chance depends on how many ranks the job has (``world``; None: not known, then all may be), and how
    many spines.
    """
    moments = _moments(recent, settings, comparable)
    if world is None:
        return frozenset(known.id for known in moments)
    told = chances(moments, world, spines)
    return frozenset(known.id for known in moments if told[known.id] > settings.chance)


def chances(moments: Sequence[Evidence], world: int, spines: int = 0) -> dict[str, float]:
    """How probable it is, by the id of each finding, that any of a job's ranks are named in as many runs of spikes as
    its culprit is, if whom searches name is drawn at random: the tail of a binomial distribution, times how many there
    are to name.

    Who is found in one run only is not told apart from chance: 1. The iterations of a run are one occasion. Ranks are
    drawn one by one, and a switch as one of its kind, with all ranks below it: so many ToRs as have these ranks, or
    ``spines`` (0, or where all of them are named: not told, and those who show it are drawn).
    """
    named: defaultdict[str, defaultdict[Run, _Named]] = defaultdict(lambda: defaultdict(_Named))
    runs: defaultdict[str, set[Run]] = defaultdict(set)
    first: dict[_Culprit, Evidence] = {}
    about: dict[str, str] = {}
    for known in moments:
        about[known.id] = first.setdefault(_culprit(known), known).id
        named[known.method][run_of(known)].add(known)
        runs[about[known.id]].add(run_of(known))
    near: defaultdict[int | str, list[Evidence]] = defaultdict(list)
    for known in first.values():
        for part in _parts(known):
            near[part].append(known)
    told = {}
    for known in first.values():
        close = {other.id: other for part in _parts(known) for other in near[part]}
        alike = [other for other in close.values() if other.method == known.method and compatible(other, known)]
        hits = set().union(*(runs[other.id] for other in alike))
        wide = len(set().union(*(other.ranks for other in alike))) / world
        of_switches = _part_of_switches(known, wide, spines)
        drawn = [run.drawn(wide, of_switches) for run in named[known.method].values()]
        told[known.id] = _chance(len(hits), drawn, of_switches or wide) if len(hits) > 1 else 1.0
    return {finding: told[culprit] for finding, culprit in about.items()}


def _parts(finding: Evidence) -> set[int | str]:
    """Ranks and devices, one of which findings have in common that can be about one fault."""
    return {*finding.ranks, *(device.device for device in finding.devices)}


def _part_of_switches(culprit: Evidence, wide: float, spines: int) -> float | None:
    """Which part of the switches of its kind a culprit is; None: it is none, or that is not known."""
    if not is_switch(culprit):
        return None
    if not are_spines(culprit):
        return wide
    return len(culprit.devices) / spines if len(culprit.devices) < spines else None


def _chance(hits: int, drawn: Sequence[float], part: float) -> float:
    """Of so many hits or more on any of those of whom the culprit is a part; ``drawn`` is how probable one is in each
    run.
    """
    from scipy.special import bdtrc  # takes a tenth of the time that a role needs to start

    return min(1.0, float(bdtrc(hits - 1, len(drawn), sum(drawn) / len(drawn))) / part)


def _culprit(finding: Evidence) -> _Culprit:
    return finding.method, finding.cause, finding.level, finding.ranks, finding.devices


def _moments(recent: Sequence[Evidence], settings: MomentSettings, comparable: float) -> list[Evidence]:
    lasting = {run_of(known) for known in recent if known.pattern in {FLUCTUATION, DEGRADATION}}
    spikes: defaultdict[tuple[str, int], list[Evidence]] = defaultdict(list)
    for known in recent:
        if known.active and known.pattern == SPIKE and not hangs(known.cause) and run_of(known) not in lasting:
            spikes[known.method, known.at].append(known)
    return [
        known
        for of_iteration in spikes.values()
        for known in of_iteration
        if known.prominence is not None
        and known.prominence * _own_part(known, of_iteration, comparable) < settings.prominence
    ]


def _own_part(finding: Evidence, of_iteration: Sequence[Evidence], comparable: float) -> float:
    """What a culprit alone explains of an iteration; 1 where nobody was found, as nobody shares it."""
    if not finding.ranks:
        return 1.0
    apart = [finding]
    for known in of_iteration:
        if known.ranks and known.share >= comparable * finding.share and all(_unrelated(known, one) for one in apart):
            apart.append(known)
    return finding.share / len(apart)


def _unrelated(one: Evidence, other: Evidence) -> bool:
    return set(one.ranks).isdisjoint(other.ranks) and not compatible(one, other)
