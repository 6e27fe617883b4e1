"""Entities with Latin letters in Chinese text: words kept whole or not, tokens of letters or of Latin words.

    python research/benchmarks/latin.py --data corpus --work training/forms

It trains TENER as `forms.py` does, whose runs with `simplify` it uses if they are in the same directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import _latin_words
import _report
import forms
import spacy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc, DocBin

HAS_LETTER = re.compile(f"[{_latin_words.LATIN}]").search
PARTS = ("dev", "test")
NOTE = (
    "TENER, chosen on dev; mean ± standard deviation over seeds 1, 2 and 3. Resume: 800 steps; Weibo: its config's "
    "schedule. Latin: precision, recall and F1 of entities with a Latin letter in them. Cut: entities found that begin "
    "or end within a Latin word. Whole words: no entity may, as pipelines decode by default. Tokens of Latin words: "
    "each word is one token, in training too."
)
Entity = tuple[int, int, int, str]


def main() -> None:
    args = _report.training_parser(__doc__, "CORPUS/{train,dev,test}.spacy").parse_args()
    rows = []
    code = ("--code", Path(_latin_words.__file__).resolve(), *_report.overrides(_latin_words.SETTING))
    for corpus in forms.STEPS:
        for tokens, name, options in (("letters", "simplify-true", ()), ("Latin words", "latin-words", code)):
            models = forms.train(args, corpus, name, *_report.overrides(f"{forms.SETTING}=true"), *options)
            for whole in (False, True) if tokens == "letters" else (True,):
                scores = [score(spacy.load(model), args.data / corpus, whole=whole) for model in models]
                columns = (_report.mean_sd(column) for column in zip(*scores, strict=True))
                rows.append([corpus, tokens, "yes" if whole else "no", *columns])
    header = [f"{part}: {column}" for part in PARTS for column in ("F1", "Latin P", "Latin R", "Latin F1", "cut")]
    table = _report.table(("corpus", "tokens", "whole words", *header), rows)
    _report.write(_report.RESULTS / "latin.md", "Latin words in Chinese text", NOTE, table)


def score(nlp: Language, data: Path, *, whole: bool) -> list[float]:
    """Return F1, precision, recall and F1 of Latin entities in percent, and entities that cut a word, for each part."""
    pipe = nlp.get_pipe("tener_ner")
    # As if all edges of training were within words: then nothing is forbidden.
    pipe.cfg["latin_edges"] = {} if whole else {label: [1, 0] for label in pipe.labels}
    row: list[float] = []
    for part in PARTS:
        docs = list(DocBin().from_disk(data / f"{part}.spacy").get_docs(nlp.vocab))
        gold, found = entities(docs), entities(nlp.pipe(doc.text for doc in docs))
        latin = ({entity for entity in group if HAS_LETTER(text_of(docs, entity))} for group in (gold, found))
        everything, of_latin = prf(gold, found), prf(*latin)
        cut = sum(is_cut(docs[i].text, edge) for i, *edges, _ in found for edge in edges)
        row += [everything[-1], *of_latin, cut]
    return row


def entities(docs: Iterable[Doc]) -> set[Entity]:
    return {(i, ent.start_char, ent.end_char, ent.label_) for i, doc in enumerate(docs) for ent in doc.ents}


def text_of(docs: list[Doc], entity: Entity) -> str:
    i, start, end, _ = entity
    return docs[i].text[start:end]


def is_cut(text: str, edge: int) -> bool:
    return 0 < edge < len(text) and bool(HAS_LETTER(text[edge - 1]) and HAS_LETTER(text[edge]))


def prf(gold: set[Entity], found: set[Entity]) -> list[float]:
    scores = PRFScore()
    scores.score_set(found, gold)
    return [100 * value for value in (scores.precision, scores.recall, scores.fscore)]


if __name__ == "__main__":
    main()
