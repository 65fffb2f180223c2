"""After how many elements a sequence repeats itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diagnosis.arrays import Ints

WINDOW = 1 << 16
"""Elements that are looked at, from the middle of a longer sequence."""

LEAST_REPEATS = 3

WARM_UP = 8
"""The first part of a sequence, one in so many, does not count."""


def period(tokens: Ints) -> int | None:
    """The shortest number of elements after which the sequence repeats; None where it does not, three times over.

    ``tokens`` are small codes, -1 where an element is not known. A part that repeats within the repetition (one
    microbatch within an iteration) leaves an odd element in each repetition; irregular ones are rarer than that.
    The beginning is left out: warm-up looks different.
    """
    tokens = tokens[len(tokens) // WARM_UP :]
    if len(tokens) > WINDOW:
        middle = (len(tokens) - WINDOW) // 2
        tokens = tokens[middle : middle + WINDOW]
    longest = len(tokens) // LEAST_REPEATS
    if longest < 1 or (tokens < 0).all():
        return None
    compared = _coincidences([tokens >= 0])[1 : longest + 1]
    equal = _coincidences([tokens == token for token in np.unique(tokens[tokens >= 0])])[1 : longest + 1]
    rate = np.where(compared > 0, (compared - equal) / np.maximum(compared, 1), 1.0)
    best = int(rate.argmin())
    allowed = rate[best] + 0.5 / (best + 1)
    found = int(np.flatnonzero(rate <= allowed)[0])
    return found + 1 if rate[found] < 0.5 else None


def _coincidences(marks: list[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """For each distance, how many pairs of elements that far apart bear the same mark."""
    length = len(marks[0])
    size = 1 << (2 * length - 1).bit_length()
    total = np.zeros(size)
    for mark in marks:
        spectrum = np.fft.rfft(mark, size)
        total += np.fft.irfft(spectrum * spectrum.conj(), size)
    return np.rint(total[:length]).astype(np.int64)
