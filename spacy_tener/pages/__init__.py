"""HTML pages in one file that need no network: shared style, shared script, and a colour for each label."""

from .colors import displacy_options, label_hues
from .page import make_page, page_policy

__all__ = ["displacy_options", "label_hues", "make_page", "page_policy"]
