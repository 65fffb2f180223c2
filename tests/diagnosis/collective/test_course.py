"""Iterations and hangs, told by rows of operators that come in host by host."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.collective.course import Course, CourseRules, Iteration
from diagnosis.collective.marks import find_marks, numbered
from diagnosis.collective.participation import UNKNOWN_STATE
from diagnosis.job import Communicator, Job
from tests.diagnosis.collective.made_metrics import CLOCKS, MS, SECOND, Told, job

JOB = job(per_host=1)
EVERY = 100 * MS


def iteration(told: Told, number: int, ranks: Sequence[int] = JOB.ranks, lasts: int = EVERY) -> None:
    """Gradients at the end of an iteration, parameters after a short while; then a long time of computing."""
    for rank in ranks:
        begins = number * EVERY + (lasts - EVERY if number >= 5 else 0)
        told.tell("dp0", 2 * number, rank, begins + 60 * MS, op="reduce_scatter")
        told.tell("dp0", 2 * number + 1, rank, begins + 75 * MS, op="all_gather")


def rows(told: Told) -> pa.Table:
    return told.arrow


def take(course: Course, numbers: Sequence[int], ranks: Sequence[int] = JOB.ranks, lasts: int = EVERY) -> None:
    """Tell each host's rows of some iterations; hosts one after the other."""
    for rank in ranks:
        told = Told(per_host=1)
        for number in numbers:
            iteration(told, number, [rank], lasts)
        course.take(rows(told), f"h{rank}", SECOND + (max(numbers) + 1) * EVERY)


def completed(course: Course, of: Job = JOB) -> list[Iteration]:
    return list(course.complete(of))


def test_the_last_operator_before_the_longest_pause_ends_an_iteration() -> None:
    told = Told(per_host=1)
    for rank in JOB.ranks:  # at the start alone, twice: no iteration ends with it
        told.tell("dp0", 1000, rank, 1 * MS, op="broadcast")
        told.tell("dp0", 1001, rank, 15 * MS, op="broadcast")
    for number in range(8):
        iteration(told, number)
    table = told.table
    marked = find_marks(table)
    assert set(marked) == set(JOB.ranks)
    assert {(one.mark.op, one.mark.every) for one in marked.values()} == {("all_gather", 2)}
    assert all(numbers.tolist() == list(range(8)) for numbers in numbered(table, marked).values())


def test_what_a_rank_shows_several_times_an_iteration_ends_none() -> None:
    """What ends its iterations telemetry has lost, and of what comes within them all but the first."""
    told = Told(per_host=1)
    for number in range(13):
        told.tell("ep", number, 0, 10 * MS + number * 3 * MS, MS, op="custom")
    for number in range(10):
        iteration(told, number, JOB.ranks[1:])
    table = told.table
    numbers = numbered(table, find_marks(table))
    assert set(numbers) == set(JOB.ranks[1:])
    assert all(of_rank.tolist() == list(range(10)) for of_rank in numbers.values())


def test_a_job_that_becomes_slow_while_marks_are_chosen_shows_those_of_all_ranks() -> None:
    """Of some ranks most iterations that were seen are short, of others long."""
    told = Told(per_host=1)
    for number in range(10):
        iteration(told, 2 * number - min(number, 4), JOB.ranks if number < 8 else JOB.ranks[1:])
    marked = find_marks(told.table)
    assert set(marked) == set(JOB.ranks)


def test_ranks_that_are_seen_later_get_the_same_numbers() -> None:
    told = Told(per_host=1)
    for number in range(6):
        iteration(told, number, JOB.ranks if number >= 2 else JOB.ranks[1:])
    table = told.table
    numbers = numbered(table, find_marks(table))
    assert numbers[0].tolist() == [2, 3, 4, 5]
    assert numbers[1].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("first", "last"), [(3, 5), (4, 7), (4, 8), (5, 9)])
def test_ranks_that_are_told_of_further_get_the_same_numbers(first: int, last: int) -> None:
    """A host whose telemetry was lost at first, and that is polled later than those that show most."""
    told = Told(per_host=1)
    for number in range(10):
        others = JOB.ranks[1:] if number < 6 else ()
        iteration(told, number, [*others, *(JOB.ranks[:1] if first <= number <= last else ())])
    table = told.table
    numbers = numbered(table, find_marks(table))
    assert numbers[0].tolist() == list(range(first, last + 1))
    assert numbers[1].tolist() == list(range(6))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lost", [None, 9])
def test_a_clock_that_is_off_by_half_an_iteration_makes_none_more(lost: int | None, seed: int) -> None:
    told, chance = Told(per_host=1), np.random.default_rng(seed)
    for rank in JOB.ranks:
        for number in range(20):
            at = int((number + rank / 2) * EVERY + chance.integers(-4, 5) * MS - CLOCKS[rank])
            if (rank, number) != (1, lost):
                told.tell("ep", number, rank, at, op="custom")
    table = told.table
    numbers = numbered(table, find_marks(table))
    gaps = {rank: np.flatnonzero(np.diff(of_rank) != 1).tolist() for rank, of_rank in numbers.items()}
    assert gaps == {rank: [8] if (rank, lost) == (1, 9) else [] for rank in JOB.ranks}
    assert all(of_rank[-1] - of_rank[0] == 19 for of_rank in numbers.values())


def test_the_first_iteration_that_any_rank_shows_is_the_first() -> None:
    """The rank that shows most may have lost its first ones."""
    told = Told(per_host=1)
    for number in range(8):
        iteration(told, number, JOB.ranks if 1 <= number < 5 else JOB.ranks[1:] if number else JOB.ranks[:1])
    table = told.table
    numbers = numbered(table, find_marks(table))
    assert numbers[0].tolist() == [0, 1, 2, 3, 4]
    assert numbers[1].tolist() == list(range(1, 8))


@pytest.mark.parametrize("op", ["all_gather", "custom"])
@pytest.mark.parametrize("seen", [(0, 1, 2, 6, 7, 8, 9), (0, 1, 6)])
def test_iterations_that_telemetry_has_lost_count(op: str, seen: Sequence[int]) -> None:
    """A second of a host's, amid what marks are chosen from."""
    told = Told(per_host=1)
    for number in range(10):
        iteration(told, number, JOB.ranks if number in seen else JOB.ranks[1:])
    told.rows = [row | ({"op": op} if row["op"] == "all_gather" else {}) for row in told.rows]
    table = told.table
    numbers = numbered(table, find_marks(table))
    assert numbers[0].tolist() == list(seen)
    assert numbers[1].tolist() == list(range(10))


def test_iterations_are_complete_once_all_ranks_have_passed_them() -> None:
    course = Course(CourseRules())
    take(course, [0, 1])
    assert completed(course) == [], "nothing has come again often enough"
    take(course, [2])
    first = completed(course)
    assert [one.number for one in first] == [0, 1, 2]
    assert [one.duration_ns for one in first] == [None, EVERY, EVERY]
    take(course, [3], ranks=JOB.ranks[1:])
    assert completed(course) == []
    take(course, [3], ranks=JOB.ranks[:1])
    (third,) = completed(course)
    assert third.number == 3
    assert sorted(set(third.table.instance.tolist())) == [5, 6, 7], "from the end of the one before on"


def test_a_rank_that_is_behind_is_waited_for_until_its_host_tells_of_later_or_is_silent_for_long() -> None:
    """Hosts are polled at different times: one may be told of many iterations before another."""
    lost, silent = Course(CourseRules()), Course(CourseRules())
    nothing = rows(Told(per_host=1)).slice(0, 0)
    for course in (lost, silent):
        take(course, [0, 1, 2])
        assert len(completed(course)) == 3
        for number in range(3, 40):
            take(course, [number], ranks=JOB.ranks[1:])
        assert completed(course) == [], "its host is told of no later than iteration 2"
    lost.take(nothing, "h0", SECOND + 6 * EVERY + SECOND)
    assert [one.number for one in completed(lost)] == [3, 4], "it tells of a second after the next ones, without a row"
    for rank in JOB.ranks[1:]:
        silent.take(nothing, f"h{rank}", 59 * SECOND)
    assert completed(silent) == []
    for rank in JOB.ranks[1:]:
        silent.take(nothing, f"h{rank}", 63 * SECOND)
    assert [one.number for one in completed(silent)] == list(range(3, 38))


@pytest.mark.parametrize("op", ["all_gather", "custom"])
def test_iterations_that_are_lost_of_a_host_count_while_they_come_in(op: str) -> None:
    course = Course(CourseRules())
    judged: list[Iteration] = []
    for number in range(14):
        told = [Told(per_host=1) for _ in JOB.ranks]
        for rank in JOB.ranks:
            if rank or number not in {6, 7, 8}:
                iteration(told[rank], number, [rank])
                told[rank].rows = [r | ({"op": op} if r["op"] == "all_gather" else {}) for r in told[rank].rows]
            if told[rank].rows:
                course.take(rows(told[rank]), f"h{rank}", SECOND + (number + 1) * EVERY)
        judged += completed(course)
    assert [one.number for one in judged] == list(range(14))
    calls = [at.call_ns for rank in course.ranks.values() if (at := rank.at(13)) is not None]
    assert len(calls) == len(JOB.ranks)
    assert max(calls) - min(calls) < EVERY, "the same iteration of all ranks"


def test_what_is_told_twice_counts_once() -> None:
    course = Course(CourseRules())
    take(course, [0, 1, 2])
    take(course, [2])
    assert [one.number for one in completed(course)] == [0, 1, 2]
    take(course, [1])
    assert completed(course) == []


def test_a_restart_goes_on_with_the_rows_that_come_again() -> None:
    whole, course = Course(CourseRules()), Course(CourseRules())
    for each in (whole, course):
        take(each, [0, 1, 2])
        completed(each)
    kept = course.rows
    again = Course.from_state(CourseRules(), json.loads(json.dumps(course.to_state())))
    for table in kept:
        again.refill(table.filter(pa.compute.greater_equal(table.column("call_ns"), course.needed_from_ns)))
    for each in (whole, again):
        take(each, [3])
    (one,), (other,) = completed(whole), completed(again)
    assert (one.number, one.duration_ns) == (other.number, other.duration_ns) == (3, EVERY)
    assert one.table.instance.tolist() == other.table.instance.tolist()


def test_an_operator_hangs_that_is_silent_while_all_hosts_tell() -> None:
    course = Course(CourseRules(hang_ns=2 * SECOND))
    take(course, [0, 1, 2])
    completed(course)
    stuck = Told(per_host=1)
    stuck.tell("dp0", 6, 0, 360 * MS, op="reduce_scatter", sent=1000, state="incomplete")
    course.take(rows(stuck), "h0", 4 * SECOND)
    assert course.hanging() is None, "of the other hosts nothing has come since"
    for rank in JOB.ranks[1:]:
        course.take(rows(Told(per_host=1)), f"h{rank}", 4 * SECOND)
    found = course.hanging()
    assert found is not None
    assert found.rank[found.instance == 6].tolist() == [0]
    assert course.going_on(()) == 3
    told = Told(per_host=1)
    told.tell("dp0", 6, 0, 360 * MS, op="reduce_scatter")
    course.take(rows(told), "h0", 5 * SECOND)
    assert course.hanging() is None, "it has ended after all"


def test_what_hangs_before_marks_are_chosen_does_so_in_the_iteration_that_its_ranks_are_in() -> None:
    """They are waited for as long as a communicator is silent, for one that is never used a minute."""
    course, silent = Course(CourseRules(hang_ns=2 * SECOND)), Communicator("silent", JOB.ranks)
    take(course, [0, 1, 2])
    take(course, [3], ranks=JOB.ranks[1:])
    stuck = Told(per_host=1)
    # its mark, which it has not passed
    stuck.tell("dp0", 7, 0, 375 * MS, op="all_gather", sent=1000, state="incomplete")
    course.take(rows(stuck), "h0", 4 * SECOND)
    assert completed(course, replace(JOB, communicators=(*JOB.communicators, silent))) == []
    assert (course.going_on([0]), course.going_on([1]), course.going_on(())) == (3, 4, 4)
    assert not course.ranks, "they are chosen when enough was seen"


def test_of_what_hangs_before_all_has_come_again_the_iteration_is_not_made_up() -> None:
    """What comes several times within the first iteration ends none."""
    course, told = Course(CourseRules()), Told(per_host=1)
    for number in range(10):
        told.tell("ep", number, 0, number * 10 * MS, MS, op="custom")
    told.tell("dp0", 0, 0, 110 * MS, op="reduce_scatter")
    course.take(rows(told), "h0", 4 * SECOND)
    assert course.going_on([0]) == 0


def test_marks_are_chosen_once_all_ranks_show_theirs() -> None:
    """A host that tells later than others would end its iterations elsewhere, or nowhere."""
    course = Course(CourseRules())
    take(course, [0, 1, 2, 3], ranks=JOB.ranks[1:])
    assert completed(course) == []
    take(course, [0, 1, 2, 3], ranks=JOB.ranks[:1])
    assert len(completed(course)) == 4
    assert set(course.ranks) == set(JOB.ranks)


def test_an_operator_belongs_to_an_iteration_as_a_whole() -> None:
    """Whoever is compared must not hang on where the iterations of single ranks end."""
    course = Course(CourseRules())
    take(course, [0, 1, 2])
    assert completed(course)
    rank = course.ranks[0]
    rank.passed = {n: at._replace(call_ns=at.call_ns - 50 * MS) for n, at in rank.passed.items()}  # before it is called
    take(course, [3])
    (third,) = completed(course)
    ranks = {seq: third.table.rank[third.table.instance == seq].tolist() for seq in np.unique(third.table.instance)}
    assert all(sorted(members) == list(JOB.ranks) for members in ranks.values())


def test_ranks_that_are_ahead_in_turn_make_no_iteration_long() -> None:
    """Half of them are ahead in every other iteration; all keep pace."""
    course = Course(CourseRules())
    for rank in JOB.ranks:
        told = Told(per_host=1)
        for number in range(6):
            ahead = 8 * MS if (number + rank) % 2 else 0
            told.tell("dp0", number, rank, number * EVERY + 60 * MS - ahead, op="all_gather")
        course.take(rows(told), f"h{rank}", SECOND + 7 * EVERY)
    durations = [one.duration_ns for one in completed(course)]
    assert len(durations) > 3
    assert set(durations[1:]) == {EVERY}


def test_at_the_end_of_a_job_nobody_is_waited_for() -> None:
    """Rank 0 shows its mark no more."""
    course, of = Course(CourseRules()), replace(JOB, ended_ns=2 * SECOND)
    take(course, [0, 1, 2])
    take(course, [3, 4], ranks=JOB.ranks[1:])
    assert [one.number for one in completed(course, of)] == [0, 1, 2]
    for rank in JOB.ranks:
        course.take(rows(Told(per_host=1)), f"h{rank}", 3 * SECOND)
    assert [one.number for one in completed(course, of)] == [3, 4]


def test_exchanges_of_several_iterations_meet_though_a_call_and_a_mark_were_lost() -> None:
    """Rank 0 has lost the second exchange of iteration 4 and the mark of iteration 5, which comes sooner after an
    exchange than clocks are off."""
    course = Course(CourseRules())
    for rank in JOB.ranks:
        told = Told(per_host=1)
        for number in range(10):
            for name, at in (("ep", 20), ("ep", 58), ("last", 60)):
                if (rank, number, name, at) not in {(0, 4, "ep", 58), (0, 5, "last", 60)}:
                    lost = int(rank == 0 and number >= {"ep": 5, "last": 6}[name])
                    begins = number * EVERY + at * MS
                    told.tell(name, 10 * number + at // 30, rank, begins, 2 * MS, op="custom", calls_lost=lost)
        course.take(rows(told), f"h{rank}", SECOND + 11 * EVERY)
    both = tuple(Communicator(name, JOB.ranks, "ep") for name in ("ep", "last"))
    (last,) = [one for one in completed(course, replace(JOB, communicators=both)) if one.number == 8]
    table, exchange = last.table, last.table.communicators.index("ep")
    own, other = (np.flatnonzero((table.communicator == exchange) & (table.rank == rank)) for rank in (0, 1))
    when = dict(zip(table.instance[other].tolist(), table.call_ns[other].tolist(), strict=True))
    ahead = {
        int(at - when[one]) for one, at in zip(table.instance[own].tolist(), table.call_ns[own].tolist(), strict=True)
    }
    assert (len(own), len(other), len(ahead)) == (17, 18, 1), "each beside its own, by the clocks of two hosts"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_loss_is_known_though_what_came_before_it_is_kept_no_longer(restarted: bool) -> None:
    """Iterations of three seconds; the first call of rank 1 in iteration 7 is lost, and others before."""
    course = Course(CourseRules())
    judged: list[Iteration] = []
    for number in range(9):
        for rank in JOB.ranks:
            told, begins = Told(per_host=1), number * 30 * EVERY
            for seq in (3 * number, 3 * number + 1):
                missing = (rank == 1) * ((number >= 2) + (number >= 7))
                if (rank, seq) != (1, 21):
                    told.tell("first", seq, rank, begins + 20 * (seq % 3) * MS, calls_lost=missing)
            told.tell("last", number, rank, begins + 2500 * MS)
            course.take(told.arrow, f"h{rank}", begins + 30 * EVERY + SECOND)
        groups = tuple(Communicator(name, JOB.ranks, "dp") for name in ("first", "last"))
        judged += completed(course, replace(JOB, communicators=groups))
        if restarted:
            kept = course.rows
            course = Course.from_state(CourseRules(), json.loads(json.dumps(course.to_state())))
            for table in kept:
                course.refill(table)
    state = {one.number: one.table.state[(one.table.rank == 1)].tolist() for one in judged}
    assert UNKNOWN_STATE in state[7]
    assert UNKNOWN_STATE not in state[6] + state[8]
