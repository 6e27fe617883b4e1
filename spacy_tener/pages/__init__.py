"""Pages of one file without network: their style, the parts that they share, and a colour for each label."""

from .colors import displacy_options, label_hue
from .page import make_page, page_policy

__all__ = ["displacy_options", "label_hue", "make_page", "page_policy"]
