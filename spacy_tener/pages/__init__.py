"""HTML pages in one file that need no network: shared style, shared script, and a colour for each label."""

from .colors import displacy_options, label_hue
from .page import make_page, page_policy

__all__ = ["displacy_options", "label_hue", "make_page", "page_policy"]
