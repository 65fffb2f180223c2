"""What arrays hold: whole numbers, times and amounts, yes or no. Their shapes are told where they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
