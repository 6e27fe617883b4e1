"""Convert a corpus of project.yml from its files below assets/ to project/corpus/NAME/{train,dev,test}.spacy.

Universal NER has one file per language. The languages are concatenated in train, dev and test. The test set of each
language is also written to languages/, together with the PUD test sets, which have no training set.

The corpus `names` adds nine languages, whose files `names_corpora.py` derives from their sources, and more English. At
most MAX_SENTENCES of each language are used for training. The development set of each language is also written to
languages-dev/, so that a training can be chosen by its average F1 over all languages.

If a corpus has no development set, the last tenth of its training set is used. A random sample would be easier than the
test set, because adjacent sentences often come from the same article.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab
from wasabi import msg

from spacy_tener.cli.spacy_command import app
from spacy_tener.corpora.docs import read_docs

sys.path.append(str(Path(__file__).parents[1]))  # `python research/convert_corpus.py` only has research/ in its path
from research.conll2012 import write_columns
from research.names_corpora import derive_corpora

# The labels that all languages have. Croatian has further labels.
UNER_LABELS = frozenset({"PER", "LOC", "ORG"})
ASSETS, CORPORA_DIR, HELD_OUT = Path("assets"), Path("project", "corpus"), 0.1
# Maximum number of training sentences per language in the corpus `names`. A larger set is sampled.
MAX_SENTENCES = 6000


@dataclass(frozen=True)
class Corpus:
    """Location of a corpus below assets/, and its language.

    lang (str): Language code of spaCy.
    train, dev, test (str): File of each set, or a directory for OntoNotes 5 and Universal NER. `dev` is None if the
        corpus has no development set.
    licensed (bool): Whether users need to provide their own copy.
    """

    lang: str
    train: str
    dev: str | None
    test: str
    licensed: bool = False

    @property
    def parts(self) -> dict[str, Path]:
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return {part: ASSETS / place for part, place in parts.items() if place}


CORPORA = {
    "sample": Corpus("zh", "sample/zh/train.bmes", "sample/zh/dev.bmes", "sample/zh/test.bmes"),
    "sample_en": Corpus("en", "sample/en/train.iob2", "sample/en/dev.iob2", "sample/en/test.iob2"),
    "weibo": Corpus(
        "zh", "weibo/weiboNER_2nd_conll.train", "weibo/weiboNER_2nd_conll.dev", "weibo/weiboNER_2nd_conll.test"
    ),
    "resume": Corpus("zh", "resume/train.char.bmes", "resume/dev.char.bmes", "resume/test.char.bmes"),
    "msra": Corpus("zh", "msra/train.char.bmes", None, "msra/test.char.bmes", licensed=True),
    "ontonotes4": Corpus(
        "zh", "ontonotes4/train.char.bmes", "ontonotes4/dev.char.bmes", "ontonotes4/test.char.bmes", licensed=True
    ),
    "ontonotes5": Corpus("en", "ontonotes5/train", "ontonotes5/dev", "ontonotes5/test", licensed=True),
    "conll2003": Corpus("en", "conll2003/eng.train", "conll2003/eng.testa", "conll2003/eng.testb", licensed=True),
    "wnut17": Corpus("en", "wnut17/wnut17train.conll", "wnut17/emerging.dev.conll", "wnut17/emerging.test.annotated"),
    "multilingual": Corpus("xx", "uner/train", "uner/dev", "uner/test"),
    # The other files of this corpus are listed in names_corpora.py.
    "names": Corpus("xx", "uner/train", "uner/dev", "uner/test"),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    name = parser.parse_args(argv).corpus
    corpus = CORPORA[name]
    missing = [str(place) for place in corpus.parts.values() if not place.exists()]
    if missing:
        folder = "names" if name == "names" else next(iter(corpus.parts.values())).relative_to(ASSETS).parts[0]
        fix = f"Run `python research/fetch_corpus.py {folder}` to download them."
        if corpus.licensed:
            fix = "The corpus is licensed: put your copy there. assets/README.md says where it comes from."
        msg.fail(f"Missing: {', '.join(missing)}", fix, exits=1)
    if name == "multilingual":
        convert_languages(corpus.parts, CORPORA_DIR / name)
        return
    if name == "names":
        derive_corpora()
        convert_names(CORPORA_DIR / name)
        return
    for part, place in corpus.parts.items():
        output = CORPORA_DIR / name / f"{part}.spacy"
        with as_file(place) as source:
            app(
                ["tener", "convert", str(source), "-o", str(output), "--lang", corpus.lang, "--force"],
                standalone_mode=False,
            )
    if corpus.dev is None:
        hold_out(CORPORA_DIR / name / "train.spacy", CORPORA_DIR / name / "dev.spacy")


def convert_languages(parts: Mapping[str, Path], output: Path) -> None:
    """Convert directories with one file per language, and concatenate the Docs of all languages."""
    pud = {"pud": ASSETS / "uner" / "pud"} if (ASSETS / "uner" / "pud").exists() else {}
    for part, place in {**parts, **pud}.items():
        read = read_languages(place)
        if part in parts:
            write_docs([doc for docs in read.values() for doc in docs], output / f"{part}.spacy")
        if part in ("test", "pud"):
            for language, docs in read.items():
                name = language if part == "test" else f"{language}-pud"
                write_docs(docs, output / "languages" / f"{name}.spacy")


def convert_names(output: Path) -> None:
    """Convert Universal NER and the languages of `names_corpora.py`, and balance the training set.

    Training sentences that also occur in the development or test set of their language are removed.
    """
    sets = {
        part: {**read_languages(ASSETS / "uner" / part), **read_languages(ASSETS / "names" / part)}
        for part in ("train", "dev", "test")
    }
    for language, docs in sets["train"].items():
        evaluated = {doc.text for part in ("dev", "test") for doc in sets[part].get(language, [])}
        kept = [doc for doc in docs if doc.text not in evaluated]
        if len(kept) > MAX_SENTENCES:
            kept = random.Random(0).sample(kept, MAX_SENTENCES)
        sets["train"][language] = kept
    for part, languages in sets.items():
        write_docs([doc for docs in languages.values() for doc in docs], output / f"{part}.spacy")
    for part, folder in (("dev", "languages-dev"), ("test", "languages")):
        for language, docs in sets[part].items():
            write_docs(docs, output / folder / f"{language}.spacy")
    for language, docs in read_languages(ASSETS / "uner" / "pud").items():
        write_docs(docs, output / "languages" / f"{language}-pud.spacy")


def read_languages(place: Path) -> dict[str, list[Doc]]:
    """Convert a directory with one file per language, and return the Docs by language. Other labels are removed."""
    if not place.exists():
        return {}
    with TemporaryDirectory() as folder:
        app(
            ["tener", "convert", str(place), "-o", folder, "--lang", "xx", "--tag-column", "3"],
            standalone_mode=False,
        )
        read = {path.stem: list(read_docs(path)) for path in sorted(Path(folder).glob("*.spacy"))}
    for docs in read.values():
        keep_labels(docs, UNER_LABELS)
    return read


def keep_labels(docs: Sequence[Doc], labels: Collection[str]) -> None:
    """Remove entities with other labels. All remaining tokens are annotated as outside of entities."""
    for doc in docs:
        doc.set_ents([entity for entity in doc.ents if entity.label_ in labels], default="outside")


def write_docs(docs: Sequence[Doc], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    DocBin(docs=docs, attrs=["ENT_IOB", "ENT_TYPE", "SENT_START"]).to_disk(path)
    msg.good(f"{path}: {len(docs):,} Docs")


@contextmanager
def as_file(place: Path) -> Iterator[Path]:
    """Yield the file of a data set. A directory contains OntoNotes in the format of CoNLL-2012, and is converted to a
    temporary file."""
    if not place.is_dir():
        yield place
        return
    with TemporaryDirectory() as folder:
        path = Path(folder, f"{place.name}.txt")
        write_columns(place, path)
        yield path


def hold_out(train: Path, dev: Path, share: float = HELD_OUT) -> None:
    """Move the last Docs of a converted training set to a development set."""
    binary = DocBin().from_disk(train)
    docs = list(binary.get_docs(Vocab()))
    first = len(docs) - max(1, int(share * len(docs)))
    for part, path in ((docs[first:], dev), (docs[:first], train)):
        DocBin(docs=part, attrs=binary.attrs).to_disk(path)
    msg.good(f"The last {len(docs) - first:,} of {len(docs):,} Docs of {train} are held out: {dev}")


if __name__ == "__main__":
    main()
