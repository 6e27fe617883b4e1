"""Generate the sample corpora in assets/sample from the grammar in assets/sample/grammar.

A grammar file has sections of alternatives, one per line or several per line separated by `|`. A character before the
name of a section marks its type:

    [given]      split: each alternative is used in train, dev or test only, so that names in dev and test are unknown
    [=surname]   shared: all alternatives are used in all data sets
    [#news]      sentence patterns of a register: most are shared, some are used in dev or test only

`{given}` is replaced by an alternative of that section. Sections with upper-case names are labels: `{PER}` is an entity
labelled PER, whose parts have no labels. `{city/ORG}` labels an alternative of any section.

Chinese is written as `character TAG` with BMES tags, and English as `token TAG` with IOB2 tags. German is written as
raw text and as JSONL with character offsets, the formats before and after annotation in an annotation tool.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wasabi import msg

PARTS = {"train": 600, "dev": 150, "test": 150}
# Number of German texts. `annotated.jsonl` contains the texts of train, `raw.txt` the texts of train and dev, and
# `test.jsonl` the texts of test.
TEXTS = {"train": 120, "dev": 80, "test": 40}
SEED = 7
# Fraction of the names in dev and test that may also occur in train. Real test sets repeat some names, but not most.
KNOWN_NAME = 0.15
TWO_SENTENCES = 0.15
# The register in which sentences start in lower case.
CASUAL = "social"
SLOT = re.compile(r"\{(\w+)(?:/([A-Z]+))?\}")
HEADER = re.compile(r"\[([=#]?)(\w+)\]")

Sentence = list[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """The alternatives of a section, and the character before its name."""

    mark: str
    alternatives: list[str]


@dataclass(frozen=True)
class Scheme:
    """The tokenization and tagging scheme of a language.

    suffix: Suffix of file names.
    characters: Whether tokens are characters, instead of words separated by spaces.
    begin, inside, last, single: Prefixes of tags.
    texts: Whether sentences form raw texts: a space separates two sentences, and a text contains no entity twice.
    """

    suffix: str
    characters: bool
    begin: str
    inside: str
    last: str
    single: str
    texts: bool = False

    def tokens(self, text: str) -> list[str]:
        return list(text) if self.characters else text.split()

    def tags(self, size: int, label: str) -> list[str]:
        if not label:
            return ["O"] * size
        if size == 1:
            return [f"{self.single}-{label}"]
        return [f"{self.begin}-{label}", *[f"{self.inside}-{label}"] * (size - 2), f"{self.last}-{label}"]


SCHEMES = {
    "zh": Scheme("bmes", characters=True, begin="B", inside="M", last="E", single="S"),
    "en": Scheme("iob2", characters=False, begin="B", inside="I", last="I", single="B"),
}
GERMAN = Scheme("jsonl", characters=True, begin="B", inside="M", last="E", single="S", texts=True)


def read_grammar(path: Path) -> dict[str, Section]:
    sections: dict[str, Section] = {}
    current: list[str] = []
    for line in path.read_text(encoding="utf8").splitlines():
        header = HEADER.fullmatch(line)
        if header is not None:
            current = []
            sections[header[2]] = Section(header[1], current)
        elif line and not line.startswith("# "):
            current.extend(line.split("|"))
    return sections


def deal(alternatives: list[str], train_share: int, rng: random.Random) -> dict[str, list[str]]:
    """Split alternatives between data sets. Train gets `train_share` alternatives for each one in dev and in test."""
    # Dev and test come before the other train entries, so that short lists do not leave them empty.
    owners = ["train", "dev", "test", *["train"] * (train_share - 1)]
    hands: dict[str, list[str]] = {part: [] for part in PARTS}
    for index, alternative in enumerate(rng.sample(alternatives, len(alternatives))):
        hands[owners[index % len(owners)]].append(alternative)
    return hands


class Writer:
    """Generates the sentences of one data set in one language."""

    def __init__(self, sections: dict[str, Section], part: str, scheme: Scheme, seed: int) -> None:
        self.scheme = scheme
        self.rng = random.Random(f"{seed} {part}")
        # All data sets use the same seed here, so that they split the alternatives in the same way.
        dealing = random.Random(seed)
        self.own: dict[str, list[str]] = {}
        self.known: dict[str, list[str]] = {}
        self.registers: dict[str, list[str]] = {}
        for name, section in sections.items():
            if section.mark == "#":
                self.registers[name] = patterns_of(section.alternatives, part, dealing)
                continue
            hands = deal(section.alternatives, 3, dealing) if not section.mark else {}
            self.own[name] = hands.get(part, section.alternatives)
            self.known[name] = hands.get("train", section.alternatives)

    def sentences(self, count: int, taken: set[str]) -> list[Sentence]:
        """Generate new sentences. All patterns are used about equally often.

        count: Number of sentences.
        taken: Texts that must not be generated again. New texts are added.
        """
        sentences: list[Sentence] = []
        while len(sentences) < count:
            for register, pattern in self._round():
                sentence = self._sentence(register, pattern)
                text = " ".join(token for token, _ in sentence)
                if text not in taken and not (self.scheme.texts and repeats_entity(sentence)):
                    taken.add(text)
                    sentences.append(sentence)
        return sentences[:count]

    def _round(self) -> list[tuple[str, str]]:
        pairs = [(name, pattern) for name, patterns in self.registers.items() for pattern in patterns]
        return self.rng.sample(pairs, len(pairs))

    def _sentence(self, register: str, pattern: str) -> Sentence:
        """Expand a pattern. With probability TWO_SENTENCES, a second pattern of the same register is appended."""
        patterns = [pattern]
        if self.rng.random() < TWO_SENTENCES:
            patterns.append(self.rng.choice(self.registers[register]))
        sentence: Sentence = []
        for chosen in patterns:
            if sentence and self.scheme.texts:
                sentence.append((" ", "O"))
            tokens, tags = zip(*self._tokens(chosen), strict=True)
            first = tokens[0] if register == CASUAL else tokens[0][0].upper() + tokens[0][1:]
            sentence.extend(zip([first, *tokens[1:]], tags, strict=True))
        return sentence

    def _tokens(self, pattern: str) -> Iterator[tuple[str, str]]:
        for text, label in self._pieces(pattern):
            tokens = self.scheme.tokens(text)
            yield from zip(tokens, self.scheme.tags(len(tokens), label), strict=True)

    def _pieces(self, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield the parts of a pattern with their labels. The label is "" outside of entities."""
        position = 0
        for slot in SLOT.finditer(pattern):
            yield pattern[position : slot.start()], ""
            name, label = slot.groups()
            yield self._filled(slot[0]), label or (name if name.isupper() else "")
            position = slot.end()
        yield pattern[position:], ""

    def _filled(self, text: str) -> str:
        return SLOT.sub(lambda slot: self._filled(self._choose(slot[1])), text)

    def _choose(self, name: str) -> str:
        is_known = self.rng.random() < KNOWN_NAME
        return self.rng.choice(self.known[name] if is_known else self.own[name])


def patterns_of(alternatives: list[str], part: str, rng: random.Random) -> list[str]:
    """Return the patterns of a data set. Most patterns with placeholders are shared; patterns without any are split."""
    fixed = deal([text for text in alternatives if not SLOT.search(text)], 3, rng)
    filled = deal([text for text in alternatives if SLOT.search(text)], 8, rng)
    held_out = [] if part == "train" else filled[part]
    return [*filled["train"], *held_out, *fixed[part]]


def entities(sentences: list[Sentence]) -> list[tuple[str, str]]:
    """Return the text and label of every entity, in order."""
    found: list[tuple[list[str], str]] = []
    for sentence in sentences:
        for token, tag in sentence:
            prefix, _, label = tag.partition("-")
            if prefix in ("B", "S"):
                found.append(([token], label))
            elif label:
                found[-1][0].append(token)
    return [(" ".join(tokens), label) for tokens, label in found]


def repeats_entity(sentence: Sentence) -> bool:
    mentions = entities([sentence])
    return len(set(mentions)) < len(mentions)


def make_corpus(grammar: Path, scheme: Scheme, seed: int, sizes: dict[str, int] = PARTS) -> dict[str, list[Sentence]]:
    sections = read_grammar(grammar)
    taken: set[str] = set()
    return {part: Writer(sections, part, scheme, seed).sentences(count, taken) for part, count in sizes.items()}


def write_sentences(path: Path, sentences: list[Sentence]) -> None:
    blocks = ["".join(f"{token} {tag}\n" for token, tag in sentence) for sentence in sentences]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(blocks), encoding="utf8", newline="\n")


def write_texts(folder: Path, corpus: dict[str, list[Sentence]], seed: int) -> None:
    """Write raw text with one text per line, and JSONL with character offsets in the format of doccano."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = [text_of(sentence) for part in ("train", "dev") for sentence in corpus[part]]
    random.Random(seed).shuffle(raw)
    contents = {"raw.txt": raw}
    for name, part in (("annotated.jsonl", "train"), ("test.jsonl", "test")):
        records = [{"text": text_of(sentence), "label": offsets(sentence)} for sentence in corpus[part]]
        contents[name] = [json.dumps(record, ensure_ascii=False) for record in records]
    for name, lines in contents.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf8", newline="\n")


def text_of(characters: Sentence) -> str:
    return "".join(character for character, _ in characters)


def offsets(characters: Sentence) -> list[tuple[int, int, str]]:
    """Return the start, end and label of every entity in a sentence of characters with BMES tags."""
    spans = []
    start = 0
    for position, (_, tag) in enumerate(characters):
        prefix, _, label = tag.partition("-")
        if prefix in ("B", "S"):
            start = position
        if prefix in ("E", "S"):
            spans.append((start, position + 1, label))
    return spans


def describe(sentences: list[Sentence], train: list[Sentence]) -> str:
    mentions, in_train = entities(sentences), set(entities(train))
    new = sum(mention not in in_train for mention in mentions) / len(mentions)
    return f"{len(sentences)} sentences, {len(mentions)} entities, {new:.0%} of them not in train"


def main(argv: Sequence[str] | None = None) -> None:
    sample = Path(__file__).parent.parent / "assets" / "sample"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=sample, help="directory for the corpora (default: %(default)s)")
    parser.add_argument("--grammar", type=Path, default=sample / "grammar", help="directory of zh.txt, en.txt, de.txt")
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args(argv)
    for language, scheme in SCHEMES.items():
        corpus = make_corpus(args.grammar / f"{language}.txt", scheme, args.seed)
        for part, sentences in corpus.items():
            path = args.output / language / f"{part}.{scheme.suffix}"
            write_sentences(path, sentences)
            msg.good(f"{language}/{path.name}: {describe(sentences, corpus['train'])}")
    german = make_corpus(args.grammar / "de.txt", GERMAN, args.seed, TEXTS)
    write_texts(args.output / "de", german, args.seed)
    for name, part in (("annotated.jsonl", "train"), ("test.jsonl", "test")):
        msg.good(f"de/{name}: {describe(german[part], german['train'])}")


if __name__ == "__main__":
    main()
