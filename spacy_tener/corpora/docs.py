"""Annotated sentences and texts as spaCy Docs, and these in spaCy's binary format."""

from __future__ import annotations

import sys
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from spacy.language import Language
from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus, Example
from spacy.vocab import Vocab

from ..errors import InputError, RemedyError
from ..files import write_bytes
from .annotation import AnnotatedText, EntitySpan, Event, Sentence

LineNote = Callable[[Event, str, int], None]

INCORRECT = "incorrect_spans"
"""Key in `doc.spans` of the spans known not to be entities of their label, as in spaCy's and Prodigy's examples."""


def sentence_to_doc(
    vocab: Vocab, sentence: Sentence, *, spaces: bool, note: LineNote, overlapping: bool = False
) -> Doc:
    """Return the Doc of a sentence, with a token for each token of the corpus.

    spaces (bool): Put a space after each token, where the corpus does not say what is there.
    overlapping (bool): Write all entities to `doc.spans`, too: those that overlap a longer one are not in `doc.ents`.
    """
    size = len(sentence.tokens)
    starts: list[bool | int | None] = [index == 0 for index in range(size)]
    doc = Doc(vocab, words=list(sentence.tokens), spaces=list(sentence.spaces) or [spaces] * size, sent_starts=starts)
    entities = [Span(doc, span.start, span.end, span.label) for span in _without_blank_edges(sentence, note)]
    _set_entities(doc, entities, set(sentence.missing))
    if overlapping:
        doc.spans[DEFAULT_SPANS_KEY] = entities
    return doc


def text_to_doc(
    tokenizer: Callable[[str], Doc], text: AnnotatedText, *, note: LineNote, overlapping: bool = False
) -> Doc:
    """Return the Doc that the tokenizer makes of a text.

    An entity that does not align with tokens leaves missing annotation on the tokens that it touches.

    overlapping (bool): As in `sentence_to_doc`. Not where only answers to single spans are known, none of which lies
        within another: they say nothing of what lies within them.
    """
    doc = tokenizer(text.text)
    starts = {token.idx: token.i for token in doc}
    ends = {token.idx + len(token): token.i + 1 for token in doc}
    entities: list[Span] = []
    dropped: list[Span] = []
    incorrect: list[Span] = []
    unknown = list(text.missing)
    for aligned, spans in ((entities, text.spans), (dropped, text.overlapping), (incorrect, text.incorrect)):
        for span in spans:
            if span.start in starts and span.end in ends:
                aligned.append(Span(doc, starts[span.start], ends[span.end], span.label))
            else:
                unknown.append((span.start, span.end))
                note(Event.MISALIGNED, f"{span.label} {text.text[span.start : span.end][:40]!r}", text.line)
    _set_entities(doc, entities, _touched(doc, unknown))
    if incorrect:
        doc.spans[INCORRECT] = incorrect
    if overlapping and (dropped or (0, len(text.text)) not in text.missing):
        doc.spans[DEFAULT_SPANS_KEY] = sorted([*entities, *dropped])
    return doc


def _without_blank_edges(sentence: Sentence, note: LineNote) -> Iterator[EntitySpan]:
    """Yield entities of a sentence without white space tokens at their edges, which spaCy forbids."""
    for span in sentence.spans:
        solid = [index for index in range(span.start, span.end) if not sentence.tokens[index].isspace()]
        line = sentence.line + span.start
        if not solid:
            note(Event.BLANK, span.label, line)
            continue
        if (solid[0], solid[-1] + 1) != (span.start, span.end):
            note(Event.TRIMMED, span.label, line)
        yield EntitySpan(solid[0], solid[-1] + 1, span.label)


def _touched(doc: Doc, stretches: Sequence[tuple[int, int]]) -> set[int]:
    """Return the tokens that share a character with any of the stretches."""
    if not stretches:
        return set()
    starts = [token.idx for token in doc]
    ends = [token.idx + len(token) for token in doc]
    ranges = (range(bisect_right(ends, start), bisect_left(starts, end)) for start, end in stretches)
    return set(chain.from_iterable(ranges))


def _set_entities(doc: Doc, entities: list[Span], missing: set[int]) -> None:
    missing = missing.difference(*(range(span.start, span.end) for span in entities))
    doc.set_ents(entities, missing=[doc[index : index + 1] for index in sorted(missing)], default="outside")


def read_docs(path: Path, vocab: Vocab | None = None) -> Iterator[Doc]:
    """Read the Docs of a `.spacy` file."""
    yield from open_docbin(path).get_docs(Vocab() if vocab is None else vocab)


def open_docbin(path: Path) -> DocBin:
    """Read a `.spacy` file. Errors name it."""
    try:
        return DocBin().from_disk(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except Exception as error:  # zlib and msgpack raise many kinds for a file of another format
        raise InputError(str(path), "is not a .spacy file", "Make it with `spacy tener convert`.") from error


def repacked(like: DocBin, docs: Iterable[Doc]) -> bytes:
    """Return Docs as the content of a `.spacy` file, with the attributes and user data that `like` stores."""
    docbin = DocBin(store_user_data=any(data is not None for data in like.user_data))
    docbin.attrs = like.attrs
    for doc in docs:
        docbin.add(doc)
    return docbin.to_bytes()


def write_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Write Docs with their weights and the labels that they are annotated for, unless the file has just these."""
    data = DocBin(docs=docs, store_user_data=True).to_bytes()
    if not path.is_file() or path.read_bytes() != data:
        write_bytes(path, data)


class NamingCorpus(Corpus):
    """spaCy's Corpus, with errors that name the file."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        docs = (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))
        return islice(docs, self.limit if self.limit >= 1 else None)


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False, limit: int | None = None) -> list[Example]:
    """Read the examples of a corpus, of any length. An empty corpus is an error."""
    nlp.max_length = sys.maxsize
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[W090\]")  # no files: an error below
        examples = list(islice(NamingCorpus(path, gold_preproc=gold_preproc)(nlp), limit))
    if not examples:
        raise RemedyError(f"{path}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
    return examples
