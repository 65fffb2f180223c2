"""What simpler methods make of the same irregular iterations: three sigma, and a random walk (Holmes 5.1.1, 5.2).

Neither has a search of its own: they look at the very rows that the pipeline's search fetched. Three sigma is also run
over the logs of all ranks ("Traditional" in 5.2). What an operator loses beyond its own usual duration is held against
what it ran on; the random walk goes from the pivots over ranks and communicators, the more is lost the likelier.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
import pyarrow as pa

from benchmarks.simulated.detection import Telemetry
from benchmarks.simulated.published import NotedLogs
from diagnosis.irregularity.operator_detector import SigmaDetector
from diagnosis.job import Job
from diagnosis.operator_graph.verdicts import judge
from diagnosis.operators import COLUMNS
from producers.simulation import LazyLog
from schemas import catalogue
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode
from schemas.topic import Topic

SIGMA, WALK, TRADITIONAL = "3 sigma, fetched logs", "random walk, fetched logs", "3 sigma, all logs"

BASELINE_OF_ALL = 6
"""Iterations that all logs are compared with: those of thousands of ranks take minutes to be worked out."""

STAYS = 0.85
"""How likely the walk goes on rather than back to a pivot."""

_COLUMNS = [name for name in COLUMNS if name in catalogue.COMM_OPS.schema.names]

Losses = Mapping[tuple[int, str], float]
"""Time that abnormal operators lost, by rank and communicator."""


@dataclass
class Baselines:
    """A reader that keeps what a search fetches until its findings come; ``seconds`` is what the methods took."""

    job: Job
    pivots: Sequence[int]
    baseline_iterations: int
    name: str = "baselines"
    reads: tuple[Topic, ...] = (catalogue.ITERATIONS, catalogue.COMM_OPS, catalogue.FINDINGS)
    writes: tuple[Topic, ...] = ()
    seconds: float = 0.0
    scores: dict[str, Counter[str]] = field(default_factory=lambda: {SIGMA: Counter(), WALK: Counter()})
    _baselines: dict[int, list[int]] = field(default_factory=dict)
    _fetched: list[pa.RecordBatch] = field(default_factory=list)

    def process(self, message: Message) -> Iterable[Message]:
        """Keep rows that were asked for; judge them when a search ends."""
        started = time.perf_counter()
        if message.topic == catalogue.ITERATIONS.name:
            for row in decode(message, catalogue.ITERATIONS).to_pylist():
                if row["irregular"]:
                    self._baselines[row["iteration"]] = sorted(row["baseline"] or ())
        elif message.topic == catalogue.COMM_OPS.name:
            if REQUEST_ID in message.headers:
                self._fetched.append(decode(message, catalogue.COMM_OPS).select(_COLUMNS))
        else:
            rows = decode(message, catalogue.FINDINGS).to_pylist()
            if rows and rows[0]["active"]:
                self._judge(rows[0]["iteration"])
        self.seconds += time.perf_counter() - started
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _judge(self, iteration: int) -> None:
        if self._fetched:
            baseline = self._baselines[iteration][-self.baseline_iterations :]
            lost = losses(self.job, pa.Table.from_batches(self._fetched), iteration, baseline)
            self.scores[SIGMA].update(by_loss(self.job, lost))
            self.scores[WALK].update(by_walk(self.job, lost, self.pivots))
        self._fetched = []


def losses(job: Job, rows: pa.Table, iteration: int, baseline: Sequence[int]) -> Losses:
    """What operators beyond three standard deviations of their baseline lost in an iteration, in ns."""
    logs = NotedLogs.of(Telemetry(job, rows), [*baseline, iteration])
    view = judge(logs, iteration, baseline, SigmaDetector())
    operators, slow = view.operators, np.flatnonzero(view.abnormal)
    key = operators.rank[slow].astype(np.int64) * len(operators.communicators) + operators.communicator[slow]
    keys, of = np.unique(key, return_inverse=True)
    lost = np.bincount(of, weights=view.excess_ns[slow], minlength=len(keys))
    ranks, communicators = np.divmod(keys, len(operators.communicators))
    names = [operators.communicators[code] for code in communicators]
    return dict(zip(zip(ranks.tolist(), names, strict=True), lost.tolist(), strict=True))


def by_loss(job: Job, lost: Losses) -> dict[str, float]:
    """Each device's part of what was lost: a rank's GPU, and what carries its part of the communicator's traffic; a
    host's CPU has the mean of its ranks.
    """
    scores: Counter[str] = Counter()
    whole = sum(lost.values())
    for (rank, communicator), ns in lost.items():
        carriers = [device.device for device in job.carriers(job.members.get(communicator, (rank,)), (rank,))]
        scores.update(dict.fromkeys((job.gpu(rank).device, *carriers), ns / whole))
        scores.update({job.cpu(rank).device: ns / whole / _ranks_beside(job, rank)})
    return dict(scores)


def by_walk(job: Job, lost: Losses, pivots: Sequence[int]) -> dict[str, float]:
    """How often a walk that begins at the pivots is at a rank, its GPU, or at a communicator, whatever carries it; at a
    host's CPU as often as at its ranks in the mean.
    """
    of_rank = {rank: job.gpu(rank).device for rank in (*pivots, *(rank for rank, _ in lost))}
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(of_rank[rank] for rank in pivots)
    graph.add_weighted_edges_from((of_rank[rank], communicator, ns) for (rank, communicator), ns in lost.items())
    host_of = {job.gpu(rank).device: (job.cpu(rank).device, _ranks_beside(job, rank)) for rank in of_rank}
    at = nx.pagerank(graph, alpha=STAYS, personalization={of_rank[rank]: 1.0 for rank in pivots})
    scores: Counter[str] = Counter()
    for node, often in at.items():
        if node in job.members:
            scores.update({device.device: often for device in job.carriers(job.members[node])})
        elif graph.degree(node):
            cpu, ranks = host_of[node]
            scores.update({node: often, cpu: often / ranks})
    return dict(scores)


def _ranks_beside(job: Job, rank: int) -> int:
    """How many ranks the rank's host has."""
    return len(job.ranks_of_host.get(job.place[rank].host or "", (rank,)))


def traditional(log: LazyLog, iteration: int, baseline: Sequence[int]) -> dict[str, float]:
    """Three sigma over all ranks' logs, host by host."""
    job, compared = log.run.job, sorted(baseline)[-BASELINE_OF_ALL:]
    lost: dict[tuple[int, str], float] = {}
    for ranks in job.ranks_of_host.values():
        rows, _ = log.rows(ranks, [*compared, iteration])
        lost |= losses(job, rows, iteration, compared)
    return by_loss(job, lost)
