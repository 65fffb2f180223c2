"""Where along a ring a collective is slow: at the crest of the wave in which its members end."""

import math

import numpy as np
import pytest
from hypothesis import given
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
FOUR = ([293.0, 382.0, 384.7, 350.7], [270.4, 359.5, 376.7, 329.2], [308.4, 353.2, 365.3, 365.8])
"""A group of four, the third one's interface throttled: three iterations."""


def at_crest(slowed: Floats | list[float], chance: float = 1.0) -> list[int]:
    settings = SeparationSettings()
    found = crest(
        np.asarray(slowed, float),
        np.full(len(slowed), chance),
        sigmas=settings.sigmas,
        explained=settings.wave_share,
        reach=settings.wave_hops,
    )
    return [int(at) for at in found]


def tent(count: int, at: float, hop: float = 10.0) -> Floats:
    """Members of a ring end by so much sooner with each hop from a point of it."""
    apart: Floats = np.abs((np.arange(count) - at + count / 2) % count - count / 2)
    return 500.0 - hop * apart


def test_the_slow_interface_of_a_recorded_job_is_at_the_crest() -> None:
    assert at_crest(EIGHT, 17.0) == [6]
    assert at_crest(ALIKE, 16.0) == []
    assert [at_crest(slowed, 7.5) for slowed in FOUR] == [[2], [2], [2]]


@given(count=st.integers(5, 300), at=st.integers(0, 299))
def test_who_is_in_the_middle_is_named(count: int, at: int) -> None:
    assert at_crest(tent(count, at % count)) == [at % count]


@given(count=st.integers(5, 300), at=st.integers(0, 299))
def test_of_a_ring_that_goes_one_way_both_ends_of_the_slow_link_are_named(count: int, at: int) -> None:
    assert at_crest(tent(count, at % count + 0.5)) == sorted(
        {at % count, (at + 1) % count} | {(at % count + 1) % count}
    )


@given(st.lists(st.floats(0, 1000), min_size=4, max_size=40), st.floats(0.1, 20), st.integers(0, 39))
def test_it_is_the_same_from_wherever_members_are_counted(slowed: list[float], chance: float, turn: int) -> None:
    turn %= len(slowed)
    turned = [*slowed[turn:], *slowed[:turn]]
    assert {(at + turn) % len(slowed) for at in at_crest(turned, chance)} == set(at_crest(slowed, chance))


def test_what_chance_may_have_made_is_no_wave() -> None:
    assert at_crest(tent(8, 3), chance=4.0) == [3]
    assert at_crest(tent(8, 3), chance=40.0) == []


def test_the_less_certain_the_crest_the_further_it_reaches() -> None:
    assert len(at_crest(tent(32, 7, hop=1.0))) < len(at_crest(tent(32, 7, hop=1.0), chance=6.0)) < 16
    found = at_crest(tent(32, 7, hop=1.0), chance=6.0)
    assert np.mean(found) == pytest.approx(7)
    assert at_crest([10.0, 12.0, 10.0, 8.0], chance=0.4) == [1]
    assert at_crest([10.0, 12.0, 12.0, 10.0], chance=0.1) == [1, 2]


def test_members_that_differ_in_another_way_are_not_told_apart() -> None:
    odd = np.where(np.arange(8) % 2, 500.0, 400.0)
    one_that_returns_late = np.where(np.arange(8) == 3, 500.0, 400.0)
    assert at_crest(odd) == at_crest(one_that_returns_late) == []


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_of_what_is_not_known_nothing_is_said(unknown: float) -> None:
    assert at_crest([*tent(7, 3), unknown]) == []
    assert at_crest(tent(8, 3), chance=unknown) == []
    assert at_crest(list(tent(LEAST_MEMBERS - 1, 1))) == []
