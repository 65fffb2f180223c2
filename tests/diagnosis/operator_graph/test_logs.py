"""What a search has at hand and what it still asks for."""

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.operator_graph.logs import Fetch, Logs, Need
from tests.diagnosis.answering import Asked, answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Training

TRAINING = Training(
    {
        0: [Compute(), Collective("a"), Compute(), Collective("all")],
        1: [Compute(), Collective("a"), Compute(), Collective("all")],
        2: [Compute(), Collective("all")],
    },
    {"a": (0, 1), "all": (0, 1, 2)},
    iterations=12,
    offset_ns={1: 2 * MS, 2: -3 * MS},
)
TABLE = TRAINING.table()
ITERATIONS = (3, 4, 5, 7)


def logs() -> Logs:
    return Logs(TRAINING.job(), ITERATIONS)


def got(fetch: Fetch, missing: Collection[int] = (), table: pa.Table = TABLE) -> Asked:
    return answered(fetch, table, missing)[1]


def test_only_the_iterations_of_the_search_are_asked_for() -> None:
    one = logs()
    assert got(one.fetch({None: [0]})).needs == [Need((0,), ITERATIONS)]
    assert sorted(set(one.operators.iteration.tolist())) == list(ITERATIONS)
    assert one.whole == one.asked == {0}
    assert one.coverage == 1.0


def test_what_is_at_hand_is_not_asked_for_again() -> None:
    one = logs()
    got(one.fetch({None: [0], "all": [2]}))
    assert got(one.fetch({None: [0], "a": [0], "all": [0, 2]})).needs == []
    assert got(one.fetch({"a": [0, 1], "all": [1, 2]})).needs == [
        Need((1,), ITERATIONS, "a"),
        Need((1,), ITERATIONS, "all"),
    ]
    assert got(one.fetch({None: [2, 1, 1]})).needs == [Need((1, 2), ITERATIONS)]
    assert one.whole == {0, 1, 2}


def test_rows_that_come_twice_count_once() -> None:
    one = logs()
    got(one.fetch({"a": [0], "all": [0, 1, 2]}))
    got(one.fetch({None: [0, 1, 2]}))
    expected = TABLE.filter(pc.is_in(TABLE.column("iteration"), pa.array(ITERATIONS)))
    assert len(one.operators) == len(expected)


def test_who_does_not_answer_is_missing_and_asked_no_more() -> None:
    one = logs()
    asked = got(one.fetch({None: [0], "a": [1]}), missing=[1])
    assert asked.ranks == {0, 1}
    assert one.missing == {1}
    assert one.whole == {0}
    assert one.coverage == 0.5
    assert got(one.fetch({None: [1], "all": [1]})).needs == []
    got(one.fetch({None: [2]}))
    assert one.coverage == pytest.approx(2 / 3)


def test_nothing_asked_is_nothing_missing() -> None:
    assert logs().coverage == 1.0


def test_clocks_are_those_of_the_ranks_at_hand() -> None:
    one = logs()
    got(one.fetch({None: [0, 1]}))
    assert one.clock_of_rank == {0: "h0", 1: "h1"}
    clocks = one.clocks(1)
    assert (clocks.reference, dict(clocks.offset_ns)) == ("h1", {"h0": -2 * MS, "h1": 0})
    assert one.clocks().reference == "h0"


def test_the_clock_of_a_rank_that_did_not_answer_is_no_reference() -> None:
    one = logs()
    got(one.fetch({None: [0, 1]}), missing=[0])
    assert one.clocks().reference == "h1"
    nobody = logs()
    got(nobody.fetch({None: [0, 1]}), missing=[0, 1])
    assert dict(nobody.clocks().offset_ns) == {"h0": 0}


def test_where_ends_are_not_logged_the_neighbours_are_asked_too() -> None:
    one, bare = logs(), logs()
    assert got(one.fetch_whole([2])).ranks == {2}
    at = TABLE.schema.get_field_index("end_ns")
    without = TABLE.set_column(at, "end_ns", pa.nulls(len(TABLE), pa.int64()))
    asked = got(bare.fetch_whole([2]), table=without)
    assert asked.ranks == bare.whole == {0, 1, 2}
    assert asked.rounds == 2
