"""Which rows a query takes of a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from producers.row_query import RowQuery
from schemas.catalogue import COMM_OPS

CALLS = [("tp", 0), ("dp", 0), ("tp", 1), ("tp", None), ("dp", 1), ("tp", 2)]
ROWS = [{"rank": 0, "communicator": name, "seq": seq, "op": "barrier", "call_ns": 1} for name, seq in CALLS]
TABLE = pa.Table.from_batches([COMM_OPS.from_rows(ROWS)])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RowQuery(0, 9), CALLS),
        (RowQuery(0, 9, "dp"), [("dp", 0), ("dp", 1)]),
        (RowQuery(0, 9, "tp", 1), [("tp", 1), ("tp", 2)]),
        (RowQuery(0, 9, "tp", 1, 1), [("tp", 1)]),
        (RowQuery(0, 9, seq_to=0), [("tp", 0), ("dp", 0)]),
        (RowQuery(0, 9, seq_from=0), [call for call in CALLS if call[1] is not None]),
        (RowQuery(0, 9, "nobody's"), []),
    ],
)
def test_rows_of_a_communicator_with_numbers_between_bounds(
    query: RowQuery, expected: list[tuple[str, int | None]]
) -> None:
    found = query.filter(TABLE).to_pylist()
    assert [(row["communicator"], row["seq"]) for row in found] == expected
    assert query.whole == (expected == CALLS)
