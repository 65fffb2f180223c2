"""Which runs an accuracy figure is made of: each combination that Pulse was judged on again and again, healthy ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from producers.simulation.nic import BEYOND, COMBINATIONS, DEFAULT, HARD, Combination, NicScenario, faulty, healthy
from producers.simulation.nic.faults import SEVERITIES, Fault
from producers.simulation.nic.hardware import KIB, Hardware
from producers.simulation.nic.scenarios import Setup, with_hardware

NOISES = {"default": DEFAULT, "hard": HARD}

HEALTHY = "healthy"
HEALTHY_SETUPS = (Setup.GPT2_70B, Setup.MIXTRAL, Setup.NEIGHBOURS)
_HOT = f"{HEALTHY}/{Setup.HOT_EXPERTS}"

HANG_S = 9.0
"""How long a run that hangs is told of."""

_BY_NAME = {str(combination): combination for combination in (*COMBINATIONS, *BEYOND)}
_REPEATED = (*_BY_NAME, _HOT)
_BLOCK = 100
"""Seeds of each repetition: the combinations', one with hot experts, then those of healthy runs."""

_LINES_GBPS, _CHANNELS, _SLICES, _SLOTS = (200.0, 800.0), (1, 8), (128, 256, 512, 1024), (4, 16)


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its seed, its combination by name (or ``HEALTHY`` and a setup), its noise, and whether its settings are
    drawn from those that nothing was tuned on."""

    seed: int
    what: str
    noise: str
    untuned: bool = False

    @property
    def combination(self) -> Combination | None:
        """What is injected, and where; None in a healthy run."""
        return _BY_NAME.get(self.what)

    @property
    def setup(self) -> Setup:
        """What runs."""
        return self.combination.setup if self.combination else Setup(self.what.partition("/")[2])

    def scenario(self) -> NicScenario:
        """The run's scenario."""
        chance = Random(f"untuned {self.seed}")
        combination, noise = self.combination, NOISES[self.noise]
        if combination is None:
            scenario = healthy(self.setup, self.seed, noise)
        else:
            if self.untuned and (graded := SEVERITIES.get(combination.injection)):
                combination = replace(combination, severity=chance.uniform(min(graded), max(graded)))
            scenario = faulty(combination, self.seed, noise)
        scenario = replace(scenario, hang_s=HANG_S)
        return with_hardware(scenario, self.setup, _untuned(scenario, chance)) if self.untuned else scenario


def cases(
    repeats: int, healthy_runs: int, noises: Sequence[str], first_seed: int, only: Sequence[str] = (),
    untuned: bool = False,
) -> list[Case]:  # fmt: skip
    """``repeats`` runs of each combination of table 4, of those beyond it and with hot experts, and healthy ones, in
    order of seeds.

    ``only``: those whose class of anomaly, setup and injection contain one of them; healthy runs have the class
    ``HEALTHY``. More runs leave the others as they are. Of ``noises`` the first one has all of them, the others what
    belongs to the first repeat: the same jobs and faults.
    """
    told = [(first_seed + _BLOCK * repeat + at, name) for repeat in range(repeats) for at, name in enumerate(_REPEATED)]
    each = _BLOCK - len(_REPEATED)
    for run in range(healthy_runs):
        seed = first_seed + _BLOCK * (run // each) + len(_REPEATED) + run % each
        told.append((seed, f"{HEALTHY}/{HEALTHY_SETUPS[run % len(HEALTHY_SETUPS)]}"))
    full = {name: f"{_class_of(name)}/{name}" for _, name in told}
    chosen = [(seed, name) for seed, name in sorted(told) if not only or any(part in full[name] for part in only)]
    return [
        Case(seed, name, noise, untuned)
        for (seed, name), noise in product(chosen, noises)
        if noise == noises[0] or seed < first_seed + _BLOCK
    ]


def _class_of(name: str) -> str:
    case = _BY_NAME.get(name)
    return Fault(case.injection, 0, 0.0, case.severity).kind.value if case else HEALTHY


def _untuned(scenario: NicScenario, chance: Random) -> Hardware:
    return replace(
        scenario.hardware,
        line_gbps=chance.choice(_LINES_GBPS),
        channels=chance.randint(*_CHANNELS),
        slice_bytes=chance.choice(_SLICES) * KIB,
        slots=chance.randint(*_SLOTS),
    )
