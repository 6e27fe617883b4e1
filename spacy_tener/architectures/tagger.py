"""The model of the component `tener_ner`: any token-to-vector model with a CRF on top.

`spacy_tener.CRFTagger.v1` is the registered function. The component uses the other functions to access the CRF and to
change the number of labels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import PositiveInt
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..crf.crf_numpy import CRFHead as CRFPredictor
from ..crf.crf_numpy import PathScorer
from ..crf.transitions import CRFArrays
from ..nn.backends import Rows
from ..nn.compose import chain_layers, ragged_layer
from ..nn.shim import torch_shim
from ..tagging import TagLayout
from ..types import AnyFloats
from ..validation import Probability, validated
from .tener.tener import build_tener

if TYPE_CHECKING:
    from ..crf.crf_torch import CRF, CRFHead

TaggerModel = Model[list[Doc], list[Floats2d]]


@validated("spacy_tener.CRFTagger.v1")
def build_crf_tagger(
    tok2vec: TaggerModel | None = None,
    nO: int | None = None,
    dropout: Probability = 0.4,
    depth: PositiveInt = 1,
) -> TaggerModel:
    """Construct a tagger: a token-to-vector model, and a CRF over BIOES tags.

    Registered as `spacy_tener.CRFTagger.v1`. The output of the model is the emission scores. The transition scores of
    the CRF are parameters of its output layer, which the component uses to compute the loss and to decode.

    tok2vec (Optional[Model[List[Doc], List[Floats2d]]]): A token-to-vector model: of this package, of spaCy, or a
        listener to a shared `tok2vec` or `transformer` component. None for `spacy_tener.TENER.v1` with its defaults.
    nO (Optional[int]): Number of tags: four for each label and one more, times `depth`. None to let `initialize` set it
        from the labels.
    dropout (float): Dropout rate of the token vectors.
    depth (int): Maximum nesting depth of entities. 1 for entities that are not nested. The model predicts a tag
        sequence for each depth.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns emission scores. *Shape:* (tokens, nO)
    """
    if nO is not None:
        _count_labels(nO, depth)
    if tok2vec is None:
        tok2vec = build_tener()
    width = tok2vec.get_dim("nO") if tok2vec.has_dim("nO") else None
    output_layer = ragged_layer(
        "crf_head", partial(_build_head, dropout=dropout, depth=depth), CRFPredictor, width_in=width, width_out=nO
    )
    model = chain_layers(tok2vec, output_layer)
    model.set_ref("tok2vec", tok2vec)
    model.set_ref("output_layer", output_layer)
    model.attrs["resize_output"] = resize_output
    model.attrs["depth"] = depth
    return model


def _build_head(*, nI: int, nO: int, dropout: float, depth: int) -> CRFHead:
    """Build the torch module of the output layer."""
    from ..crf.crf_torch import CRFHead

    return CRFHead(width=nI, n_labels=_count_labels(nO, depth), dropout=dropout, depth=depth)


def _count_labels(nO: int, depth: int) -> int:
    """Return the number of labels, or raise a ValueError if `nO` is not a possible number of tags."""
    n_labels, rest = divmod(nO - depth, 4 * depth)
    if rest or n_labels < 0:
        times = f", times its depth of {depth}" if depth > 1 else ""
        raise ValueError(
            f"A CRF tagger has four tags for each label and one more (1, 5, 9, ...){times}, but nO is {nO}."
        )
    return n_labels


def depth_of(model: Model[Any, Any]) -> int:
    """Return the maximum nesting depth of the entities that a tagger predicts."""
    return int(model.attrs.get("depth", 1))


def split_depths(rows: Rows, depth: int) -> Rows:
    """Split the emissions by nesting depth, so that the CRF gets a sequence for each text and depth.

    The emissions of the first depth come first, for all units, then the emissions of the second depth, and so on.

    *Shape:* (units, depth * tags) to (depth * units, tags)
    """
    units, columns = rows.shape
    tags = columns // depth
    return rows if depth == 1 else rows.reshape(units, depth, tags).swapaxes(0, 1).reshape(depth * units, tags)


def resize_output(model: TaggerModel, nO: int) -> TaggerModel:
    """Add tags to the model for new labels, and keep the weights of existing labels.

    model (TaggerModel): The tagger, which is modified.
    nO (int): The new number of tags.
    RETURNS (TaggerModel): The same model.
    """
    n_labels = _count_labels(nO, depth_of(model))
    output = _output_layer(model)
    shim = torch_shim(output)
    if shim.is_built and output.get_dim("nO") != nO:
        head: CRFHead = shim.module
        shim.set_module(head.grown(n_labels).to(shim.device), {**shim.sizes, "nO": nO})
    for node in (model, output):
        if node.has_dim("nO") is not False:
            node.set_dim("nO", nO, force=True)
    return model


def set_labels(model: TaggerModel, n_labels: int) -> None:
    """Set the number of labels of a model, whether it is initialized or not."""
    resize_output(model, depth_of(model) * TagLayout(n_labels).n_tags)


def crf(model: Model[Any, Any]) -> CRF:
    """Return the torch module of the CRF, for training."""
    head: CRFHead = torch_shim(_output_layer(model)).module
    return head.crf


def crf_scorer(model: Model[Any, Any]) -> PathScorer:
    """Return the NumPy implementation of the CRF, for prediction on the CPU."""
    return cast(CRFPredictor, torch_shim(_output_layer(model)).predictor()).scorer


def on_host(model: Model[Any, Any], emissions: Rows) -> tuple[PathScorer, AnyFloats]:
    """Return the NumPy implementation of the CRF, and the emissions as an array on the CPU.

    The weights of the CRF are copies, so that later training does not change them. Emissions and weights are copied
    from a GPU together, which takes one synchronization.

    emissions (Rows): The output of `predict`. *Shape:* (units, tags)
    RETURNS (tuple[PathScorer, AnyFloats]): The CRF and the emissions.
    """
    if isinstance(emissions, np.ndarray):
        return crf_scorer(model), emissions
    rows, weights = crf(model).on_host(emissions)
    arrays = (weight.detach().numpy().copy() for weight in weights)
    return PathScorer(cast(CRFArrays, tuple(arrays))), rows.detach().numpy()


def _output_layer(model: Model[Any, Any]) -> Model[Any, Any]:
    """Return the output layer with the CRF, or raise a ValueError if the model has none."""
    if not model.has_ref("output_layer") or model.get_ref("output_layer").name != "crf_head":
        raise ValueError(
            "The component 'tener_ner' needs a model with a CRF on top. In the config, set "
            '[components.<name>.model] to @architectures = "spacy_tener.CRFTagger.v1" and put this architecture into '
            "[components.<name>.model.tok2vec]."
        )
    return model.get_ref("output_layer")
