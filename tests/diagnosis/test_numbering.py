"""Distinct combinations of values are numbered as they sort, however far apart the values are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.numbering import UNKNOWN, numbered, order_of

_FAR = st.sampled_from([-(2**63), -2, 2**61, 2**62, 2**63 - 1])
_NEAR = st.integers(0, 4)
_RUNS = st.integers(0, 3).flatmap(lambda run: st.integers(1000 * run, 1000 * run + 4))
_NUMBERS = _NEAR | _RUNS | _FAR | st.just(UNKNOWN)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS), max_size=12))
def test_the_numbers_are_the_places_among_the_distinct_combinations(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], dtype=np.int64) for i in range(3)]
    distinct = sorted({row for row in rows if UNKNOWN not in row})
    assert numbered(*columns).tolist() == [distinct.index(row) if UNKNOWN not in row else UNKNOWN for row in rows]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=20, max_size=40))
def test_each_communicators_sequence_numbers_begin_where_they_like(rows: list[tuple[int, int]]) -> None:
    groups, places = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(2))
    seqs = places + np.array([0, 10**6, 5, 2**62])[groups]
    assert numbered(groups, seqs).tolist() == numbered(groups, places).tolist()


@given(st.lists(st.integers(0, 4) | st.sampled_from([2**40, 2**61, 2**63 - 1]), max_size=20))
def test_equal_numbers_keep_their_order(numbers: list[int]) -> None:
    order = order_of(np.array(numbers, dtype=np.int64))
    assert order.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
