"""Logs that end while all ranks wait, and logs that do not."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.operators import UNKNOWN, Operators
from diagnosis.standstill import Standstill, standstill
from tests.diagnosis.made_logs import Collective, Compute, Recv, Send, Training

STAGES = Training(
    {
        0: [Compute(), Collective("tp0"), Compute(), Send(2), Compute(), Collective("tp0")],
        1: [Compute(), Collective("tp0"), Compute(), Send(3), Compute(), Collective("tp0")],
        2: [Recv(0), Compute(), Collective("tp1"), Compute(), Collective("tp1")],
        3: [Recv(1), Compute(), Collective("tp1"), Compute(), Collective("tp1")],
    },
    {"tp0": (0, 1), "tp1": (2, 3)},
)
"""Two stages of two ranks each."""


def told(table: pa.Table) -> Standstill | None:
    return standstill(Operators.from_arrow(table), STAGES.job())


def cut(kept: dict[int, int], in_it: Collection[int] = ()) -> pa.Table:
    """The log of which each rank has called so many operators in the last iteration; those ``in_it`` have not ended
    their last one."""
    table = STAGES.table()
    table = table.sort_by([("rank", "ascending"), ("call_ns", "ascending")])
    last = pc.equal(table.column("iteration"), STAGES.irregular).to_numpy()
    rank = table.column("rank").to_numpy()
    place = np.concatenate([np.cumsum(last[rank == one]) for one in sorted(kept)])
    most = np.array([kept[one] for one in sorted(kept)])[rank]
    chosen = ~last | (place <= most)
    is_open = last & (place == most) & np.isin(rank, list(in_it))
    ends = pc.if_else(pa.array(~is_open), table.column("end_ns"), pa.scalar(None, pa.int64()))
    at = table.schema.get_field_index("end_ns")
    return table.set_column(at, table.schema.field(at), ends).filter(pa.array(chosen))


def test_a_whole_log_stands_nowhere() -> None:
    assert told(STAGES.table()) is None


def test_the_rank_that_all_others_wait_for_is_awaited() -> None:
    """Rank 1 sends nothing: rank 3 waits for it, rank 2 for rank 3, and rank 0 in the next collective."""
    found = told(cut({0: 3, 1: 1, 2: 2, 3: 1}, in_it=(0, 2, 3)))
    assert found is not None
    assert (found.waiting, found.awaited, found.iteration) == ((0, 2, 3), (1,), STAGES.irregular)
    assert (found.operator.rank, found.operator.op) == (3, "recv")


@pytest.mark.parametrize("most", [1, 2, 3])
def test_where_all_have_called_the_ends_may_not_be_logged_yet(most: int) -> None:
    """Ends on a GPU are logged as later calls ask for them: of the last ones nobody asks."""
    assert told(cut({0: 3, 1: 3, 2: 3, 3: 3}, in_it=(0, 1, 2, 3))) is None
    operators = Operators.from_arrow(STAGES.table())
    from_end = np.concatenate([np.arange(count)[::-1] for count in np.bincount(operators.rank)])
    without = replace(operators, end_ns=np.where(from_end < most, UNKNOWN, operators.end_ns))
    assert standstill(without, STAGES.job()) is None


def test_a_job_that_is_over_waits_for_nobody() -> None:
    operators = Operators.from_arrow(cut({0: 3, 1: 1, 2: 2, 3: 1}, in_it=(0, 2, 3)))
    assert standstill(operators, STAGES.job()) is not None
    assert standstill(operators, replace(STAGES.job(), ended_ns=1)) is None


@pytest.mark.parametrize("in_it", [(0,), (2, 3)])
def test_where_somebody_goes_on_the_log_only_ends(in_it: tuple[int, ...]) -> None:
    """Nobody waits for whoever is beyond the others, or of whom no more was kept."""
    assert told(cut({0: 3, 1: 3, 2: 3, 3: 3}, in_it=in_it)) is None


def test_who_does_not_log_is_not_awaited() -> None:
    """Rank 1 logs nothing: that it called nothing is not known."""
    table = cut({0: 1, 1: 0, 2: 1, 3: 1}, in_it=(0, 2, 3))
    assert told(table.filter(pc.not_equal(table.column("rank"), 1))) is None


def test_a_log_without_ends_tells_nothing() -> None:
    table = cut({0: 3, 1: 1, 2: 2, 3: 1}, in_it=(0, 2, 3))
    at = table.schema.get_field_index("end_ns")
    without = table.set_column(at, table.schema.field(at), pa.nulls(len(table), pa.int64()))
    assert told(without) is None
    assert told(table.slice(0, 0)) is None
