"""The factory `nlp.add_pipe("tener_ner")`, with all settings of the component."""

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
    """Create a named entity recogniser with a CRF on top.

    model (Model[List[Doc], List[Floats2d]]): `spacy_tener.CRFTagger.v1` over any token-to-vector model.
    view (str): The model's input: the `tokens` or the `characters` of each Doc.
    alignment_mode (str): How entities of the view `characters` that do not align with tokens get into `doc.ents`:
        `expand` to all tokens that they overlap, `contract` to those within them, or `strict`, not at all. Of two
        entities that share a token, the longer one is kept.
    window (Optional[int]): Maximum number of tokens or characters that the model reads at once. Longer Docs are cut at
        sentence ends into windows of about that length, and decoded as a whole. None, as trained: 200 in training, then
        the length of which nine of ten training texts were not longer.
    overlap (Optional[int]): Tokens or characters of context on both sides of a place where a sentence that is longer
        than a window is cut; None for 8.
    max_units (int): Maximum number of tokens or characters in a batch of windows, to limit memory.
    incorrect_spans_key (Optional[str]): Key of the reference's `doc.spans` for spans that are known not to be entities
        of their label.
    chars_key (Optional[str]): Key of `doc.spans` for all entities of the Doc in the view `characters`: spans of tokens,
        and their exact start and end in `doc.spans[chars_key].attrs["char_offsets"]`; with a `spans_key` also their
        probabilities in `"char_scores"`. Nothing is written if it is None.
    spans_key (Optional[str]): Key of `doc.spans` for the entities of `doc.ents` with their probabilities, which are in
        `doc.spans[spans_key].attrs["scores"]`; also for those within them, if the model has a `depth` above 1. Nothing
        is computed or written if it is None.
    threshold (Union[float, Dict[str, float]]): Minimum probability of an entity, or of an entity of each label. Less
        probable entities are left out: their tokens are outside. 0 keeps all.
    scorer (Optional[Callable]): The scoring method. In the view `characters`, `spacy_tener.char_ner_scorer.v1` replaces
        the default, `spacy.ner_scorer.v1`.
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
