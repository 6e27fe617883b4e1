"""Settings of encoders and embedders: dataclasses whose annotations restrict the values of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints


class SettingError(ValueError):
    """Invalid value of a setting. `expand_config` puts the name of the architecture in front of the message."""


class Rule(NamedTuple):
    """Condition on the values of a field, and its wording in a message."""

    valid: Callable[[Any], bool]
    needed: str


Size = Annotated[int, Rule(lambda value: value >= 1, "at least 1")]
Count = Annotated[int, Rule(lambda value: value >= 0, "at least 0")]
Weight = Annotated[float, Rule(lambda value: value >= 0.0, "at least 0")]
Positive = Annotated[float, Rule(lambda value: value > 0.0, "above 0")]
Probability = Annotated[float, Rule(lambda value: 0.0 <= value < 1.0, "at least 0 and below 1")]


class Settings:
    """Base of configs: checks each value by its field's annotation, `Literal` or one of those above."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if value is not None:
                for rule in _rules(hint):
                    check(name, value, rule.valid(value), rule.needed)


def check(name: str, value: object, valid: bool, needed: str) -> None:
    """Raise if a setting's value is not valid. needed: the condition, in words."""
    if not valid:
        raise SettingError(f"{name} must be {needed}; got {value!r}.")


def check_window(size: int) -> None:
    """Raise if the window of a convolution is not an odd number."""
    check("window", size, size >= 1 and size % 2 == 1, "an odd number, so that a filter has a middle")


def _rules(hint: Any) -> Iterator[Rule]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    elif get_origin(hint) is Literal:
        choices = get_args(hint)
        yield Rule(lambda value: value in choices, f"one of {', '.join(map(repr, choices))}")
    elif type(None) in get_args(hint):
        for part in get_args(hint):
            yield from _rules(part)


@dataclass(frozen=True, kw_only=True)
class StackConfig(Settings):
    """Settings of encoders that are stacks of transformer layers.

    width: Width d of the output, shared by the heads.
    layers: Number of layers.
    heads: Number of heads h; each is `width / heads` wide.
    dropout: Inside the feed-forward.
    attention_dropout: On the attention map; None for the same as `dropout`.
    norm: Normalise after each sum ("post", as the papers), or before each part and once at the end ("pre").
    """

    width: Size = 128
    layers: Size = 1
    heads: Size = 8
    ff_width: Size | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0
    norm: Literal["post", "pre"] = "post"

    usual_ff: ClassVar[int] = 3
    """Width of the feed-forward in widths of the model, where `ff_width` is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check("width", self.width, self.width % self.heads == 0, f"a multiple of heads, which is {self.heads}")
        paired, needed = self.width, "even"
        if self.positions_by_head:
            paired, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        check("width", self.width, paired % 2 == 0, f"{needed}, since positions are pairs of sine and cosine")

    @property
    def positions_by_head(self) -> bool:
        """Return True if a position is as wide as a head, False if as the model."""
        return False

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def map_dropout(self) -> float:
        """Dropout on the attention map."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """Sizes and choices of a transformer encoder. The defaults are TENER's for Weibo.

    width: Width d of the output, shared by the heads. A linear layer brings the input to it.
    ff_width: Width inside the feed-forward; None for twice the width.
    dropout: Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    adapted: TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers' choice: vanilla
        attention is scaled, adapted is not.
    key_projection: Give the keys of adapted attention a projection, as the released code does and the paper does not.
    key_position: Give adapted attention the released code's third term, `k_j . r_{t-j}`.
    """

    heads: Size = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None
    key_projection: bool = False
    key_position: bool = False

    usual_ff = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("key_projection", "key_position"):
            value = getattr(self, name)
            check(name, value, self.adapted or not value, "False with vanilla attention, which has no use for it")

    @property
    def positions_by_head(self) -> bool:
        return self.adapted


DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""

MECT_DISTANCES = ("hh", "tt")
"""MECT uses the distances of head to head and of tail to tail only (eq. 11)."""


RANDOM_BLOCK = 16
"""Positions of queries, and of keys, in a block of MECT's random attention."""


@dataclass(frozen=True, kw_only=True)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    ff_width: Width inside the feed-forward; None for three times the width.
    distances: Distances between two spans that the attention uses, of "hh", "ht", "th" and "tt" (head to head, head to
        tail, ..); None for all, as in the paper. The released code and MECT use "hh" and "tt".
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`, unlike the paper.
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
    ff_width: Width inside the feed-forward; None for four times the width, the smallest that the paper searched.
    selection: Keys that a query keeps: those above its threshold ("adaptive", ATSSA), the `k` largest ("top_k", the
        explicit sparse transformer), or all ("none", the paper's "- Selective SA").
    k: With a threshold, minimum number of keys that are kept; 0 for the paper's "- top-k". With "top_k", their number.
    alpha: With a threshold, how steep the step at it is in training; 1 for the paper's "- AF".
    tau: With a threshold, temperature of the Gumbel-softmax in training.
    penalty: With a threshold, weight lambda of the number of keys kept, a mean over the sentences, in
        the loss.
    threshold: Computed for each query and head from the sentence ("adaptive"), or 0 for all ("fixed", the paper's
        "- DT").
    fusion_width: Width of the word fusion's output; None for `width`.
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
    streams: Two streams, with the queries of each from the other ("cross", MECT) or from itself ("parallel", the
        paper's experiment B); or one, of characters joined with their radicals ("single", experiment A).
    random_attention: Number of positions of a sentence, its characters' and then its words', that have a learned bias
        of the attention score for each pair; 0 for none, the paper's "- RA". Later positions have none, so that
        sentences may be longer.
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


RelationKind = Literal["gated", "mean", "attention"]

EXPONENT_LIMIT = 40.0
"""Exponents are clipped to this, positive and negative, so that `u v` fits into float32: e^80 = 5.5e34. That changes a
sum `a + b` only where one of the two is beyond 40; and even then it changes the gate only where the other is beyond 20
with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are between -1
and 1, so with 400 channels and initial weights neither can be above 35, and most are below 2."""


@dataclass(frozen=True, kw_only=True)
class GRNConfig(Settings):
    """Sizes and choices of a gated relation network. The defaults are the paper's.

    width: Width d of the context features and of the output.
    branches: Windows of the context layer's convolutions, odd numbers of tokens, followed by tanh and the maximum over
        the convolutions in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context layer out: the
        relation layer reads the input, through a linear layer if it is not `width` wide, as the paper's is.
    relation: Relation layer: "gated" has one gate for each pair of tokens and each channel (eq. 6); "mean" is the mean
        of the relation vectors, without gates (eq. 5, the paper's DFN); "attention" has one gate for each pair (eq. 7,
        its GAttN); None leaves the relation layer out.
    dropout: On the context layer's output, before the relation layer.
    """

    width: Size = 400
    branches: Sequence[int] = (1, 3, 5)
    relation: RelationKind | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = all(size >= 1 and size % 2 == 1 for size in self.branches)
        check("branches", self.branches, odd, "odd numbers of tokens")
        left, needed = self.relation is not None or bool(self.branches), "one of 'gated', 'mean' and 'attention'"
        check("relation", self.relation, left, f"{needed} where there are no branches")


@dataclass(frozen=True, kw_only=True)
class IDCNNConfig(Settings):
    """Sizes and choices of an ID-CNN. The defaults are the released code's, which iterates over whole documents.

    width: Width of every convolution's output.
    window: Tokens that a convolution sees; an odd number, at least 3.
    dilations: For each convolution of the block, the distance between the tokens that it sees.
    iterations: How often the block is applied, each time with the same weights.
    dropout: Dropout before each application of the block.
    """

    width: Size = 300
    window: int = 3
    dilations: Sequence[int] = (1, 2, 1)
    iterations: Size = 3
    dropout: Probability = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        # A window of one token would see no neighbour at any distance.
        odd = self.window >= 3 and self.window % 2 == 1
        check("window", self.window, odd, "an odd number of tokens, at least 3")
        positive = bool(self.dilations) and min(self.dilations) >= 1
        check("dilations", self.dilations, positive, "numbers of at least 1")

    @property
    def reach(self) -> int:
        """Number of tokens to each side that take part in a token's output."""
        return self.window // 2 * (1 + self.iterations * sum(self.dilations))
