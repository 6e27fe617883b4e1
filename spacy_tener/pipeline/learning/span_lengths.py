"""Lengths of the spans that a `spancat` looks at, taken from its training corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from spacy.language import Language
from spacy.pipeline import SpanCategorizer
from spacy.training import Example
from spacy.util import logger, registry

from ...errors import RemedyError
from ...settings import Share, validated

SUGGESTER = "spacy.ngram_range_suggester.v1"


@validated("spacy_tener.SpanLengths.v1")
def span_lengths(
    corpus: Callable[[Language], Iterable[Example]], component: str = "spancat", share: Share = 0.99
) -> Callable[[Language], Language]:
    """Let a `spancat` look at the spans that are as long as those of its training corpus.

    Registered as `spacy_tener.SpanLengths.v1`, for `[initialize.before_init]`. The component gets spaCy's own
    `spacy.ngram_range_suggester.v1`, in the config too: the trained pipeline is saved with these lengths.

    corpus (Callable[[Language], Iterable[Example]]): The training corpus, as `${corpora.train}`.
    component (str): Name of the `spancat`.
    share (float): The share of the corpus' spans that must not be longer than the longest suggested. Each length costs
        as much as any other, however rare it is.
    """
    return partial(_set_lengths, corpus=corpus, component=component, share=share)


def _set_lengths(
    nlp: Language, corpus: Callable[[Language], Iterable[Example]], component: str, share: float
) -> Language:
    pipe = nlp.get_pipe(component) if component in nlp.pipe_names else None
    if not isinstance(pipe, SpanCategorizer):
        remedy = f"Set `component` to one of: {', '.join(nlp.pipe_names)}."
        raise RemedyError(f"spacy_tener.SpanLengths.v1: '{component}' is no spancat of the pipeline", remedy)
    examples = list(corpus(nlp))
    lacking = sum(pipe.key not in example.reference.spans for example in examples)
    # In tokens of the pipeline, which the component reads, and not in those of the corpus.
    found = [
        len(span)
        for example in examples
        for span in example.get_aligned_spans_y2x(example.reference.spans.get(pipe.key, []), allow_overlap=True)
    ]
    if lacking or not found:
        remedy = f"Convert it with `--overlap spans`, or set spans_key of {component} to the key that it has."
        reason = f"{lacking:,} texts of the training corpus have no doc.spans['{pipe.key}'], not even an empty one"
        raise RemedyError(reason if lacking else f"doc.spans['{pipe.key}'] of the training corpus has no span", remedy)
    # The length that at least this share of the spans do not exceed.
    longest = int(np.quantile(found, share, method="inverted_cdf"))
    logger.info("%s looks at spans of %d to %d tokens, of %d at most", component, min(found), longest, max(found))
    suggester = {"@misc": SUGGESTER, "min_size": min(found), "max_size": longest}
    pipe.suggester = registry.resolve({"suggester": suggester})["suggester"]
    nlp.get_pipe_config(component)["suggester"] = suggester
    return nlp
