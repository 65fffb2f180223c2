"""Calls as columns, and what belongs to one custom collective."""

import pyarrow as pa

from diagnosis.traffic.calls import Calls, LetGo
from tests.diagnosis.traffic.made_calls import Caller, calls, table

MEMBERS = {"dp": (0, 8), "ep": (0, 8, 16), "pp": (0, 8)}


def test_a_payload_is_what_was_passed_in_bytes() -> None:
    one = Caller(0, MEMBERS)
    one.call("dp", "all_reduce", 10, 5)
    one.rows[0]["dtype"] = "bfloat16"
    found = calls(one)
    assert found.payload.tolist() == [20]
    assert found.is_op("all_reduce").tolist() == [True]
    assert not found.point_to_point.any()


def test_the_sends_and_receives_of_a_group_are_one_operator() -> None:
    one, other = Caller(0, MEMBERS), Caller(8, MEMBERS)
    for caller in (one, other):
        caller.call("dp", "all_reduce", 10, 5)
        caller.call("ep", "send", 4, 10, 16, group=(9, 20))
        caller.call("ep", "recv", 4, 11, 16, group=(9, 20))
        caller.call("pp", "send", 4, 12, 8 - caller.rank, group=(9, 20))
        caller.call("dp", "all_gather", 4, 13, group=(9, 20))
        caller.call("ep", "send", 4, 30, 16, group=(30, None))
        caller.call("ep", "send", 4, 40, 16)
    found = calls(one, other)
    assert found.unit.tolist() == [0, 1, 1, 3, 4, 5, 6, 7, 8, 8, 10, 11, 12, 13]
    assert found.launch_ns[:7].tolist() == [5, 10, 10, 12, 13, 30, 40]
    assert found.grouped[:7].tolist() == [False, True, True, True, True, True, False]
    own = found.take(found.rank == 8)
    assert own.unit.tolist() == [0, 1, 1, 3, 4, 5, 6]


def test_a_call_that_is_told_twice_counts_once() -> None:
    one = Caller(0, MEMBERS)
    one.call("dp", "all_reduce", 10, 5)
    one.call("dp", "all_reduce", 10, 9)
    rows = table([one])
    twice = Calls.from_arrow(pa.concat_tables([rows, rows]).unify_dictionaries())
    assert twice.call_ns.tolist() == [5, 9]
    assert not len(Calls.from_arrow(rows.slice(0, 0)))


def test_numbers_that_are_left_out_are_lost_calls() -> None:
    one, other = Caller(0, MEMBERS), Caller(8, MEMBERS)
    for caller in (one, other):
        for at in range(6):
            caller.call("dp", "all_reduce", 10, 10 * at)
            caller.call("pp", "send", 4, 10 * at + 5, 8 - caller.rank)
    one.rows = [row for row in one.rows if (row["communicator"], row["seq"]) not in {("dp", 2), ("dp", 3), ("pp", 0)}]
    other.rows = other.rows[4:]
    rows = table([one, other])

    def lost(before: dict[tuple[int, str], LetGo]) -> dict[tuple[int, str], list[int]]:
        found = Calls.from_arrow(rows, before)
        names = [found.communicators[code] for code in found.communicator]
        twice = Calls.from_arrow(pa.concat_tables([rows, rows]).unify_dictionaries(), before)
        assert twice.lost.tolist() == found.lost.tolist()
        return {
            (rank, of): [
                int(n) for n, r, name in zip(found.lost, found.rank, names, strict=True) if (r, name) == (rank, of)
            ]
            for rank in (0, 8)
            for of in ("dp", "pp")
        }

    assert lost({}) == {(0, "dp"): [0, 0, 2, 2], (0, "pp"): [0] * 5, (8, "dp"): [0] * 4, (8, "pp"): [0] * 4}
    before = {(0, "dp"): LetGo(0, 5), (8, "dp"): LetGo(0, 3), (8, "pp"): LetGo(9, 7)}
    assert lost(before) == {
        (0, "dp"): [5, 5, 7, 7],
        (0, "pp"): [0] * 5,
        (8, "dp"): [4] * 4,
        (8, "pp"): [7] * 4,
    }, "what was let go counts once, also where it comes again"


def test_an_operator_has_lost_what_is_missing_up_to_its_last_call() -> None:
    one = Caller(0, MEMBERS)
    one.call("ep", "all_reduce", 10, 1)
    one.exchange("ep", {8: 4, 16: 4}, 10)
    one.call("ep", "all_reduce", 10, 20)
    one.call("dp", "all_reduce", 10, 25)
    one.call("ep", "all_gather", 10, 30)
    one.call("ep", "all_gather", 10, 40)
    one.rows = [row for row in one.rows if row["communicator"] == "dp" or row["seq"] not in {3, 5}]
    found = calls(one)
    assert found.unit.tolist() == [0, 1, 1, 1, 4, 5, 6]
    assert found.lost_up_to(found.unit[[0, 1, 4, 5, 6]]).tolist() == [0, 1, 0, 2, 2]
