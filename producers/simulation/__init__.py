"""A simulated cluster with injected faults.

scenario, faults, noise    what is simulated
cluster, fabric, schedule  where ranks run, over what they communicate, and what each stage does in an iteration
description                what is told of the fabric
network                    what a byte takes between ranks
calibration                how slow a device must be to slow the job as much as wanted
truth                      the same seed without the fault
logged                     what logs hold of an operator, and what loggers do to it
scenarios                  random scenarios for accuracy runs
recording, relabel         a run as files; a run under other names

Small jobs are executed event by event: ``simulate(scenario)``

durations                  what segments and transfers take: mechanism, noise, faults
engine                     who waits for whom
extent                     how many operators that will be, and the most there may be
rows, run                  the logs of all ranks; all of it together

Jobs of thousands of ranks are executed block by block, and expanded where they are asked for: ``LazyRun(scenario)``

parts                      blocks whose members start and end together, in levels
conditions, totals         what an iteration happens under, and how long its blocks take
blocks                     who waits for whom between blocks
inside                     what happens inside a block, given when it begins and ends
lazy, lazy_log             all of it together; the log of any rank and iteration

What NICs count is a level below, in ``nic``: ``simulate_nics(scenario)``
"""

from producers.simulation.faults import Fault, Kind, Part, Pattern
from producers.simulation.lazy import LazyRun
from producers.simulation.lazy_log import LazyLog
from producers.simulation.noise import DEFAULT, HARD, PROFILES, SILENT, NoiseProfile
from producers.simulation.recording import write
from producers.simulation.run import SimulatedRun, simulate
from producers.simulation.scenario import FabricShape, Omissions, Scenario
from producers.simulation.truth import FaultTruth, Truth

__all__ = [
    "DEFAULT",
    "HARD",
    "PROFILES",
    "SILENT",
    "FabricShape",
    "Fault",
    "FaultTruth",
    "Kind",
    "LazyLog",
    "LazyRun",
    "NoiseProfile",
    "Omissions",
    "Part",
    "Pattern",
    "Scenario",
    "SimulatedRun",
    "Truth",
    "simulate",
    "write",
]
