"""What a search says of the waits that it passed."""

from diagnosis.operator_graph import leaf
from diagnosis.operator_graph.leaf import Wait, largest_waits


def test_waits_for_one_rank_in_one_communicator_are_told_together() -> None:
    often = [Wait(0, 1, "g", "all_reduce", 2), Wait(0, 1, "g", "all_reduce", 3)]
    others = [Wait(1, 0, "g", "all_reduce", 4), Wait(0, 1, "h", "all_reduce", 1), Wait(0, 1, "g", "send", 7)]
    assert largest_waits([*often, *others]) == (
        Wait(0, 1, "g", "all_reduce", 5),
        Wait(1, 0, "g", "all_reduce", 4),
        Wait(0, 1, "h", "all_reduce", 1),
        Wait(0, 1, "g", "send", 7),
    )


def test_the_longest_waits_are_told_in_the_order_of_the_search() -> None:
    waits = [Wait(0, rank, "g", "all_reduce", rank) for rank in range(1, leaf.MOST_WAITS + 10)]
    assert [wait.awaited_rank for wait in largest_waits(waits)] == list(range(10, leaf.MOST_WAITS + 10))
