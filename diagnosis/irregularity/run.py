"""Runs of irregular iterations: one fault's footprint in time, and what it is called (Holmes 3.1.1 to 3.1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

SPIKE = "abnormal_spike"
FLUCTUATION = "performance_fluctuation"
DEGRADATION = "persistent_degradation"


@dataclass(frozen=True, slots=True)
class Plateau:
    """Iterations of a run that take about as long: ``length`` of them from ``first`` on, ``excess_ns`` in all beyond
    the expected. ``latest`` are the last ones.
    """

    first: int
    length: int
    excess_ns: int
    latest: tuple[int, ...]

    @classmethod
    def begun(cls, iteration: int, excess_ns: int) -> Plateau:
        """One that begins with an iteration."""
        return cls(iteration, 1, excess_ns, (iteration,))

    def with_next(self, iteration: int, excess_ns: int, most: int) -> Plateau:
        """The plateau with one more iteration; ``most`` of them are remembered."""
        latest = (*self.latest, iteration)[-most:]
        return replace(self, length=self.length + 1, excess_ns=self.excess_ns + excess_ns, latest=latest)


@dataclass(frozen=True, slots=True)
class Run:
    """Irregular iterations with at most a short break between them.

    The last is the ``ordinal``-th of them and the ``in_a_row``-th without a break; since it came
    ``regular_since`` regular ones. ``degraded``: so many came in a row that it is a degradation.

    ``period``: they come again after so many iterations, and the break may be as long; from ``recurs_from`` times the
    expected on an iteration is one of them.

    Most of them are on its ``level``, some may be on a ``step`` above it; ``on_step`` is whether the last one is. A
    late step is compared with ``below_step``.
    """

    first: int
    last: int
    ordinal: int
    in_a_row: int
    excess_ns: int
    baseline: tuple[int, ...]
    level: Plateau
    regular_since: int = 0
    degraded: bool = False
    step: Plateau | None = None
    on_step: bool = False
    below_step: tuple[int, ...] = ()
    period: float | None = None
    recurs_from: float | None = None

    @classmethod
    def begun(cls, iteration: int, excess_ns: int, baseline: tuple[int, ...]) -> Run:
        """One that begins with an iteration."""
        return cls(iteration, iteration, 1, 1, excess_ns, baseline, Plateau.begun(iteration, excess_ns))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Run:
        """What ``asdict`` made of a run, as JSON gives it back."""
        level, step = _plateau(state["level"]), state["step"]
        tuples = {name: tuple(state[name]) for name in ("baseline", "below_step")}
        return cls(**{**state, **tuples, "level": level, "step": step and _plateau(step)})

    @property
    def step_ordinal(self) -> int:
        """How many iterations have been on the step that the last one is on; 0: it is on none."""
        return self.step.length if self.step and self.on_step else 0

    @property
    def step_from(self) -> int | None:
        """The first iteration on the step that the last one is on; None: it is on none."""
        return self.step.first if self.step and self.on_step else None

    @property
    def step_excess_ns(self) -> int | None:
        """What the iterations on that step lost."""
        return self.step.excess_ns if self.step and self.on_step else None

    @property
    def compared_with(self) -> tuple[int, ...]:
        """The iterations that a search of the last one compares with."""
        return self.below_step if self.on_step and self.below_step else self.baseline

    @property
    def comes_every(self) -> float | None:
        """After how many iterations a fluctuation comes again; None: it is none."""
        return self.period if self.pattern == FLUCTUATION else None

    @property
    def pattern(self) -> str:
        """What the run is called (Holmes 3.1.1 to 3.1.3)."""
        if self.degraded:
            return DEGRADATION
        return SPIKE if self.period is None else FLUCTUATION


def _plateau(state: Mapping[str, Any]) -> Plateau:
    return Plateau(**{**state, "latest": tuple(state["latest"])})
