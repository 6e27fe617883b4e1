"""Types of arrays that several modules use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
"""float32, or float64 where sums are long."""
