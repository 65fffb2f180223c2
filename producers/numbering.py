"""How the iterations of a log are numbered: whether numbers are left out, and iterations with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Ints


@dataclass(frozen=True, slots=True)
class Numbering:
    """All ranks number their iterations by ``step``. ``sampled``: those between were not recorded, as far as anything
    shows; else the numbers alone are left out.
    """

    step: int
    sampled: bool

    def ordinals(self, iteration: Ints) -> Ints:
        """Iterations by numbers that rise by one to the one that follows, where it was recorded."""
        return iteration if self.sampled else iteration // self.step


def numbering(pair: Ints, seq: Ints, iteration: Ints) -> Numbering:
    """How iterations are numbered; an entry a row, ``pair`` is a code a rank and communicator.

    Where operators are numbered without a hole from an iteration to the next one, nothing was left out between them.
    Of a number that only some ranks lack, or that comes now and then alone, this says nothing: step 1.
    """
    numbers = np.unique(iteration[np.flatnonzero(np.diff(iteration, prepend=-1))])
    numbers = numbers[numbers >= 0]
    step = int(np.gcd.reduce(np.diff(numbers))) if len(numbers) > 2 else 1
    if step == 1:
        return Numbering(1, sampled=False)
    rows = np.flatnonzero((seq >= 0) & (iteration >= 0))
    rows = rows[np.lexsort((seq[rows], pair[rows]))]
    crossing = (np.diff(pair[rows]) == 0) & (np.diff(iteration[rows]) > 0)
    ahead = np.diff(seq[rows])[crossing]
    return Numbering(step, sampled=not len(ahead) or bool(np.median(ahead) > 1))
