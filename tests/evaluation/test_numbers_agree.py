"""Test that the output of `evaluate`, its JSON file and its page contain the same counts and scores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import run_tener
from spacy.tokens import Doc, DocBin

from research.scores import read_scores, total

SENTENCES = [
    ("吴重阳在中国银行工作。", [(0, 3, "PER"), (4, 8, "ORG")]),
    ("王小明去了上海 很好", [(0, 3, "PER"), (5, 7, "GPE")]),
    ("北京大学的王小明在上海银行", [(0, 2, "GPE"), (2, 4, "ORG"), (5, 8, "PER"), (9, 13, "ORG")]),
    ("今天天气很好", []),
    ("张三去了中国上海市", [(0, 2, "PER"), (4, 6, "GPE"), (6, 8, "GPE")]),
]
WORDS = ["吴重", "王小明去", "中国", "银行工作", "上海银行", "天气", "去了", "上海市", "北京大学"]


def segment(vocab: Any, text: str, words: list[str]) -> Doc:
    parts = re.findall("|".join([*words, "."]), text)
    return Doc(vocab, words=parts, spaces=[False] * len(parts))


@pytest.fixture(params=["tener", "characters"], ids=["tokens", "characters"])
def model(request: pytest.FixtureRequest, saved: dict[str, Path]) -> Path:
    """Return a pipeline that was trained on some of the sentences."""
    return saved[request.param]


def corpus(path: Path, *, gold_words: list[str]) -> Path:
    """Write the sentences with entities at token boundaries, and a partly annotated copy of the last sentence."""
    vocab, data = spacy.blank("zh").vocab, DocBin()
    for text, entities in SENTENCES:
        doc = segment(vocab, text, gold_words)
        spans = [doc.char_span(*entity[:2], label=entity[2]) for entity in entities]
        doc.set_ents([span for span in spans if span], default="outside")
        data.add(doc)
    doc.set_ents([], missing=[doc[0:2]], default="unmodified")
    data.add(doc)
    data.to_disk(path)
    return path


@pytest.mark.filterwarnings("ignore:.*will probably find few entities")
@pytest.mark.parametrize("gold_words", [[], WORDS], ids=["gold of characters", "gold of words"])
@pytest.mark.parametrize("gold_preproc", [False, True], ids=["own tokens", "gold tokens"])
@pytest.mark.parametrize("words", [[], WORDS], ids=["characters", "words"])
def test_printed_scores_equal_json_and_page(
    model: Path, words: list[str], gold_words: list[str], gold_preproc: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    from spacy.lang.zh import ChineseTokenizer

    monkeypatch.setattr(ChineseTokenizer, "__call__", lambda self, text: segment(self.vocab, text, words))
    data = corpus(tmp_path / "test.spacy", gold_words=gold_words)
    run = tmp_path / "corpus" / "system" / "1"
    run.mkdir(parents=True)
    arguments = ["-o", run / "metrics.json", "--page", tmp_path / "errors.html", *(["-G"] if gold_preproc else [])]
    printed = run_tener("evaluate", model, data, *arguments)
    assert printed.code == 0, printed.text
    scores = read_scores(run / "metrics.json")
    assert scores.counts
    assert scores.docs

    def row(score: Any) -> list[str]:
        return [f"{100 * part:.2f}" for part in (score.p, score.r, score.f)]

    # JSON: the counts of labels and documents yield the scores.
    overall = total(scores.counts.values())
    assert row(overall.score) == row(scores.overall)
    assert total(scores.docs) == overall
    assert {label: row(count.score) for label, count in scores.counts.items()} == {
        label: row(score) for label, score in scores.labels.items()
    }
    # Printed scores.
    assert " ".join(["All", *row(scores.overall), str(overall.gold)]) in printed.lines
    for label, score in scores.labels.items():
        assert " ".join([label, *row(score), str(scores.counts[label].gold)]) in printed.lines
    # Page: the table of scores, and the texts.
    page = (tmp_path / "errors.html").read_text(encoding="utf8")
    shown = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert {label: (p, r, f, tuple(count)) for label, p, r, f, count in shown["scores"]} == {
        "All": (*vars(scores.overall).values(), tuple(overall)),
        **{label: (*vars(score).values(), tuple(scores.counts[label])) for label, score in scores.labels.items()},
    }
    for (_, pairs), count in zip(shown["texts"], scores.docs, strict=True):
        annotated = [(gold, found) for gold, found, _ in pairs if gold != 0]
        right = sum(gold == found for gold, found in annotated)
        assert right == count.tp
        assert sum(found is not None for _, found in annotated) == count.tp + count.fp
        assert sum(gold is not None for gold, _ in annotated) == count.gold
        assert all(sure is None or 0 < sure <= 1 for _, _, sure in pairs)


def test_sentences_have_correct_and_wrong_predictions(model: Path, tmp_path: Path) -> None:
    data = corpus(tmp_path / "test.spacy", gold_words=[])
    run_tener("evaluate", model, data, "-o", tmp_path / "m.json")
    counts = read_scores(tmp_path / "m.json").counts
    assert counts
    assert all(total(counts.values())), counts
