"""Measure entities with Latin letters in Chinese texts: with and without the rule that Latin words are not split.

    python research/benchmarks/latin.py --data corpus --work training/forms --posts zh-weibo-posts.txt.xz

Also compares tokens of single letters with tokens of Latin words. The models are trained as in `forms.py`, and its
models with `simplify` are used if they are in the same directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import _latin_words
import _report
import forms
import numpy as np
import spacy
from entity_lists import read_texts
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_tener.pipeline import lac

HAS_LETTER = re.compile(f"[{_latin_words.LATIN}]").search
PARTS = ("dev", "test")
YES = {True: "yes", False: "no"}
NOTE = (
    "TENER, chosen on dev; mean ± standard deviation over seeds 1, 2 and 3. Resume: 800 steps; Weibo: its config's "
    "schedule. Latin: precision, recall and F1 of entities with a Latin letter in them. Cut: entities found that begin "
    "or end within a Latin word. Whole words: no entity may, as pipelines decode by default. Tokens of Latin words: "
    "each word is one token, in training too. Seconds: CPU time in which a pipeline of the first seed reads the test "
    "part with and without that rule, median of 30 rounds in turns."
)
LAC_NOTE = (
    "The component `lac` on the first {posts:,} posts that have four Latin letters in a row. Cut words: words of LAC "
    "that begin within a Latin word. Cut entities: entities that begin or end within one. Seconds: as above, on the "
    "first 200 of these posts."
)
POSTS, TIMED = 1500, 200


def main() -> None:
    parser = _report.training_parser(__doc__, "CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--posts", type=Path, required=True, help="raw texts, one on each line, as .xz")
    args = parser.parse_args()
    rows = []
    code = ("--code", Path(_latin_words.__file__).resolve(), *_report.overrides(_latin_words.SETTING))
    for corpus in forms.STEPS:
        for tokens, name, options in (("letters", "simplify-true", ()), ("Latin words", "latin-words", code)):
            models = forms.train(args, corpus, name, *_report.overrides(f"{forms.SETTING}=true"), *options)
            ways = {
                keeps_words: decoding(spacy.load(models[0]), keeps_words=keeps_words) for keeps_words in (False, True)
            }
            seconds = dict(zip(ways, forms.speeds(ways, args.data / corpus), strict=True))
            for keeps_words in (False, True) if tokens == "letters" else (True,):
                scores = [
                    score(decoding(spacy.load(model), keeps_words=keeps_words), args.data / corpus) for model in models
                ]
                columns = (_report.mean_sd(column) for column in zip(*scores, strict=True))
                rows.append([corpus, tokens, YES[keeps_words], *columns, f"{seconds[keeps_words]:.3f}"])
    header = [f"{part}: {column}" for part in PARTS for column in ("F1", "Latin P", "Latin R", "Latin F1", "cut")]
    table = _report.table(("corpus", "tokens", "whole words", *header, "seconds"), rows)
    posts = [post for post in read_texts(args.posts) if re.search("[A-Za-z]{4}", post)][:POSTS]
    note = LAC_NOTE.format(posts=len(posts))
    _report.write(_report.RESULTS / "latin.md", "Latin words in Chinese text", NOTE, table, note, lac_table(posts))


def lac_table(posts: list[str]) -> str:
    """Count the words and entities of the component `lac` that split a Latin word, with and without the rule."""
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")

    def read(texts: list[str], *, keeps_words: bool) -> list[Doc]:
        with nullcontext() if keeps_words else patch.object(lac, "word_continuations", np.zeros_like):
            return list(nlp.pipe(texts))

    tasks = {keeps_words: partial(read, posts[:TIMED], keeps_words=keeps_words) for keeps_words in (False, True)}
    seconds = _report.median_seconds(tasks, forms.ROUNDS)
    rows = []
    for keeps_words in (False, True):
        docs = read(posts, keeps_words=keeps_words)
        words = sum(is_cut(doc.text, word.start_char) for doc in docs for word in doc.spans["lac"])
        cut = sum(
            is_cut(doc.text, ent.start_char) or is_cut(doc.text, ent.end_char) for doc in docs for ent in doc.ents
        )
        rows.append(["lac", YES[keeps_words], str(words), str(cut), f"{seconds[keeps_words]:.3f}"])
    return _report.table(("component", "whole words", "cut words", "cut entities", "seconds"), rows)


def decoding(nlp: Language, *, keeps_words: bool) -> Language:
    """Enable or disable the rule that Latin words are not split."""
    pipe = nlp.get_pipe("tener_ner")
    # To disable the rule, pretend that all entity boundaries in the training set were inside Latin words.
    pipe.cfg["latin_edges"] = {} if keeps_words else {label: [1, 0] for label in pipe.labels}
    return nlp


def score(nlp: Language, data: Path) -> list[float]:
    """Return the scores on each data set: F1, precision, recall and F1 of entities with Latin letters (in percent), and
    the number of entity boundaries inside Latin words."""
    row: list[float] = []
    for part in PARTS:
        docs = list(DocBin().from_disk(data / f"{part}.spacy").get_docs(nlp.vocab))
        gold, found = entities(docs), entities(nlp.pipe(doc.text for doc in docs))
        latin = ({entity for entity in group if HAS_LETTER(text_of(docs, entity))} for group in (gold, found))
        everything, of_latin = _report.prf(gold, found), _report.prf(*latin)
        cut = sum(is_cut(docs[i].text, edge) for i, *edges, _ in found for edge in edges)
        row += [everything[-1], *of_latin, cut]
    return row


def entities(docs: Iterable[Doc]) -> set[_report.Entity]:
    return {(i, ent.start_char, ent.end_char, ent.label_) for i, doc in enumerate(docs) for ent in doc.ents}


def text_of(docs: list[Doc], entity: _report.Entity) -> str:
    i, start, end, _ = entity
    return docs[i].text[start:end]


def is_cut(text: str, edge: int) -> bool:
    return 0 < edge < len(text) and bool(HAS_LETTER(text[edge - 1]) and HAS_LETTER(text[edge]))


if __name__ == "__main__":
    main()
