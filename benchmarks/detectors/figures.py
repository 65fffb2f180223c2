"""Counts of operators as figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offbeat.training import Counts


def figures(of_jobs: Sequence[Counts]) -> dict[str, Any]:
    """F1, precision and recall over the operators of all jobs, and the F1 of each job.

    F1 is a monotone function of the share of operators called or truly abnormal that are both, 2 s / (1 + s). The
    interval is that share's Wilson interval at 95 %, carried over. Operators of one iteration are alike, so it is too
    narrow; the spread over the jobs says more.
    """
    from scipy.stats import binomtest

    total = Counts()
    for counts in of_jobs:
        total = total.plus(counts)
    either = sum(total)
    bounds = binomtest(total.right, either).proportion_ci(method="wilson") if either else (0.0, 1.0)
    return {
        "f1": round(total.f1, 4),
        "interval_95": [round(2 * share / (1 + share), 4) for share in map(float, bounds)],
        "precision": round(total.precision, 4),
        "recall": round(total.recall, 4),
        "operators": {"right": total.right, "wrong": total.wrong, "missed": total.missed},
        "f1_of_jobs": [round(counts.f1, 3) for counts in of_jobs],
    }
