"""From an irregular iteration to its culprits: walk to where the time was lost, then say who and how sure.

The chain is Holmes' (4.1, workflow 2 to 4); its search is either Algorithm 1 as published (``algorithm_1``) or
the walk that follows amounts (``attribution``), which is the default, with what tells the members of a slow
channel apart (``separation``), NVLinks from NICs (``nvlinks``), a switch from the NICs below it (``switch``) and a host
from its GPUs (``host``). How much the culprits explain of the iterations' times comes last (``rating``).
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
from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.culprits import (
    Culprit,
    compute_culprit,
    culprit_of,
    decisive,
    largest_by_place,
    switch_culprit,
    transfer_culprit,
)
from diagnosis.operator_graph.host import HostSettings, slow_hosts
from diagnosis.operator_graph.leaf import Wait, largest_waits
from diagnosis.operator_graph.logs import MOST_ROWS, Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.nvlinks import slow_links, slow_with_links
from diagnosis.operator_graph.rating import Suspect, rated
from diagnosis.operator_graph.separation import Separation, SeparationSettings, separate
from diagnosis.operator_graph.switch import slow_spines, slow_switches
from diagnosis.operator_graph.switch_settings import SwitchSettings


@dataclass(frozen=True, slots=True)
class Irregularity:
    """An irregular iteration to explain: how much longer than usual it took, and what usual means.

    ``expected_ns`` is how long it should have taken; 0: not known. ``job_from`` is the job's first iteration. For
    ``pause_ns`` all ranks paused before it, beyond the usual: that is nobody's.
    """

    iteration: int
    baseline: tuple[int, ...]
    pivots: tuple[int, ...]
    excess_ns: int
    expected_ns: int = 0
    job_from: int = 0
    pause_ns: int = 0

    @property
    def length(self) -> Length | None:
        """How long it took beside how long it should have, as detectors ask; None: not known."""
        return Length(self.expected_ns + self.excess_ns, self.expected_ns) if self.expected_ns else None


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
    """How the culprits of an irregular iteration are searched (Holmes 4.3, 4.4).

    The three shares and the groups below are of ``attribution`` alone.
    """

    search: Literal["attribution", "algorithm_1"] = "attribution"
    """``attribution`` follows the time that was lost, ``algorithm_1`` is Holmes' search as published."""
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    separation: SeparationSettings = field(default_factory=SeparationSettings)
    host: HostSettings = field(default_factory=HostSettings)
    switch: SwitchSettings = field(default_factory=SwitchSettings)
    mixed_share: float = 0.5
    """A rank that both computes and communicates slowly is called slow in both ways if the lesser loss is at least this
    part of the greater; else only the greater counts."""
    whole_share: float = 0.9
    """Where a culprit explains at least this part of the excess, others count beside it by ``comparable_share`` only; a
    higher value names more of them."""
    comparable_share: float = 0.5
    """Part of the largest culprit's share that others must explain to count beside it, and part of a device's share
    that its slow host or switch must explain for the device to be no culprit of its own."""
    baseline_iterations: int = field(default=12, metadata={"least": 3})
    """Number of baseline iterations, the latest ones, that the rows of operators are compared with; more of them tell
    chance apart better, and cost as many more logs."""
    large_job: int = 512
    """Number of ranks from which on a job is large: ``large_baseline_iterations`` are compared with, and of the logs
    only the parts that are needed are looked at."""
    large_baseline_iterations: int = field(default=4, metadata={"least": 3})
    """The same as ``baseline_iterations`` for large jobs, whose logs cost more."""
    detector: Literal["3_sigma", "1_sigma"] = "3_sigma"
    """Algorithm 1 calls an operator abnormal if it exceeds its usual mean by three standard deviations, or by one; a
    ``model`` takes its place."""
    tuning: Literal["mean", "p75", "p99", "none"] = "mean"
    """Statistic by whose drift since training the thresholds in nanoseconds of a ``model`` are moved at each search;
    ``none`` leaves them as they are."""
    usual_from: Literal["statistics", "rows"] = "statistics"
    """What Algorithm 1 compares with: ``statistics`` of the whole baseline, which agents work out, or ``rows`` of its
    latest ``baseline_iterations``."""
    series_iterations: int = 100
    """Number of iterations, up to the searched one, over which the time of a culprit's operator is correlated with the
    iterations' (the irregularity rate); 0 takes the time lost in the iterations at hand instead."""
    warm_up: int = 5
    """Number of iterations at the start of a job that are left out of that series."""
    most_rows: int = MOST_ROWS
    """Number of operator rows, some 600 bytes of memory each, beyond which a search asks no more ranks, so that
    culprits may be missing. What is asked for before it is known how much it brings may double that."""


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
        paused = {iteration: irregularity.pause_ns}
        logs = Logs(job, iterations, most_rows=settings.most_rows, narrow=large, paused=paused)
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
    leaves = largest_by_place(found.leaves)
    if not leaves:
        shared = largest_by_place(found.shared)
        spines = yield from slow_spines(logs, shared, baseline, settings.switch, settings.separation)
        return _counting(
            [switch_culprit(logs.job, leaf, excess_ns, of) for leaf, of in spines.items()], settings
        ), found
    channels = [leaf for leaf in leaves if leaf.communicator is not None]
    separations = yield from separate(logs, channels, baseline, settings.separation)
    separation_of = dict(zip(channels, separations, strict=True))
    between_hosts = [(leaf, of) for leaf, of in separation_of.items() if not logs.job.on_one_host(leaf.members)]
    switches_of = yield from slow_switches(logs, between_hosts, baseline, settings.switch, settings.separation)
    untold = [(leaf, of) for leaf, of in between_hosts if leaf not in switches_of]
    over_links = slow_with_links(logs.job, untold, leaves)
    over_links |= yield from slow_links(logs, untold, baseline, settings.separation)
    for leaf, mates in over_links.items():
        separation_of[leaf] = Separation(mates, ())
    local = [leaf for leaf in leaves if leaf.communicator is None or logs.job.on_one_host(leaf.members)]
    blamed = yield from slow_hosts(logs, local, baseline, settings.host)
    whose_fault = dict(zip(local, blamed, strict=True))
    culprits = [
        switch_culprit(logs.job, leaf, excess_ns, switches_of[leaf])
        if leaf in switches_of
        else culprit_of(logs.job, leaf, excess_ns, separation_of.get(leaf), whose_fault.get(leaf, "device"))
        for leaf in leaves
    ]
    return _counting(culprits, settings), found


def _counting(culprits: Sequence[Culprit], settings: LocateSettings) -> list[Culprit]:
    return decisive(
        culprits,
        mixed_share=settings.mixed_share,
        comparable_share=settings.comparable_share,
        whole_share=settings.whole_share,
    )


def _as_published(logs: Logs, irregularity: Irregularity, detector: OperatorDetector) -> Steps:
    """Algorithm 1 from each pivot: it names GPUs, and of a slow communication all that take part."""
    iteration, baseline, excess_ns = irregularity.iteration, irregularity.baseline, irregularity.excess_ns
    found = yield from algorithm_1.search(logs, iteration, baseline, irregularity.pivots, detector, irregularity.length)
    culprits = [
        compute_culprit(logs.job, root.leaf, excess_ns)
        if root.cause == algorithm_1.COMPUTE
        else transfer_culprit(logs.job, root.leaf, root.leaf.members, (), excess_ns)
        for root in found.roots
    ]
    return culprits, found


def _rated(
    logs: Logs, culprits: Sequence[Culprit], irregularity: Irregularity, settings: LocateSettings
) -> Generator[Needs, Answer, list[Culprit]]:
    """The culprits with how much their operators explain of the iterations' times (Holmes 4.4)."""
    suspects = [
        Suspect(culprit.operator, culprit.cause == "communication_slow", culprit.path[0]) for culprit in culprits
    ]
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
