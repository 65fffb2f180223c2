"""Distinct combinations of values, numbered, and the order of numbers."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints

UNKNOWN = -1
"""What a column holds where nothing is known; so does its number."""

_BITS = 63
"""A number that is not negative has so many."""

_ROOM = 4
"""Values that may exist for each row for a table of them to be kept: else the rows' own are looked up."""


def numbered(*columns: Ints) -> Ints:
    """One number for each distinct combination of columns of shape (n,), ascending; ``UNKNOWN`` where one is."""
    known = np.logical_and.reduce([column != UNKNOWN for column in columns])
    numbers = np.full(len(known), UNKNOWN, dtype=np.int64)
    rows = slice(None) if known.all() else np.flatnonzero(known)
    of_known = [column[rows] for column in columns]
    if len(of_known[0]):
        numbers[rows] = reduce(_with, of_known, np.zeros(len(of_known[0]), dtype=np.int64))
    return numbers


def order_of(numbers: Ints) -> Ints:
    """The order of numbers of shape (n,), none below 0; equal ones stay as they are.

    They are sorted together with their places, as one number where both fit: many in no order take a fraction of the
    time, a few ascending runs more.
    """
    bits = len(numbers).bit_length()
    if int(numbers.max(initial=0)).bit_length() + bits > _BITS:
        return np.argsort(numbers, kind="stable")
    both = numbers << bits
    both |= np.arange(len(numbers))
    both.sort()
    both &= (1 << bits) - 1
    return both


def _with(number: Ints, column: Ints) -> Ints:
    """The numbers, from 0, of the combinations with one more column.

    A table of all that may be is quicker than looking values up, and fits where values run on without many gaps, as
    sequence numbers do; those of a communicator may begin anywhere, so that each number has a range of its own.
    """
    count = int(number.max()) + 1
    least, most = int(column.min()), int(column.max())
    if least == most:
        return number
    if count * (most - least + 1) <= _ROOM * len(column):
        return _ordinals(number * (most - least + 1) + (column - least))
    lows, highs = np.full(count, most), np.full(count, least)
    np.minimum.at(lows, number, column)
    np.maximum.at(highs, number, column)
    if (highs.astype(np.float64) - lows + 1).sum() <= _ROOM * len(column):
        ranges = highs - lows + 1
        return _ordinals((np.cumsum(ranges) - ranges - lows)[number] + column)
    value = _looked_up(column)  # products of large values do not fit
    return _looked_up(number * (int(value.max()) + 1) + value)


def _ordinals(values: Ints) -> Ints:
    """The place of each value among the distinct ones, ascending; values are from 0, and not large."""
    occurs = np.zeros(int(values.max()) + 1, dtype=np.bool_)
    occurs[values] = True
    return np.asarray((np.cumsum(occurs) - 1)[values], dtype=np.int64)


def _looked_up(values: Ints) -> Ints:
    """The same of any values: of many rows only the distinct ones are sorted."""
    encoded = pa.array(values).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    places = np.empty(len(distinct), dtype=np.int64)
    places[np.argsort(distinct)] = np.arange(len(distinct))
    return np.asarray(places[encoded.indices.to_numpy()], dtype=np.int64)
