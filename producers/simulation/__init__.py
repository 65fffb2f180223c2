"""A simulated cluster with injected faults.

scenario, faults, noise    what is simulated
cluster, schedule          where ranks run, and what each stage does in an iteration
durations                  what segments and transfers take: mechanism, noise, faults
engine                     who waits for whom: block and barrier times
calibration                how slow a device must be to slow the job as much as wanted
rows                       expands block and barrier times into the ranks' logs
truth                      the same seed without the fault
run                        all of it: ``simulate(scenario)``
scenarios                  random scenarios for accuracy runs
recording, relabel         a run as files; a run under other names
"""

from producers.simulation.faults import Fault, Kind, Part, Pattern
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
