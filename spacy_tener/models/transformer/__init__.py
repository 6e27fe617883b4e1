"""A pretrained transformer as an embedder."""

from ..shims.shim import require_torch

require_torch()
