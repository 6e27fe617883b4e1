"""Types that more than one room speaks of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
"""Of float32, or of float64 where sums are long."""
