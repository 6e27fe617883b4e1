"""Convert annotated sentences and texts to spaCy Docs, and read and write `.spacy` files."""

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

# Function that records an event, with a description and the line of the event.
LineNote = Callable[[Event, str, int], None]

# Key in `doc.spans` for negative examples: spans that an annotator rejected. spaCy and Prodigy use the same key.
INCORRECT = "incorrect_spans"


def sentence_to_doc(
    vocab: Vocab, sentence: Sentence, *, spaces: bool, note: LineNote, overlapping: bool = False
) -> Doc:
    """Return the Doc of a tokenized sentence. The tokens of the corpus are kept.

    spaces (bool): Whether a space follows each token, if the corpus doesn't specify it.
    note (LineNote): Function that records corrections.
    overlapping (bool): Also write all entities to `doc.spans["sc"]`. If entities overlap, `doc.ents` contains only the
        longest.
    """
    size = len(sentence.tokens)
    starts: list[bool | int | None] = [index == 0 for index in range(size)]
    doc = Doc(vocab, words=list(sentence.tokens), spaces=list(sentence.spaces) or [spaces] * size, sent_starts=starts)
    entities = [Span(doc, span.start, span.end, span.label) for span in _trim_whitespace_tokens(sentence, note)]
    _set_entities(doc, entities, set(sentence.missing))
    if overlapping:
        doc.spans[DEFAULT_SPANS_KEY] = entities
    return doc


def text_to_doc(
    tokenizer: Callable[[str], Doc], text: AnnotatedText, *, note: LineNote, overlapping: bool = False
) -> Doc:
    """Tokenize a text and return the annotated Doc.

    Tokens that overlap an entity whose boundaries are not token boundaries get missing annotation.

    note (LineNote): Function that records corrections.
    overlapping (bool): Also write all entities to `doc.spans["sc"]`, including entities that overlap. Texts of which
        only single spans were accepted or rejected are excepted if no span lies inside another, since they don't
        specify which nested entities exist.
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
    _set_entities(doc, entities, _overlapping_tokens(doc, unknown))
    if incorrect:
        doc.spans[INCORRECT] = incorrect
    if overlapping and (dropped or (0, len(text.text)) not in text.missing):
        doc.spans[DEFAULT_SPANS_KEY] = sorted([*entities, *dropped])
    return doc


def _trim_whitespace_tokens(sentence: Sentence, note: LineNote) -> Iterator[EntitySpan]:
    """Yield the entities of a sentence without whitespace tokens at their boundaries, which spaCy doesn't allow."""
    for span in sentence.spans:
        non_space = [index for index in range(span.start, span.end) if not sentence.tokens[index].isspace()]
        line = sentence.line + span.start
        if not non_space:
            note(Event.BLANK, span.label, line)
            continue
        if (non_space[0], non_space[-1] + 1) != (span.start, span.end):
            note(Event.TRIMMED, span.label, line)
        yield EntitySpan(non_space[0], non_space[-1] + 1, span.label)


def _overlapping_tokens(doc: Doc, char_ranges: Sequence[tuple[int, int]]) -> set[int]:
    """Return the indices of tokens that have a character in any of the character ranges."""
    if not char_ranges:
        return set()
    starts = [token.idx for token in doc]
    ends = [token.idx + len(token) for token in doc]
    ranges = (range(bisect_right(ends, start), bisect_left(starts, end)) for start, end in char_ranges)
    return set(chain.from_iterable(ranges))


def _set_entities(doc: Doc, entities: list[Span], missing: set[int]) -> None:
    """Set the entities of a Doc. Tokens in `missing` get missing annotation unless they are in an entity; all others
    are O.
    """
    missing = missing.difference(*(range(span.start, span.end) for span in entities))
    doc.set_ents(entities, missing=[doc[index : index + 1] for index in sorted(missing)], default="outside")


def read_docs(path: Path, vocab: Vocab | None = None) -> Iterator[Doc]:
    """Yield the Docs of a `.spacy` file.

    vocab (Vocab | None): Vocabulary of the Docs. By default, a new one.
    """
    yield from open_docbin(path).get_docs(Vocab() if vocab is None else vocab)


def open_docbin(path: Path) -> DocBin:
    """Read a `.spacy` file. Raises an InputError with the path if the file cannot be read."""
    try:
        return DocBin().from_disk(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except Exception as error:  # zlib and msgpack raise various exceptions for files in other formats.
        raise InputError(str(path), "is not a .spacy file", "Create one with `spacy tener convert`.") from error


def serialize_like(like: DocBin, docs: Iterable[Doc]) -> bytes:
    """Serialize Docs as a `.spacy` file with the same attributes as an existing file.

    like (DocBin): Existing file, whose attributes are used. User data is stored if this file contains any.
    """
    docbin = DocBin(store_user_data=any(data is not None for data in like.user_data))
    docbin.attrs = like.attrs
    for doc in docs:
        docbin.add(doc)
    return docbin.to_bytes()


def write_docs(path: Path, docs: Iterable[Doc]) -> None:
    """Write Docs to a `.spacy` file, including user data such as the labels that a Doc is annotated for.

    An existing file with the same content is not touched, so that its modification time doesn't change and a finished
    training run remains valid.
    """
    data = DocBin(docs=docs, store_user_data=True).to_bytes()
    if not path.is_file() or path.read_bytes() != data:
        write_bytes(path, data)


class CheckedCorpus(Corpus):
    """spaCy's corpus reader, with errors that contain the path of the file."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        """Yield the non-empty Docs of all files, up to the limit."""
        docs = (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))
        return islice(docs, self.limit if self.limit >= 1 else None)


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False, limit: int | None = None) -> list[Example]:
    """Read the examples of a corpus, without a limit on the length of texts.

    gold_preproc (bool): Use the tokens of the corpus instead of the pipeline's tokenizer.
    limit (int | None): Maximum number of examples.
    RAISES (RemedyError): If the corpus is empty.
    """
    nlp.max_length = sys.maxsize
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[W090\]")  # spaCy warns if there are no files. We raise an error below.
        examples = list(islice(CheckedCorpus(path, gold_preproc=gold_preproc)(nlp), limit))
    if not examples:
        raise RemedyError(f"{path}: there are no Docs in .spacy files", "Create them with `spacy tener convert`.")
    return examples
