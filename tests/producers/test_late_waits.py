"""Of sends that were waited for late nobody knows when they ended."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from producers.late_waits import without_late_waits
from schemas.comm_ops import TOPIC

Call = tuple[str, int, int | None]
"""What a rank calls, when, and when that ends, in ns."""


def rows(*of_ranks: list[Call]) -> pa.Table:
    told: list[dict[str, Any]] = [
        {"rank": rank, "communicator": "c", "op": op, "call_order": order, "call_ns": call_ns, "end_ns": end_ns}
        for rank, calls in enumerate(of_ranks)
        for order, (op, call_ns, end_ns) in enumerate(calls)
    ]
    return pa.Table.from_batches([TOPIC.from_rows(told)])


def ends(table: pa.Table) -> list[int | None]:
    return list(without_late_waits(table).column("end_ns").to_pylist())


WAITED_LATE: list[Call] = [("all_reduce", 0, 9), ("send", 10, 95), ("all_reduce", 20, 29), ("all_reduce", 40, 49)]


def test_a_send_that_outlasts_what_its_rank_did_meanwhile_has_no_end() -> None:
    assert ends(rows(WAITED_LATE)) == [9, None, 29, 49]


def test_sends_that_are_waited_for_at_once_end_when_they_are_said_to() -> None:
    blocking: list[Call] = [("all_reduce", 0, 9), ("send", 10, 19), ("all_reduce", 20, 29)]
    together: list[Call] = [("all_reduce", 0, 9), ("send", 10, 31), ("recv", 11, 30), ("all_reduce", 32, 39)]
    first: list[Call] = [("all_reduce", 0, 9), ("recv", 10, 30), ("send", 11, 31), ("all_reduce", 32, 39)]
    at_once: list[Call] = [("all_reduce", 0, 9), ("send", 10, 31), ("recv", 11, 11), ("all_reduce", 32, 39)]
    last: list[Call] = [("all_reduce", 0, 9), ("all_reduce", 20, 29), ("send", 30, 95)]
    for calls in (blocking, together, first, at_once, last):
        assert ends(rows(calls)) == [end for _, _, end in calls]


def test_a_send_and_a_receive_that_is_done_first_are_told_apart_by_what_comes_next() -> None:
    goes_on: list[Call] = [("all_reduce", 0, 9), ("send", 10, 95), ("recv", 11, 30), ("all_reduce", 32, 39)]
    assert ends(rows(goes_on)) == [9, None, 30, 39]
    receives_first: list[Call] = [("recv", 0, 9), ("send", 1, 95), ("recv", 20, 29), ("send", 21, 96), ("recv", 40, 49)]
    assert ends(rows(receives_first)) == [9, None, 29, 96, 49]  # after the last one nothing shows that it was late


def test_what_other_ranks_call_meanwhile_says_nothing() -> None:
    sends: list[Call] = [("all_reduce", 0, 9), ("send", 10, 95), ("all_reduce", 96, 99)]
    others: list[Call] = [("all_reduce", 20, 29), ("all_reduce", 40, 49)]
    assert ends(rows(sends, others)) == [9, 95, 99, 29, 49]
    assert ends(rows(others, WAITED_LATE)) == [29, 49, 9, None, 29, 49]


def test_where_calls_only_queue_operators_all_ends_are_the_device_s() -> None:
    queued: list[Call] = [("send", 0, 95), ("all_reduce", 1, 10), ("all_reduce", 2, 20), ("all_reduce", 12, 40)]
    queued += [("all_reduce", 13, 50), ("all_reduce", 14, 60)]
    assert ends(rows(queued)) == [end for _, _, end in queued]


def test_operators_that_have_not_ended_end_nothing() -> None:
    pending: list[Call] = [("all_reduce", 0, 9), ("send", 10, 95), ("all_reduce", 20, None), ("all_reduce", 40, None)]
    assert ends(rows(pending)) == [9, 95, None, None]
    assert ends(rows([])) == []


_steps = st.lists(
    st.tuples(st.sampled_from(["send", "recv", "all_reduce"]), st.integers(1, 50), st.integers(0, 50)), max_size=12
)


@given(st.lists(_steps, min_size=1, max_size=3))
def test_who_waits_for_each_operator_keeps_all_ends(of_ranks: list[list[tuple[str, int, int]]]) -> None:
    told: list[list[Call]] = []
    for steps in of_ranks:
        now = 0
        calls: list[Call] = []
        for op, computes, takes in steps:
            calls.append((op, now + computes, now + computes + takes))
            now += computes + takes
        told.append(calls)
    table = rows(*told)
    assert without_late_waits(table).equals(table)


@given(st.permutations(range(8)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    at_once: list[Call] = [("all_reduce", 0, 9), ("send", 10, 95), ("recv", 10, 12), ("all_reduce", 20, 29)]
    table = rows(WAITED_LATE, at_once)
    shuffled = without_late_waits(table.take(pa.array(order)))
    assert shuffled.take(pa.array(np.argsort(order))).equals(without_late_waits(table))
