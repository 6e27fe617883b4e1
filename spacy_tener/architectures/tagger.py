"""The model that `tener_ner` trains: any token-to-vector model, with a CRF on top.

`spacy_tener.CRFTagger.v1` is the registered function. The other functions give the component access to the CRF and to
the number of labels.
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
    from ..crf.crf_torch import CRFHead

    return CRFHead(width=nI, n_labels=_count_labels(nO, depth), dropout=dropout, depth=depth)


def _count_labels(nO: int, depth: int) -> int:
    n_labels, rest = divmod(nO - depth, 4 * depth)
    if rest or n_labels < 0:
        times = f", times its depth of {depth}" if depth > 1 else ""
        raise ValueError(
            f"A CRF tagger has four tags for each label and one more (1, 5, 9, ...){times}, but nO is {nO}."
        )
    return n_labels


def depth_of(model: Model[Any, Any]) -> int:
    """Return how deep the entities that a tagger finds may be nested."""
    return int(model.attrs.get("depth", 1))


def split_depths(rows: Rows, depth: int) -> Rows:
    """Return the emissions of each depth as rows of their own: those of all units at the first depth come first.

    A text is then one sequence of the CRF for each depth.

    *Shape:* (units, depth * tags) to (depth * units, tags)
    """
    units, columns = rows.shape
    tags = columns // depth
    return rows if depth == 1 else rows.reshape(units, depth, tags).swapaxes(0, 1).reshape(depth * units, tags)


def resize_output(model: TaggerModel, nO: int) -> TaggerModel:
    """Grow the model to the tags of more labels. The weights of its present labels are kept."""
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
    """Set the number of entity types of a model, initialized or not."""
    resize_output(model, depth_of(model) * TagLayout(n_labels).n_tags)


def crf(model: Model[Any, Any]) -> CRF:
    """Return the CRF of a tagger for training, a torch module."""
    head: CRFHead = torch_shim(_output_layer(model)).module
    return head.crf


def crf_scorer(model: Model[Any, Any]) -> PathScorer:
    """Return the CRF of a tagger for prediction on the CPU."""
    return cast(CRFPredictor, torch_shim(_output_layer(model)).predictor()).scorer


def on_host(model: Model[Any, Any], emissions: Rows) -> tuple[PathScorer, AnyFloats]:
    """Return the CRF of a tagger for prediction, and emissions as an array. A GPU is synchronised once.

    The CRF has copies of its weights, which training does not change.

    emissions (Rows): What `predict` returned. *Shape:* (units, tags)
    """
    if isinstance(emissions, np.ndarray):
        return crf_scorer(model), emissions
    rows, weights = crf(model).on_host(emissions)
    arrays = (weight.detach().numpy().copy() for weight in weights)
    return PathScorer(cast(CRFArrays, tuple(arrays))), rows.detach().numpy()


def _output_layer(model: Model[Any, Any]) -> Model[Any, Any]:
    if not model.has_ref("output_layer") or model.get_ref("output_layer").name != "crf_head":
        raise ValueError(
            "The component 'tener_ner' needs a model with a CRF on top. In the config, set "
            '[components.<name>.model] to @architectures = "spacy_tener.CRFTagger.v1" and put this architecture into '
            "[components.<name>.model.tok2vec]."
        )
    return model.get_ref("output_layer")
