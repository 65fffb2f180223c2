"""Which rows of different ranks are one operator, and which of them tell nothing."""

from __future__ import annotations

import numpy as np

from diagnosis.collective.participation import COMPLETE, UNKNOWN, UNKNOWN_STATE, lost_before
from tests.diagnosis.collective.made_metrics import MS, Told


def exchanges(lost: int | None) -> Told:
    """Three iterations of two exchanges; a rank's number ``lost`` is not told of."""
    told = Told(per_host=1)
    for number in range(6):
        for rank in range(4):
            if (rank, number) != (1, lost):
                told.tell(
                    "ep",
                    7 * number,
                    rank,
                    number * 40 * MS,
                    op="custom",
                    iteration=number // 2,
                    calls_lost=6 if rank == 1 and lost is not None and number > lost else 0,
                    peers=dict.fromkeys((other for other in range(4) if other != rank), 1 << 20),
                )
    return told


def test_exchanges_meet_by_iteration_whatever_was_lost_before() -> None:
    whole = exchanges(None).table
    assert [whole.instance[whole.rank == rank].tolist() for rank in range(4)] == [list(range(6))] * 4
    table = exchanges(2).table.unknown_after_losses()
    assert table.instance[table.rank == 0].tolist() == list(range(6))
    assert table.instance[table.rank == 1].tolist() == [0, 1, 2, 4, 5]
    state = dict(zip(table.instance[table.rank == 1].tolist(), table.state[table.rank == 1].tolist(), strict=True))
    assert state == dict.fromkeys((1, 2), UNKNOWN_STATE) | dict.fromkeys((0, 4, 5), COMPLETE)


def test_a_part_of_an_exchange_that_is_lost_moves_no_other() -> None:
    """It may be of the one behind it, or of the one before."""

    def unknown(lost: int) -> list[tuple[int, int]]:
        told = exchanges(None)
        for row in told.rows:
            row["calls_lost"] = lost if row["rank"] == 1 and row["seq"] >= 14 else 0
            if (row["rank"], row["seq"]) == (3, 0):  # nothing was seen of it, nor to whom it sent
                row |= {"state": "unknown", "peers": [], "peer_sent_bytes": [], "peer_actual_time_ns": []}
        table = told.table.unknown_after_losses()
        rows = zip(table.rank.tolist(), table.instance.tolist(), (table.state == UNKNOWN_STATE).tolist(), strict=True)
        return [(rank, instance) for rank, instance, state in rows if state and rank != 3]

    assert unknown(2) == [(1, 1), (1, 2)]
    assert unknown(6) == [(1, 1), (1, 2), (1, 3)], "to the end of the iteration"
    assert unknown(0) == []


def test_what_sent_far_more_than_it_had_to_holds_sends_of_another() -> None:
    """Their calls are lost, but nothing that would tell of it was called since."""
    told = exchanges(None)
    for row in told.rows:
        row["sent_bytes"] = round(row["expected_bytes"] * (1.5 if (row["rank"], row["seq"]) == (1, 35) else 1.016))
    table = told.table.unknown_after_losses()
    unknown = table.state == UNKNOWN_STATE
    assert (table.rank[unknown].tolist(), table.instance[unknown].tolist()) == ([1], [5])


def test_after_a_lost_call_nothing_is_known_of_its_communicator_up_to_the_end_of_the_iteration() -> None:
    told = Told(per_host=1)
    for rank in range(3):
        for number in range(6):
            for name in ("dp", "other"):
                lost = 2 if (rank, name) == (1, "dp") and number >= 1 else 0
                told.tell(name, number, rank, number * 40 * MS, calls_lost=lost, iteration=number // 3)
    table = told.table.unknown_after_losses()
    unknown = table.state == UNKNOWN_STATE
    names = np.array(table.communicators)[table.communicator[unknown]]
    rows = zip(names.tolist(), table.rank[unknown].tolist(), table.instance[unknown].tolist(), strict=True)
    assert sorted(rows) == [("dp", 1, 1), ("dp", 1, 2)]
    assert (table.start_ns[unknown] == UNKNOWN).all()
    assert (table.end_ns[unknown] == UNKNOWN).all()
    assert (table.coverage[unknown] == 0.0).all()
    assert (told.table.state == COMPLETE).all(), "what was told is left as it is"


def test_what_is_lost_is_counted_from_what_came_before() -> None:
    told = Told(per_host=1)
    for rank in range(2):
        for number in range(3):
            told.tell("dp", number, rank, number * 40 * MS, calls_lost=5 if rank else 0)
    rows = told.arrow
    assert lost_before(rows).tolist() == [0, 0, 0, 5, 0, 0]
    assert lost_before(rows, {(1, "dp"): 3}).tolist() == [0, 0, 0, 2, 0, 0]
    assert lost_before(rows, {(1, "dp"): 9}).tolist() == [0] * 6, "rows that come again"
