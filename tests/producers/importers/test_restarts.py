"""Iterations whose numbers start again."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.columns import integers
from producers.importers.restarts import numbered_on
from schemas.catalogue import COMM_OPS

RANKS = 4


def table_of(logs: Sequence[Sequence[int | None]], began: Sequence[int] = (0,) * 99) -> pa.Table:
    """Two operators an iteration of each rank, in order of rank and call."""
    rows = [
        {"rank": rank, "communicator": "c", "op": "all_reduce", "call_ns": 10**9 * (began[rank] + at) + 7 * rank + op}
        | ({} if iteration is None else {"iteration": iteration})
        for rank, log in enumerate(logs)
        for at, iteration in enumerate(log)
        for op in range(2)
    ]
    return pa.Table.from_batches([COMM_OPS.from_rows(rows)])


def numbers(table: pa.Table, rank: int) -> list[int]:
    """The iterations of a rank, one after the other."""
    own = integers(table, "iteration")[integers(table, "rank") == rank]
    assert (own[::2] == own[1::2]).all()
    told: list[int] = own[::2].tolist()
    return told


def test_a_loop_over_epochs_is_numbered_on() -> None:
    table, said = numbered_on(table_of([[*range(7), *range(7), *range(5)]] * RANKS))
    assert [numbers(table, rank) for rank in range(RANKS)] == [[*range(19)]] * RANKS
    assert (
        said
        == "iterations are numbered from 0 again after 6, and 1 more times: those that follow are numbered on, from 7"
    )


def test_a_job_that_goes_back_to_a_checkpoint_is_numbered_on() -> None:
    table, said = numbered_on(table_of([[*range(40), *range(35, 50)]] * RANKS))
    assert numbers(table, 1) == [*range(55)]
    assert said is not None
    assert "numbered from 35 again after 39" in said


def test_numbers_that_leave_some_out_keep_their_step() -> None:
    table, _ = numbered_on(table_of([[*range(0, 70, 10), *range(0, 70, 10)]] * RANKS))
    assert numbers(table, 2) == [*range(0, 140, 10)]


def test_ranks_that_logged_a_part_are_numbered_by_when_they_called() -> None:
    whole = [*range(8), *range(8)]
    table, _ = numbered_on(table_of([whole, whole, whole, range(3, 8), range(2, 7)], began=(0, 0, 0, 3, 10)))
    assert numbers(table, 3) == [*range(3, 8)]
    assert numbers(table, 4) == [*range(10, 15)]


def test_lost_iterations_of_one_rank_shift_nobody() -> None:
    whole = [*range(8), *range(8)]
    table, _ = numbered_on(table_of([whole, whole, whole, [*range(6), *range(2, 8)]]))
    assert numbers(table, 3) == [*range(6), *range(10, 16)]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([0, 1, 2, 3, 2, 3, 4, 3, 4, 5], id="iterations that overlap"),
        pytest.param([5, 6, 7, 8, 0, 9, 10, 0, 11, 12], id="an evaluation between them"),
        pytest.param([5, 6, 7, 8, 5, 6], id="too few to tell"),
        pytest.param([4, 5, 6, 7, 4, 6, 7, 8, 5, 7, 8, 9], id="operators that end much later"),
        pytest.param([None] * 9, id="none given"),
        pytest.param([], id="nothing"),
    ],
)
def test_what_does_not_start_again_is_left_as_it_is(log: list[int | None]) -> None:
    table = table_of([log] * RANKS)
    assert numbered_on(table) == (table, None)


def test_ranks_that_do_not_agree_are_left_as_they_are() -> None:
    logs = [[*range(9)], [*range(9), *range(9)], [*range(9), *range(9), *range(9)], [*range(9)], [*range(27)]]
    table = table_of(logs)
    assert numbered_on(table) == (table, None)


def test_numbers_that_are_no_iterations_do_not_overflow() -> None:
    large = 2**31 - 12
    table = table_of([[*range(large, large + 9), *range(large, large + 9)]] * RANKS)
    assert numbered_on(table) == (table, None)


@given(st.lists(st.integers(4, 9), min_size=1, max_size=5), st.integers(0, 100), st.integers(1, 10))
def test_each_iteration_has_a_number_of_its_own_in_the_order_of_calls(epochs: list[int], low: int, step: int) -> None:
    log = [low + step * at for count in epochs for at in range(min(count, *epochs))]
    table, said = numbered_on(table_of([log] * RANKS))
    assert numbers(table, 0) == [low + step * at for at in range(len(log))]
    assert (said is None) == (len(epochs) == 1)
