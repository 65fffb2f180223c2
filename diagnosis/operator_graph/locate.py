"""From an irregular iteration to its culprits: walk to where the time was lost, then say who and how sure.

The chain is Holmes' (4.1, workflow 2 to 4); its search is either Algorithm 1 as published (``algorithm_1``) or
the walk that follows amounts (``attribution``), which is the default, with what tells the members of a slow
channel apart (``separation``), a switch from the NICs below it (``switch``) and a host from its GPUs (``host``).
How much the culprits explain of the iterations' times comes last (``rating``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from diagnosis.irregularity.samples import Length
from diagnosis.irregularity.tuning import tuning_by
from diagnosis.job import Job
from diagnosis.operator_graph import algorithm_1
from diagnosis.operator_graph.attribution import Walk, walk
from diagnosis.operator_graph.host import HostSettings, slow_hosts
from diagnosis.operator_graph.leaf import Leaf, OperatorRef, Wait, largest_waits
from diagnosis.operator_graph.ledger import AttributionSettings
from diagnosis.operator_graph.logs import MOST_ROWS, Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.rating import Suspect, rated
from diagnosis.operator_graph.separation import Separation, SeparationSettings, separate
from diagnosis.operator_graph.switch import SwitchSettings, slow_switches
from diagnosis.topology import Device, are_switches

COMPUTE = "compute_slow"
NETWORK = "communication_slow"
MIXED = "mixed_slow"
HOST = "host_slow"

_ON_A_HOST = {"gpu", "nvlink", "cpu"}
"""Kinds of devices on a host, the CPU among them that is named with NVLinks which it may slow instead."""


@dataclass(frozen=True, slots=True)
class Irregularity:
    """An irregular iteration to explain: how much longer than usual it took, and what usual means.

    ``expected_ns`` is how long it should have taken; 0: not known. ``job_from`` is the job's first iteration.
    """

    iteration: int
    baseline: tuple[int, ...]
    pivots: tuple[int, ...]
    excess_ns: int
    expected_ns: int = 0
    job_from: int = 0

    @property
    def length(self) -> Length | None:
        """How long it took beside how long it should have, as detectors ask; None: not known."""
        return Length(self.expected_ns + self.excess_ns, self.expected_ns) if self.expected_ns else None


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who lost how much of an iteration's excess.

    ``ranks`` are the culprits; with several ``candidates`` (sets) the evidence cannot tell which, and ``ranks``
    is their union. ``operator_ns`` and ``iteration_ns`` are the series that ``irregularity_rate`` correlates.
    """

    cause: str
    level: str
    ranks: tuple[int, ...]
    candidates: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    operator: OperatorRef
    excess_ns: int
    share: float
    path: tuple[int, ...]
    operator_ns: tuple[int, ...] = ()
    iteration_ns: tuple[int, ...] = ()
    irregularity_rate: float = 0.0

    @property
    def is_switch(self) -> bool:
        """Whether it is a switch, with the ranks below it."""
        return are_switches(device.kind for device in self.devices)


@dataclass(frozen=True, slots=True)
class Location:
    """What a search found, largest share first; no culprits: the delay could not be pinned on anybody.

    ``bounded``: it stopped at its bound of ranks or rows, so that culprits may be missing.
    """

    culprits: tuple[Culprit, ...]
    waits: tuple[Wait, ...]
    visited: tuple[int, ...]
    coverage: float
    clock_error_ns: int
    last_record_ns: int
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class LocateSettings:
    """Settings of the steps. ``search`` chooses between the walk that follows amounts and Algorithm 1 as published.

    Beside a culprit that explains ``whole_share`` of the excess only those count that explain
    ``comparable_share`` of what it does. A rank is slow in both ways if the lesser is ``mixed_share`` of the greater.
    The latest ``baseline_iterations`` of the baseline are compared with, row by row; of a job of at least
    ``large_job`` ranks ``large_baseline_iterations``, since each costs as much as the irregular one. Algorithm 1
    compares with statistics of the whole baseline, by ``detector``, or with rows as well (``usual_from``); a trained
    one whose features are in ns is tuned at each search, by the statistic of ``tuning``. The irregularity rate is of
    ``series_iterations`` iterations, without the first ``warm_up`` ones of the job; 0: no series is asked for.
    ``most_rows`` bounds what a search holds.
    """

    search: Literal["attribution", "algorithm_1"] = "attribution"
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    separation: SeparationSettings = field(default_factory=SeparationSettings)
    host: HostSettings = field(default_factory=HostSettings)
    switch: SwitchSettings = field(default_factory=SwitchSettings)
    mixed_share: float = 0.5
    whole_share: float = 0.9
    comparable_share: float = 0.5
    baseline_iterations: int = 12
    large_job: int = 512
    large_baseline_iterations: int = 4
    detector: Literal["3_sigma", "1_sigma"] = "3_sigma"
    tuning: Literal["mean", "p75", "p99", "none"] = "mean"
    usual_from: Literal["statistics", "rows"] = "statistics"
    series_iterations: int = 100
    warm_up: int = 5
    most_rows: int = MOST_ROWS


DETECTORS: Mapping[str, Callable[[], OperatorDetector]] = {
    "3_sigma": SigmaDetector,
    "1_sigma": lambda: SigmaDetector(sigmas=1.0),
}
"""Detectors that need no training, by the name of the setting."""


def locate(
    job: Job,
    irregularity: Irregularity,
    settings: LocateSettings | None = None,
    detector: OperatorDetector | None = None,
) -> Generator[Needs, Answer, Location]:
    """Search the operator graph for the culprits of an irregular iteration; yields the logs that it needs.

    A trained ``detector`` takes the place of the one of the settings in Algorithm 1.
    """
    settings = settings or LocateSettings()
    iteration, baseline = irregularity.iteration, irregularity.baseline
    if settings.search == "algorithm_1" and settings.usual_from == "statistics":
        logs = Logs(job, (iteration,), window=baseline, most_rows=settings.most_rows)
    else:
        large = len(job.ranks) >= settings.large_job
        baseline = baseline[-(settings.large_baseline_iterations if large else settings.baseline_iterations) :]
        before = (iteration - 1,) if iteration else ()
        iterations = tuple(sorted({*baseline, *before, iteration}))
        logs = Logs(job, iterations, most_rows=settings.most_rows, narrow=large)
    irregularity = replace(irregularity, baseline=baseline)
    if settings.search == "algorithm_1":
        tuned_by = None if settings.tuning == "none" else settings.tuning
        chosen = DETECTORS[settings.detector]() if detector is None else tuning_by(detector, tuned_by)
        culprits, found = yield from _as_published(logs, irregularity, chosen)
    else:
        culprits, found = yield from _by_amounts(logs, irregularity, settings)
    culprits = yield from _rated(logs, culprits, irregularity, settings)
    return Location(
        culprits=tuple(sorted(culprits, key=lambda c: (-c.share, c.ranks))),
        waits=largest_waits(found.waits),
        visited=tuple(found.visited),
        coverage=logs.coverage,
        clock_error_ns=found.clock_error_ns,
        last_record_ns=logs.last_record_ns,
        bounded=found.bounded or logs.bounded,
    )


Steps = Generator[Needs, Answer, tuple[list[Culprit], Walk | algorithm_1.Found]]
"""A search on its way to the culprits, with what it passed."""


def _by_amounts(logs: Logs, irregularity: Irregularity, settings: LocateSettings) -> Steps:
    iteration, baseline, excess_ns = irregularity.iteration, irregularity.baseline, irregularity.excess_ns
    found = yield from walk(logs, iteration, baseline, irregularity.pivots, excess_ns, settings.attribution)
    leaves = _largest_by_place(found.leaves)
    channels = [leaf for leaf in leaves if leaf.communicator is not None]
    told = yield from separate(logs, channels, baseline, settings.separation)
    apart = dict(zip(channels, told, strict=True))
    abroad = [(leaf, of) for leaf, of in apart.items() if not logs.job.on_one_host(leaf.members)]
    above = yield from slow_switches(logs, abroad, baseline, settings.switch, settings.separation)
    local = [leaf for leaf in leaves if leaf.communicator is None or logs.job.on_one_host(leaf.members)]
    slowed = yield from slow_hosts(logs, local, baseline, settings.host)
    of_host = dict(zip(local, slowed, strict=True))
    culprits = [
        _of_switch(logs.job, leaf, excess_ns, above[leaf])
        if leaf in above
        else _culprit(logs.job, leaf, excess_ns, apart.get(leaf), of_host.get(leaf, False))
        for leaf in leaves
    ]
    named = _without_their_parts(_merged(culprits, settings.mixed_share), settings.comparable_share)
    return _decisive(named, settings), found


def _as_published(logs: Logs, irregularity: Irregularity, detector: OperatorDetector) -> Steps:
    """Algorithm 1 from each pivot: it names GPUs, and of a slow communication all that take part."""
    iteration, baseline, excess_ns = irregularity.iteration, irregularity.baseline, irregularity.excess_ns
    found = yield from algorithm_1.search(logs, iteration, baseline, irregularity.pivots, detector, irregularity.length)
    culprits = [
        _computing(logs.job, root.leaf, excess_ns)
        if root.cause == algorithm_1.COMPUTE
        else _transferring(logs.job, root.leaf, root.leaf.members, (), excess_ns)
        for root in found.roots
    ]
    return culprits, found


def _largest_by_place(leaves: Sequence[Leaf]) -> list[Leaf]:
    """The largest leaf of each rank that computes and of each channel that transfers."""
    largest: dict[tuple[str | None, tuple[int, ...]], Leaf] = {}
    for leaf in sorted(leaves, key=lambda leaf: -leaf.excess_ns):
        largest.setdefault((leaf.communicator, leaf.members), leaf)
    return list(largest.values())


def _culprit(job: Job, leaf: Leaf, excess_ns: int, apart: Separation | None, of_host: bool | None) -> Culprit:
    """Who a leaf names, with what tells the members of its channel ``apart`` (None: it is no channel), and whether its
    host is slow; where that cannot be told of slow NVLinks, the host's CPUs are named with them.
    """
    if of_host:
        return _of_host(job, leaf, excess_ns)
    if apart is None:
        return _computing(job, leaf, excess_ns)
    culprit = _transferring(job, leaf, apart.members, apart.ranks or apart.points_to, excess_ns)
    return replace(culprit, devices=(*culprit.devices, job.cpu(leaf.rank))) if of_host is None else culprit


def _computing(job: Job, leaf: Leaf, excess_ns: int) -> Culprit:
    return Culprit(
        cause=COMPUTE,
        level="device",
        ranks=(leaf.rank,),
        candidates=(),
        devices=(job.gpu(leaf.rank),),
        operator=leaf.operator,
        excess_ns=min(leaf.excess_ns, excess_ns),
        share=min(1.0, leaf.excess_ns / excess_ns),
        path=leaf.path,
    )


def _of_host(job: Job, leaf: Leaf, excess_ns: int) -> Culprit:
    """All ranks of a host, which its CPU slows."""
    return replace(
        _computing(job, leaf, excess_ns),
        cause=HOST,
        level="machine",
        ranks=job.ranks_beside(leaf.rank),
        devices=(job.cpu(leaf.rank),),
    )


def _of_switch(job: Job, leaf: Leaf, excess_ns: int, switches: tuple[Device, ...]) -> Culprit:
    """A ToR with the ranks below it, or the spines, one of which is slow, with the ranks whose traffic shows it."""
    below = job.ranks_below.get(switches[0].device, tuple(sorted(leaf.members)))
    level = "device" if len(switches) == 1 else "group"
    return replace(_computing(job, leaf, excess_ns), cause=NETWORK, level=level, ranks=below, devices=switches)


def _transferring(job: Job, leaf: Leaf, members: tuple[int, ...], told: tuple[int, ...], excess_ns: int) -> Culprit:
    """The member that could be told apart, else the group with its candidates."""
    ranks = told or members
    alone = len(ranks) == 1
    return Culprit(
        cause=NETWORK,
        level="device" if alone else "group",
        ranks=ranks,
        candidates=() if alone else tuple((rank,) for rank in ranks),
        devices=job.carriers(members, ranks),
        operator=leaf.operator,
        excess_ns=min(leaf.excess_ns, excess_ns),
        share=min(1.0, leaf.excess_ns / excess_ns),
        path=leaf.path,
    )


def _merged(culprits: Sequence[Culprit], mixed_share: float) -> list[Culprit]:
    """One culprit a set of ranks, or of switches; a group that holds a rank whose network is named says nothing new."""
    named: dict[tuple[int, ...], Culprit] = {}
    for culprit in sorted(_by_switches(culprits), key=lambda c: (c.level == "group" and not c.is_switch, -c.excess_ns)):
        known = named.get(culprit.ranks)
        if known is None:
            by_network = {r for c in named.values() if c.cause in {NETWORK, MIXED} for r in c.ranks}
            if culprit.level != "group" or culprit.is_switch or not by_network & set(culprit.ranks):
                named[culprit.ranks] = culprit
        elif HOST in {known.cause, culprit.cause}:
            named[culprit.ranks] = _with_its_links(known, culprit)
        elif known.cause != culprit.cause and culprit.excess_ns >= mixed_share * known.excess_ns:
            devices = tuple(dict.fromkeys((*known.devices, *culprit.devices)))
            named[culprit.ranks] = replace(known, cause=MIXED, devices=devices)
    return list(named.values())


def _by_switches(culprits: Sequence[Culprit]) -> list[Culprit]:
    """Of those about the same switches the one that lost most, with the ranks of all."""
    largest: dict[tuple[Device, ...], Culprit] = {}
    for culprit in sorted(culprits, key=lambda c: -c.excess_ns):
        if culprit.is_switch:
            known = largest.setdefault(culprit.devices, culprit)
            largest[culprit.devices] = replace(known, ranks=tuple(sorted({*known.ranks, *culprit.ranks})))
    return [*(culprit for culprit in culprits if not culprit.is_switch), *largest.values()]


def _with_its_links(one: Culprit, other: Culprit) -> Culprit:
    """A slow host, and what its ranks lost among themselves: what it launches late looks like slow NVLinks."""
    host, links = (one, other) if one.cause == HOST else (other, one)
    if links.cause == HOST:
        return max(one, other, key=lambda culprit: culprit.excess_ns)
    whole = round(host.excess_ns / host.share) if host.share else 0
    share = min(1.0, host.share + links.share)
    return replace(host, excess_ns=min(whole, host.excess_ns + links.excess_ns), share=share)


def _without_their_parts(culprits: Sequence[Culprit], comparable: float) -> list[Culprit]:
    """Without the GPUs and NVLinks of hosts that are slow, the NICs and cables below switches that are, and the groups
    that one of their ranks is in: they are slow with these, unless they lost so much that these explain little of it.
    As little are spines told by what ranks of a slow host share with others.
    """
    wholes = [culprit for culprit in culprits if culprit.cause == HOST or culprit.is_switch]

    def follows(culprit: Culprit, whole: Culprit) -> bool:
        local = {device.kind for device in culprit.devices} <= _ON_A_HOST
        if whole.is_switch and (local or culprit.cause != NETWORK or culprit.is_switch):
            return False
        if culprit.level == "group" or {device.kind for device in culprit.devices} == {"spine"}:
            return not {*culprit.ranks}.isdisjoint(whole.ranks)
        return (local or whole.is_switch) and {*culprit.ranks} < {*whole.ranks}

    def is_explained(culprit: Culprit) -> bool:
        return any(follows(culprit, whole) and whole.share >= comparable * culprit.share for whole in wholes)

    return [culprit for culprit in culprits if culprit.cause == HOST or not is_explained(culprit)]


def _decisive(culprits: Sequence[Culprit], settings: LocateSettings) -> list[Culprit]:
    """Without those who lost little beside one who explains all: had they been faster, nothing had changed."""
    largest = max((culprit.share for culprit in culprits), default=0.0)
    least = settings.comparable_share * largest if largest >= settings.whole_share else 0.0
    return [culprit for culprit in culprits if culprit.share >= least]


def _rated(
    logs: Logs, culprits: Sequence[Culprit], irregularity: Irregularity, settings: LocateSettings
) -> Generator[Needs, Answer, list[Culprit]]:
    """The culprits with how much their operators explain of the iterations' times (Holmes 4.4)."""
    suspects = [Suspect(culprit.operator, culprit.cause == NETWORK, culprit.path[0]) for culprit in culprits]
    first = max(irregularity.job_from + settings.warm_up, irregularity.iteration + 1 - settings.series_iterations)
    window = range(first, irregularity.iteration + 1) if settings.series_iterations else ()
    rates = yield from rated(logs, suspects, irregularity.iteration, irregularity.baseline, tuple(window))
    return [
        replace(
            culprit,
            operator_ns=rate.operator_ns,
            iteration_ns=rate.iteration_ns,
            irregularity_rate=rate.irregularity_rate,
        )
        for culprit, rate in zip(culprits, rates, strict=True)
    ]
