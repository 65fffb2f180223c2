"""What a search has at hand and what it still asks for."""

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Fetch, Need
from diagnosis.operators import UNKNOWN
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


THREE_TIMES = Training(
    {rank: [Compute(), *[Collective("all")] * 3] for rank in range(3)}, {"all": (0, 1, 2)}, iterations=12
)


def test_of_a_communicators_places_only_those_not_at_hand_are_asked_for() -> None:
    one, table = Logs(THREE_TIMES.job(), ITERATIONS), THREE_TIMES.table()
    got(one.fetch({"all": [0, 1]}, {"all": [0]}), table=table)
    assert got(one.fetch({"all": [0, 1, 2]}, {"all": [0, 2]}), table=table).needs == [
        Need((0, 1), ITERATIONS, "all", positions=(2,)),
        Need((2,), ITERATIONS, "all", positions=(0, 2)),
    ]
    assert got(one.fetch({"all": [0, 1, 2]}, {"all": [2]}), table=table).needs == []
    assert got(one.fetch({"all": [0]}), table=table).needs == [Need((0,), ITERATIONS, "all")], "all places"
    assert one.coverage == 1.0


def test_a_communicators_places_are_listed_by_one_iteration_of_one_rank() -> None:
    one, table = Logs(THREE_TIMES.job(), ITERATIONS), THREE_TIMES.table()
    got(one.fetch({"all": [0]}, {"all": [1]}), table=table, missing=[0])
    assert got(one.fetch_one_listing({"all": [0, 1, 2]}, 5), table=table).needs == [Need((1,), (5,), "all")]
    assert one.operators.position.tolist() == [0, 1, 2]
    assert got(one.fetch({"all": [1]}), table=table).needs == [Need((1,), ITERATIONS, "all")], "one iteration of it"
    assert got(one.fetch_one_listing({"all": [1, 2]}, 5), table=table).needs == [], "who has it all has them"


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
    assert one.coverage == pytest.approx(2 / 3)  # two rows an iteration came, one did not
    assert got(one.fetch({None: [1], "all": [1]})).needs == []
    got(one.fetch({None: [2]}))
    assert one.coverage == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("lost", "share"),
    [
        ({"rank": 1, "iteration": 4}, 1 - 2 / 16),  # as many rows as the rank has of its other iterations
        ({"rank": 1, "communicator": "a", "iteration": 4}, 1.0),  # before the first and after the last nothing is known
        ({"rank": 0}, 1 / 2),
    ],
    ids=["an iteration", "an end", "a rank"],
)
def test_coverage_counts_the_rows_that_were_asked_for_and_came(lost: dict[str, object], share: float) -> None:
    one = logs()
    got(one.fetch({None: [0, 1]}), table=without(lost))
    assert one.coverage == pytest.approx(share)


def test_coverage_counts_what_is_missing_between_rows() -> None:
    training = Training({0: [Collective("a")] * 5, 1: [Collective("a")] * 5}, {"a": (0, 1)}, iterations=4)
    one = Logs(training.job(), (1, 2))
    lost = {"rank": 1, "iteration": 2, "position": 2}
    got(one.fetch({None: [0, 1]}), table=without(lost, training.table()))
    assert one.coverage == pytest.approx(19 / 20)
    one = Logs(training.job(), (2,), window=(0, 1))
    got(one.fetch_operator([0, 1], "a", 12, 2), table=without(lost, training.table()))
    assert one.coverage == pytest.approx(1 / 2)


def without(values: Mapping[str, object], table: pa.Table = TABLE) -> pa.Table:
    """The log without the lines that hold these values."""
    hit = pa.array([True] * len(table))
    for name, value in values.items():
        hit = pc.and_(hit, pc.equal(table.column(name), value))
    return table.filter(pc.invert(hit))


def test_whether_ends_are_logged_does_not_hang_on_what_was_asked_for_twice() -> None:
    training = Training({0: [*[Collective("a")] * 2, *[Collective("b")] * 3]}, {"a": (0,), "b": (0,)}, iterations=8)
    table = training.table()
    at = table.schema.get_field_index("end_ns")
    on_a = pc.equal(table.column("communicator"), "a")
    table = table.set_column(at, table.schema.field(at), pc.if_else(on_a, table.column("end_ns"), None))
    one = Logs(training.job(), ITERATIONS)
    got(one.fetch({"a": [0]}), table=table)
    assert one.ended(0)
    got(one.fetch({None: [0]}), table=table)
    assert not one.ended(0)


def test_nothing_asked_is_nothing_missing() -> None:
    assert logs().coverage == 1.0


def test_clocks_are_those_of_the_ranks_at_hand() -> None:
    one = logs()
    got(one.fetch({None: [0, 1]}))
    assert one.view.clock_of_rank == {0: "h0", 1: "h1"}
    assert (one.view.clocks.reference, dict(one.view.clocks.offset_ns)) == ("h0", {"h0": 0, "h1": 2 * MS})


def test_the_clock_of_a_rank_that_did_not_answer_is_no_reference() -> None:
    one = logs()
    got(one.fetch({None: [0, 1]}), missing=[0])
    assert one.view.clocks.reference == "h1"
    nobody = logs()
    got(nobody.fetch({None: [0, 1]}), missing=[0, 1])
    assert dict(nobody.view.clocks.offset_ns) == {"h0": 0}


def test_beside_rows_statistics_of_the_window_are_asked_for() -> None:
    one = Logs(TRAINING.job(), (7,), window=(3, 4, 5))
    asked = got(one.fetch({None: [0], "all": [2]}))
    assert asked.needs == [
        Need((0,), (7,)),
        Need((2,), (7,), "all"),
        Need((0,), (3, 4, 5), what="statistics"),
        Need((2,), (3, 4, 5), "all", what="statistics"),
    ]
    assert set(one.operators.iteration.tolist()) == {7}
    rank, name, count = one.usual.rank.tolist(), one.usual.communicator.tolist(), one.usual.count.tolist()
    names = [one.usual.communicators[code] for code in name]
    assert sorted(zip(rank, names, count, strict=True)) == [(0, "a", 3), (0, "all", 3), (2, "all", 3)]


def test_one_operator_is_asked_for_by_its_number_and_place() -> None:
    one = Logs(TRAINING.job(), (7,), window=(3, 4, 5))
    got(one.fetch({None: [0]}))
    asked = got(one.fetch_operator([0, 1, 2], "all", 7, 0))
    assert asked.needs == [
        Need((1, 2), (7,), "all", seq_from=7, seq_to=7),
        Need((1, 2), (3, 4, 5), "all", positions=(0,), what="statistics"),
    ]
    assert got(one.fetch_operator([1, 2], "all", 7, 0)).needs == []
    assert got(one.fetch({"all": [1]})).needs[0] == Need((1,), (7,), "all")
    assert one.asked == {0, 1, 2}
    assert one.whole == {0}


def test_where_ends_are_not_logged_rows_take_the_place_of_statistics() -> None:
    """Statistics of durations that nobody logged say nothing; the members' next calls do."""
    at = TABLE.schema.get_field_index("end_ns")
    bare = TABLE.set_column(at, "end_ns", pa.nulls(len(TABLE), pa.int64()))
    one = Logs(TRAINING.job(), (7,), window=(3, 4, 5))
    got(one.fetch_whole_with_peers([2]), table=bare)
    assert one.window == ()
    assert set(one.operators.iteration.tolist()) == set(ITERATIONS)
    assert one.whole == {2}
    assert set(one.operators.rank.tolist()) == {0, 1, 2}


def test_where_ends_are_not_logged_what_others_share_is_asked_for_too() -> None:
    one, bare = logs(), logs()
    assert got(one.fetch_whole_with_peers([2])).ranks == {2}
    at = TABLE.schema.get_field_index("end_ns")
    without = TABLE.set_column(at, "end_ns", pa.nulls(len(TABLE), pa.int64()))
    asked = got(bare.fetch_whole_with_peers([2]), table=without)
    assert asked.needs[0] == Need((2,), ITERATIONS)
    assert Need((0, 1), ITERATIONS, "all") in asked.needs[1:]
    assert bare.whole == {2}
    assert (bare.operators.next_ns != UNKNOWN).any()


def test_a_part_holds_some_ranks_rows_and_everybodys_of_some_communicators() -> None:
    one = logs()
    assert one.part([2], ["a"]) is one.view
    one.narrow = True
    got(one.fetch({None: [0], "all": [1, 2]}))
    part = one.part([2], ["a"])
    names = np.array(part.operators.communicators)[part.operators.communicator]
    assert set(zip(part.operators.rank.tolist(), names.tolist(), strict=True)) == {(0, "a"), (2, "all")}
    assert one.part([0, 1, 2], []).operators.rank.tolist() == one.operators.rank.tolist()
    assert len(one.part([], []).operators) == 0


def test_a_part_holds_what_came_later_too() -> None:
    one = Logs(TRAINING.job(), ITERATIONS, narrow=True)
    got(one.fetch({None: [0]}))
    assert set(one.part([2], ["a"]).operators.rank.tolist()) == {0}
    got(one.fetch({None: [2]}))
    assert set(one.part([2], ["a"]).operators.rank.tolist()) == {0, 2}


def test_what_there_is_no_room_for_is_not_asked_for() -> None:
    """A rank has 8 rows in these iterations; 20 leave room for two of them, or one and a communicator's of others."""
    one = Logs(TRAINING.job(), ITERATIONS, most_rows=20)
    got(one.fetch({None: [0]}))
    assert (len(one.operators), one.bounded) == (8, False)
    assert got(one.fetch({"all": [1, 2]})).needs == [Need((1, 2), ITERATIONS, "all")]
    assert (len(one.operators), one.bounded) == (16, False)
    assert got(one.fetch({"a": [1], None: [2]})).needs == [Need((1,), ITERATIONS, "a")]
    assert one.bounded
    assert one.missing == {2}  # as unknown as if it had not answered
    assert got(one.fetch({None: [1, 2]})).needs == []
    assert one.missing == {1, 2}
