"""The operator log as columns: reading it, joining one operator across ranks, who came last and who went on."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.operators import (
    COLUMNS,
    UNKNOWN,
    Operators,
    last_callers,
)
from schemas.catalogue import COMM_OPS

Row = dict[str, Any]


def operators(rows: Sequence[Row], *, distinct: bool = False) -> Operators:
    table = COMM_OPS.from_rows([{"communicator": "c", "op": "all_reduce", **row} for row in rows])
    return Operators.from_arrow(table, distinct=distinct)


def test_every_column_that_diagnosis_reads_exists() -> None:
    assert set(COLUMNS) <= set(COMM_OPS.schema.names)


def test_rows_are_sorted_by_rank_and_call_and_equal_calls_by_their_order() -> None:
    made = operators(
        [
            {"rank": 1, "call_ns": 5, "seq": 3},
            {"rank": 0, "call_ns": 9, "seq": 1, "call_order": 8},
            {"rank": 0, "call_ns": 9, "seq": 2, "call_order": 7},
            {"rank": 0, "call_ns": 4, "seq": 0},
        ]
    )
    assert made.rank.tolist() == [0, 0, 0, 1]
    assert made.seq.tolist() == [0, 2, 1, 3]
    assert made.of_rank(0).seq.tolist() == [0, 2, 1]
    assert len(made.of_rank(7)) == 0


def test_what_the_log_does_not_say_is_unknown() -> None:
    table = pa.table({"rank": [3], "call_ns": [7], "op": ["barrier"]})
    made = Operators.from_arrow(table)
    assert made.call_ns.tolist() == [7]
    for name in ("seq", "position", "iteration", "peer", "p2p_seq", "microbatch", "phase", "end_ns", "communicator"):
        assert getattr(made, name).tolist() == [UNKNOWN]
    assert (made.communicators, made.ops, made.phases) == ((), ("barrier",), ())
    assert made.ended.tolist() == [False]


def test_no_rows_are_no_operators() -> None:
    made = Operators.from_arrow(COMM_OPS.schema.empty_table())
    assert len(made) == 0
    assert len(made.meeting_keys) == len(made.next_calls) == 0
    assert len(Operators.from_arrow(COMM_OPS.schema.empty_table(), distinct=True)) == 0


def test_chunks_with_dictionaries_of_their_own_are_one_log() -> None:
    batches = [
        COMM_OPS.from_rows([{"rank": 0, "call_ns": 1, "communicator": "x", "op": "send", "phase": "forward"}]),
        COMM_OPS.from_rows([{"rank": 0, "call_ns": 2, "communicator": "y", "op": "recv"}]),
        COMM_OPS.from_rows([{"rank": 0, "call_ns": 3, "communicator": "x", "op": "barrier", "phase": "backward"}]),
    ]
    made = Operators.from_arrow(pa.Table.from_batches(batches))
    assert [made.communicators[code] for code in made.communicator] == ["x", "y", "x"]
    assert [made.ops[code] for code in made.op] == ["send", "recv", "barrier"]
    assert [made.phases[code] if code >= 0 else None for code in made.phase] == ["forward", None, "backward"]
    assert made.point_to_point.tolist() == [True, True, False]


_few = st.integers(0, 2)
_maybe = st.none() | _few
_rows = st.fixed_dictionaries(
    {
        "rank": _few,
        "call_ns": _few,
        "communicator": st.sampled_from("ab"),
        "op": st.sampled_from(["send", "recv", "all_reduce", "barrier"]),
        "seq": _maybe,
        "peer": _maybe,
        "p2p_seq": _maybe,
    }
)
_everything = st.fixed_dictionaries(
    {
        "rank": _few,
        "call_ns": _few,
        "op": st.sampled_from(["send", "recv", "all_reduce", "barrier"]),
        "communicator": st.sampled_from("ab"),
        "phase": st.none() | st.sampled_from(["forward", "backward"]),
        **{name: _maybe for name in COLUMNS if name not in {"rank", "call_ns", "op", "communicator", "phase"}},
    }
)


@given(st.lists(_rows, max_size=8, unique_by=lambda row: tuple(sorted(row.items(), key=str))), st.data())
def test_rows_that_were_fetched_twice_count_once(rows: list[Row], data: st.DataObject) -> None:
    again = data.draw(
        st.permutations(rows + data.draw(st.lists(st.sampled_from(rows), max_size=6) if rows else st.just([])))
    )
    assert len(operators(again, distinct=True)) == len(rows)
    assert len(operators(again)) == len(again)


_TOLD_APART = ("rank", "call_ns", "op", "communicator", "seq", "peer", "p2p_seq")


@given(
    st.lists(_everything, min_size=1, max_size=8, unique_by=lambda row: tuple(row[name] for name in _TOLD_APART)),
    st.lists(st.integers(0, 7), max_size=4),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_logs_that_came_apart_are_joined_as_if_they_had_come_together(
    once: list[Row], twice: list[int], cuts: list[int]
) -> None:
    rows = [*once, *(once[at % len(once)] for at in twice)]
    ends = [*sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [operators(rows[low:high]) for low, high in zip([0, *ends], ends, strict=False)]
    joined, whole = Operators.joined(parts), operators(rows, distinct=True)
    assert joined.communicators == whole.communicators
    assert joined.ops == whole.ops
    assert joined.phases == whole.phases
    arrays = [each.name for each in fields(Operators) if each.name not in {"communicators", "ops", "phases"}]
    assert len(arrays) == len(COLUMNS)
    for name in arrays:
        assert getattr(joined, name).tolist() == getattr(whole, name).tolist(), name


def _meeting(row: Row) -> tuple[object, ...] | None:
    """What a row takes part in, as a reader would say; None: the log does not tell."""
    if row["op"] in {"send", "recv"}:
        if row["peer"] is None or row["p2p_seq"] is None:
            return None
        ends = (row["rank"], row["peer"]) if row["op"] == "send" else (row["peer"], row["rank"])
        return "pair", *ends, row["p2p_seq"]
    return None if row["seq"] is None else ("group", row["communicator"], row["seq"])


@given(st.lists(_rows, max_size=12))
def test_operators_meet_exactly_where_they_are_one_communication(rows: list[Row]) -> None:
    rows = [{**row, "call_ns": place, "rank": row["rank"]} for place, row in enumerate(rows)]
    made = operators(rows)
    ordered = [rows[at] for at in made.call_ns]
    keys = made.meeting_keys
    for one, key in zip(ordered, keys, strict=True):
        assert (key == UNKNOWN) == (_meeting(one) is None)
        for other, other_key in zip(ordered, keys, strict=True):
            if key != UNKNOWN:
                assert (key == other_key) == (_meeting(one) == _meeting(other))


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5)), max_size=12))
def test_the_last_caller_of_each_communication(entries: list[tuple[int, int]]) -> None:
    keys, calls = (np.array([entry[i] for entry in entries], dtype=np.int64) for i in range(2))
    last, entered, seen = last_callers(keys, calls)
    for at, (key, call) in enumerate(entries):
        together = [other for other in range(len(entries)) if key != UNKNOWN and entries[other][0] == key] or [at]
        assert seen[at] == len(together)
        assert entered[at] == max(entries[other][1] for other in together)
        assert last[at] in together
        assert last[at] == max(other for other in together if entries[other][1] == entered[at])
        assert key != UNKNOWN or call == entered[at]


@pytest.mark.parametrize(
    ("ops", "peers", "expected"),
    [
        (["all_reduce", "all_reduce"], [None, None], [20, UNKNOWN]),
        (["send", "recv", "barrier"], [4, 4, None], [30, 30, UNKNOWN]),
        (["send", "recv", "barrier"], [4, 5, None], [20, 30, UNKNOWN]),
        (["recv", "send", "barrier"], [4, 4, None], [20, 30, UNKNOWN]),
        (["send", "recv"], [4, 4], [UNKNOWN, UNKNOWN]),
    ],
)
def test_when_a_rank_goes_on(ops: list[str], peers: list[int | None], expected: list[int]) -> None:
    rows = [
        {"rank": 0, "op": op, "peer": peer, "call_ns": 10 * (place + 1)}
        for place, (op, peer) in enumerate(zip(ops, peers, strict=True))
    ]
    made = operators([*rows, {"rank": 1, "call_ns": 99}])
    assert made.next_calls.tolist() == [*expected, UNKNOWN]


def test_nobody_knows_when_a_rank_went_on_before_a_hole() -> None:
    iterations = [None, 3, 3, 4, 7, 7]
    rows = [{"rank": 0, "iteration": iteration, "call_ns": place} for place, iteration in enumerate(iterations)]
    assert operators(rows).next_calls.tolist() == [UNKNOWN, 2, 3, UNKNOWN, 5, UNKNOWN]


def test_a_log_that_numbers_no_collective_is_joined_by_iteration_and_position() -> None:
    table = pa.table(
        {
            "rank": [0, 0, 0, 1, 1],
            "communicator": ["c"] * 5,
            "op": ["all_reduce"] * 5,
            "iteration": [0, 0, 1, 0, 1],
            "position": [0, 1, 0, 1, 0],
            "call_ns": [1, 2, 3, 4, 5],
        }
    )
    keys = Operators.from_arrow(table).meeting_keys
    assert keys[1] == keys[3]
    assert keys[2] == keys[4]
    assert len(set(keys.tolist())) == 3
