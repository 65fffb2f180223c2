"""Asking for logs: what a request says, when an answer is whole, whose answer counts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.operator_graph.needs import Need, Series
from schemas.catalogue import COMM_OPS, LOG_REQUESTS, OPERATOR_WINDOWS
from schemas.errors import MessageError
from schemas.message import Message, decode, encode
from streams.log_fetch import Fetch, stretches
from tests.schemas.memory import allocating_at_most


def fetch(*ranks: int) -> Fetch:
    return Fetch("r", "j", (Need(ranks or (0, 1), (3, 4, 5, 9)),), deadline_ns=50)


def answer(
    ranks: Sequence[int],
    calls: Iterable[tuple[int, int]] = (),
    *,
    part: int = 0,
    parts: int = 1,
    host: str = "h",
    producer: str = "agent/1",
    outcome: str = "complete",
) -> Message:
    """``calls`` are (rank, call time)."""
    rows = [{"rank": rank, "call_ns": at, "communicator": "c", "op": "barrier"} for rank, at in calls]
    headers = {"request_id": "r", "host": host, "outcome": outcome, "part": str(part), "parts": str(parts)}
    headers |= {"ranks": ",".join(map(str, ranks)), "producer": producer}
    return encode(COMM_OPS, COMM_OPS.from_rows(rows), job="j", headers=headers)


def taken(one: Fetch) -> list[tuple[int, int]]:
    rows = one.answer().rows
    return sorted(zip(rows.column("rank").to_pylist(), rows.column("call_ns").to_pylist(), strict=True))


def test_a_request_has_a_row_for_each_need_and_stretch_of_iterations() -> None:
    needs = (Need((1, 2), (3, 4, 5, 9)), Need((7,), (3,), "c"))
    message = Fetch("r", "j", needs, deadline_ns=50).request()
    rows = decode(message, LOG_REQUESTS).to_pylist()
    assert [(r["ranks"], r["iteration_from"], r["iteration_to"], r["communicator"]) for r in rows] == [
        ([1, 2], 3, 5, None),
        ([1, 2], 9, 9, None),
        ([7], 3, 3, "c"),
    ]
    assert {(row["request_id"], row["what"], row["deadline_ns"]) for row in rows} == {("r", "rows", 50)}
    assert (message.job, message.key) == ("j", "j")


@given(st.sets(st.integers(0, 30)))
def test_stretches_cover_exactly_what_is_asked_for(iterations: set[int]) -> None:
    found = list(stretches(sorted(iterations)))
    assert [i for first, last in found for i in range(first, last + 1)] == sorted(iterations)
    assert all(last + 1 not in iterations and first - 1 not in iterations for first, last in found)


def test_an_answer_is_whole_once_every_rank_has_answered() -> None:
    one = fetch(0, 1, 2)
    one.take(answer([0, 1], [(0, 5), (1, 6)]))
    assert (one.done, one.awaited) == (False, {2})
    one.take(answer([2], [(2, 7)], host="other"))
    assert one.done
    assert taken(one) == [(0, 5), (1, 6), (2, 7)]
    assert one.answer().missing == frozenset()


def test_the_first_answer_for_a_rank_wins() -> None:
    first, second = answer([0, 1], [(0, 5), (1, 6)]), answer([0, 1], [(0, 500), (1, 600)])
    one = fetch(0, 1, 2)
    one.take(first)
    one.take(second)
    assert taken(one) == [(0, 5), (1, 6)]
    assert one.bytes == len(first.value or b"")
    one.take(answer([1, 2], [(1, 700), (2, 7)], host="moved here"))
    assert taken(one) == [(0, 5), (1, 6), (2, 7)]


def test_rows_of_ranks_that_nobody_asked_for_are_left_out() -> None:
    one = fetch(0)
    one.take(answer([0, 8], [(0, 5), (8, 6), (9, 7)]))
    assert taken(one) == [(0, 5)]
    nothing = fetch(0)
    nothing.take(answer([7, 8], [(7, 1)]))
    assert (nothing.done, nothing.bytes) == (False, 0)


def test_rows_are_held_once_and_only_those_that_are_wanted() -> None:
    many = answer(range(10), ((number % 10, number) for number in range(20_000)))
    size = decode(many, COMM_OPS).nbytes
    with allocating_at_most(round(1.5 * size)):
        fetch(*range(10)).take(many)
    one, before = fetch(0), pa.total_allocated_bytes()
    one.take(many)
    assert len(taken(one)) == 2_000
    assert pa.total_allocated_bytes() - before < 0.5 * size


@pytest.mark.parametrize("outcome", ["unreachable", "overwritten"])
def test_a_rank_of_which_nothing_is_left_is_missing(outcome: str) -> None:
    one = fetch(0, 1)
    one.take(answer([0], [(0, 5)]))
    one.take(answer([0, 1], outcome=outcome))
    assert one.done
    assert taken(one) == [(0, 5)]
    assert one.answer().missing == {1}


def test_what_is_known_in_part_is_used() -> None:
    one = fetch(0)
    one.take(answer([0], [(0, 5)], outcome="partial"))
    assert taken(one) == [(0, 5)]
    assert not one.answer().missing


def test_at_the_deadline_the_rest_is_unreachable() -> None:
    one = fetch(0, 1, 2)
    one.take(answer([1], [(1, 6)]))
    [message] = one.unreachable(60)
    assert (message.headers["ranks"], message.headers["request_id"], message.watermark_ns) == ("0,2", "r", 60)
    one.take(message)
    assert one.done
    assert one.answer().missing == {0, 2}


def window(ranks: Sequence[int], rows: list[dict[str, object]], **headers: str) -> Message:
    own = {"request_id": "r", "host": "h", "outcome": "complete", "ranks": ",".join(map(str, ranks))}
    return encode(OPERATOR_WINDOWS, OPERATOR_WINDOWS.from_rows(rows), job="j", headers={**own, **headers})


STATISTICS = {"rank": 0, "communicator": "c", "position": 2, "samples": 9}
STATISTICS |= {f"{name}_ns": at for at, name in enumerate(("mean", "std", "q1", "q2", "q3"), 10)}
PAIRS = [{"iteration": i, "operator_ns": i, "iteration_ns": 100 + i} for i in range(3)]


def all_kinds() -> Fetch:
    """Rows of two ranks, statistics of one, a series of another."""
    needs = (
        Need((0, 1), (9,), "c", seq_from=40, seq_to=41),
        Need((0,), (3, 4, 5), "c", positions=(2,), what="statistics"),
        Need((7,), (3, 4, 5), "c", positions=(2,), what="series"),
    )
    return Fetch("r", "j", needs, deadline_ns=50)


def test_a_request_says_what_is_asked_for_of_which_operators() -> None:
    rows = decode(all_kinds().request(), LOG_REQUESTS).to_pylist()
    assert [(r["what"], r["ranks"], r["seq_from"], r["seq_to"], r["positions"]) for r in rows] == [
        ("rows", [0, 1], 40, 41, None),
        ("statistics", [0], None, None, [2]),
        ("series", [7], None, None, [2]),
    ]


def test_rows_statistics_and_series_are_awaited_apart() -> None:
    one = all_kinds()
    one.take(answer([0, 1], [(0, 5), (1, 6)]))
    assert one.awaited == {0, 7}
    one.take(window([0], [STATISTICS]))
    assert one.awaited == {7}
    one.take(window([7], [{**STATISTICS, "rank": 7, "mean_ns": None, "series": PAIRS}], host="other"))
    assert one.done
    told = one.answer()
    assert (told.usual.rank.tolist(), told.usual.position.tolist(), told.usual.count.tolist()) == ([0], [2], [9])
    assert [getattr(told.usual, name).tolist() for name in ("mean", "std", "q1", "q2", "q3")] == [
        [10.0],
        [11.0],
        [12.0],
        [13.0],
        [14.0],
    ]
    assert told.series == (Series(7, "c", 2, (0, 1, 2), (100, 101, 102)),)


def test_statistics_that_do_not_come_are_not_there_and_their_rows_are_used() -> None:
    one = all_kinds()
    one.take(answer([0, 1], [(0, 5), (1, 6)]))
    one.take(window([7], [], outcome="overwritten", host="other"))
    [message] = one.unreachable(60)
    assert (message.topic, message.headers["ranks"]) == (OPERATOR_WINDOWS.name, "0")
    one.take(message)
    assert one.done
    told = one.answer()
    assert (len(told.usual), told.series, told.missing) == (0, (), frozenset())
    assert taken(one) == [(0, 5), (1, 6)]


def test_series_below_zero_are_left_out() -> None:
    one = all_kinds()
    bad = [{"iteration": 1, "operator_ns": -5, "iteration_ns": 7}, *PAIRS]
    one.take(window([7], [{**STATISTICS, "rank": 7, "series": bad}]))
    assert one.answer().series[0].operator_ns == (0, 1, 2)


def test_all_answers_count_as_bytes_however_complete() -> None:
    one = all_kinds()
    told = [answer([0], [(0, 5)]), answer([1], outcome="overwritten"), window([0], [STATISTICS]), window([7], [])]
    for message in told:
        one.take(message)
    assert one.done
    assert one.bytes == sum(len(message.value or b"") for message in told)


def test_one_host_answers_ranks_that_are_differently_complete_apart() -> None:
    one = fetch(0, 1)
    for part in range(2):
        one.take(answer([0], [(0, part)], part=part, parts=2, outcome="partial"))
        one.take(answer([1], [(1, part)], part=part, parts=2))
    assert one.done
    assert taken(one) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_no_answer_at_all_is_no_rows() -> None:
    one = fetch(0)
    [message] = one.unreachable(60)
    one.take(message)
    assert one.answer().rows.schema == COMM_OPS.schema
    assert taken(one) == []


PARTS = [answer([0, 1], [(0, 10 * part), (1, 10 * part + 1)], part=part, parts=3) for part in range(3)]
OTHERS = [answer([2], [(2, part)], part=part, parts=2, host="other") for part in range(2)]
AGAIN = [answer([0, 1], [(0, 10 * part), (1, 10 * part + 1)], part=part, parts=3) for part in range(3)]
RECUT = [
    answer([0, 1], [(0, 0), (0, 10), (0, 20)], part=0, parts=3, producer="agent/2"),
    answer([0, 1], [(1, 1), (1, 11)], part=1, parts=3, producer="agent/2"),
    answer([0, 1], [(1, 21)], part=2, parts=3, producer="agent/2"),
]
ROWS = sorted([(0, 0), (1, 1), (0, 10), (1, 11), (0, 20), (1, 21), (2, 0), (2, 1)])


@given(st.permutations([*PARTS, *OTHERS, *AGAIN, *RECUT]))
def test_parts_in_any_order_from_agents_that_answer_twice(messages: list[Message]) -> None:
    """An agent that was restarted answers again and cuts its rows differently."""
    one = fetch(0, 1, 2)
    for message in messages:
        one.take(message)
    assert one.done
    assert taken(one) == ROWS
    sizes = [sum(len(m.value or b"") for m in whole) for whole in (PARTS, RECUT)]
    assert one.bytes - sum(len(m.value or b"") for m in OTHERS) in sizes


def test_a_part_that_is_missing_is_waited_for() -> None:
    one = fetch(0, 1)
    for message in (PARTS[0], PARTS[2], PARTS[2], RECUT[0]):
        one.take(message)
    assert not one.done
    assert taken(one) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"ranks": "0,x"},
        {"outcome": "whole"},
        {"part": "1", "parts": "1"},
        {"part": "-1"},
        {"parts": "many"},
        {"schema": "comm_ops"},
    ],
    ids=str,
)
def test_an_answer_that_does_not_say_what_it_is_is_poison(headers: dict[str, str]) -> None:
    one, good = fetch(0), answer([0], [(0, 5)])
    with pytest.raises(MessageError):
        one.take(replace(good, headers={**good.headers, **headers}))
    with pytest.raises(MessageError, match="needs the headers ranks, outcome, part and parts"):
        one.take(replace(good, headers={k: v for k, v in good.headers.items() if k != "ranks"}))
    assert (one.done, one.bytes) == (False, 0)
    one.take(good)
    assert one.done


def test_a_host_answers_apart_for_ranks_that_are_differently_complete() -> None:
    one = fetch(0, 1)
    one.take(answer([0], [(0, 5)]))
    one.take(answer([1], [(1, 6)], outcome="partial"))
    assert one.done
    assert taken(one) == [(0, 5), (1, 6)]
