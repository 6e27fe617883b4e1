"""Compare two annotations of the same texts: `review --compare`."""

from __future__ import annotations

import json
from pathlib import Path

import spacy
from command_line import run_tener
from small_corpora import annotated, save_docs

from spacy_tener.corpora.docs import read_docs
from spacy_tener.review.comparison import compare_annotations

TEXT, OTHER = "王小明去了上海", "天气很好"
PER, ORG, GPE = (0, 3, "PER"), (0, 3, "ORG"), (5, 7, "GPE")


def test_differences_between_annotations_are_found_regardless_of_order_and_tokens() -> None:
    docs = [annotated(OTHER), annotated(TEXT, [ORG]), annotated(TEXT, [PER]), annotated("只在这里")]
    words = ["王小明", "去", "了", "上海"]
    others = [annotated(TEXT, [PER, GPE], words), annotated(OTHER), annotated(TEXT, [PER], words)]
    compared = compare_annotations(docs, others)
    assert [(reviewed.number, reviewed.probability) for reviewed in compared] == [(0, 1.0), (1, 0.0), (2, 1.0)]
    found = [(error.kind, [entity.offsets for entity in error.found]) for error in compared[1].suspected_errors]
    assert found == [("label", [PER]), ("missing", [GPE])]


def test_differences_at_missing_annotation_are_ignored() -> None:
    partial = annotated(TEXT, [PER])
    partial.set_ents(list(partial.ents), missing=[partial[5:7]], default="outside")
    complete = annotated(TEXT, [PER, GPE])
    assert [doc.suspected_errors for doc in compare_annotations([partial, complete], [complete, partial])] == [(), ()]


def test_command_ranks_differences_and_its_page_applies_to_the_corpus(tmp_path: Path) -> None:
    docs = [annotated(TEXT, [PER, GPE]), annotated("吴重阳去了长沙", [ORG]), annotated("没有别的标注")]
    corpus = save_docs(tmp_path / "corpus.spacy", *docs)
    other = save_docs(tmp_path / "other.spacy", annotated("吴重阳去了长沙", [PER]), annotated(TEXT, [PER]))
    ran = run_tener("review", corpus, "--compare", other, "--output", tmp_path / "compared")
    assert (ran.code, "2 suspected errors in 2 texts with 3 entities. Compared with" in " ".join(ran.text.split())) == (
        0,
        True,
    )
    assert "does not contain: 1" in ran.text
    lines = (tmp_path / "compared" / "review.jsonl").read_text(encoding="utf8").splitlines()
    # One of three entities has no counterpart in the other annotation, so this difference ranks lower.
    ranked = [(record["kind"], round(record["suspicion"], 3)) for record in map(json.loads, lines)]
    assert ranked == [("label", 1.0), ("extra", 0.333)]
    decisions = tmp_path / "decisions.json"
    decision = {"gold": [ORG], "entities": [PER]}
    decisions.write_text(json.dumps([{"doc": 1, "text": docs[1].text, "decisions": [decision]}]), encoding="utf8")
    ran = run_tener("review", "--apply", decisions, corpus, "--output", tmp_path / "mended.spacy")
    mended = list(read_docs(tmp_path / "mended.spacy", spacy.blank("xx").vocab))
    assert (ran.code, [ent.label_ for ent in mended[1].ents]) == (0, ["PER"])


def test_wrong_arguments_of_compare_are_rejected(tmp_path: Path) -> None:
    corpus = save_docs(tmp_path / "corpus.spacy", annotated(TEXT, [PER]))
    other = save_docs(tmp_path / "other.spacy", annotated(OTHER))
    out = ("--output", tmp_path / "out")
    ran = run_tener("review", corpus, "--compare", other, *out)
    assert (ran.code, "contains none of the texts in" in ran.text) == (1, True)
    ran = run_tener("review", "weibo", corpus, "--compare", other, *out)
    assert (ran.code, "--compare needs no model" in ran.text) == (2, True)
    ran = run_tener("review", corpus, "--compare", other, "--folds", "2", *out)
    assert (ran.code, "--folds: has no effect with --compare" in " ".join(ran.text.split())) == (2, True)
    ran = run_tener("review", corpus, "--compare", other, "--apply", other, *out)
    assert (ran.code, "--compare: has no effect with --apply" in " ".join(ran.text.split())) == (2, True)
