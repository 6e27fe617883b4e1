"""How `extend`, `calibrate`, `trim`, `silver`, `export` and `review` use the training settings of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import run_tener
from small_corpora import annotated, save_corpus
from small_systems import TEXTS, examples_of
from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining

from spacy_tener.cli._common import write_pipeline
from spacy_tener.corpora.docs import read_docs
from spacy_tener.export.onnx_model import export_model
from spacy_tener.review import cross_validation as cross_validation_module
from spacy_tener.review.cross_validation import cross_train, cross_validation, fold_run
from spacy_tener.training.extending import RATE_FACTOR, plan_extension

CUSTOM_SETTINGS: dict[str, Any] = {
    "dropout": 0.3,
    "patience": 7,
    "max_epochs": 3,
    "max_steps": 900,
    "eval_frequency": 11,
    "seed": 5,
    "gpu_allocator": "pytorch",
    "accumulate_gradient": 2,
    "frozen_components": ["sentencizer", "tok2vec"],
    "annotating_components": ["tok2vec", "attribute_ruler", "removed"],
    "train_corpus": "corpora.mine",
    "dev_corpus": "corpora.mine",
    "score_weights": {"ents_f": 0.5, "sents_f": 0.5, "ents_per_type": None},
    "batcher": {"@batchers": "spacy.batch_by_sequence.v1", "size": 9, "get_length": None},
    "optimizer": {"@optimizers": "Adam.v1", "learn_rate": 0.01},
    "logger": {
        "@loggers": "spacy.ConsoleLogger.v3",
        "progress_bar": "eval",
        "console_output": True,
        "output_file": None,
    },
    "before_to_disk": {"@callbacks": "unchanged.v1"},
    "before_update": {"@callbacks": "unfreezing.v1"},
}
# The training settings of `extend`, except for the learning rate of the optimizer and the weights of scores.
EXTEND_SETTINGS = {
    "patience": 0,
    "max_epochs": 0,
    "max_steps": 40,
    "eval_frequency": 40,
    "train_corpus": "corpora.train",
    "dev_corpus": "corpora.dev",
    # The annotating components of the previous training, without one that the pipeline no longer contains.
    "annotating_components": ["tok2vec", "attribute_ruler"],
    # Frozen components remain frozen, even a tok2vec that the tener_ner listens to.
    "frozen_components": ["tok2vec", "sentencizer", "attribute_ruler"],
}
NEW_EXAMPLE = annotated("王小明去了上海", [(3, 5, "VERB")])


@pytest.fixture(scope="module", autouse=True)
def register_callbacks() -> None:
    spacy.registry.callbacks("unchanged.v1", func=lambda: lambda nlp: nlp)
    spacy.registry.callbacks("unfreezing.v1", func=lambda: lambda nlp, args: None)


def tok2vec(name: str) -> dict[str, Any]:
    if name == "listener":
        return {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
    cnn = {"pretrained_vectors": None, "width": 16, "depth": 1, "embed_size": 50, "window_size": 1}
    return {"@architectures": "spacy.HashEmbedCNN.v2", **cnn, "maxout_pieces": 2, "subword_features": True}


def pipeline_with_shared_tok2vec(*components: str) -> Language:
    """Return a pipeline whose components listen to one tok2vec."""
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": tok2vec("cnn")})
    heads = {"tener_ner": "spacy_tener.CRFTagger.v1", "tagger": "spacy.Tagger.v2"}
    for name in components:
        model = {"@architectures": heads[name], "tok2vec": tok2vec("listener")} if name in heads else {}
        nlp.add_pipe(name, config={"model": model} if model else {})
    examples = examples_of(nlp)
    for example in examples:
        for token in example.reference:
            token.tag_ = token.text if len(token.text) == 1 else "?"
    nlp.initialize(lambda: examples)
    return nlp


def contains_settings(section: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether a section contains all expected settings. It may contain others."""
    return all(
        contains_settings(section[key], value) if isinstance(value, dict) else section[key] == value
        for key, value in expected.items()
    )


def test_extend_preserves_other_training_settings(tmp_path: Path) -> None:
    nlp = pipeline_with_shared_tok2vec("sentencizer", "attribute_ruler", "tener_ner")
    assert set(CUSTOM_SETTINGS) == set(ConfigSchemaTraining.model_fields)
    nlp.config["training"] = CUSTOM_SETTINGS
    nlp.to_disk(tmp_path / "model")
    extension = plan_extension(str(tmp_path / "model"), nlp, None, [NEW_EXAMPLE], [], {})
    training = extension.config(tmp_path, 40)["training"]
    assert {key: training[key] for key in EXTEND_SETTINGS} == EXTEND_SETTINGS
    assert training["optimizer"]["learn_rate"] == RATE_FACTOR * 0.01
    # The weights of other components' scores are not included.
    weights = {name: weight for name, weight in training["score_weights"].items() if weight is not None}
    assert weights == {"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0}
    preserved = [key for key in CUSTOM_SETTINGS if key not in (*EXTEND_SETTINGS, "optimizer", "score_weights")]
    assert {key: training[key] for key in preserved} == {key: CUSTOM_SETTINGS[key] for key in preserved}


def test_extend_replaces_listeners_of_frozen_components(tmp_path: Path) -> None:
    nlp = pipeline_with_shared_tok2vec("tagger", "tener_ner")
    model = str(tmp_path / "model")
    nlp.to_disk(model)
    extension = plan_extension(model, nlp, None, [NEW_EXAMPLE], [], {})
    components = extension.config(tmp_path, 40)["components"]
    assert components == {
        "tok2vec": {"source": model},
        "tagger": {"source": model, "replace_listeners": ["model.tok2vec"]},
        "tener_ner": {"source": model},
    }
    nlp.config["training"]["frozen_components"] = ["tok2vec"]
    assert "replace_listeners" not in extension.config(tmp_path, 40)["components"]["tagger"]


@pytest.fixture
def models(saved: dict[str, Path], tmp_path: Path) -> list[Path]:
    """One pipeline, saved as the result of two training runs."""
    folders = [tmp_path / name / "model" for name in ("first", "second")]
    nlp = spacy.load(saved["tener"])
    write_pipeline(nlp, folders[0])
    nlp.config["training"] = {**CUSTOM_SETTINGS, "frozen_components": [], "annotating_components": []}
    nlp.config["corpora"] = {"mine": {"@readers": "spacy.Corpus.v1", "path": None, "max_length": 7}}
    write_pipeline(nlp, folders[1])
    return folders


@pytest.mark.parametrize("command", ["calibrate", "trim"])
def test_calibrate_and_trim_preserve_training_config(command: str, models: list[Path], tmp_path: Path) -> None:
    save_corpus(tmp_path / "dev.spacy", [*TEXTS, *[(text, []) for text, _ in TEXTS]])
    (tmp_path / "raw.txt").write_text("\n".join(text for text, _ in TEXTS), encoding="utf8")
    data = tmp_path / ("dev.spacy" if command == "calibrate" else "raw.txt")
    for number, model in enumerate(models):
        ran = run_tener(command, model, data, "-o", tmp_path / f"out-{number}")
        assert ran.code == 0, ran.text
        before, after = (spacy.load(path).config for path in (model, tmp_path / f"out-{number}"))
        assert [after[part] for part in ("training", "corpora", "initialize")] == [
            before[part] for part in ("training", "corpora", "initialize")
        ]


def test_training_settings_do_not_affect_export_and_silver(models: list[Path], tmp_path: Path) -> None:
    first, second = (export_model(spacy.load(model)) for model in models)
    assert first.SerializeToString() == second.SerializeToString()
    raw = tmp_path / "raw.txt"
    raw.write_text("\n".join(text for text, _ in TEXTS), encoding="utf8")
    for number, model in enumerate(models):
        ran = run_tener("silver", model, raw, "-o", tmp_path / f"silver-{number}")
        assert ran.code == 0, ran.text
    parts = [(tmp_path / f"silver-{number}" / "part-00000.spacy").read_bytes() for number in (0, 1)]
    assert parts[0] == parts[1]


def test_review_training_uses_all_settings_of_config(tmp_path: Path) -> None:
    config = pipeline_with_shared_tok2vec("sentencizer", "attribute_ruler", "tener_ner").config.copy()
    config["training"] = {**CUSTOM_SETTINGS, "train_corpus": "corpora.train", "dev_corpus": "corpora.dev"}
    config["paths"] = {"train": None, "dev": None}
    config["corpora"] = {
        name: {"@readers": "spacy.Corpus.v1", "path": f"${{paths.{name}}}", "max_length": 7} for name in config["paths"]
    }
    config.to_disk(tmp_path / "my.cfg", interpolate=False)
    dev, code = tmp_path / "dev.spacy", tmp_path / "code.py"
    save_corpus(dev, TEXTS)
    validation = cross_validation(
        str(tmp_path / "my.cfg"), [], tmp_path, 2, dev=dev, settings=["training.patience=3"], gpu_id=-1, code=code
    )
    doc = pipeline_with_shared_tok2vec("tener_ner").make_doc("北京")
    doc.user_data["spacy_tener.weight"] = 0.5
    run = fold_run(validation, 0, [doc])
    [read] = read_docs(Path(run.config["paths"]["train"]))
    assert read.user_data == {"spacy_tener.weight": 0.5}
    assert contains_settings(run.config["training"], {**config["training"], "patience": 3})
    assert contains_settings(run.config["corpora"], config["corpora"])
    assert run.options[-2:] == ["--code", str(code)]


def test_fold_models_predict_on_training_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGPUError(Exception):
        pass

    def use_gpu(gpu_id: int) -> None:
        raise OnGPUError(gpu_id)

    monkeypatch.setattr(cross_validation_module, "is_trained", lambda run: True)
    monkeypatch.setattr(cross_validation_module, "use_gpu", use_gpu)
    dev = tmp_path / "dev.spacy"
    save_corpus(dev, TEXTS)
    docs = [pipeline_with_shared_tok2vec("tener_ner").make_doc(text) for text in ("北京", "上海")]
    validation = cross_validation("weibo", docs, tmp_path, 2, dev=dev, settings=[], gpu_id=1, code=None)
    with pytest.raises(OnGPUError, match="1"):
        list(cross_train(validation, begun=lambda fold, trained: None))
