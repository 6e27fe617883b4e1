"""Common type aliases for arrays and entities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
# float32 or float64. float64 is used for sums over long texts.
AnyFloats = NDArray[np.floating]

# An entity as (start, end, label). Start and end are character offsets.
EntityOffsets = tuple[int, int, str]
