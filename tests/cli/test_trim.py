"""Test the command `trim`: size, predictions, messages and errors."""

import re
import shutil

import spacy
from command_line import run_tener

import spacy_tener.cli.trim as trim_module
from spacy_tener.embedders.tables import table_embedders
from spacy_tener.export import trimming
from spacy_tener.files import size_mb

TEXT = "王小明去了上海"


def run(*arguments):
    ran = run_tener("trim", *arguments)
    return ran.code, ran.text


def predict_entities(model):
    return [(ent.text, ent.label_) for ent in spacy.load(model)(TEXT).ents]


def test_trimmed_pipeline_is_smaller_with_same_predictions(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    (tmp_path / "raw.txt").write_text(f"{TEXT}\n\n", encoding="utf8")
    for view, model in saved.items():
        code, output = run(model, tmp_path / "raw.txt", "--output", tmp_path / view, "--half")
        assert code == 0, output
        assert re.search(r"MB instead of \d+\.\d MB", output)
        assert predict_entities(tmp_path / view) == predict_entities(model)
        assert size(tmp_path / view) < size(model)


def test_original_size_is_reported_when_overwriting_pipeline(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    # The pipeline is so small that sizes rounded to 0.1 MB would be equal.
    monkeypatch.setattr(trim_module, "size_mb", lambda folder: 1e6 * size_mb(folder))
    shutil.copytree(saved["tener"], tmp_path / "model")
    (tmp_path / "raw.txt").write_text(TEXT, encoding="utf8")
    before = size_mb(tmp_path / "model")
    code, output = run(tmp_path / "model", tmp_path / "raw.txt", "--output", tmp_path / "model", "--half", "--force")
    assert code == 0, output
    assert f"instead of {1e6 * before:.1f} MB" in output
    assert size_mb(tmp_path / "model") < before


def test_trimmed_shared_tok2vec_keeps_listener_predictions(tmp_path, monkeypatch, train, sentences):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    embed = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 16, "bigram_width": 8}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 24, "upstream": "*"}
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": embed})
    tagger = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": listener}
    nlp.add_pipe("tener_ner", config={"model": tagger})
    train(nlp=nlp).to_disk(tmp_path / "original")
    (tmp_path / "raw.txt").write_text(sentences[0][0], encoding="utf8")
    code, output = run(tmp_path / "original", tmp_path / "raw.txt", "--output", tmp_path / "out")
    assert code
    assert "'tener_ner' has no embedding tables" in output
    assert "Choose a component with embedding tables: --component tok2vec." in output
    code, output = run(
        tmp_path / "original", tmp_path / "raw.txt", "--output", tmp_path / "out", "--component", "tok2vec"
    )
    assert code == 0, output
    before, after = (spacy.load(tmp_path / name) for name in ("original", "out"))
    assert n_rows(after) < n_rows(before)
    entities, trimmed = (
        next(nlp.get_pipe("tener_ner").decode([nlp(sentences[0][0])])).entities for nlp in (before, after)
    )
    assert entities == trimmed


def n_rows(nlp):
    [node] = table_embedders(nlp.get_pipe("tok2vec").model)
    return sum(map(len, node.attrs["vocabulary"].tables.values()))


def test_text_longer_than_max_length_is_accepted(saved, tmp_path, monkeypatch):
    def load(name):
        nlp = spacy.load(name)
        nlp.max_length = 5
        return nlp

    monkeypatch.setattr(trim_module, "load_pipeline", load)
    (tmp_path / "raw.txt").write_text(TEXT, encoding="utf8")
    code, output = run(saved["tener"], tmp_path / "raw.txt", "--output", tmp_path / "out")
    assert code == 0, output
    assert predict_entities(tmp_path / "out") == predict_entities(saved["tener"])


def size(model):
    return (model / "tener_ner" / "model").stat().st_size
