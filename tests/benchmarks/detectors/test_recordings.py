"""Labels that the averages of a recording give, beside the truth of a simulated one."""

from __future__ import annotations

import numpy as np

from benchmarks.detectors import recordings
from offbeat.training import Counts, Log
from producers.simulation import Fault, Kind, Scenario, simulate


def test_averages_tell_what_a_lasting_fault_makes_longer() -> None:
    slow = Fault(Kind.GPU_SLOW, 5, tuple(range(15, 35)), slowdown=1.5)
    run = simulate(
        Scenario(3197, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=35, faults=(slow,))
    )
    parts = recordings.labelled(Log.of(run.job, run.table))
    assert [part.iteration for part in parts] == list(slow.iterations)
    iteration = run.table.column("iteration").to_numpy()
    truth = np.concatenate([run.truth.abnormal[iteration == part.iteration] for part in parts])
    said = Counts.of(truth, np.concatenate([part.abnormal for part in parts]))
    assert said.f1 > 0.85


def test_a_spike_is_too_short_for_averages() -> None:
    slow = Fault(Kind.GPU_SLOW, 5, (15, 16), slowdown=1.5)
    run = simulate(
        Scenario(3197, tp=2, pp=2, dp=2, microbatches=4, layers=4, hidden=4096, iterations=20, faults=(slow,))
    )
    assert recordings.labelled(Log.of(run.job, run.table)) == []
