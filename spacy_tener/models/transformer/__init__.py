"""A pretrained transformer as an embedder."""

from ..shim import require_torch

require_torch()
