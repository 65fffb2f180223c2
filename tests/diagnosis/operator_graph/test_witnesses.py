"""What most ranks lose alike is nobody's fault: of transfers, by the medium that they go over."""

from diagnosis.operator_graph.witnesses import Transferred, Witnesses

LOSSES = Witnesses(
    compute={rank: 10.0 * rank for rank in range(5)},
    transfer={rank: Transferred(within=0.0 if rank < 3 else 100.0, across=90.0) for rank in range(5)},
)


def test_what_three_in_four_others_computed_is_common() -> None:
    assert LOSSES.computed(4) == 10.0
    assert LOSSES.computed(0) == 20.0


def test_what_all_lose_across_hosts_is_no_part_of_what_some_lose_within() -> None:
    assert LOSSES.transferred((3, 4), within=True) == 0.0
    assert LOSSES.transferred((3, 4), within=False) == 90.0


def test_few_others_tell_nothing() -> None:
    assert LOSSES.transferred((0, 1, 2, 3), within=False) == 0.0
    assert Witnesses().computed(0) == 0.0
