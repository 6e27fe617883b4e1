"""A pretrained transformer as an embedder."""

from ..bridge import require_torch

require_torch()
