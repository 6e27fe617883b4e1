"""Types that several modules use: of arrays, and of the offsets of entities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
AnyFloats = NDArray[np.floating]
"""float32, or float64 where sums are long."""

EntityOffsets = tuple[int, int, str]
"""Start and end of an entity in characters of the text, and its label."""
