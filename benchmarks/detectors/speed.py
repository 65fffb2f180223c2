"""How long it takes to judge ten thousand operators beside a window of fifteen minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.irregularity.features import matrix
from diagnosis.irregularity.forest import ForestDetector
from diagnosis.irregularity.samples import Length, Samples
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operators import Operators

OPERATORS = 10_000
WINDOW_ITERATIONS = 112
"""Fifteen minutes of iterations of 8 s."""

LOST = 0.001
"""Share of lines that are."""

REPEATED = 11

USUAL_NS = 8e9


def measured() -> dict[str, Any]:
    """Milliseconds, the median of several, and the least, since others compute meanwhile.

    ``window_statistics_ms`` is spent by a log agent. ``judged_ms`` is what a search waits for: from the statistics and
    rows that it fetched to verdicts. ``judged_with_window_ms`` is both.
    """
    from sklearn.ensemble import RandomForestClassifier

    window, window_ns, operators, duration = _drawn(1)
    length = Length(1.2 * USUAL_NS, USUAL_NS)
    usual = WindowStatistics.of_operators(window, window_ns)
    members = {"c": range(8)}
    samples = Samples.of(operators, duration, usual, length, members)
    abnormal = duration - samples.mean > 0.1 * 0.2 * USUAL_NS
    forest = ForestDetector().fit(samples, abnormal)
    assert forest.trees is not None
    features = matrix(samples, forest.settings.features)
    settings = forest.settings
    library = RandomForestClassifier(
        settings.trees, min_samples_leaf=settings.least_in_leaf, max_leaf_nodes=settings.most_leaves, random_state=0
    ).fit(features, abnormal)
    same = replace(forest, trees=type(forest.trees).of(library))
    assert same.trees is not None
    trees = same.trees

    def judged(beside: WindowStatistics) -> Bools:
        return same.predict(Samples.of(operators, duration, beside, length, members))

    return {
        "operators": OPERATORS,
        "window_iterations": WINDOW_ITERATIONS,
        "repeated": REPEATED,
        "window_statistics_ms": _milliseconds(lambda: WindowStatistics.of_operators(window, window_ns)),
        "features_ms": _milliseconds(lambda: matrix(samples, settings.features)),
        "own_walk_ms": _milliseconds(lambda: trees.probability(features)),
        "library_predict_ms": _milliseconds(lambda: library.predict_proba(features)),
        "judged_ms": _milliseconds(lambda: judged(usual)),
        "judged_with_window_ms": _milliseconds(lambda: judged(WindowStatistics.of_operators(window, window_ns))),
        "largest_difference": float(np.abs(trees.probability(features) - library.predict_proba(features)[:, 1]).max()),
    }


def _drawn(seed: int) -> tuple[Operators, Floats, Operators, Floats]:
    """A rank's window and what each operator took, and the same of one iteration, in which a tenth lost time."""
    draws = np.random.default_rng(seed)
    mean = np.exp(draws.uniform(np.log(20e3), np.log(5e8), OPERATORS))
    window = np.rint(mean * draws.lognormal(0, 0.07, (WINDOW_ITERATIONS, OPERATORS)))
    lost = np.where(draws.random(OPERATORS) < 0.1, draws.uniform(0, 0.5, OPERATORS) * 0.2 * USUAL_NS, 0.0)
    now = np.rint(mean * draws.lognormal(0, 0.07, OPERATORS) + lost)
    size = draws.integers(1, 1 << 30, OPERATORS)
    kept = draws.random(window.size) >= LOST
    return _operators(WINDOW_ITERATIONS, size).take(kept), window.ravel()[kept], _operators(1, size), now


def _operators(iterations: int, size: Ints) -> Operators:
    """All operators of some iterations, in call order."""
    count = iterations * OPERATORS
    codes = pa.array(np.zeros(count, dtype=np.int32))
    return Operators.from_arrow(
        pa.table(
            {
                "rank": np.zeros(count, dtype=np.int64),
                "communicator": pa.DictionaryArray.from_arrays(codes, ["c"]),
                "op": pa.DictionaryArray.from_arrays(codes, ["all_reduce"]),
                "bytes": np.tile(size, iterations),
                "position": np.tile(np.arange(OPERATORS), iterations),
                "iteration": np.repeat(np.arange(iterations), OPERATORS),
                "call_ns": np.arange(count),
            }
        )
    )


def _milliseconds(work: Callable[[], Any]) -> dict[str, float]:
    took = []
    for _ in range(REPEATED):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return {"median": round(float(np.median(took)) * 1e3, 2), "least": round(min(took) * 1e3, 2)}
