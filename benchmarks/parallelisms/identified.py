"""What is identified of a job's communicators beside what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from benchmarks.parallelisms.collected import op_calls
from benchmarks.parallelisms.layouts import shown
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.parallelism import Parallelism, Parallelisms
from producers.simulation import Scenario, simulate
from producers.simulation.cluster import Cluster
from producers.simulation.schedule import Scope

LEAVES: dict[Scope, Parallelism] = {
    Scope.TENSOR: "tp",
    Scope.DATA: "dp",
    Scope.EXPERT_DATA: "dp",
    Scope.EMBEDDING: "dp",
    Scope.EXPERT: "ep",
    Scope.PIPELINE: "pp",
    Scope.MODEL: "none",
    Scope.BLOCK: "none",
    Scope.CONTEXT: "unknown",
}
"""The leaf of figure 5 that each kind of communicator belongs to. Tied embeddings are parameters that the first stage
and the last both hold: theirs are gradients as well. Context parallelism has no leaf."""


@dataclass(frozen=True, slots=True)
class Identified:
    """One layout. Counts by right and identified leaf, of all ranks' calls together and of each host's alone."""

    layout: str
    whole: Counter[tuple[str, str]]
    by_host: Counter[tuple[str, str]]

    @property
    def right(self) -> bool:
        """Whether all are right, of all calls together and of each host's."""
        return all(truth == leaf for truth, leaf in (*self.whole, *self.by_host))


def identify(scenario: Scenario) -> Identified:
    """Simulate a job and identify what its communicators serve, by calls, members and hosts."""
    run = simulate(scenario)
    calls = Calls.from_arrow(op_calls(run, native=scenario.seed % 2 == 1))
    truth = _truth(scenario)
    tree = Parallelisms(run.job.members, lambda one, other: run.job.on_one_host((one, other)))
    by_host: Counter[tuple[str, str]] = Counter()
    bounds = np.searchsorted(calls.rank, np.arange(0, scenario.world + scenario.gpus_per_host, scenario.gpus_per_host))
    for first, last in pairwise(bounds.tolist()):
        own = calls.take(np.arange(first, last))
        by_host += _compared(truth, tree.identify(own), {own.communicators[c] for c in np.unique(own.communicator)})
    return Identified(shown(scenario), _compared(truth, tree.identify(calls), set(truth)), by_host)


def _truth(scenario: Scenario) -> dict[str, str]:
    cluster = Cluster(scenario)
    return {name: LEAVES[scope] for scope, names in cluster.communicator_names.items() for name in names}


def _compared(truth: Mapping[str, str], told: Mapping[str, str], called: set[str]) -> Counter[tuple[str, str]]:
    return Counter((truth[name], told.get(name, "not told")) for name in called)
