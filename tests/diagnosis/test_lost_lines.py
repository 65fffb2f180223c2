"""Which operators a log without sequence numbers lacks, told by the times of others."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from diagnosis.lost_lines import Member, Places, fitted_in_time, place

Ints = NDArray[np.int64]
USUAL = 12
ITERATIONS = 8
OFFSET_NS = 3_000_000
"""By how much each rank's clock is ahead of that of the one before it."""


def left(seed: int = 0) -> Ints:
    """When all members leave each operator: ms apart, never the same."""
    return 1_700_000_000_000_000_000 + np.cumsum(
        np.random.default_rng(seed).integers(1_000_000, 9_000_000, USUAL * ITERATIONS)
    )


def member(rank: int, lost: set[int], *, ends: bool = True, marks: Ints | None = None) -> Member:
    """A log without some operators. Its iterations are counted as far as the lines go, up to the next iteration that
    begins with a line that is there. ``marks`` are those of an iteration's operators, all alike by default.
    """
    slots = np.array([slot for slot in range(USUAL * ITERATIONS) if slot not in lost])
    jitter = np.random.default_rng(rank).integers(-50_000, 50_000, USUAL * ITERATIONS)
    went_on = (left() + jitter + rank * OFFSET_NS)[slots]
    called = np.append(went_on[0] - 1_000_000, left()[:-1] + 200_000 + rank * OFFSET_NS)[slots]
    mark = np.zeros(len(slots), dtype=np.int64) if marks is None else marks[slots % USUAL]
    return Member(slots // USUAL, called, went_on if ends else np.append(called[1:], went_on[-1]), mark)


def slots(places: Places) -> Ints:
    return places.iteration * USUAL + places.position


@given(lost=st.sets(st.integers(0, 39), max_size=20), seed=st.integers(0, 1 << 32))
def test_operators_go_to_the_slots_that_were_left_when_they_were(lost: set[int], seed: int) -> None:
    draws = np.random.default_rng(seed)
    times = np.cumsum(draws.uniform(1.0, 5.0, 40))
    kept = np.array([slot for slot in range(40) if slot not in lost])
    found = fitted_in_time(times[kept] + draws.uniform(-0.45, 0.45, len(kept)), times, alike(kept, times))
    assert (found.slot == kept).all()


def alike(left: NDArray[Any], slots: NDArray[Any]) -> NDArray[np.bool_]:
    """No operator is another one than that of its slot."""
    return np.zeros((len(slots) - len(left) + 1, len(left)), dtype=np.bool_)


@given(lost=st.sets(st.integers(0, 39), max_size=5), scatter=st.floats(0.0, 4.0), seed=st.integers(0, 1 << 32))
def test_what_is_known_is_right_however_much_operators_scatter(lost: set[int], scatter: float, seed: int) -> None:
    draws = np.random.default_rng(seed)
    times = np.cumsum(draws.uniform(1.0, 5.0, 40))
    kept = np.array([slot for slot in range(40) if slot not in lost])
    found = fitted_in_time(times[kept] + draws.normal(0.0, scatter, len(kept)), times, alike(kept, times))
    assert (found.slot[found.known] == kept[found.known]).all()
    assert found.known.all() or lost


def test_the_more_operators_scatter_the_fewer_are_known() -> None:
    draws = np.random.default_rng(1)
    times = np.cumsum(draws.uniform(1.0, 5.0, 400))
    left, noise = np.delete(times, 200), draws.normal(size=399)
    known = [fitted_in_time(left + by * noise, times, alike(left, times)).known.sum() for by in (0.0, 0.1, 1.0, 10.0)]
    assert known == sorted(known, reverse=True)
    assert known[0] == 399
    assert known[-1] < 300


def test_of_times_of_something_else_nothing_is_known() -> None:
    times, left = np.arange(10.0), np.arange(9.0) + 500
    assert not fitted_in_time(left, times, alike(left, times)).known.any()


@given(
    lost=st.sets(st.integers(USUAL, 6 * USUAL), min_size=1, max_size=3),
    ends=st.booleans(),
)
def test_what_one_member_lost_the_others_tell(lost: set[int], ends: bool) -> None:
    members = {rank: member(rank, lost if rank == 1 else set(), ends=ends) for rank in range(3)}
    places = place(members, USUAL)
    assert all(found.known.all() for found in places.values())
    for rank in members:
        expected = [slot for slot in range(USUAL * ITERATIONS) if rank != 1 or slot not in lost]
        assert slots(places[rank]).tolist() == expected


RUNS = np.array([1, 2, 2, 2, 3, 2, 2, 2, 2, 3, 2, 2])
"""What the operators of an iteration are: few are told apart by that."""


@given(lost=st.sets(st.integers(2 * USUAL, 3 * USUAL - 1), min_size=1, max_size=2))
def test_where_no_times_tell_operators_are_known_but_for_those_like_the_lost_ones(lost: set[int]) -> None:
    members = {rank: member(rank, lost, marks=RUNS) for rank in range(2)}
    kept = np.array([slot for slot in range(USUAL * ITERATIONS) if slot not in lost])
    for found in place(members, USUAL, counted=False).values():
        assert (slots(found)[found.known] == kept[found.known]).all()
        assert set(found.iteration[~found.known].tolist()) <= {2}


def test_what_an_operator_is_goes_before_its_time() -> None:
    late = member(1, {30}, marks=RUNS)
    late.left_ns[24:34] += 9_000_000  # as if the one before them were lost
    places = place({0: member(0, set(), marks=RUNS), 1: late}, USUAL, counted=False)
    kept = [slot for slot in range(USUAL * ITERATIONS) if slot != 30]
    wrong = {kept[at] for at, slot in enumerate(slots(places[1])) if slot != kept[at]}
    assert wrong <= set(range(29, 33))  # those like it
    assert places[1].known[:24].all()
    assert places[1].known[35:].all()


def test_a_whole_iteration_is_lost_nobody_can_tell_where() -> None:
    lost = set(range(30, 42))  # from amid one iteration to the same place of the next
    for found in place({rank: member(rank, lost, marks=RUNS) for rank in range(2)}, USUAL).values():
        assert set(found.iteration[~found.known].tolist()) <= {1, 2, 3, 4}
        kept = np.array([slot for slot in range(USUAL * ITERATIONS) if slot not in lost])
        assert (slots(found)[found.known] == kept[found.known]).all()


def test_after_a_hole_the_beginning_is_lost_and_other_lines_too() -> None:
    lost = {*range(5), 30}
    marks = np.arange(1, USUAL + 1)
    kept = [slot for slot in range(USUAL * ITERATIONS) if slot not in lost]
    for found in place(
        {rank: replace(member(rank, lost, marks=marks), after_hole=True) for rank in range(2)}, USUAL
    ).values():
        assert [at for at, known in enumerate(found.known) if known and slots(found)[at] != kept[at]] == []
        assert (~found.known).sum() < USUAL


def test_what_was_counted_stands_where_there_are_more_operators_than_places_or_times_of_something_else() -> None:
    own, another = member(1, set()), member(2, {40})
    twice = np.sort(np.r_[np.arange(USUAL * ITERATIONS), 2 * USUAL : 2 * USUAL + 3])
    more = Member(*(of[twice] for of in (own.iteration, own.call_ns, own.left_ns, own.mark)))
    another.left_ns[3 * USUAL - 5 : 5 * USUAL] += 10**12
    found = place({0: member(0, set()), 1: more, 2: another}, USUAL, counted=False)
    assert (found[1].iteration == more.iteration).all()
    assert set(more.iteration[~found[1].known].tolist()) == {2}
    assert (found[2].iteration == another.iteration).all()
    assert set(another.iteration[~found[2].known].tolist()) == {3}


def test_lines_counted_as_the_iteration_before_go_back_to_their_own() -> None:
    own = member(1, {30, 40})
    own.iteration[25:35] = 2  # counted on past the hole: iteration 2 seems whole, iteration 3 lacks two
    places = place({0: member(0, set()), 1: own}, USUAL)
    assert slots(places[1]).tolist() == [slot for slot in range(USUAL * ITERATIONS) if slot not in {30, 40}]


def test_where_all_members_lack_operators_nothing_is_known() -> None:
    places = place({0: member(0, {40}), 1: member(1, {38})}, USUAL)
    for found in places.values():
        assert set(found.iteration[~found.known].tolist()) == {2, 3}


def test_each_iteration_is_told_by_those_who_have_it() -> None:
    lost = {0: {40, 85}, 1: {62}, 2: {84, 90}}
    places = place({rank: member(rank, own) for rank, own in lost.items()}, USUAL)
    for rank, own in lost.items():
        assert places[rank].known.all()
        assert slots(places[rank]).tolist() == [slot for slot in range(USUAL * ITERATIONS) if slot not in own]


def test_a_member_alone_is_told_nothing() -> None:
    places = place({0: member(0, {40})}, USUAL)
    assert set(places[0].iteration[~places[0].known].tolist()) == {2, 3}


def test_who_lacks_operators_in_every_iteration_is_compared_with_nobody() -> None:
    lost = {slot for slot in range(USUAL * ITERATIONS) if slot % USUAL == 5}
    places = place({0: member(0, set()), 1: member(1, lost)}, USUAL)
    assert not places[1].known.any()


def test_iterations_that_nobody_has_lack_nothing() -> None:
    members = {rank: member(rank, {40} if rank == 1 else set()) for rank in range(2)}
    apart = {rank: replace(own, iteration=own.iteration // 2 * 5 + own.iteration % 2) for rank, own in members.items()}
    places = place(apart, USUAL)
    assert all(found.known.all() for found in places.values())
    assert np.unique(places[1].iteration).tolist() == [0, 1, 5, 6, 10, 11, 15, 16]


def test_two_iterations_are_enough_to_be_counted() -> None:
    members = {rank: member(rank, set(range(2 * USUAL, USUAL * ITERATIONS))) for rank in range(2)}
    assert all(found.known.all() for found in place(members, USUAL).values())


def test_an_iteration_in_which_all_do_more_leaves_the_others_as_they_are() -> None:
    members = {rank: member(rank, set()) for rank in range(2)}
    for own in members.values():
        own.iteration[3 * USUAL : 4 * USUAL] = 4  # an evaluation, counted with the next
    for found in place(members, USUAL).values():
        assert set(found.iteration[~found.known].tolist()) == {4}


def test_what_the_first_iteration_after_a_hole_lacks_is_its_beginning() -> None:
    lost = set(range(5))
    places = place({rank: replace(member(rank, lost), after_hole=True) for rank in range(2)}, USUAL)
    for found in places.values():
        assert found.known.all()
        assert slots(found).tolist() == [*range(5, USUAL * ITERATIONS)]
    elsewhere = place({rank: member(rank, lost) for rank in range(2)}, USUAL)
    assert set(elsewhere[0].iteration[~elsewhere[0].known].tolist()) == {0, 1}


def test_where_iterations_were_logged_those_before_a_hole_are_known() -> None:
    members = {0: member(0, {40}), 1: member(1, {38})}
    for found in place(members, USUAL, counted=False).values():
        assert set(found.iteration[~found.known].tolist()) == {3}
