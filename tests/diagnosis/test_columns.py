"""Columns as NumPy arrays, and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.columns import joint_codes, named

VALUES = st.one_of(st.integers(-2, 2), st.sampled_from([-(1 << 63), -(1 << 61), 1 << 20, 1 << 50, (1 << 63) - 1]))


@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=30), columns=st.integers(1, 3))
def test_rows_have_the_same_code_where_all_columns_are_the_same(rows: list[tuple[int, ...]], columns: int) -> None:
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(row[:columns], len(seen)) for row in rows]
    values = np.array(rows, dtype=np.int64).reshape(-1, 3).T[:columns]
    assert joint_codes(*values).tolist() == expected


@given(codes=st.lists(st.integers(0, 3), max_size=20))
def test_names_are_those_of_the_codes(codes: list[int]) -> None:
    names = ("a", "b", None, "a")
    column = named(np.array(codes, dtype=np.int64), names)
    assert column.to_pylist() == [names[code] for code in codes]
    assert set(column.dictionary.to_pylist()) == {names[code] for code in codes} - {None}
    assert len(set(column.dictionary.to_pylist())) == len(column.dictionary)
