"""Bounds of many pairs of clocks are worked out together, and tell of each what they do of it alone."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.clock_bounds import Bounds, by_causality
from diagnosis.clock_pairs import Moments

SECOND = 1_000_000_000
PairOfClocks = tuple[int, int]


@st.composite
def met(draw: st.DrawFn) -> tuple[dict[PairOfClocks, Bounds], Moments]:
    """Pairs that met in some iterations, some of them one way only, some never, on clocks that may drift."""
    moments = {iteration: -SECOND * (9 - iteration) for iteration in range(10)}
    drawn = np.random.default_rng(draw(st.integers(0, 2**32)))
    bounds = {}
    for clock in range(draw(st.integers(1, 6))):
        ahead, drift = int(drawn.integers(-(10**15), 10**15)), drawn.choice([0.0, 2e-5, -7e-5, 1e-3])

        def side(sign: int, ahead: int = ahead, drift: float = drift) -> tuple[list[int], list[int]]:
            iterations = drawn.integers(0, 10, drawn.choice([0, 3, 60]))
            early = drawn.integers(-1_000, 40_000, len(iterations))
            at = [moments[each] for each in iterations.tolist()]
            values = [ahead + round(drift * of) + sign * int(by) for of, by in zip(at, early, strict=True)]
            return values, iterations.tolist()

        both = (*side(1), *side(-1))
        bounds[clock, clock + 1] = Bounds(*(np.array(of, dtype=np.int64) for of in both))
    return bounds, moments


@given(met())
def test_together_pairs_are_as_each_by_itself(drawn: tuple[dict[PairOfClocks, Bounds], Moments]) -> None:
    bounds, moments = drawn
    alone = {pair: found for pair, of in bounds.items() for found in by_causality({pair: of}, moments).values()}
    together = by_causality(bounds, moments)
    assert together == alone
    assert list(together) == [pair for pair, of in bounds.items() if len(of.most) or len(of.least)]


@given(met())
def test_a_line_lies_as_far_from_the_bounds_as_it_says(drawn: tuple[dict[PairOfClocks, Bounds], Moments]) -> None:
    bounds, moments = drawn
    for pair, found in by_causality(bounds, moments).items():
        of = bounds[pair]
        if not of.both_ways:
            assert math.isinf(found.error_ns)
            continue
        most = of.most - found.drift * np.array([moments[each] for each in of.most_in.tolist()])
        least = of.least - found.drift * np.array([moments[each] for each in of.least_in.tolist()])
        off = max(abs(most.min() - found.ahead_ns), abs(found.ahead_ns - least.max()))
        assert abs(found.error_ns - off) <= 2 + 1e-15 * abs(found.ahead_ns)
