"""Detectors on recordings of real processes, whose operators nobody labelled.

Where a device stays slow, the recording itself tells which operators it makes longer: those that take longer on average
over all iterations of the irregular run than over those before it, by a tenth of what iterations lost on average. A
detector sees one of these iterations at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detectors.comparison import compared, told
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operators import UNKNOWN
from offbeat.training import Labelled, Log
from producers.importers.recording import load
from producers.simulation.truth import OPERATOR_SHARE

LEAST_OF_A_RUN = 10
"""Iterations of an irregular run that averages are taken of."""


def judged(folders: Sequence[Path]) -> dict[str, Any]:
    """How each detector does on recordings of one job: on a fault that it learned the earlier iterations of, and on
    each recording after it learned from the others.

    What has no irregular iterations is never judged; how many there are is told of each.
    Raises ``InputError`` for what cannot be read.
    """
    recordings = {folder.name: load([folder]) for folder in folders}
    logs = {name: Log.of(recording.job, recording.table) for name, recording in recordings.items()}
    irregular = {name: len(log.irregular) for name, log in logs.items()}
    parts = {name: own for name, log in logs.items() if (own := labelled(log))}
    earlier = [own[: len(own) // 2] for own in parts.values()]
    later = [own[len(own) // 2 :] for own in parts.values()]
    others = {name: [of_other for other, of_other in parts.items() if other != name] for name in parts}
    return {
        "irregular_iterations": irregular,
        "known_faults": told([compared(", ".join(parts), earlier, later)]) if parts else None,
        "other_faults": {
            name: told([compared(name, others[name], [own])]) for name, own in parts.items() if others[name]
        },
    }


def labelled(log: Log) -> list[Labelled]:
    """The irregular iterations of a log, in runs that are long enough, with the labels that averages give."""
    parts = []
    for first in sorted(set(log.irregular.values())):
        run = [iteration for iteration, of in log.irregular.items() if of == first]
        if len(run) >= LEAST_OF_A_RUN:
            lasting = _lasting(log, run, first)
            for iteration in run:
                here = log.operators.take(log.here(iteration))
                names = here.communicators
                rows = lasting.rows(here.rank, here.communicator, here.position, names)
                parts.append(Labelled(iteration, log.samples(iteration), rows != UNKNOWN))
    return parts


def _lasting(log: Log, run: Sequence[int], first: int) -> WindowStatistics:
    """The operators that the run makes longer."""
    window = log.regular[log.regular < first].tolist()
    before, during = (_averages(log, iterations) for iterations in (window, run))
    rows = before.rows(during.rank, during.communicator, during.position, during.communicators)
    lost_ns = np.nanmean(log.lengths_ns[list(run)]) - np.nanmean(log.lengths_ns[window])
    longer = during.mean - before.mean[rows] >= OPERATOR_SHARE * lost_ns
    return during.take(longer & (rows != UNKNOWN))


def _averages(log: Log, iterations: Sequence[int]) -> WindowStatistics:
    those = np.isin(log.operators.iteration, list(iterations))
    return WindowStatistics.of_operators(log.operators.take(those), log.duration_ns[those])
