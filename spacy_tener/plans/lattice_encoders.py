"""Settings of the encoders of characters and words: FLAT, FLAT-ATSSA and MECT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .settings import Count, Positive, Size, Weight, check
from .transformer import StackConfig

DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""

MECT_DISTANCES = ("hh", "tt")
"""Of two spans, MECT knows how far their heads and their tails are from each other (eq. 11)."""


RANDOM_BLOCK = 16
"""Places of queries and of keys in a block of MECT's random attention."""


@dataclass(frozen=True, kw_only=True)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    ff_width: Width inside the feed-forward; None for three times the width.
    distances: Which distances between two spans the attention knows, of "hh", "ht", "th" and "tt" (head to head, head
        to tail, ..); None for all, as the paper. The released code and MECT have "hh" and "tt".
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`, which the paper does not.
    norm: Normalise after each sum ("post", as the paper), or before each part and once at the end ("pre"). (Where this
        sum should be, the released code adds a part's output to itself: that is not an option.)
    """

    distances: list[Literal["hh", "ht", "th", "tt"]] | None = None
    scaled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_distances(self.distances or DISTANCES)


@dataclass(frozen=True, kw_only=True)
class AtssaConfig(StackConfig):
    """Sizes and choices of FLAT-ATSSA's encoder. The defaults are the paper's. Each row of its Table 4 is one setting.

    width: Width d of the context layers and of the output, shared by the heads.
    layers: Number of context layers.
    heads: Number of heads h, of the context layers and of the word fusion.
    ff_width: Width inside the feed-forward; None for four times the width, the least that the paper searched.
    selection: Which keys a query keeps: those above its threshold ("adaptive", ATSSA), the `k` largest ("top_k", the
        explicit sparse transformer), or all ("none", the paper's "- Selective SA").
    k: With a threshold, at least so many keys are kept; 0 for the paper's "- top-k". With "top_k", just so many.
    alpha: With a threshold, how steep the step at it is in training; 1 for the paper's "- AF".
    tau: With a threshold, temperature of the Gumbel-softmax in training.
    penalty: With a threshold, weight lambda of the number of keys kept, a mean over the sentences, in
        the loss.
    threshold: Made for each query and head from the sentence ("adaptive"), or 0 for all ("fixed", the paper's "- DT").
    fusion_width: Width of what a character reads from its words; None for `width`.
    """

    selection: Literal["adaptive", "top_k", "none"] = "adaptive"
    k: Count = 3
    alpha: Positive = 50.0
    tau: Positive = 1.0
    penalty: Weight = 4e-6
    threshold: Literal["adaptive", "fixed"] = "adaptive"
    fusion_width: Size | None = None

    usual_ff = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        some = self.k >= 1 or self.selection != "top_k"
        check("k", self.k, some, "at least 1 where the k largest scores are kept")
        fused = self.fused_width
        check("fusion_width", fused, fused % 2 == 0, "even, since positions are pairs of sine and cosine")
        check("fusion_width", fused, fused % self.heads == 0, f"a multiple of heads, which is {self.heads}")

    @property
    def positions_by_head(self) -> bool:
        return True

    @property
    def fused_width(self) -> int:
        return self.fusion_width or self.width

    @property
    def selects(self) -> bool:
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True)
class MectConfig(StackConfig):
    """Sizes and choices of a MECT encoder. The defaults are the released code's for Weibo, in the paper's form. Each
    row of the paper's Table 8 is one setting.

    width: Width d of each stream and of the output, shared by the heads.
    layers: Number of layers; the paper has one.
    ff_width: Width inside the feed-forwards; None for three times the width.
    streams: Two streams, each asked by the other ("cross", MECT) or each by itself ("parallel", the paper's experiment
        B); or one, of characters joined with their components ("single", experiment A).
    random_attention: How many places of a sentence, its characters' and then its words', have learned numbers added to
        attention scores for each pair of them; 0 for none, the paper's "- RA". Places behind these have nothing added,
        so that sentences may be longer.
    """

    streams: Literal["cross", "parallel", "single"] = "cross"
    random_attention: Count = 320

    @property
    def n_streams(self) -> int:
        return 1 if self.streams == "single" else 2


def check_distances(distances: Sequence[str]) -> None:
    if not distances or len(set(distances)) != len(distances) or not set(distances) <= set(DISTANCES):
        raise ValueError(
            f"The distances between spans must be one or more of {', '.join(DISTANCES)}, each once; "
            f"got {', '.join(distances) or 'none'}."
        )
