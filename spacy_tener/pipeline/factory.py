"""The factory of the component `tener_ner`, with the default config.

The docstring of `make_tener_ner` is the reference in docs/component.md, which `scripts/make_reference.py` generates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config, Model
from thinc.types import Floats2d

from ..validation import name_errors
from .settings import NERSettings
from .tener_ner import TenerNER

_DEFAULT_MODEL = """
[model]
@architectures = "spacy_tener.CRFTagger.v1"

[model.tok2vec]
@architectures = "spacy_tener.TENER.v1"
"""
DEFAULT_MODEL = Config().from_str(_DEFAULT_MODEL)["model"]


@Language.factory(
    "tener_ner",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config={
        "model": DEFAULT_MODEL,
        **NERSettings().to_cfg(),
        "scorer": {"@scorers": "spacy.ner_scorer.v1"},
    },
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
)
def make_tener_ner(
    nlp: Language,
    name: str,
    model: Model[list[Doc], list[Floats2d]],
    view: Literal["tokens", "characters"],
    alignment_mode: Literal["expand", "contract", "strict"],
    window: int | None,
    overlap: int | None,
    max_units: int,
    incorrect_spans_key: str | None,
    chars_key: str | None,
    spans_key: str | None,
    threshold: float | dict[str, float],
    scorer: Callable[..., Any] | None,
) -> TenerNER:
    """Create a component for named entity recognition with a conditional random field (CRF).

    model (Model[List[Doc], List[Floats2d]]): The model: `spacy_tener.CRFTagger.v1` with any token-to-vector model.
    view (str): The units that are tagged: the `tokens` or the `characters` of a Doc.
    alignment_mode (str): How entities are aligned to tokens in `doc.ents` if `view = "characters"`, as in
        `Doc.char_span`: `expand` to all tokens that an entity overlaps, `contract` to the tokens inside the entity, or
        `strict`, which leaves out entities that do not align. If two entities share a token, the longer one is used.
    window (Optional[int]): Maximum number of units that the model processes at once. Longer Docs are split at sentence
        ends into windows of about this length, and decoded as a whole. By default, training uses windows of up to 200
        units, and prediction uses the 90th percentile of the lengths of the training texts.
    overlap (Optional[int]): Number of units of context on both sides of the split if a sentence is longer than a
        window. The default is 8.
    max_units (int): Maximum number of units in a batch of windows. Lower it to save memory.
    incorrect_spans_key (Optional[str]): Key of `doc.spans` in the reference for spans that are known to be incorrect.
        They are used as negative examples in training.
    chars_key (Optional[str]): Key of `doc.spans` for all entities if `view = "characters"`. The spans consist of the
        tokens that an entity overlaps. The exact character offsets are in `doc.spans[chars_key].attrs["char_offsets"]`,
        and with `spans_key` the probabilities are in `attrs["char_scores"]`. If it is None, this group is not written.
    spans_key (Optional[str]): Key of `doc.spans` for the entities with their probabilities in
        `doc.spans[spans_key].attrs["scores"]`. If the model has a `depth` above 1, the group also contains the nested
        entities. If it is None, probabilities are neither computed nor written.
    threshold (Union[float, Dict[str, float]]): Minimum probability of an entity, for all labels or for each label.
        Entities with a lower probability are left out. With the default of 0, all entities are kept.
    scorer (Optional[Callable]): The scoring method. If `view = "characters"`, the default `spacy.ner_scorer.v1` is
        replaced by `spacy_tener.char_ner_scorer.v1`.
    """
    with name_errors("tener_ner"):
        settings = NERSettings(
            view=view,
            alignment_mode=alignment_mode,
            window=window,
            overlap=overlap,
            max_units=max_units,
            incorrect_spans_key=incorrect_spans_key,
            chars_key=chars_key,
            spans_key=spans_key,
            threshold=threshold,
        )
    return TenerNER(nlp.vocab, model, name, settings=settings, scorer=scorer)
