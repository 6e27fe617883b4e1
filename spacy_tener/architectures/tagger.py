"""The model of the `tener_ner` component, which is a token-to-vector model with a CRF output layer.

`build_crf_tagger` is registered as `spacy_tener.CRFTagger.v1`. The component uses the other functions in this module to
access the CRF and to add labels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import PositiveInt
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..crf.crf_numpy import CRFHead as CRFHeadPredictor
from ..crf.crf_numpy import CRFPredictor
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
    """Construct a tagger, which consists of a token-to-vector model and a CRF output layer for BIOES tags.

    Registered as `spacy_tener.CRFTagger.v1`. The model returns the emission scores. The `tener_ner` component uses
    these scores, and the CRF's transition scores, to compute the loss and to decode the best tag sequence.

    tok2vec (Optional[Model[List[Doc], List[Floats2d]]]): Token-to-vector model. You can use a model from this package
        or from spaCy, or a listener to a shared `tok2vec` or `transformer` component. Defaults to
        `spacy_tener.TENER.v1`.
    nO (Optional[int]): Number of output tags, which is `depth * (4 * labels + 1)`. None to set the number from the
        labels during initialization.
    dropout (float): Dropout rate for the token vectors.
    depth (int): Number of tag sequences that the model predicts. Nested entities need several sequences, since the
        entities in one sequence can't overlap. 1 if entities are not nested.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns emission scores. *Shape:* (tokens, nO)
    """
    if nO is not None:
        _count_labels(nO, depth)
    if tok2vec is None:
        tok2vec = build_tener()
    width = tok2vec.get_dim("nO") if tok2vec.has_dim("nO") else None
    output_layer = ragged_layer(
        "crf_head", partial(_build_head, dropout=dropout, depth=depth), CRFHeadPredictor, width_in=width, width_out=nO
    )
    model = chain_layers(tok2vec, output_layer)
    model.set_ref("tok2vec", tok2vec)
    model.set_ref("output_layer", output_layer)
    model.attrs["resize_output"] = resize_output
    model.attrs["depth"] = depth
    return model


def _build_head(*, nI: int, nO: int, dropout: float, depth: int) -> CRFHead:
    """Create the torch module for the output layer."""
    from ..crf.crf_torch import CRFHead

    return CRFHead(width=nI, n_labels=_count_labels(nO, depth), dropout=dropout, depth=depth)


def _count_labels(nO: int, depth: int) -> int:
    """Return the number of entity labels for a number of output tags.

    Each label has the tags B, I, E and S, and there is one tag O. For nested entities, these tags exist once per depth.
    Raise a ValueError if `nO` does not have the form `depth * (4 * labels + 1)`.
    """
    n_labels, rest = divmod(nO - depth, 4 * depth)
    if rest or n_labels < 0:
        wanted = "4 * n_labels + 1" if depth == 1 else f"(4 * n_labels + 1) * depth, with depth = {depth}"
        raise ValueError(
            f"nO is {nO}, but must be the number of tags, which is {wanted}. Set nO to null to infer it from "
            "the labels."
        )
    return n_labels


def depth_of(model: Model[Any, Any]) -> int:
    """Return the maximum depth of nested entities that a tagger can predict."""
    return int(model.attrs.get("depth", 1))


def split_depths(rows: Rows, depth: int) -> Rows:
    """Rearrange a tagger's emission scores for nested entities, so that each level is a separate sequence.

    A level is one of the model's tag sequences for a text, see `pipeline.nesting`. All scores for the first level come
    first, followed by all scores for the second level, and so on. A unit is a token
    or a character.

    rows (Rows): Emission scores. *Shape:* (units, depth * tags)
    depth (int): Maximum nesting depth.
    RETURNS (Rows): *Shape:* (depth * units, tags)
    """
    units, columns = rows.shape
    tags = columns // depth
    return rows if depth == 1 else rows.reshape(units, depth, tags).swapaxes(0, 1).reshape(depth * units, tags)


def resize_output(model: TaggerModel, nO: int) -> TaggerModel:
    """Add output tags for new labels to a tagger. Existing labels keep their weights.

    model (TaggerModel): The tagger, which is modified in place.
    nO (int): The new number of output tags.
    RETURNS (TaggerModel): The modified tagger.
    """
    n_labels = _count_labels(nO, depth_of(model))
    output = _output_layer(model)
    shim = torch_shim(output)
    if shim.is_built and output.get_dim("nO") != nO:
        head: CRFHead = shim.module
        shim.set_module(head.with_labels(n_labels).to(shim.device), {**shim.sizes, "nO": nO})
    for node in (model, output):
        if node.has_dim("nO") is not False:
            node.set_dim("nO", nO, force=True)
    return model


def set_labels(model: TaggerModel, n_labels: int) -> None:
    """Set a tagger's number of entity labels. If the tagger is already initialized, labels can only be added."""
    resize_output(model, depth_of(model) * TagLayout(n_labels).n_tags)


def torch_crf(model: Model[Any, Any]) -> CRF:
    """Return a tagger's CRF as a torch module, for training."""
    head: CRFHead = torch_shim(_output_layer(model)).module
    return head.crf


def crf_predictor(model: Model[Any, Any]) -> CRFPredictor:
    """Return the NumPy implementation of a tagger's CRF, for prediction on the CPU."""
    return cast(CRFHeadPredictor, torch_shim(_output_layer(model)).predictor()).crf


def copy_for_decoding(model: Model[Any, Any], emissions: Rows) -> tuple[CRFPredictor, AnyFloats]:
    """Copy a tagger's CRF and emission scores to the CPU, to decode with NumPy.

    The weights are copied, so that they don't change if training continues. If the model runs on a GPU, weights and
    scores are transferred together, which requires only one synchronization.

    emissions (Rows): Emission scores, with one row per token or character. *Shape:* (units, tags)
    RETURNS (tuple[CRFPredictor, AnyFloats]): The NumPy implementation of the CRF, and the emission scores.
    """
    if isinstance(emissions, np.ndarray):
        return crf_predictor(model), emissions
    rows, weights = torch_crf(model).copy_to_cpu(emissions)
    arrays = (weight.detach().numpy().copy() for weight in weights)
    return CRFPredictor(cast(CRFArrays, tuple(arrays))), rows.detach().numpy()


def _output_layer(model: Model[Any, Any]) -> Model[Any, Any]:
    """Return a tagger's CRF output layer. Raise a ValueError if the model has no CRF."""
    if not model.has_ref("output_layer") or model.get_ref("output_layer").name != "crf_head":
        raise ValueError(
            "The component 'tener_ner' needs a model with a CRF on top. In the config, set "
            '[components.<name>.model] to @architectures = "spacy_tener.CRFTagger.v1" and put this architecture into '
            "[components.<name>.model.tok2vec]."
        )
    return model.get_ref("output_layer")
