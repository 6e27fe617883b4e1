"""Test the commands `suggest` and `review`: input, output files, and resumption."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import spacy
from command_line import run_tener
from small_corpora import save_corpus
from spacy.cli.train import train as spacy_train
from spacy.language import Language
from spacy.training import Example
from tiny_trainings import code_options, make_config, tener, write_corpus

from spacy_tener.corpora.docs import read_docs
from spacy_tener.corpora.folds import assign_folds, text_key
from spacy_tener.errors import UserError, pluralize
from spacy_tener.evaluation.scores import CountingScorer
from spacy_tener.pipeline.tokenizer import CharTokenizer
from spacy_tener.training.runs import Processes

TEXTS = ["王小明去了上海", "今天天气很好", "吴重阳去了中国银行", "李雷喜欢长沙", "京"]


def call(*arguments: object) -> tuple[int, str]:
    ran = run_tener(*arguments)
    return ran.code, ran.text


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipeline") / "model"


@pytest.fixture
def model(saved: Path, train: Callable[..., Language]) -> Path:
    if not saved.is_dir():
        nlp = train()
        pipe: Any = nlp.get_pipe("tener_ner")
        pipe.cfg["temperature"] = 2.0  # Reduce the confidence of the overfitted model.
        nlp.to_disk(saved)
    return saved


@pytest.fixture
def raw_texts(tmp_path: Path) -> Path:
    path = tmp_path / "raw_texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf8")
    return path


# suggest


@pytest.mark.parametrize("format", ["doccano", "prodigy"])
def test_suggestions_can_be_converted_to_docs(model: Path, raw_texts: Path, tmp_path: Path, format: str) -> None:
    options = () if format == "doccano" else ("--format", format)  # The extension determines the format.
    code, text = call("suggest", model, raw_texts, "-o", tmp_path / "a.jsonl", "-n", "3", *options)
    assert (code, f"3 texts to annotate in {format}" in text) == (0, True)
    assert call("convert", tmp_path / "a.jsonl", "-o", tmp_path / "back.spacy", "--lang", "zh")[0] == 0
    nlp, docs = spacy.load(model), list(read_docs(tmp_path / "back.spacy"))
    assert len(docs) == 3
    for doc in docs:
        assert [str(ent) for ent in doc.ents] == [str(ent) for ent in nlp(doc.text).ents]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems require UTF-8 file names")
def test_page_shows_escaped_non_utf8_file_name(model: Path, raw_texts: Path, tmp_path: Path) -> None:
    named = raw_texts.rename(os.fsdecode(os.fsencode(tmp_path) + "/新闻.jsonl".encode("gb18030")))
    code, _ = call("suggest", model, named, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf8")
    assert (code, "王小明去了上海" in page, "\\udcd0\\udcc2\\udcce\\udcc5.jsonl" in page) == (0, True, True)


def test_label_studio_without_model_needs_labels(raw_texts: Path, tmp_path: Path) -> None:
    arguments = "suggest", "blank:zh", raw_texts, "-o", tmp_path / "a.json"
    ran = run_tener(*arguments)
    assert ran.code == 2
    assert "Add --labels" in ran.text
    assert not list(tmp_path.glob("a*"))
    assert run_tener(*arguments, "--labels", "SKILL").code == 0
    assert 'value="SKILL"' in (tmp_path / "a-interface.xml").read_text(encoding="utf8")


def test_label_studio_tasks_get_interface_file(model: Path, raw_texts: Path, tmp_path: Path) -> None:
    assert call("suggest", model, raw_texts, "-o", tmp_path / "a.json")[0] == 0
    assert len(json.loads((tmp_path / "a.json").read_text(encoding="utf8"))) == len(TEXTS)
    assert 'value="ORG"' in (tmp_path / "a-interface.xml").read_text(encoding="utf8")
    options = ("--format", "labelstudio", "--labels", "PER,OTHER")
    assert call("suggest", model, raw_texts, "-o", tmp_path / "b.json", *options)[0] == 0
    tasks = (tmp_path / "b.json").read_text(encoding="utf8")
    assert '"PER"' in tasks
    assert '"ORG"' not in tasks


def test_annotation_page_contains_predictions_or_no_entities(model: Path, raw_texts: Path, tmp_path: Path) -> None:
    assert call("suggest", model, raw_texts, "-o", tmp_path / "a.html")[0] == 0
    page = (tmp_path / "a.html").read_text(encoding="utf8")
    assert '"stands":"found"' in page
    assert '"labels":["GPE","ORG","PER"]' in page
    assert '[[],[[0,3,"PER",' in page
    options = ("--format", "page", "--labels", "PER,书", "-n", 3)
    assert call("suggest", "blank:zh", raw_texts, "-o", tmp_path / "b.html", *options)[0] == 0
    page = (tmp_path / "b.html").read_text(encoding="utf8")
    assert '"labels":["PER","书"]' in page
    assert page.count('"questions":[]') == 3
    assert '<ol id="list" lang="zh"' in page


def test_command_on_annotation_page_converts_texts_of_any_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("Анна живёт в Москве", encoding="utf8")
    assert call("suggest", "blank:xx", "texts.txt", "-o", "page.html", "--labels", "LOC")[0] == 0
    (command,) = re.findall(r'"next":"python -m spacy tener ([^"]*)"', Path("page.html").read_text(encoding="utf8"))
    decisions = [{"text": "Анна живёт в Москве", "spans": [{"start": 13, "end": 19, "label": "LOC"}]}]
    Path("decisions.json").write_text(json.dumps(decisions), encoding="utf8")
    code, printed = call(*command.split())
    assert (code, command) == (0, "convert decisions.json --output annotated.spacy --lang xx"), printed
    (doc,) = read_docs(Path("annotated.spacy"))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Москве", "LOC")]


@pytest.mark.parametrize("words", [True, False])
def test_command_on_annotation_page_keeps_entities_inside_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Callable[..., Language], words: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    nlp = train(steps=0, view="characters" if words else "tokens")
    if not words:
        nlp.tokenizer = CharTokenizer(nlp.vocab)
    nlp.to_disk("model")
    Path("texts.txt").write_text("Excelkenntnisse gesucht", encoding="utf8")
    assert call("suggest", "model", "texts.txt", "-o", "page.html")[0] == 0
    (command,) = re.findall(r'"next":"python -m spacy tener ([^"]*)"', Path("page.html").read_text(encoding="utf8"))
    decisions = [{"text": "Excelkenntnisse gesucht", "spans": [{"start": 0, "end": 5, "label": "PER"}]}]
    Path("decisions.json").write_text(json.dumps(decisions), encoding="utf8")
    assert call(*command.split())[0] == 0
    (doc,) = read_docs(Path("annotated.spacy"))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("Excel", "PER")]


@pytest.mark.parametrize(
    ("name", "metadata"), [("a.jsonl", None), ("a.json", "data"), ("p.jsonl", "meta"), ("a.html", None)]
)
def test_suggestions_keep_text_and_record_id(tmp_path: Path, name: str, metadata: str | None) -> None:
    forms = tmp_path / "forms.jsonl"
    forms.write_text(json.dumps({"text": "姓名\t王小明\n籍贯\t上海", "id": "form 7"}), encoding="utf8")
    options = {"a.jsonl": (), "p.jsonl": ("--format", "prodigy")}.get(name, ("--labels", "PER"))
    assert call("suggest", "blank:zh", forms, "-o", tmp_path / name, *options)[0] == 0
    written = (tmp_path / name).read_text(encoding="utf8")
    if name == "a.html":
        assert '"record_id":"form 7","text":"姓名\\t王小明\\n籍贯\\t上海"' in written
        return
    record = json.loads(written)
    record = record[0] if isinstance(record, list) else record
    assert (record[metadata] if metadata else record)["record_id"] == "form 7"
    assert (record["data"] if metadata == "data" else record)["text"] == "姓名\t王小明\n籍贯\t上海"


# review


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run training runs in this process, and return a list to which their folds are added."""
    trained_folds: list[str] = []

    def run(self: Processes, arguments: Sequence[str], log: Path) -> int:
        spacy_train(Path(arguments[1]), Path(arguments[3]))
        trained_folds.append(Path(arguments[3]).name)
        return 0

    monkeypatch.setattr(Processes, "run", run)
    return trained_folds


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for part in ("train", "dev"):
        write_corpus(tmp_path / f"{part}.spacy")
    make_config(tmp_path, tener(), max_steps=4, eval_frequency=2).to_disk(tmp_path / "my.cfg")
    return tmp_path / "my.cfg"


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]


def test_review_uses_models_trained_on_other_folds(tmp_path: Path, config: Path, trained: list[str]) -> None:
    out = tmp_path / "out"
    code, text = call("review", config, tmp_path / "train.spacy", "-o", out, "--folds", "2", *code_options(tmp_path))
    assert (code, sorted(trained)) == (0, ["1", "2"]), text
    parts = [{doc.text for doc in read_docs(out / "folds" / fold / "train.spacy")} for fold in ("1", "2")]
    docs = records(out / "docs.jsonl")
    assert parts[0] & parts[1] == set()
    assert parts[0] | parts[1] == {doc["text"] for doc in docs}
    for doc in docs:
        fold = "1" if doc["text"] not in parts[0] else "2"
        nlp = spacy.load(out / "folds" / fold / "model-best")
        ner: Any = nlp.get_pipe("tener_ner")
        sequences = next(ner.decode([nlp.make_doc(doc["text"])])).k_best(3)
        probabilities = [r.probability for r in sequences]
        assert doc["probability"] <= probabilities[0] + 1e-6
    assert records(out / "review.jsonl")
    assert '"stands":"gold"' in (out / "review.html").read_text(encoding="utf8")


def test_review_scores_predictions_of_all_folds(tmp_path: Path, config: Path, trained: list[str]) -> None:
    out = tmp_path / "out"
    code, text = call(
        "review", config, tmp_path / "train.spacy", "-o", out, "--folds", "2", "--learning-curve",
        "--set", "training.max_steps=30", "--set", "training.eval_frequency=10",
    )  # fmt: skip
    assert (code, sorted(trained)) == (0, ["1", "1", "1", "2", "2", "2"]), text
    assert "Cross-validated" in text
    assert "texts changed F1 by" in text
    written = json.loads((out / "scores.json").read_text(encoding="utf8"))
    docs = list(read_docs(tmp_path / "train.spacy"))
    folds = assign_folds(docs, 2)
    counts, of_folds = [], []
    for fold in range(2):
        nlp = spacy.load(out / "folds" / str(fold + 1) / "model-best")
        examples = [Example(nlp.make_doc(doc.text), doc) for doc, i in zip(docs, folds, strict=True) if i == fold]
        scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
        counts += [list(count.values()) for count in scores["ents_counts"].values()]
        of_folds.append(scores["ents_f"])
    tp, fp, fn = (sum(column) for column in zip(*counts, strict=True))
    total = written["scores"]["All"]
    assert tp > 0
    assert (total["p"], total["r"]) == pytest.approx((tp / (tp + fp), tp / (tp + fn)))
    assert total["f"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert total["f_std"] == pytest.approx(stdev(of_folds))
    assert total["n_entities"] == tp + fn == sum(len(doc.ents) for doc in docs)
    assert sum(written["scores"][label]["n_entities"] for label in written["scores"] if label != "All") == tp + fn
    quarter, half, complete = written["learning_curve"]
    assert complete == {"texts": round(len(docs) / 2), "f": total["f"], "f_std": total["f_std"]}
    assert (quarter["texts"], half["texts"]) == (round(len(docs) / 8), round(len(docs) / 4))
    parts = [{doc.text for doc in read_docs(out / f"folds{name}" / "1" / "train.spacy")} for name in ("-25", "-50", "")]
    assert parts[0] < parts[1] < parts[2]


def test_review_resumes_and_rejects_changed_settings(tmp_path: Path, config: Path, trained: list[str]) -> None:
    command = ["review", config, tmp_path / "train.spacy", "-o", tmp_path / "out", "--folds", "2"]
    assert call(*command)[0] == 0
    before = (tmp_path / "out" / "review.jsonl").read_bytes()
    (tmp_path / "out" / "folds" / "2" / "_manifest.json").unlink()
    trained.clear()
    assert call(*command)[0] == 0
    assert trained == ["2"]
    assert (tmp_path / "out" / "review.jsonl").read_bytes() == before
    code, text = call(*command, "--set", "training.max_steps=2")
    assert (code, "training.max_steps: was 4, is 2" in text, trained) == (1, True, ["2"])


def test_review_with_trained_pipeline_recommends_config(tmp_path: Path, model: Path) -> None:
    write_corpus(tmp_path / "gold.spacy", 4)
    code, text = call("review", model, tmp_path / "gold.spacy", "-o", tmp_path / "out")
    assert (code, "To find these errors, use its config instead" in text) == (0, True)
    assert len(records(tmp_path / "out" / "docs.jsonl")) == 4
    suspicions = [record["suspicion"] for record in records(tmp_path / "out" / "review.jsonl")]
    assert suspicions == sorted(suspicions, reverse=True)
    assert f"{pluralize(len(suspicions), 'suspected error')} in 4 texts with " in text
    nlp = spacy.load(model)
    nlp.add_pipe("tener_ner", name="other", source=spacy.load(model), first=True)
    nlp.to_disk(tmp_path / "two")
    text = call("review", tmp_path / "two", tmp_path / "gold.spacy", "-o", tmp_path / "out")[1]
    assert f"Predicted by other, the first tener_ner of {tmp_path / 'two'}" in text


def test_review_limit_is_reported(tmp_path: Path, model: Path) -> None:
    save_corpus(tmp_path / "gold.spacy", [("王小明去了上海", [(0, 3, "ORG")])] * 2)
    code, text = call("review", model, tmp_path / "gold.spacy", "-o", tmp_path / "out", "--limit", "1")
    assert (code, "4 suspected errors in 2 texts" in text) == (0, True), text
    assert "The page shows only the highest ranked texts, with 2 suspected errors." in text
    assert (tmp_path / "out" / "review.html").read_text(encoding="utf8").count('"doc":') == 1


def test_config_with_other_training_corpus_raises_error(tmp_path: Path, config: Path, trained: list[str]) -> None:
    command = ["review", config, tmp_path / "train.spacy", "-o", tmp_path / "out", "--folds", "2"]
    code, text = call(*command, "--set", f"corpora.train.path={tmp_path / 'train.spacy'}")
    assert (code, "The training corpus of the config does not use paths.train" in text, trained) == (1, True, []), text


def test_folds_are_deterministic_and_group_duplicate_texts() -> None:
    nlp = spacy.blank("zh")
    docs = [nlp.make_doc(text) for text in [*(f"文{n}" for n in range(31)), "文 3", "文4"]]
    parts = assign_folds(docs, 5)
    assert parts == assign_folds(docs, 5)
    by_text = {}
    for doc, part in zip(docs, parts, strict=True):
        assert by_text.setdefault(text_key(doc.text), part) == part
    sizes = [list(by_text.values()).count(part) for part in range(5)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("texts", "fix"),
    [(["甲", "乙", "甲 "], "Use at most --folds 2."), (["甲", "甲 "], "Use a corpus with more texts.")],
)
def test_fewer_texts_than_folds_raise_error(texts: list[str], fix: str) -> None:
    with pytest.raises(UserError, match=fix):
        assign_folds([spacy.blank("zh").make_doc(text) for text in texts], 3)


def test_decisions_are_applied_and_mismatches_reported(tmp_path: Path) -> None:
    write_corpus(tmp_path / "gold.spacy")
    docs = list(read_docs(tmp_path / "gold.spacy"))
    number = next(number for number, doc in enumerate(docs) if doc.ents)
    ent = docs[number].ents[0]
    place = [ent.start_char, ent.end_char]
    decision = {"gold": [[*place, ent.label_]], "entities": [[*place, "OTHER"]]}
    record = {"text": docs[number].text, "doc": number, "corpus": "gold.spacy", "decisions": [decision]}
    mismatched = {**record, "text": "不在", "doc": 0}
    (tmp_path / "d.json").write_text(json.dumps([record, mismatched]), encoding="utf8")
    code, text = call("review", "--apply", tmp_path / "d.json", tmp_path / "gold.spacy", "-o", tmp_path / "m.spacy")
    assert (code, "1 correction applied, 0 existing annotations confirmed" in text) == (0, True)
    assert (
        "Skipped decisions, because their text or entity was not found in the corpus: 1 '不在': the corpus has no "
        "such text" in text
    )
    corrected = list(read_docs(tmp_path / "m.spacy"))
    assert [doc.to_json() for i, doc in enumerate(corrected) if i != number] == [
        doc.to_json() for i, doc in enumerate(docs) if i != number
    ]
    assert [ent.label_ for ent in corrected[number].ents] == ["OTHER", *(ent.label_ for ent in docs[number].ents[1:])]
    # Applying the decisions again changes nothing.
    code, text = call("review", "--apply", tmp_path / "d.json", tmp_path / "m.spacy", "-o", tmp_path / "n.spacy")
    assert "0 corrections applied, 1 existing annotations confirmed" in text
    assert (tmp_path / "n.spacy").read_bytes() == (tmp_path / "m.spacy").read_bytes()
    (tmp_path / "d.json").write_text(json.dumps([mismatched]), encoding="utf8")
    code, text = call("review", "--apply", tmp_path / "d.json", tmp_path / "gold.spacy", "-o", tmp_path / "o.spacy")
    assert code == 1
    assert "no decision can be applied to" in text
    assert "The decisions are about another corpus: gold.spacy." in text
    assert not (tmp_path / "o.spacy").exists()


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        '[{"text": "a", "doc": 0}]',
        '{"text": "a"}',
        *(
            json.dumps([{"text": "王小明", "doc": 0, "decisions": [{"gold": [[0, 1, "PER"]], "entities": entities}]}])
            for entities in (
                [[2, 1, "PER"]],
                [[1, 1, "PER"]],
                [[0, 1, ""]],
                [[0, 1, "PER"], [2, 3, ""]],
                [[0, 2, "PER"], [1, 3, "ORG"]],
            )
        ),
    ],
)
def test_invalid_decision_file_raises_error(tmp_path: Path, content: str) -> None:
    write_corpus(tmp_path / "gold.spacy")
    (tmp_path / "d.json").write_text(content, encoding="utf8")
    code, text = call("review", "--apply", tmp_path / "d.json", tmp_path / "gold.spacy", "-o", tmp_path / "m.spacy")
    assert (code, "d.json: is not a JSON file of decisions" in text) == (1, True)
