"""Types that modules in all layers use: arrays, and the offsets of entities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float32]
# float32, or float64 for sums over long texts.
AnyFloats = NDArray[np.floating]

# The start and end of an entity in characters of the text, and its label.
EntityOffsets = tuple[int, int, str]
