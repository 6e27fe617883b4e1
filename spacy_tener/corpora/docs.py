"""Convert annotated sentences and texts to Docs, and read and write `.spacy` files."""

from __future__ import annotations

import sys
import unicodedata
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path

from spacy.language import Language
from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Corpus, Example
from spacy.vocab import Vocab

from ..errors import InputError, UserError
from ..files import write_bytes
from .annotation import AnnotatedText, EntitySpan, Event, Sentence

# Signature of a function that counts a correction or omission. The arguments are the event type, a description and the
# line number.
LineNote = Callable[[Event, str, int], None]

# Key in `doc.spans` for negative examples, which are spans that an annotator rejected. spaCy and Prodigy use the same
# key.
INCORRECT = "incorrect_spans"


def sentence_to_doc(
    vocab: Vocab, sentence: Sentence, *, spaces: bool, note: LineNote, overlapping: bool = False
) -> Doc:
    """Create a Doc from a tokenized sentence.

    spaces (bool): Whether to add a space after each token, if the sentence doesn't specify its spaces.
    note (LineNote): Function that counts corrections.
    overlapping (bool): Whether to copy the entities to `doc.spans["sc"]`.
    """
    size = len(sentence.tokens)
    starts: list[bool | int | None] = [index == 0 for index in range(size)]
    doc = Doc(vocab, words=list(sentence.tokens), spaces=list(sentence.spaces) or [spaces] * size, sent_starts=starts)
    entities = [Span(doc, span.start, span.end, span.label) for span in _trim_whitespace_tokens(sentence, doc, note)]
    _set_entities(doc, entities, set(sentence.missing))
    if overlapping:
        doc.spans[DEFAULT_SPANS_KEY] = entities
    return doc


def text_to_doc(
    tokenizer: Callable[[str], Doc], text: AnnotatedText, *, note: LineNote, overlapping: bool = False
) -> Doc:
    """Tokenize a text, and create an annotated Doc.

    If only punctuation is attached to an entity, as in `B.` at the end of a sentence, the token is split. If the
    boundaries of an entity are still not token boundaries, all tokens that overlap the entity get missing annotation.

    note (LineNote): Function that counts corrections.
    overlapping (bool): Whether to store all entities in `doc.spans["sc"]`, including overlapping entities.
    """
    doc = _split_off_punctuation(tokenizer(text.text), text, note)
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
    _set_entities(doc, entities, _overlapping_tokens(doc, unknown))
    if incorrect:
        doc.spans[INCORRECT] = incorrect
    # If only single spans were accepted or rejected, the whole text has missing annotation. Nested entities are then
    # unknown, so `doc.spans` is not set, unless accepted spans overlap.
    if overlapping and (dropped or (0, len(text.text)) not in text.missing):
        doc.spans[DEFAULT_SPANS_KEY] = sorted([*entities, *dropped])
    return doc


def _split_off_punctuation(doc: Doc, text: AnnotatedText, note: LineNote) -> Doc:
    """Split tokens at the boundaries of entities if one part consists of punctuation and symbols only.

    RETURNS (Doc): The same Doc if there is no such token, otherwise a new Doc.
    """
    spans = (*text.spans, *text.overlapping, *text.incorrect)
    first_characters = [token.idx for token in doc]
    cuts: dict[int, set[int]] = {}
    for boundary in {offset for span in spans for offset in (span.start, span.end)}:
        token = doc[bisect_right(first_characters, boundary) - 1]
        parts = token.text[: boundary - token.idx], token.text[boundary - token.idx :]
        if all(parts) and any(map(_is_punctuation, parts)):
            cuts.setdefault(token.i, set()).add(boundary - token.idx)
    if not cuts:
        return doc
    words: list[str] = []
    spaces: list[bool] = []
    for token in doc:
        edges = [0, *sorted(cuts.get(token.i, ())), len(token)]
        new_words = [token.text[start:end] for start, end in pairwise(edges)]
        words += new_words
        spaces += [False] * (len(new_words) - 1) + [bool(token.whitespace_)]
        if len(new_words) > 1:
            note(Event.SPLIT, f"{token.text!r} as {' '.join(new_words)!r}", text.line)
    return Doc(doc.vocab, words=words, spaces=spaces)


def _is_punctuation(text: str) -> bool:
    """Return whether a string consists of punctuation and symbols."""
    return all(unicodedata.category(character)[0] in "PS" for character in text)


def _trim_whitespace_tokens(sentence: Sentence, doc: Doc, note: LineNote) -> Iterator[EntitySpan]:
    """Remove whitespace tokens at the boundaries of entities, which spaCy doesn't support. Yields the entities.

    The line of a correction is the first line of the sentence: the lines of single tokens are unknown, for example if
    the sentence is a JSON record in a single line.
    """
    for span in sentence.spans:
        non_space = [index for index in range(span.start, span.end) if not sentence.tokens[index].isspace()]
        shown = f"{span.label} {doc[span.start : span.end].text[:40]!r}"
        if not non_space:
            note(Event.BLANK, shown, sentence.line)
            continue
        if (non_space[0], non_space[-1] + 1) != (span.start, span.end):
            note(Event.TRIMMED, shown, sentence.line)
        yield EntitySpan(non_space[0], non_space[-1] + 1, span.label)


def _overlapping_tokens(doc: Doc, char_ranges: Sequence[tuple[int, int]]) -> set[int]:
    """Return the indices of all tokens that overlap a character range."""
    if not char_ranges:
        return set()
    starts = [token.idx for token in doc]
    ends = [token.idx + len(token) for token in doc]
    ranges = (range(bisect_right(ends, start), bisect_left(starts, end)) for start, end in char_ranges)
    return set(chain.from_iterable(ranges))


def _set_entities(doc: Doc, entities: list[Span], missing: set[int]) -> None:
    """Set `doc.ents`. Tokens outside entities are O or have missing annotation.

    missing (set[int]): Indices of tokens with missing annotation. Tokens inside entities are skipped.
    """
    missing = missing.difference(*(range(span.start, span.end) for span in entities))
    doc.set_ents(entities, missing=[doc[index : index + 1] for index in sorted(missing)], default="outside")


def read_docs(path: Path, vocab: Vocab | None = None) -> Iterator[Doc]:
    """Yield the Docs in a `.spacy` file.

    vocab (Vocab | None): Vocabulary for the Docs. None for a new vocabulary.
    """
    yield from open_docbin(path).get_docs(Vocab() if vocab is None else vocab)


def open_docbin(path: Path) -> DocBin:
    """Load a `.spacy` file. Raises an InputError that contains the path if the file cannot be read."""
    try:
        return DocBin().from_disk(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except Exception as error:  # zlib and msgpack raise various exceptions if the file has another format.
        raise InputError(str(path), "is not a .spacy file", "Create one with `spacy tener convert`.") from error


def serialize_like(like: DocBin, docs: Iterable[Doc]) -> bytes:
    """Serialize Docs in the `.spacy` format, with the same attributes as another file.

    like (DocBin): The other file. User data is only stored if this file contains user data.
    docs (Iterable[Doc]): Docs to serialize.
    """
    docbin = DocBin(store_user_data=any(data is not None for data in like.user_data))
    docbin.attrs = like.attrs
    for doc in docs:
        docbin.add(doc)
    return docbin.to_bytes()


def write_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Write Docs with their user data to a `.spacy` file.

    If the file exists with the same content, it is not written again. Otherwise, its new modification time would
    invalidate a finished training run.
    """
    data = DocBin(docs=docs, store_user_data=True).to_bytes()
    if not path.is_file() or path.read_bytes() != data:
        write_bytes(path, data)


class CheckedCorpus(Corpus):
    """spaCy's corpus reader, except that error messages contain the file path."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        """Yield the non-empty Docs in all files, but at most `self.limit` Docs."""
        docs = (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))
        return islice(docs, self.limit if self.limit >= 1 else None)


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False, limit: int | None = None) -> list[Example]:
    """Load the examples in a corpus. The text length is not limited.

    gold_preproc (bool): Whether to use the gold tokens instead of the pipeline's tokenizer.
    limit (int | None): Maximum number of examples.
    RAISES (UserError): If the corpus is empty.
    """
    nlp.max_length = sys.maxsize
    with warnings.catch_warnings():
        # Ignore spaCy's warning about a missing corpus, since an error is raised instead.
        warnings.filterwarnings("ignore", r"\[W090\]")
        examples = list(islice(CheckedCorpus(path, gold_preproc=gold_preproc)(nlp), limit))
    if not examples:
        raise UserError(f"{path}: contains no texts in .spacy files", "Create .spacy files with `spacy tener convert`.")
    return examples
