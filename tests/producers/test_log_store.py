"""Where logs are kept: how iterations close, which rows come, and how far they are all."""

from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.job import Communicator, Job, Place
from producers.log_index import LogIndex
from producers.log_store import LogStore, RecordingStore
from producers.row_query import RowQuery
from tests.producers.live.made import live_store
from tests.training_log import BUSY_NS, ITERATION_NS, STARTED_NS, Training

TRAINING = Training(iterations=6)
TABLE = TRAINING.table()
JOB = Job(
    "job",
    tuple(Place(rank) for rank in range(8)),
    tuple(Communicator(name, ranks) for name, ranks in TRAINING.groups().items()),
)


def recorded(folder: Path, table: pa.Table, **options: Any) -> LogStore:
    return RecordingStore(JOB, LogIndex(table), **options)


def live(folder: Path, table: pa.Table, **options: Any) -> LogStore:
    return live_store(JOB, table, folder, **options)


class Make(Protocol):
    def __call__(self, table: pa.Table = TABLE, *, closed: int | None = None, **options: Any) -> LogStore: ...


@pytest.fixture(params=[recorded, live])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores of one kind: every kind must pass the tests that ask for this."""
    folders = (tmp_path / str(number) for number in count())

    def make(table: pa.Table = TABLE, *, closed: int | None = None, **options: Any) -> LogStore:
        made: LogStore = request.param(next(folders), table, **options)
        while made.closed != closed and made.advance():
            pass
        return made

    return make


LOST = ~((pc.field("rank") == 0) & (pc.field("communicator") == "tp0") & (pc.field("seq") == 2 * 16 + 5))
"""All but a line of rank 0 amid iteration 2."""


def without_seq(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("seq")
    return table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, pa.int64()))


def keys(rows: pa.Table) -> list[tuple[int, str, int]]:
    columns = (rows.column(name).to_pylist() for name in ("rank", "communicator", "seq"))
    return list(zip(*columns, strict=True))


def where(condition: pc.Expression) -> pa.Table:
    return TABLE.filter(condition)


def test_iterations_close_one_at_a_time(store: Make) -> None:
    made = store(closed=-1)
    assert (made.closed, made.watermark_ns, made.ended) == (-1, 0, False)
    seen = []
    while made.advance():
        seen.append((made.closed, made.watermark_ns))
    assert [iteration for iteration, _ in seen] == list(range(6))
    for iteration, watermark in seen:
        of_it = where(pc.field("iteration") == iteration)
        assert watermark == pc.max(of_it.column("end_ns")).as_py()
    assert made.ended


def test_stores_of_one_index_advance_in_step() -> None:
    index = LogIndex(where(~((pc.field("rank") < 4) & (pc.field("iteration") == 2))))
    one, other = RecordingStore(JOB, index, range(4)), RecordingStore(JOB, index, range(4, 8))
    while one.advance():
        other.advance()
        assert one.closed == other.closed
        assert len(one.spans(one.closed).rank) == (0 if one.closed == 2 else 4)
    assert other.ended


def renumbered(table: pa.Table, step: int) -> pa.Table:
    at = table.schema.get_field_index("iteration")
    numbers = pc.multiply(table.column("iteration"), pa.scalar(step, pa.int32()))
    return table.set_column(at, table.schema.field(at), numbers)


def test_numbers_that_are_left_out_are_no_iterations_that_are_missing() -> None:
    plain, tens = LogIndex(where(LOST)).blocks, LogIndex(renumbered(where(LOST), 10)).blocks
    assert tens.iteration.tolist() == (10 * plain.iteration).tolist()
    for name in ("rank", "first", "last", "start_ns", "end_ns", "lost"):
        assert getattr(tens, name).tolist() == getattr(plain, name).tolist()
    assert plain.lost.sum() == 1
    assert (plain.end_ns >= 0).all()


@pytest.mark.parametrize("numbered", [True, False])
def test_iterations_that_nobody_recorded_are_not_missing(numbered: bool) -> None:
    table = where(pc.field("iteration").isin([0, 2, 4]))
    table = table if numbered else without_seq(table)
    index = LogIndex(table)
    assert index.blocks.end_ns.tolist() == [
        pc.max(index.table.column("end_ns").slice(first, last - first)).as_py()
        for first, last in zip(index.blocks.first, index.blocks.last, strict=True)
    ]
    assert index.blocks.lost.sum() == 0
    made = RecordingStore(JOB, index)
    while made.advance():
        pass
    assert made.rows([0, 1], RowQuery(0, 4)).outcomes == {0: "complete", 1: "complete"}


def test_rows_of_ranks_and_iterations(store: Make) -> None:
    rows, outcomes = store().rows([6, 1, 1], RowQuery(2, 3))
    expected = where(pc.is_in(pc.field("rank"), pa.array([1, 6], pa.int32())) & pc.field("iteration").isin([2, 3]))
    assert keys(rows) == keys(expected)
    assert outcomes == {1: "complete", 6: "complete"}


def test_rows_of_one_communicator_and_some_numbers(store: Make) -> None:
    rows, outcomes = store().rows([0, 1], RowQuery(0, 5, "tp0", 10, 20))
    assert keys(rows) == [(rank, "tp0", seq) for rank in (0, 1) for seq in range(10, 21)]
    assert outcomes == {0: "complete", 1: "complete"}
    assert store().rows([0], RowQuery(0, 5, "nowhere")) == (rows.slice(0, 0), {0: "complete"})


def test_rows_of_other_ranks_do_not_come(store: Make) -> None:
    rows, outcomes = store(ranks=[0, 1]).rows([1, 2], RowQuery(0, 0))
    assert set(rows.column("rank").to_pylist()) == {1}
    assert outcomes == {1: "complete"}


def test_what_is_not_closed_does_not_come(store: Make) -> None:
    rows, outcomes = store(closed=2).rows([0], RowQuery(1, 4))
    assert set(rows.column("iteration").to_pylist()) == {1, 2}
    assert outcomes == {0: "partial"}


def test_an_iteration_that_a_rank_lacks_makes_it_partial(store: Make) -> None:
    made = store(where(~((pc.field("rank") == 3) & (pc.field("iteration") == 2))))
    assert made.rows([2, 3, 4], RowQuery(1, 3)).outcomes == {2: "complete", 3: "partial", 4: "complete"}
    # the hole reaches to where iteration 3 begins: it may reach into it
    assert made.rows([3], RowQuery(3, 4)).outcomes == {3: "partial"}
    assert made.rows([3], RowQuery(4, 5)).outcomes == {3: "complete"}


def test_a_lost_line_makes_only_what_holds_it_partial(store: Make) -> None:
    gone = (pc.field("rank") == 0) & (pc.field("communicator") == "tp0") & (pc.field("seq") == 2 * 16 + 5)
    made = store(where(~gone))
    assert made.rows([0], RowQuery(2, 2)).outcomes == {0: "partial"}
    assert made.rows([0], RowQuery(2, 2, "dp0")).outcomes == {0: "complete"}
    assert made.rows([0], RowQuery(2, 2, "tp0", 33, 36)).outcomes == {0: "complete"}
    assert made.rows([0], RowQuery(2, 2, "tp0", 33, 37)).outcomes == {0: "partial"}
    assert made.rows([0], RowQuery(1, 1)).outcomes == {0: "complete"}
    assert made.rows([0, 1], RowQuery(2, 2)).outcomes == {0: "partial", 1: "complete"}


def test_a_store_may_forget(store: Make) -> None:
    made = store(keep_iterations=2)
    rows, outcomes = made.rows([0], RowQuery(2, 3))
    assert (rows.num_rows, outcomes) == (0, {0: "overwritten"})
    rows, outcomes = made.rows([0], RowQuery(3, 4))
    assert set(rows.column("iteration").to_pylist()) == {4}
    assert outcomes == {0: "partial"}
    assert made.rows([0], RowQuery(4, 5)).outcomes == {0: "complete"}


def test_an_answer_has_a_bound(store: Make) -> None:
    rows, outcomes = store(max_rows=10).rows([0, 1], RowQuery(0, 5))
    assert (rows.num_rows, outcomes) == (10, {0: "partial"})


def test_ranks_for_whom_there_is_no_room_are_left_out(store: Make) -> None:
    a_rank = TABLE.num_rows // 48
    bounded = store(max_rows=2 * a_rank)
    assert bounded.rows(range(8), RowQuery(0, 0)).outcomes == {0: "complete", 1: "complete"}
    assert bounded.rows(range(2, 8), RowQuery(0, 0)).outcomes == {2: "complete", 3: "complete"}
    whole = store().rows([0, 1], RowQuery(0, 0))
    assert keys(bounded.rows(range(8), RowQuery(0, 0)).table) == keys(whole.table)
    assert store(max_rows=2 * a_rank + 1).rows(range(8), RowQuery(0, 0)).table.num_rows == 2 * a_rank


def test_spans_are_a_row_a_rank(store: Make) -> None:
    spans = store().spans(1)
    assert spans.rank.tolist() == list(range(8))
    assert (spans.start_ns == STARTED_NS + ITERATION_NS + np.arange(8)).all()
    assert (spans.end_ns - spans.start_ns == ITERATION_NS).all()
    last = store().spans(5)
    assert (np.abs(last.end_ns - last.start_ns - BUSY_NS) < BUSY_NS / 20).all()


def test_spans_of_some_ranks_are_theirs_alone(store: Make) -> None:
    made = store()
    some, all_of_them = made.spans(1, [3, 6, 99]), made.spans(1)
    assert some.rank.tolist() == [3, 6]
    for name in ("start_ns", "end_ns", "lost"):
        assert getattr(some, name).tolist() == getattr(all_of_them, name)[[3, 6]].tolist()
    assert len(made.spans(1, []).rank) == 0


def test_without_ends_the_last_iteration_is_open(store: Make) -> None:
    at = TABLE.schema.get_field_index("end_ns")
    table = TABLE.set_column(at, TABLE.schema.field(at), pa.nulls(TABLE.num_rows, pa.int64()))
    made = store(table)
    assert (made.spans(5).end_ns == -1).all()
    assert (made.spans(4).end_ns > 0).all()


def test_rows_outside_of_iterations_stay_away(store: Make) -> None:
    table = Training(iterations=6, warm_up=2).table()
    rows, outcomes = store(table).rows(range(8), RowQuery(0, 5))
    assert rows.num_rows == TABLE.num_rows
    assert outcomes == dict.fromkeys(range(8), "complete")


def test_of_a_send_that_was_waited_for_late_it_is_told_when_its_rank_went_on(store: Make) -> None:
    number = pa.array(np.arange(TABLE.num_rows))
    sends = (pc.field("rank") == 0) & (pc.field("iteration") == 2) & (pc.field("op") == "send")
    late = pc.is_in(number, TABLE.append_column("number", number).filter(sends).column("number"))
    waited_ns = pc.max(where((pc.field("rank") == 0) & (pc.field("iteration") == 2)).column("end_ns"))
    at = TABLE.schema.get_field_index("end_ns")

    def with_ends_of_these(end_ns: pa.Scalar) -> list[dict[str, Any]]:
        ends = pc.if_else(late, end_ns, TABLE.column("end_ns"))
        made = store(TABLE.set_column(at, TABLE.schema.field(at), ends))
        told = made.rows([0], RowQuery(1, 3), next_calls=True).table
        assert pc.count(told.column("next_call_ns")).as_py() == TRAINING.microbatches
        return list(told.select(["communicator", "seq", "call_ns", "end_ns", "next_call_ns"]).to_pylist())

    assert with_ends_of_these(waited_ns) == with_ends_of_these(pa.scalar(None, pa.int64()))


def test_rows_of_an_iteration_come_together_however_they_were_called(store: Make) -> None:
    """An iteration's last operators may be called after the next one's first."""
    order = np.arange(TABLE.num_rows)
    iteration = TABLE.column("iteration").to_numpy()
    turn = np.flatnonzero(np.diff(iteration) == 1)
    order[turn], order[turn + 1] = turn + 1, turn
    rows, _ = store(TABLE.take(pa.array(order))).rows([0], RowQuery(1, 1))
    assert set(rows.column("iteration").to_pylist()) == {1}
    assert rows.num_rows == TABLE.num_rows // 48


def test_no_rows_are_a_log_that_has_ended(store: Make) -> None:
    made = store(TABLE.slice(0, 0))
    assert made.ended
    assert not made.advance()


@pytest.mark.parametrize("ranks", [[], [99]])
def test_nobody_asked_is_nothing_answered(store: Make, ranks: list[int]) -> None:
    rows, outcomes = store().rows(ranks, RowQuery(0, 5))
    assert (rows.num_rows, outcomes) == (0, {})
