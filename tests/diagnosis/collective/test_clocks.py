"""How far clocks are ahead, told by what NICs send."""

from __future__ import annotations

import pytest

from diagnosis.collective.clocks import clocks
from tests.diagnosis.collective.made_metrics import CLOCKS, MS, Told, job


def collectives(*groups: tuple[int, ...]) -> Told:
    told = Told()
    for group in groups:
        for seq in range(3):
            for rank in group:
                told.tell(f"c{group}", seq, rank, (10 + 20 * seq) * MS)
    return told


def test_what_ends_for_all_at_once_tells_clocks_also_through_others() -> None:
    (found,) = clocks(collectives((0, 2), (3, 5), (4, 6)).grids, job())
    assert found.keys() == {"h0", "h1", "h2", "h3"}
    told = [found[f"h{host}"] - found["h0"] for host in range(4)]
    assert told == pytest.approx([clock - CLOCKS[0] for clock in CLOCKS[:4]])


def test_hosts_that_nothing_connects_are_not_compared() -> None:
    first, second = clocks(collectives((0, 2, 4), (6, 7)).grids, job())
    assert (set(first), set(second)) == ({"h0", "h1", "h2"}, {"h3"})
    assert clocks(Told().grids, job()) == []
