"""Who is slow in a job's first iterations, time after time; and when nothing more is compared."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.irregularity.beginning import Beginning, Compared
from diagnosis.irregularity.like_ranks import LikeRanksSettings
from diagnosis.job import Layout
from tests.diagnosis.irregularity.made_iterations import EQUAL, MS, RANKS, SLOW_GPU, Made, job

SETTINGS = LikeRanksSettings(warm_up=2, iterations=4, in_a_row=3)
JOB = job()


def begun(told: Iterable[Made], beginning: Beginning | None = None) -> list[Compared]:
    beginning = beginning or Beginning(SETTINGS)
    first = beginning.passed
    return [one for at, of in enumerate(told, first) for one in beginning.take(of.summaries(at), JOB)]


def said(compared: Iterable[Compared]) -> dict[int, list[tuple[tuple[int, ...], int]]]:
    """Of each iteration who is slow, and for how many iterations."""
    return {one.iteration: [(slow.ranks, of.count) for slow, of in one.slow] for one in compared if one.slow}


def test_who_is_slow_in_several_iterations_in_a_row_is_told() -> None:
    compared = begun([SLOW_GPU] * 7)
    assert said(compared) == {4: [((5,), 3)], 5: [((5,), 4)], 6: [((5,), 5)]}
    [(_, standing)] = compared[-1].slow
    assert (standing.first, standing.last, standing.excess_ns) == (2, 6, 5 * 40 * MS)
    assert (compared[-1].duration_ns, compared[-1].coverage) == (130 * MS, 1.0)


def test_who_is_slow_now_and_then_is_not() -> None:
    assert said(begun([SLOW_GPU, SLOW_GPU, SLOW_GPU, SLOW_GPU, EQUAL, SLOW_GPU, SLOW_GPU, EQUAL])) == {}


def test_an_iteration_that_it_did_not_tell_of_says_neither() -> None:
    beginning = Beginning(replace(SETTINGS, warm_up=0))
    begun([SLOW_GPU] * 2, beginning)
    batches = [SLOW_GPU.summaries(2, lost=[5]), SLOW_GPU.summaries(3), SLOW_GPU.summaries(4)]
    assert said(one for batch in batches for one in beginning.take(batch, JOB)) == {3: [((5,), 3)], 4: [((5,), 4)]}


def test_the_first_iterations_alone_are_compared_unless_somebody_is_slow() -> None:
    beginning = Beginning(SETTINGS)
    assert len(begun([EQUAL] * 9, beginning)) == 4
    assert beginning.past
    assert beginning.pending == {}
    assert begun([SLOW_GPU] * 5, beginning) == []
    lasting = Beginning(SETTINGS)
    assert len(begun([SLOW_GPU] * 20, lasting)) == 18
    assert not lasting.past
    assert Beginning(replace(SETTINGS, iterations=0)).past
    assert begun([SLOW_GPU] * 9, Beginning(replace(SETTINGS, most_ranks=7))) == []


def test_it_is_over_once_it_has_not_been_seen_for_as_long() -> None:
    beginning = Beginning(SETTINGS)
    compared = begun([*[SLOW_GPU] * 6, EQUAL, EQUAL, SLOW_GPU, EQUAL, EQUAL], beginning)
    assert [one.over for one in compared if one.over] == []
    assert [of.count for of in beginning.standing if of.told] == [5]
    [over] = begun([EQUAL], beginning)
    assert [(of.first, of.last, of.count) for of in over.over] == [(2, 8, 5)]
    assert beginning.past
    assert beginning.spoke


def test_an_iteration_waits_for_all_ranks_until_most_are_far_ahead() -> None:
    beginning = Beginning(replace(SETTINGS, warm_up=0))
    assert list(beginning.take(EQUAL.summaries(0, ranks=(0, 1, 2, 3, 4)), JOB)) == []
    assert list(beginning.take(EQUAL.summaries(1, ranks=(0, 1, 2, 3)), JOB)) == []
    assert [one.iteration for one in beginning.take(EQUAL.summaries(0, ranks=(5, 6, 7)), JOB)] == [0]
    assert list(beginning.take(EQUAL.summaries(4, ranks=(0, 1, 2)), JOB)) == []
    [late] = beginning.take(EQUAL.summaries(4, ranks=(3,)), JOB)
    assert (late.iteration, late.coverage) == (1, 0.5)
    assert list(beginning.take(SLOW_GPU.summaries(1), JOB)) == [], "it was compared"


def test_a_host_that_tells_late_is_waited_for() -> None:
    """Two iterations later than the others, always: it is its GPU that is slow."""
    beginning, compared = Beginning(SETTINGS), list[Compared]()
    for at in range(10):
        compared += beginning.take(SLOW_GPU.summaries(at, ranks=(0, 1, 2, 3, 6, 7)), JOB)
        if at >= 2:
            compared += beginning.take(SLOW_GPU.summaries(at - 2, ranks=(4, 5)), JOB)
    assert said(compared) == {4: [((5,), 3)], 5: [((5,), 4)], 6: [((5,), 5)], 7: [((5,), 6)]}


def test_a_host_whose_agent_starts_first_keeps_nobody_waiting() -> None:
    beginning = Beginning(SETTINGS)
    first = [SLOW_GPU.summaries(at, ranks=(4, 5)) for at in range(12)]
    then = [SLOW_GPU.summaries(at) for at in range(12, 25)]
    compared = [one for batch in [*first, *then] for one in beginning.take(batch, JOB)]
    assert said(compared)[24][0][0] == (5,)


@given(st.lists(st.tuples(st.integers(0, 40), st.sets(st.sampled_from(RANKS), min_size=1)), max_size=60))
def test_whatever_hosts_tell_in_whatever_order_nothing_waits_for_ever(told: list[tuple[int, set[int]]]) -> None:
    beginning = Beginning(SETTINGS)
    for at, ranks in told:
        list(beginning.take(EQUAL.summaries(at, ranks=sorted(ranks)), JOB))
        assert len(beginning.pending) <= 8
        assert all(iteration > beginning.closed for iteration in beginning.pending)
    for at in range(41, 100):
        list(beginning.take(EQUAL.summaries(at), JOB))
    assert beginning.past


def test_an_iteration_that_cannot_be_hides_none() -> None:
    beginning = Beginning(SETTINGS)
    list(beginning.take(EQUAL.summaries(1_000_000, ranks=(2,)), JOB))
    assert said(begun([SLOW_GPU] * 6, beginning)) == {4: [((5,), 3)], 5: [((5,), 4)]}
    for far in range(20):
        list(beginning.take(EQUAL.summaries(2_000_000 + far, ranks=(2,)), JOB))
    assert len(beginning.pending) <= 8
    assert said(begun([SLOW_GPU], beginning)) == {6: [((5,), 5)]}


def test_iterations_of_which_few_told_are_not_among_those_to_be_compared() -> None:
    beginning = Beginning(SETTINGS)
    few = [SLOW_GPU.summaries(at, lost=[0, 1, 2, 3, 6]) for at in range(6)]
    assert [one for batch in few for one in beginning.take(batch, JOB)] == []
    assert (beginning.passed, beginning.compared) == (6, 0)
    assert said(begun([SLOW_GPU] * 3, beginning)) == {8: [((5,), 3)]}
    nobody = Beginning(SETTINGS)
    for at in range(40):
        list(nobody.take(SLOW_GPU.summaries(at, lost=[0, 1, 2, 3, 6]), JOB))
    assert nobody.past, "some time it must be enough"


def test_who_could_not_be_compared_is_not_over() -> None:
    beginning = Beginning(SETTINGS)
    begun([SLOW_GPU] * 6, beginning)
    for at in range(6, 12):  # of those like it nobody tells
        assert [one.over for one in beginning.take(SLOW_GPU.summaries(at, lost=[0, 1, 2, 3, 4, 6, 7]), JOB)] == []
    assert [of.missed for of in beginning.standing] == [0]


def test_a_slow_channel_of_which_not_all_members_told_is_not_over() -> None:
    beginning = Beginning(SETTINGS)
    slow = Made(transfer_ms={"dp0": 50.0})
    begun([slow] * 6, beginning)
    for at in range(6, 12):
        [compared] = beginning.take(slow.summaries(at, lost=[2]), JOB)
        assert (compared.slow, compared.over) == ((), ())
    assert [of.missed for of in beginning.standing] == [0]


def test_one_fault_that_shows_in_several_ways_is_one() -> None:
    """A NIC two channels of which are about equally slow; a GPU whose neighbour is nearly as slow now and then."""
    nic = [Made(transfer_ms={"dp1": 42 + one, "ep56": 43 - one}) for one in (0, 2, 0, 2, 0, 2, 0)]
    assert [list(of) for of in said(begun(nic)).values()] == [[((5,), count)] for count in (3, 4, 5)]
    gpu = [Made(compute_ms={4: 120.0, 5: 80 + late}) for late in (26, 38, 26, 38, 26, 38, 26)]
    assert [of[0][1] for of in said(begun(gpu)).values()] == [3, 4, 5]


def test_of_two_that_are_alike_one_is_slow_if_it_is_in_all() -> None:
    """Each stage of a pipeline has two ranks: nothing but time tells what is chance."""
    of = job()
    pair = replace(of, layout=Layout(tp=2, cp=1, dp=1, pp=4, source="given"))
    beginning = Beginning(SETTINGS)
    compared = [one for at in range(8) for one in beginning.take(SLOW_GPU.summaries(at), pair)]
    assert said(compared) == {5: [((5,), 4)], 6: [((5,), 5)], 7: [((5,), 6)]}


def test_what_is_over_is_over_alone() -> None:
    both = Made(compute_ms={5: 120.0}, transfer_ms={"dp0": 42.0})
    beginning = Beginning(SETTINGS)
    begun([both] * 6, beginning)
    [*_, last] = begun([SLOW_GPU] * 3, beginning)
    assert [(of.cause, of.ranks) for of in last.over] == [("communication_slow", (0, 2, 4, 6))]
    assert [of.ranks for of in beginning.standing] == [(5,)]


def test_rows_of_several_iterations_may_come_at_once() -> None:
    beginning = Beginning(replace(SETTINGS, warm_up=0))
    together = pa.Table.from_batches([SLOW_GPU.summaries(at) for at in range(3)]).combine_chunks().to_batches()[0]
    assert said(beginning.take(together, JOB)) == {2: [((5,), 3)]}


@given(
    st.lists(st.sampled_from([EQUAL, SLOW_GPU, Made(transfer_ms={"dp0": 50.0})]), max_size=12),
    st.sets(st.integers(0, 40), max_size=6),
)
def test_nothing_is_lost_by_a_restart(told: list[Made], cuts: set[int]) -> None:
    """Wherever it comes: hosts tell one after the other."""
    batches = [of.summaries(at, ranks=RANKS[first : first + 2]) for at, of in enumerate(told) for first in (0, 2, 4, 6)]
    undisturbed, disturbed = Beginning(SETTINGS), Beginning(SETTINGS)
    for number, batch in enumerate(batches):
        if number in cuts:
            disturbed = Beginning.from_state(SETTINGS, json.loads(json.dumps(disturbed.to_state())))
        assert list(disturbed.take(batch, JOB)) == list(undisturbed.take(batch, JOB))
    assert disturbed == undisturbed
