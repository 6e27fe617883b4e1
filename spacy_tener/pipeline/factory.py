"""The factory of the component `tener_ner`, with the default config.

`scripts/make_reference.py` copies the argument descriptions of `make_tener_ner` to docs/component.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from spacy.lang.ja import Japanese
from spacy.lang.zh import Chinese
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Config, Model
from thinc.types import Floats2d

from ..validation import name_errors
from .settings import NERSettings
from .tener_ner import TenerNER

# The default model in Chinese and Japanese, whose tokens are characters or short words: TENER embeds characters and
# bigrams of tokens.
_DEFAULT_MODEL = """
[model]
@architectures = "spacy_tener.CRFTagger.v1"

[model.tok2vec]
@architectures = "spacy_tener.TENER.v1"
"""
# The default model in all other languages embeds words and their characters.
_WORD_EMBEDDER = """
[model.tok2vec.embed]
@architectures = "spacy_tener.WordCharEmbed.v1"
"""
DEFAULT_MODEL = Config().from_str(_DEFAULT_MODEL)["model"]
DEFAULT_WORD_MODEL = Config().from_str(_DEFAULT_MODEL + _WORD_EMBEDDER)["model"]


def _factory(language: type[Language], model: Config) -> Callable[[Callable[..., TenerNER]], Callable[..., TenerNER]]:
    """Return a decorator that registers the factory for a language, with its default model.

    spaCy prefers the factory of the pipeline's language to the factory of the base class `Language`.
    """
    return language.factory(
        "tener_ner",
        assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
        default_config={
            "model": model,
            **NERSettings().to_cfg(),
            "scorer": {"@scorers": "spacy.ner_scorer.v1"},
        },
        default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
    )


@_factory(Chinese, DEFAULT_MODEL)
@_factory(Japanese, DEFAULT_MODEL)
@_factory(Language, DEFAULT_WORD_MODEL)
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

    model (Model[List[Doc], List[Floats2d]]): The model, for example `spacy_tener.CRFTagger.v1` with any token-to-vector
        model.
    view (str): Whether the model tags the `tokens` or the `characters` of a Doc. The other settings use the word "unit"
        for a token or a character.
    alignment_mode (str): How entities are aligned to tokens in `doc.ents` if `view = "characters"`, as in
        `Doc.char_span`. `expand` extends an entity to all tokens that it overlaps. `contract` reduces an entity to the
        tokens inside it. `strict` discards entities that do not align with token boundaries. If two entities share a
        token, `doc.ents` contains the longer entity.
    window (Optional[int]): Maximum number of units that the model processes at once. Longer Docs are split at sentence
        ends into windows of at most this length. The CRF still decodes each Doc as a single sequence. By default,
        windows have up to 200 units in training. In prediction, they are about as long as the training texts (90th
        percentile).
    overlap (Optional[int]): Number of context units on each side if a sentence must be split because it is longer than
        a window. The default is 8.
    max_units (int): Maximum number of units in a batch of windows. Decrease this number to save memory.
    incorrect_spans_key (Optional[str]): Key in `doc.spans` of the reference Doc for spans that are known to be
        incorrect. Training uses the spans as negative examples.
    chars_key (Optional[str]): Key in `doc.spans` for the span group with all entities if `view = "characters"`. Each
        span consists of the tokens that the entity overlaps. The group's `attrs["char_offsets"]` contains the exact
        character offsets. `attrs["char_scores"]` contains the probabilities if `spans_key` is set. If `chars_key` is
        None, the group is not written.
    spans_key (Optional[str]): Key in `doc.spans` for the span group with the entities and their probabilities. The
        probabilities are in `doc.spans[spans_key].attrs["scores"]`. If the model has a `depth` above 1, the group also
        contains the nested entities. If `spans_key` is None, the group is not written.
    threshold (Union[float, Dict[str, float]]): Minimum entity probability: a number, or a dictionary with a number for
        each label. Entities with a lower probability are discarded. The default 0 keeps all entities.
    scorer (Optional[Callable]): The scoring method. If `view = "characters"`, `spacy_tener.char_ner_scorer.v1` replaces
        the default `spacy.ner_scorer.v1`.
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
