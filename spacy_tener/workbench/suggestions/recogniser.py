"""The `tener_ner` of a pipeline, and texts as it gets them: processed by the components before it, without entities."""

from __future__ import annotations

from collections.abc import Iterable

from spacy.language import Language
from spacy.tokens import Doc

from ...errors import RemedyError
from ...pipeline.tener_ner import TenerNER


def recogniser(nlp: Language) -> TenerNER:
    """The first `tener_ner` of a pipeline."""
    for _, pipe in nlp.pipeline:
        if isinstance(pipe, TenerNER):
            return pipe
    has = ", ".join(nlp.pipe_names) or "none"
    remedy = f"Its components are: {has}. Only the CRF of a tener_ner gives probabilities."
    raise RemedyError("The pipeline has no tener_ner", remedy)


def read(nlp: Language, texts: Iterable[str | Doc]) -> list[Doc]:
    """Texts as the `tener_ner` gets them. Docs keep their tokens and are not changed."""
    docs = (nlp.make_doc(each) if isinstance(each, str) else bare(nlp, each) for each in texts)
    before = nlp.pipe_names[: nlp.pipe_names.index(recogniser(nlp).name)]
    return list(nlp.pipe(docs, disable=[name for name in nlp.pipe_names if name not in before]))


def bare(nlp: Language, doc: Doc) -> Doc:
    """The tokens and sentences of a Doc, in the pipeline's vocabulary, and no more of its annotation."""
    starts: list[bool | int | None] = [token.is_sent_start for token in doc]
    words, spaces = [token.text for token in doc], [bool(token.whitespace_) for token in doc]
    return Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)
