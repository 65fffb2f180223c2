"""What an agent says of an iteration: where an end is unknown, how long the operators took may be as well."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from producers.iteration_summaries import summarise
from producers.log_store import Spans
from schemas.catalogue import COMM_OPS

NS = 1_000


def of_rank(ended: Sequence[bool], end_ns: int = 2 * 10**9) -> dict[str, Any]:
    """The summary of one rank that called operators of 1, 2, 3... us on one communicator, and went on at ``end_ns``."""
    rows = [
        {
            "rank": 3,
            "communicator": "tp0",
            "op": "all_reduce",
            "seq": at,
            "call_order": at,
            "call_ns": 10**9 + at * 10**6,
            "end_ns": 10**9 + at * 10**6 + (at + 1) * NS if known else None,
        }
        for at, known in enumerate(ended)
    ]
    spans = Spans(*(np.array([value]) for value in (3, 10**9, end_ns, 0)))
    summary = summarise(pa.Table.from_batches([COMM_OPS.from_rows(rows)]), spans, 0, last=False)
    [row] = summary.to_pylist()
    return dict(row)


def of_communicator(ended: Sequence[bool]) -> dict[str, Any]:
    """What it says of the communicator."""
    [told] = of_rank(ended)["by_operator"]
    return dict(told)


def test_durations_add_up() -> None:
    told = of_communicator([True] * 20)
    assert (told["count"], told["duration_sum_ns"], told["duration_max_ns"]) == (20, 210 * NS, 20 * NS)


def test_one_of_twenty_without_an_end_is_taken_to_have_lasted_as_long_as_the_others() -> None:
    told = of_communicator([False, *[True] * 19])
    assert told["count"] == 20
    assert told["duration_sum_ns"] == pytest.approx(209 * NS * 20 / 19, abs=1)
    assert told["duration_max_ns"] == 20 * NS


def test_where_more_have_none_nothing_is_known() -> None:
    told = of_communicator([False, False, *[True] * 18])
    assert (told["count"], told["duration_sum_ns"], told["duration_max_ns"]) == (20, None, None)
    assert of_communicator([False])["duration_sum_ns"] is None


def test_a_pause_begins_with_the_end_of_the_last_operator_and_ends_with_the_next_iteration() -> None:
    assert of_rank([True] * 3)["pause_ns"] == 10**9 - (2 * 10**6 + 3 * NS)
    assert of_rank([False, True, True])["pause_ns"] == 10**9 - (2 * 10**6 + 3 * NS)


def test_where_either_is_unknown_so_is_the_pause() -> None:
    assert of_rank([True, True, False])["pause_ns"] is None
    assert of_rank([True] * 3, end_ns=-1)["pause_ns"] is None


def test_of_a_rank_without_a_row_nothing_is_known() -> None:
    assert of_rank([])["pause_ns"] is None
