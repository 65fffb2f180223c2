"""Where along a ring a collective is slow: near the crest of the wave in which its members end."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnosis.arrays import Floats
from diagnosis.operator_graph.ring import LEAST_MEMBERS, crest
from diagnosis.operator_graph.separation import SeparationSettings

EIGHT = [324.2, 281.1, 249.1, 292.4, 338.0, 381.2, 392.9, 366.7]
"""Milliseconds beyond the usual of eight ranks that share a group (Gloo, reduce-scatter and all-gather), one of whose
network interfaces, that of the seventh, is throttled.
"""
ALIKE = [153.9, 150.2, 150.4, 149.2, 146.8, 150.2, 152.8, 151.9]
"""The same job, before: an iteration in which the machine was busy."""


def at_crest(slowed: Floats | list[float], noise: float = 1.0) -> list[int]:
    """By the settings that are the default; usual iterations make waves of that height."""
    settings, count = SeparationSettings(), len(slowed)
    around = 2 * np.pi * np.arange(count) / count
    before = np.stack([noise * np.cos(around), noise * np.sin(around)]) * math.sqrt(8) / count
    found = crest(
        np.asarray(slowed, float),
        before,
        sigmas=settings.sigmas,
        height=settings.wave_height,
        explained=settings.wave_share,
        reach=settings.wave_reach,
    )
    return [int(at) for at in found]


def tent(count: int, at: float, hop: float = 10.0) -> Floats:
    """Members of a ring end by so much sooner with each hop from a point of it."""
    apart: Floats = np.abs((np.arange(count) - at + count / 2) % count - count / 2)
    return 2 * hop * count - hop * apart


def test_the_slow_interface_of_a_recorded_job_is_near_the_crest() -> None:
    assert at_crest(EIGHT, 16.0) == [5, 6]
    assert at_crest(ALIKE, 0.1) == []


@given(count=st.integers(8, 300), at=st.integers(0, 299))
def test_a_quarter_of_the_ring_around_the_slow_member_is_named(count: int, at: int) -> None:
    named = at_crest(tent(count, at % count))
    assert at % count in named
    assert len(named) <= max(3, count / 4 + 1)
    assert {(2 * at - one) % count for one in named} == set(named)  # as far to one side as to the other


@given(st.lists(st.integers(0, 1000), min_size=6, max_size=40), st.floats(0.1, 20), st.integers(0, 39))
def test_it_is_the_same_from_wherever_members_are_counted(slowed: list[int], noise: float, turn: int) -> None:
    turn %= len(slowed)
    wave = np.abs(np.fft.rfft(slowed)[1])
    tells = 2 * wave**2 / len(slowed) / max(float(np.var(slowed)) * len(slowed), 1e-9)
    assume(abs(tells - SeparationSettings().wave_share) > 1e-6)
    turned = [*slowed[turn:], *slowed[:turn]]
    found = {(at + turn) % len(slowed) for at in at_crest(list(map(float, turned)), noise)}
    assert len(found ^ set(at_crest(list(map(float, slowed)), noise))) <= 2  # who is at the border, by rounding


def test_what_usual_iterations_show_as_well_is_no_wave() -> None:
    high = abs(np.fft.rfft(tent(8, 3))[1])
    assert 3 in at_crest(tent(8, 3), noise=high / 3.1)
    assert at_crest(tent(8, 3), noise=high / 2.9) == []


def test_the_less_certain_the_crest_the_further_it_reaches() -> None:
    assert len(at_crest(tent(32, 7))) < len(at_crest(tent(32, 7), noise=300.0)) < 16
    assert np.mean(at_crest(tent(32, 7), noise=300.0)) == pytest.approx(7)


def test_a_wave_that_is_low_beside_what_all_wait_says_nothing() -> None:
    assert at_crest(tent(8, 3)) != []
    assert at_crest(tent(8, 3) + 2000) == []
    assert at_crest([60.123457] * 17, noise=0.0) == []


def test_members_that_differ_in_another_way_are_not_told_apart() -> None:
    odd = np.where(np.arange(8) % 2, 500.0, 400.0)
    one_that_returns_late = np.where(np.arange(8) == 3, 500.0, 400.0)
    assert at_crest(odd) == at_crest(one_that_returns_late) == []


def test_of_what_is_not_known_nothing_is_said() -> None:
    assert at_crest([*tent(7, 3), math.nan]) == []
    assert at_crest(tent(8, 3), noise=math.nan) == []
    assert at_crest(tent(LEAST_MEMBERS, 1)) != []
    assert at_crest(tent(LEAST_MEMBERS - 1, 1)) == []
