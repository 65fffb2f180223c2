"""Which ranks are near: those that wait for each other, whatever their clocks say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.rank_distance import (
    Calls,
    block_size,
    clear_block_size,
    distance,
    first_in_step,
    shows_strangers,
    telling_sizes,
    violations,
)

OPERATORS = 200


def ranks(groups: list[int], seed: int = 0, clock_ns: int = 0, noise_ns: int = 250_000) -> list[Calls]:
    """Calls of ranks in groups of these sizes: each computes for about 1 ms, then waits for its group."""
    draws = np.random.default_rng(seed)
    made: list[Calls] = []
    for size in groups:
        now, calls = np.zeros(size), []
        for _ in range(OPERATORS + 1):
            call = now + 1_000_000 + draws.normal(0, noise_ns, size)
            calls.append(call)
            now = np.full(size, call.max() + 20_000)
        for member in range(size):
            off = clock_ns * (len(made) % 3)
            made.append(
                Calls(
                    np.arange(OPERATORS),
                    np.array([c[member] + off for c in calls[:-1]]).astype(np.int64),
                    np.array([c[member] + off for c in calls[1:]]).astype(np.int64),
                )
            )
    return made


SIXTEEN = {size: ranks([size] * (16 // size), noise_ns=500_000) for size in (2, 4)}


@given(st.integers(0, 1000), st.integers(-(10**10), 10**10))
def test_members_of_a_group_never_go_on_before_all_have_called(seed: int, clock_ns: int) -> None:
    one, other = ranks([2], seed, clock_ns)
    assert violations(one, other) == 0
    shifted = Calls(other.key, other.call_ns + clock_ns, other.following_ns + clock_ns)
    assert distance(one, shifted) == distance(one, other)


def test_ranks_of_two_groups_are_farther_apart() -> None:
    one, near, far, _ = ranks([2, 2])
    assert distance(one, far) > 10 * distance(one, near)
    assert violations(one, far) > 0.1
    assert distance(one, far) == distance(far, one)


def test_too_little_in_common_tells_nothing() -> None:
    one, other = ranks([2])
    few = other.newest(4)
    assert distance(one, few) == np.inf
    assert violations(one, few) == 1.0


@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 50), st.sampled_from([0, 3_000_000]))
def test_groups_are_as_large_as_those_that_wait_for_each_other(size: int, seed: int, clock_ns: int) -> None:
    calls = dict(enumerate(ranks([size] * (8 // size), seed, clock_ns)))
    assert block_size(calls, [1, 2, 4, 8]) == (size if size > 1 else 8)  # nobody waits: nothing to tell groups by


def test_one_slow_member_does_not_split_its_group() -> None:
    calls = ranks([8, 8])
    late = np.where(np.arange(OPERATORS) % 3 == 0, 400_000, 0)
    calls[3] = Calls(calls[3].key, calls[3].call_ns + late, calls[3].following_ns + np.roll(late, -1))
    assert block_size(dict(enumerate(calls)), [1, 2, 4, 8, 16]) == 8


def test_a_rank_without_calls_belongs_to_no_group() -> None:
    calls = [*ranks([2, 2]), None, None]
    assert block_size(dict(enumerate(calls)), [1, 2, 3, 6]) == 6


def test_the_first_grouping_that_waits_is_taken() -> None:
    calls = dict(enumerate(ranks([2, 2])))
    whole, pairs, crossed = [(0, 1, 2, 3)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    assert first_in_step([crossed, pairs], calls) == 1
    assert first_in_step([pairs, crossed], calls) == 0
    assert first_in_step([whole], calls) == 0


def test_a_grouping_of_which_no_two_members_called_leaves_it_open() -> None:
    one, _, other, _ = ranks([2, 2])
    whole, pairs = [(0, 1, 2, 3)], [(0, 1), (2, 3)]
    assert first_in_step([whole, pairs], {0: one, 2: other}) is None
    assert first_in_step([whole], {0: one, 2: other}) == 0


@given(missing=st.sets(st.integers(0, 15), max_size=3), size=st.sampled_from([2, 4]))
def test_what_is_not_there_neither_joins_groups_nor_splits_them(missing: set[int], size: int) -> None:
    calls = {place: of for place, of in enumerate(SIXTEEN[size]) if place not in missing}
    assert block_size(calls, [1, 2, 4, 8, 16]) == size
    assert clear_block_size(calls) == size
    assert telling_sizes(calls, [1, 2, 4, 8, 16]) == [size]
    assert shows_strangers(calls, 16)
    assert not shows_strangers(calls, size)


@pytest.mark.parametrize("late_ns", [0, 4_000_000])
def test_a_slow_member_does_not_make_a_group_of_its_own(late_ns: int) -> None:
    calls = ranks([8])
    late = np.where(np.arange(OPERATORS) % 3 == 0, late_ns, 0)
    calls[7] = Calls(calls[7].key, calls[7].call_ns + late, calls[7].following_ns + late)
    assert clear_block_size(dict(enumerate(calls))) is None
