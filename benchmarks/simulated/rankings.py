"""Devices ranked by the evidence of several iterations (Holmes 4.4): by the pipeline's search and by Algorithm 1.

Both look at the same iterations, with the same pivots and baselines, and are ranked alike, as ``device_ranking`` does
in SQL. Algorithm 1 has no incidents, so places are what the two can be compared by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median_low

from benchmarks.simulated.detection import Detection, Row, Telemetry
from benchmarks.simulated.published import NotedLogs, Published, implicated
from diagnosis.irregularity.operator_detector import OperatorDetector, SigmaDetector
from diagnosis.irregularity.samples import Length
from diagnosis.operator_graph.locate import LocateSettings
from diagnosis.ranking.devices import Implication, RankingSettings, rank
from diagnosis.ranking.irregularity_rate import rate_told
from diagnosis.topology import Device
from offbeat import models

SHIPPED = "the forest that ships"
"""The random forest of 4.2.2, which learned from simulated runs of other seeds."""

MOST_ITERATIONS = 4
"""The first searched iterations of a run are enough to compare on."""


ALL_PLACES = RankingSettings(top=0)
"""The ranking as it is by default, of every device that is implicated."""


@dataclass
class Ranking:
    """Evidence against devices, gathered over iterations.

    ``fetched_rows`` were fetched for it, of ``all_rows`` that all ranks logged in the iterations looked at.
    """

    evidence: list[Implication] = field(default_factory=list)
    fetched_rows: int = 0
    all_rows: int = 0

    def add(self, evidence: Iterable[Implication], *, fetched_rows: int, all_rows: int) -> None:
        """Take what an iteration's findings implicate."""
        self.evidence += evidence
        self.fetched_rows += fetched_rows
        self.all_rows += all_rows

    @property
    def scores(self) -> dict[str, float]:
        """The score of each device."""
        return scores(self.evidence)

    @property
    def fetched_share(self) -> float:
        """Part of the rows that was fetched; 0 where nothing was searched."""
        return self.fetched_rows / self.all_rows if self.all_rows else 0.0


def implications(findings: Iterable[Row]) -> list[Implication]:
    """What findings implicate; those that name nobody, and those that end something, implicate nothing."""
    told = []
    for row in findings:
        if row["active"] and row["ranks"]:
            evidence = row["evidence"] or {}
            series = evidence.get("operator_ns") or (), evidence.get("iteration_ns") or ()
            rate = rate_told(*series, evidence.get("irregularity_rate"))
            told.append(Implication(rate, tuple(Device(**device) for device in row["devices"]), row["iteration"]))
    return told


def scores(evidence: Iterable[Implication], settings: RankingSettings = ALL_PLACES) -> dict[str, float]:
    """The score of each device; 0 for one that nothing but its prior speaks against."""
    ranked = rank(evidence, settings)
    return {device.device: device.score if device.irregularity_rate > 0 else 0.0 for device in ranked}


def compared(detection: Detection) -> tuple[int, ...]:
    """The iterations that the methods are compared on."""
    return detection.searched[:MOST_ITERATIONS]


def by_findings(telemetry: Telemetry, detection: Detection, settings: LocateSettings) -> Ranking:
    """The ranking by what the pipeline's search found."""
    ranking = Ranking()
    logged = telemetry.rows_of_iterations
    for iteration in compared(detection):
        evidence = implications(row for row in detection.findings if row["iteration"] == iteration)
        all_rows = sum(logged[i] for i in (*_baseline(detection, iteration, settings), iteration))
        ranking.add(evidence, fetched_rows=detection.fetched_rows[iteration], all_rows=all_rows)
    return ranking


def by_algorithm_1(telemetry: Telemetry, detection: Detection, settings: LocateSettings) -> dict[str, Ranking]:
    """Rankings by what tells abnormal operators."""
    rankings = {name: Ranking() for name in detectors()}
    for iteration in compared(detection):
        baseline = _baseline(detection, iteration, settings)
        pivots = [row["pivot"] for row in detection.iterations[iteration]]
        logs = NotedLogs.of(telemetry, [*baseline, iteration])
        for name, ranking in rankings.items():
            found = Published.of(logs, baseline, iteration, pivots, detectors()[name], _length(detection, iteration))
            evidence = [Implication(found.rate(root), implicated(logs.job, root), iteration) for root in found.roots]
            ranking.add(evidence, fetched_rows=logs.noted_rows, all_rows=len(logs.operators))
    return {f"algorithm 1, {name}": ranking for name, ranking in rankings.items()}


@cache
def detectors() -> Mapping[str, OperatorDetector]:
    """What tells abnormal operators in Algorithm 1, by name. Holmes' appendix F calls one standard deviation its
    3-sigma rule; so both are measured.
    """
    sigmas = {f"{sigmas:g} sigma": SigmaDetector(sigmas) for sigmas in (1.0, 3.0)}
    return {**sigmas, SHIPPED: models.load(models.DEFAULT).detector}


def _length(detection: Detection, iteration: int) -> Length | None:
    """How long an iteration took beside how long it should have; None: not known."""
    rows = detection.iterations[iteration]
    durations = [row["duration_ns"] for row in rows if row["duration_ns"] is not None]
    expected = rows[0]["expected_ns"]
    return Length(median_low(durations), expected) if durations and expected else None


def _baseline(detection: Detection, iteration: int, settings: LocateSettings) -> list[int]:
    """The iterations that a search compares with, ascending."""
    return sorted(detection.iterations[iteration][0]["baseline"] or ())[-settings.baseline_iterations :]
