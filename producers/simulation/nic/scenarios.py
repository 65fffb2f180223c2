"""The runs that Pulse was judged on (its table 4 and appendix D), healthy ones, and where their faults are.

Rank and time of a fault are uniform, but for the last iterations; all that is drawn hangs on the seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.faults import OF_HOST, SEVERITIES, Fault, Injection
from producers.simulation.nic.hardware import Hardware
from producers.simulation.nic.scenario import DEFAULT, HotExperts, NicScenario, Noise, Workload


class Setup(StrEnum):
    """What runs, on how many ranks; ``MIXTRAL_TREES`` reduces its gradients along trees, not around rings."""

    GPT2_70B = "gpt2_70b"
    GPT2_70B_DEEP = "gpt2_70b_deep"
    GPT2_32B = "gpt2_32b"
    MIXTRAL = "mixtral"
    NEIGHBOURS = "neighbours"
    ALL_TO_ONE = "all_to_one"
    ONE_TO_ALL = "one_to_all"
    HOT_EXPERTS = "hot_experts"
    MIXTRAL_TREES = "mixtral_trees"


_ITERATIONS = 10
"""Of training runs: three follow what begins in ``_WITHIN``, so that a slow one comes again."""

_LASTING = 30
"""The same where nobody is slower than others, or nothing is at fault: only what lasts is told."""

_DENSE = NicScenario(0, Workload.DENSE, tp=8, dp=4, pp=2, iterations=_ITERATIONS)
_EXPERTS = NicScenario(
    0,
    Workload.EXPERTS,
    tp=8,
    dp=4,
    pp=1,
    microbatches=2,
    iterations=_ITERATIONS,
    forward_s=0.02,
    gradient_bytes=400_000_000,
    shrink=4,
)

_SETUPS = {
    Setup.GPT2_70B: _DENSE,
    Setup.GPT2_70B_DEEP: replace(_DENSE, dp=2, pp=4, microbatches=8, forward_s=0.0015, gradient_bytes=4_375_000_000),
    Setup.GPT2_32B: replace(_DENSE, tp=4, pp=1, forward_s=0.006, gradient_bytes=16_000_000_000, shrink=64),
    Setup.MIXTRAL: _EXPERTS,
    Setup.HOT_EXPERTS: replace(_EXPERTS, iterations=_LASTING),
    Setup.MIXTRAL_TREES: replace(_EXPERTS, hardware=Hardware(tree_bytes=1 << 40)),
    Setup.NEIGHBOURS: NicScenario(0, Workload.NEIGHBOURS, tp=1, dp=4, pp=1, iterations=24, forward_s=0.005, shrink=16),
    Setup.ALL_TO_ONE: NicScenario(0, Workload.ALL_TO_ONE, tp=1, dp=4, pp=1, iterations=24, forward_s=0.005, shrink=16),
    Setup.ONE_TO_ALL: NicScenario(0, Workload.ONE_TO_ALL, tp=1, dp=4, pp=1, iterations=24, forward_s=0.005, shrink=16),
}

_ITERATION_S = {
    Setup.GPT2_70B: 0.060,
    Setup.GPT2_70B_DEEP: 0.062,
    Setup.GPT2_32B: 0.095,
    Setup.MIXTRAL: 0.165,
    Setup.HOT_EXPERTS: 0.165,
    Setup.MIXTRAL_TREES: 0.165,
    Setup.NEIGHBOURS: 0.008,
    Setup.ALL_TO_ONE: 0.008,
    Setup.ONE_TO_ALL: 0.008,
}
"""About what a healthy iteration takes, as measured: only to place faults in time."""

_SENDING = {
    Setup.GPT2_70B: 0.16,
    Setup.GPT2_70B_DEEP: 0.10,
    Setup.GPT2_32B: 0.09,
    Setup.MIXTRAL: 0.15,
    Setup.HOT_EXPERTS: 0.15,
    Setup.MIXTRAL_TREES: 0.15,
    Setup.NEIGHBOURS: 0.36,
    Setup.ALL_TO_ONE: 0.39,
    Setup.ONE_TO_ALL: 0.39,
}
"""Part of it that grows as lines get slower, as measured between 200 and 800 Gb/s."""

_WITHIN = (0.0, 0.7)
"""Where in a run its fault begins: anywhere, if three iterations are to follow."""

_AFTER_SOME = (0.2, 0.7)
"""The same of what lasts: only what was usual tells it."""

_TRAINING = (Setup.GPT2_70B, Setup.MIXTRAL)
_ALL = (*_TRAINING, Setup.NEIGHBOURS)
_TABLE_4 = {
    Injection.GPU_ERROR: _TRAINING,
    Injection.CUDA_ERROR: _TRAINING,
    Injection.GPU_THROTTLING: _TRAINING,
    Injection.CPU_THROTTLING: _TRAINING,
    Injection.CPU_CONTENTION: _TRAINING,
    Injection.NIC_DOWN: _ALL,
    Injection.PCIE_DOWNGRADE: _ALL,
    Injection.PCIE_CONTENTION: _ALL,
    Injection.CONGESTION: _ALL,
    Injection.CROSS_NUMA: (Setup.GPT2_32B,),
}


@dataclass(frozen=True, slots=True)
class Combination:
    """An injection of one severity in one setup, on a rank or host, or on all of them at once."""

    setup: Setup
    injection: Injection
    severity: float
    everywhere: bool = False

    def __str__(self) -> str:
        severity = f"/{self.severity:g}" if self.injection in SEVERITIES else ""
        return f"{self.setup}/{self.injection}{severity}" + ("/everywhere" if self.everywhere else "")


COMBINATIONS = tuple(
    Combination(setup, injection, severity)
    for injection, setups in _TABLE_4.items()
    for setup in setups
    for severity in SEVERITIES.get(injection, (1.0,))
)
"""Table 4: 4 of stopped computing, 14 of slow, 3 of stopped communication, 37 of slow."""

BEYOND = (
    Combination(Setup.GPT2_70B_DEEP, Injection.GPU_THROTTLING, 350.0),
    Combination(Setup.GPT2_70B_DEEP, Injection.GPU_ERROR, 1.0),
    Combination(Setup.GPT2_70B, Injection.MEMORY_ALIGNMENT, 1.0),
    Combination(Setup.ALL_TO_ONE, Injection.PCIE_DOWNGRADE, 0.7),
    Combination(Setup.ONE_TO_ALL, Injection.CONGESTION, 0.5),
    Combination(Setup.MIXTRAL_TREES, Injection.PCIE_DOWNGRADE, 0.3),
    Combination(Setup.MIXTRAL_TREES, Injection.NIC_DOWN, 1.0),
    Combination(Setup.GPT2_70B, Injection.PCIE_DOWNGRADE, 0.5, everywhere=True),
    Combination(Setup.GPT2_70B, Injection.GPU_THROTTLING, 350.0, everywhere=True),
)
"""Cases of the paper's appendix D and section 9 outside of the table."""

_TIMES = (2.0, 4.0)
"""How much hot experts weigh when they are chosen: of four hosts with equal ones they get 1.6 to 2.3 times as many."""


def healthy(setup: Setup, seed: int, noise: Noise = DEFAULT) -> NicScenario:
    """A run without a fault; a third of them do not tell their degrees of parallelism."""
    scenario = replace(_SETUPS[setup], seed=seed, noise=noise, describe_layout=seed % 3 != 0)
    if setup is not Setup.HOT_EXPERTS:
        return scenario
    chance = stream(seed, Purpose.FAULT)
    first = int(chance.uniform(*_AFTER_SOME) * scenario.iterations)
    return replace(scenario, hot=HotExperts(int(chance.integers(scenario.hosts)), first, chance.uniform(*_TIMES)))


def faulty(case: Combination, seed: int, noise: Noise = DEFAULT) -> NicScenario:
    """A run with a fault, somewhere and some time."""
    scenario = healthy(case.setup, seed, noise)
    if case.everywhere:
        scenario = replace(scenario, iterations=_LASTING)
    placed = _placed(case, scenario)
    each = scenario.tp if placed.injection in OF_HOST else 1
    ranks = range(0, scenario.world, each) if case.everywhere else (placed.rank,)
    return replace(scenario, faults=tuple(replace(placed, rank=rank) for rank in ranks))


def with_hardware(scenario: NicScenario, setup: Setup, hardware: Hardware) -> NicScenario:
    """The same run of a setup with other NICs; its faults begin as far into it."""
    longer = 1 + _SENDING[setup] * (scenario.hardware.line_gbps / hardware.line_gbps - 1)
    faults = tuple(replace(fault, at_s=fault.at_s * longer) for fault in scenario.faults)
    return replace(scenario, hardware=hardware, faults=faults)


def _placed(case: Combination, scenario: NicScenario) -> Fault:
    """The fault's place and time.

    Where all send to one or one to all, a severity is of what a sender has while all send: lines are idle beyond it.
    """
    chance = stream(scenario.seed, Purpose.FAULT)
    within = _AFTER_SOME if case.everywhere else _WITHIN
    at_s = float(chance.uniform(*within)) * scenario.iterations * _ITERATION_S[case.setup]
    others = scenario.world - 1
    if scenario.workload is Workload.ALL_TO_ONE:
        return Fault(case.injection, 1 + int(chance.integers(others)), at_s, case.severity / others)
    if scenario.workload is Workload.ONE_TO_ALL and case.injection is Injection.CONGESTION:
        return Fault(case.injection, 0, at_s, case.severity, peer=1 + int(chance.integers(others)))
    return Fault(case.injection, int(chance.integers(scenario.world)), at_s, case.severity)
