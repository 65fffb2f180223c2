"""Devices ranked by the evidence of several iterations (Holmes 4.4): by the pipeline's search and by Algorithm 1.

Both look at the same iterations, with the same pivots and baselines, and are ranked alike: by irregularity rate,
accumulated. Algorithm 1 has no incidents, so places are what the two can be compared by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.simulated.detection import Detection, Telemetry
from benchmarks.simulated.published import NotedLogs, Published, implicated
from diagnosis.operator_graph.locate import LocateSettings

SIGMAS = (1.0, 3.0)
"""Holmes' appendix F calls one standard deviation its 3-sigma rule; so both are measured."""

MOST_ITERATIONS = 4
"""The first searched iterations of a run are enough to compare on."""


@dataclass
class Ranking:
    """Evidence against devices, summed over iterations.

    ``fetched_rows`` were fetched for it, of ``all_rows`` that all ranks logged in the iterations looked at.
    """

    scores: dict[str, float] = field(default_factory=dict)
    fetched_rows: int = 0
    all_rows: int = 0

    def add(self, evidence: Iterable[tuple[str, float]], *, fetched_rows: int, all_rows: int) -> None:
        """Take an iteration's devices with their rates; of several against one device the strongest counts."""
        strongest: dict[str, float] = {}
        for device, rate in evidence:
            strongest[device] = max(rate, strongest.get(device, 0.0))
        for device, rate in strongest.items():
            self.scores[device] = self.scores.get(device, 0.0) + rate
        self.fetched_rows += fetched_rows
        self.all_rows += all_rows

    @property
    def fetched_share(self) -> float:
        """Part of the rows that was fetched; 0 where nothing was searched."""
        return self.fetched_rows / self.all_rows if self.all_rows else 0.0


def compared(detection: Detection) -> tuple[int, ...]:
    """The iterations that the methods are compared on."""
    return detection.searched[:MOST_ITERATIONS]


def by_findings(telemetry: Telemetry, detection: Detection, settings: LocateSettings) -> Ranking:
    """The ranking by what the pipeline's search found."""
    ranking = Ranking()
    logged = telemetry.rows_of_iterations
    for iteration in compared(detection):
        findings = [row for row in detection.findings if row["active"] and row["iteration"] == iteration]
        rates = [row["evidence"]["irregularity_rate"] or 0.0 for row in findings]
        evidence = [(d["device"], rate) for row, rate in zip(findings, rates, strict=True) for d in row["devices"]]
        all_rows = sum(logged[i] for i in (*_baseline(detection, iteration, settings), iteration))
        ranking.add(evidence, fetched_rows=detection.fetched_rows[iteration], all_rows=all_rows)
    return ranking


def by_algorithm_1(telemetry: Telemetry, detection: Detection, settings: LocateSettings) -> dict[str, Ranking]:
    """Rankings by how many standard deviations are abnormal."""
    rankings = {sigmas: Ranking() for sigmas in SIGMAS}
    for iteration in compared(detection):
        baseline = _baseline(detection, iteration, settings)
        pivots = [row["pivot"] for row in detection.iterations[iteration]]
        logs = NotedLogs.of(telemetry, [*baseline, iteration])
        for sigmas, ranking in rankings.items():
            found = Published.of(logs, baseline, iteration, pivots, sigmas)
            evidence = [(device, found.rate(root)) for root in found.roots for device in implicated(logs.job, root)]
            ranking.add(evidence, fetched_rows=logs.noted_rows, all_rows=len(logs.operators))
    return {f"algorithm 1, {sigmas:g} sigma": ranking for sigmas, ranking in rankings.items()}


def _baseline(detection: Detection, iteration: int, settings: LocateSettings) -> list[int]:
    """The iterations that a search compares with, ascending."""
    return sorted(detection.iterations[iteration][0]["baseline"] or ())[-settings.baseline_iterations :]
