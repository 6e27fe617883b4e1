"""Settings: types that restrict values, the check of a registered function's arguments, and configs of encoders.

A config of an encoder has its arguments, with their defaults and meanings. `configured` gives them to the function that
makes the architecture, whose docstring says which paper the defaults are from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from .errors import RemedyError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
"""A boolean is no number and 128.0 no size, but a rate may be a whole number."""


class SettingError(ValueError):
    """Settings that do not fit together."""


def _check_odd(size: int) -> int:
    if size % 2 == 0:
        raise SettingError("must be odd, so that it has a middle")
    return size


Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
OddSize = Annotated[Size, AfterValidator(_check_odd)]
Weight = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


def validated(registered: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Check the arguments of a registered function by their annotations. Errors begin with the registered name."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters, checked = signature(function), validate_call(config=STRICT)(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with name_errors(registered):
                # By name, since errors would number positional arguments.
                return checked(**parameters.bind(*args, **kwargs).arguments)  # type: ignore[call-arg]

        return call

    return decorate


def configured(registered: str, config: type[Any]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a registered function the fields of a config as arguments, with their defaults and meanings.

    The function itself takes the config, as its last argument; others without a default may be left out, and are None.
    Errors begin with the registered name.
    """
    hints = get_type_hints(config, include_extras=True)
    fields = [
        Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=field.default, annotation=hints[field.name])
        for field in dataclasses.fields(config)
    ]

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        annotations, checked = get_type_hints(function), validate_call(config=STRICT)(function)
        extra = [
            parameter.replace(annotation=annotations[name], default=_default(parameter))
            for name, parameter in signature(function).parameters.items()
            if name != "config"
        ]
        parameters = Signature([*extra, *fields], return_annotation=annotations["return"])

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result:
            settings = parameters.bind(*args, **kwargs).arguments
            arguments = {argument.name: settings.pop(argument.name, argument.default) for argument in extra}
            with name_errors(registered):
                return checked(**arguments, config=config(**settings))

        call.__signature__ = parameters  # type: ignore[attr-defined]
        call.__annotations__ = {name: part.annotation for name, part in parameters.parameters.items()}
        call.__annotations__["return"] = parameters.return_annotation
        call.__doc__ = f"{cleandoc(function.__doc__ or '')}\n{_meanings(config)}"
        return call

    return decorate


def _default(parameter: Parameter) -> Any:
    return None if parameter.default is Parameter.empty else parameter.default


def _meanings(config: type[Any]) -> str:
    """Return what the docstrings of a config and its bases say of each field."""
    meanings: dict[str, str] = {}
    for base in config.__mro__[-2::-1]:
        entries = cleandoc(vars(base).get("__doc__") or "").partition("\n\n")[2]
        for entry in re.split(r"\n(?=\w+ \()", entries):
            meanings[entry.partition(" ")[0]] = entry
    return "\n".join(filter(None, meanings.values()))


@contextmanager
def name_errors(registered: str) -> Iterator[None]:
    """Raise errors of settings with the registered name."""
    try:
        yield
        return
    except ValidationError as error:
        problem = "; ".join(map(_describe, error.errors(include_url=False)))
    except SettingError as error:
        problem = str(error)
    raise RemedyError(f"{registered}: {problem}", "Correct the config.")


def _describe(error: Any) -> str:
    """Return the setting, what it must be, and its value."""
    if not error["loc"]:
        return str(error["ctx"]["error"])
    # Of an argument with several types, pydantic adds the type to the place: "layers.constrained-int".
    places = [str(place) for place in error["loc"] if str(place).isidentifier() or isinstance(place, int)]
    name, reason = ".".join(places), error["msg"].removeprefix("Value error, ")
    return f"{name} {reason.replace('Input should be', 'must be')}; got {error['input']!r}"


def check_pieces(window: int, overlap: int) -> None:
    """Raise if windows of pieces are too short for their overlap."""
    shortest = 2 * overlap + 16
    if window < shortest:
        raise SettingError(f"window must be at least {shortest}, twice the overlap and 16 pieces; got {window}")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StackConfig:
    """Settings of encoders that are stacks of transformer layers.

    width (int): Width d of the output, shared by the heads.
    layers (int): Number of layers.
    heads (int): Number of heads h; each is `width / heads` wide.
    ff_width (Optional[int]): Width inside the feed-forward; None for three times the width.
    dropout (float): Inside the feed-forward.
    attention_dropout (Optional[float]): On the attention map; None for the same as `dropout`.
    """

    width: Size = 128
    layers: Size = 1
    heads: Size = 8
    ff_width: Size | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0

    usual_ff: ClassVar[int] = 3
    """Width of the feed-forward in widths of the model, where `ff_width` is None."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise SettingError(f"width must be a multiple of heads, which is {self.heads}; got {self.width}")
        position, needed = self.width, "even"
        if self.positions_by_head:
            position, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        if position % 2:
            reason = "since positions are pairs of sine and cosine"
            raise SettingError(f"width must be {needed}, {reason}; got {self.width}")

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


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig(StackConfig):
    """Sizes and choices of a transformer encoder.

    width (int): Width d of the output, shared by the heads. A linear layer brings the input to it.
    ff_width (Optional[int]): Width inside the feed-forward; None for twice the width.
    dropout (float): Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    adapted (bool): TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled (Optional[bool]): Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers'
        choice: vanilla attention is scaled, adapted is not.
    """

    heads: Size = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None

    usual_ff = 2

    @property
    def positions_by_head(self) -> bool:
        return self.adapted


DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""

RANDOM_BLOCK = 16
"""Positions of queries, and of keys, in a block of MECT's random attention."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder.

    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Distances between two spans that the attention uses, of
        "hh", "ht", "th" and "tt" (head to head, head to tail, ..); None for all, as in the paper. The released code and
        MECT use "hh" and "tt".
    """

    distances: Sequence[Literal["hh", "ht", "th", "tt"]] | None = None

    n_streams: ClassVar[int] = 1
    key_projection: ClassVar[bool] = True
    random_attention: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.used_distances)) < len(self.used_distances):
            raise SettingError(f"distances must have each distance once; got {self.distances}")

    @property
    def used_distances(self) -> Sequence[str]:
        return self.distances or DISTANCES


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AtssaConfig(StackConfig):
    """Sizes and choices of FLAT-ATSSA's encoder.

    width (int): Width d of the context layers and of the output, shared by the heads.
    layers (int): Number of context layers.
    heads (int): Number of heads h, of the context layers and of the word fusion.
    ff_width (Optional[int]): Width inside the feed-forward; None for four times the width, the smallest that the paper
        searched.
    selection (Literal["adaptive", "none"]): Keys that a query keeps: those above its threshold, which is computed for
        each query and head from the sentence ("adaptive", ATSSA), or all ("none", the paper's "- Selective SA").
    k (int): With a threshold, minimum number of keys that are kept; 0 for the paper's "- top-k".
    alpha (float): With a threshold, how steep the step at it is in training; 1 for the paper's "- AF".
    tau (float): With a threshold, temperature of the Gumbel-softmax in training.
    penalty (float): With a threshold, weight lambda of the number of keys kept, a mean over the sentences, in the loss.
    """

    selection: Literal["adaptive", "none"] = "adaptive"
    k: Count = 3
    alpha: Positive = 50.0
    tau: Positive = 1.0
    penalty: Weight = 4e-6

    usual_ff = 4

    @property
    def positions_by_head(self) -> bool:
        return True

    @property
    def selects(self) -> bool:
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MectConfig(StackConfig):
    """Sizes and choices of a MECT encoder.

    width (int): Width d of each stream and of the output, shared by the heads.
    layers (int): Number of layers; the paper has one.
    ff_width (Optional[int]): Width inside the feed-forwards; None for three times the width.
    random_attention (int): Number of positions of a sentence, its characters' and then its words', that have a learned
        bias of the attention score for each pair; 0 for none, the paper's "- RA". Later positions have none, so that
        sentences may be longer.
    """

    random_attention: Count = 320

    n_streams: ClassVar[int] = 2

    key_projection: ClassVar[bool] = False
    """Keys are the input itself: I in eq. 7."""
    used_distances: ClassVar[Sequence[str]] = ("hh", "tt")
    """Head to head and tail to tail only (eq. 11)."""


EXPONENT_LIMIT = 40.0
"""Exponents are clipped to this, positive and negative, so that `u v` fits into float32: e^80 = 5.5e34. That changes a
sum `a + b` only where one of the two is beyond 40; and even then it changes the gate only where the other is beyond 20
with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are between -1
and 1, so with 400 channels and initial weights neither can be above 35, and most are below 2."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GRNConfig:
    """Sizes and choices of a gated relation network.

    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Windows of the context layer's convolutions, odd numbers of tokens, followed by tanh and
        the maximum over the convolutions in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context
        layer out: the relation layer reads the input, through a linear layer if it is not `width` wide, as the paper's
        is.
    relation (Optional[Literal["gated"]]): Relation layer, with a gate for each pair of tokens and each channel (eq. 6);
        None leaves it out.
    dropout (float): On the context layer's output, before the relation layer.
    """

    width: Size = 400
    branches: Sequence[OddSize] = (1, 3, 5)
    relation: Literal["gated"] | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated' where there are no branches; got None")
