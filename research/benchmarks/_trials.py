"""Registered functions for `trials.py` that the package does not provide. They are imported with `--code`."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import spacy
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training import Example

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.pipeline.learning.distillation import SoftTarget
from spacy_tener.pipeline.tener_ner import TenerNER
from spacy_tener.pipeline.units import DocView


@spacy.registry.augmenters("trials.MentionReplacement.v1")
def mention_replacement(path: str | None, share: float) -> Callable[[Language, Example], Iterator[Example]]:
    """Create an augmenter that yields a copy of a sentence with some probability, in which all entities are replaced by
    random entities with the same labels."""
    mentions: dict[str, list[str]] = defaultdict(list)
    rng = random.Random(0)
    docs = DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab) if path else ()
    for ent in (ent for doc in docs for ent in doc.ents):
        mentions[ent.label_].append(ent.text)

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        yield example
        if example.reference.ents and rng.random() < share:
            yield _replaced(nlp, example, mentions, rng)

    return augment


def _replaced(nlp: Language, example: Example, mentions: dict[str, list[str]], rng: random.Random) -> Example:
    doc = example.reference
    text, end, entities = "", 0, []
    for ent in doc.ents:
        text += doc.text[end : ent.start_char]
        name = rng.choice(mentions[ent.label_])
        entities.append((len(text), len(text) + len(name), ent.label_))
        text, end = text + name, ent.end_char
    return Example.from_dict(nlp.make_doc(text + doc.text[end:]), {"entities": entities})


@spacy.registry.callbacks("trials.RDrop.v1")
def r_drop(share: float) -> Callable[[Language], Language]:
    """Create a callback that adds R-Drop: in each step, the model predicts the batch a second time with a different
    dropout mask, and the predictions are used as soft targets."""

    def after_init(nlp: Language) -> Language:
        pipe = nlp.get_pipe("tener_ner")
        pipe._teacher = Itself(pipe, share)
        return nlp

    return after_init


class Itself:
    """A teacher that returns the predictions of the component itself, with a different dropout mask."""

    def __init__(self, pipe: TenerNER, share: float) -> None:
        self.pipe, self.weight = pipe, share

    @property
    def crf(self):
        layer = torch_crf(self.pipe.model)
        return layer.with_labels(layer.layout.n_labels)

    def soft_targets(self, views: Sequence[DocView]) -> list[SoftTarget]:
        scores, _ = self.pipe.model.begin_update([view.slice_doc(0, len(view)) for view in views])
        return scores
