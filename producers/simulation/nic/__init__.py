"""A simulated cluster down to what its NICs count, one level below the log of operators.

scenario, faults, scenarios   what is simulated; the runs that Pulse was judged on
hardware                      lines, latencies, buffers, protocols, and what a NIC counts
slices, wiring                what kernels receive and send slice by slice, and over which connections
blocks, proxies, transport    who waits for whom, in time steps
capacity, lines, background   what lines carry, how flows share it, and what others send
counters                      what NICs count
compute, programs, pipeline, training   what ranks do: compute, call, start kernels
execution                     all of it together
names, clocks, traffic, calls, losses, telemetry   what agents tell of it
operator_log                  the same as a log of operators tells it
truth                         what really happened

``simulate_nics(scenario)`` executes a run; ``messages()`` are its encoded records, ``job`` its description.
"""

from producers.simulation.nic.faults import Class, Fault, Injection
from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.run import NicRun, simulate_nics
from producers.simulation.nic.scenario import DEFAULT, HARD, QUIET, WHOLE, HotExperts, NicScenario, Noise, Workload
from producers.simulation.nic.scenarios import BEYOND, COMBINATIONS, Combination, Setup, faulty, healthy
from producers.simulation.nic.truth import FaultTruth, NicTruth

__all__ = [
    "BEYOND",
    "COMBINATIONS",
    "DEFAULT",
    "HARD",
    "QUIET",
    "WHOLE",
    "Class",
    "Combination",
    "Fault",
    "FaultTruth",
    "Hardware",
    "HotExperts",
    "Injection",
    "NicRun",
    "NicScenario",
    "NicTruth",
    "Noise",
    "Setup",
    "Workload",
    "faulty",
    "healthy",
    "simulate_nics",
]
