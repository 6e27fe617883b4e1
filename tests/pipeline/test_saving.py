"""Save and load pipelines: the predictions are identical, and damaged files raise errors without running code."""

import json
import os
import pickle
from io import BytesIO

import pytest
import safetensors.numpy
import spacy
import srsly
import torch
from spacy.vocab import Vocab
from test_without_torch import run

from spacy_tener.errors import MissingPackageError
from spacy_tener.nn.shim import TorchShim
from spacy_tener.pipeline.settings import NERSettings

TEXT = "王小明去了上海"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]


@pytest.fixture
def saved(learned, tmp_path):
    path = tmp_path / "pipeline"
    learned().to_disk(path)
    return path


def damage(path, change):
    path.write_bytes(change(path.read_bytes()))


SETTINGS = {
    "view": "characters",
    "alignment_mode": "strict",
    "window": 100,
    "overlap": 7,
    "max_units": 300,
    "incorrect_spans_key": "wrong",
    "chars_key": "exact",
}


def reload_pipeline(nlp, path):
    """Return copies of a pipeline: from disk, from a pickle, and its component in a pipeline with default settings."""
    nlp.to_disk(path)
    plain = spacy.blank("zh")
    pipe = plain.add_pipe("tener_ner", config={"model": nlp.get_pipe_config("tener_ner")["model"]})
    pipe.from_bytes(nlp.get_pipe("tener_ner").to_bytes())
    return spacy.load(path), pickle.loads(pickle.dumps(nlp)), plain


def test_settings_and_labels_are_saved(learned, tmp_path):
    nlp = learned(**SETTINGS)
    assert nlp.get_pipe("tener_ner").settings.to_cfg() == NERSettings(**SETTINGS).to_cfg()
    for copy in reload_pipeline(nlp, tmp_path):
        pipe = copy.get_pipe("tener_ner")
        assert pipe.settings.to_cfg() == NERSettings(**SETTINGS).to_cfg()
        assert pipe.labels == ("GPE", "ORG", "PER")
        assert pipe.incorrect_spans_key == "wrong"


def test_exclude_cfg_keeps_settings_and_loads_labels(learned, blank, entities_of, tmp_path):
    """Like `ner` of spaCy, which does not store labels in its cfg."""
    pipe = learned().get_pipe("tener_ner")
    pipe.to_disk(tmp_path)
    for load in (
        lambda pipe: pipe.from_disk(tmp_path, exclude=["cfg"]),
        lambda loaded: loaded.from_bytes(pipe.to_bytes(), exclude=["cfg"]),
    ):
        nlp = blank(window=77, overlap=3)
        loaded = load(nlp.get_pipe("tener_ner"))
        assert (loaded.settings.window, loaded.labels) == (77, ("GPE", "ORG", "PER"))
        assert entities_of(nlp(TEXT)) == FOUND


def test_failed_loading_of_other_labels_keeps_component_usable(learned, blank, make_examples, entities_of, tmp_path):
    one = blank()
    one.initialize(lambda: make_examples(one, [(TEXT, [(0, 1, "PER")])]))
    one.get_pipe("tener_ner").to_disk(tmp_path)
    nlp = learned()
    before = entities_of(nlp(TEXT))
    with pytest.raises(
        ValueError, match=r"it has 1 label, but this component has 3\. Load the pipeline with spacy\.load"
    ):
        nlp.get_pipe("tener_ner").from_disk(tmp_path)
    assert nlp.get_pipe("tener_ner").labels == ("GPE", "ORG", "PER")
    assert entities_of(nlp(TEXT)) == before


def test_exclude_model_loads_only_labels(learned, blank, make_examples):
    nlp = blank()
    pipe = nlp.get_pipe("tener_ner").from_bytes(learned().get_pipe("tener_ner").to_bytes(), exclude=["model"])
    assert pipe.labels == ("GPE", "ORG", "PER")
    nlp.initialize(lambda: make_examples(nlp, [(TEXT, [])]))
    assert nlp(TEXT).has_annotation("ENT_IOB")


def test_pipeline_loads_with_empty_vocab(saved, entities_of):
    """Labels are saved with the component, not with the vocabulary."""
    nlp = spacy.load(saved, vocab=Vocab(), exclude=["vocab"])
    assert entities_of(nlp(TEXT)) == FOUND


def test_from_bytes_replaces_trained_model(learned, blank, learn, make_examples, entities_of):
    nlp = blank()
    learn(nlp, make_examples(nlp, [("一二三四五六七", [(1, 2, "GPE"), (3, 4, "ORG"), (5, 6, "PER")])]), steps=5)
    nlp.from_bytes(learned().to_bytes())
    assert entities_of(nlp(TEXT)) == FOUND


NEW_PROCESS = """
import torch
nlp = spacy.load(sys.argv[1])
# Use several threads before forking, so that workers inherit a thread pool that does not work in them.
torch.set_num_threads(2)
nlp("王小明去了上海。" * 300)
docs = nlp.pipe(["王小明去了上海", "京"], n_process=2, batch_size=1)
print([[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs])
"""


def test_saved_pipeline_runs_in_new_process_with_workers(tiny_model, learn, make_examples, tmp_path):
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{c} {' '.join([str(i / 10)] * 16)}\n" for i, c in enumerate(TEXT)), encoding="utf8")
    embed = {**tiny_model["tok2vec"]["embed"], "vectors": str(vectors)}
    nlp = spacy.blank("zh")
    model = {**tiny_model, "tok2vec": {**tiny_model["tok2vec"], "embed": embed}}
    nlp.add_pipe("tener_ner", config={"model": model})
    learn(nlp, make_examples(nlp))
    nlp.to_disk(tmp_path / "pipeline")
    vectors.unlink()
    assert run(NEW_PROCESS, tmp_path / "pipeline", torch=True).strip().endswith(str([FOUND, [(0, 1, "GPE")]]))


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda data: b"", id="empty"),
            pytest.param(lambda data: b"not a model" * 100, id="something else"),
            pytest.param(lambda data: srsly.msgpack_dumps({"nodes": []}), id="no nodes"),
            pytest.param(lambda data: srsly.msgpack_dumps([1, 2]), id="a list"),
        ],
    )
    def test_invalid_model_file_error_names_path(self, saved, change):
        """tests/test_damaged_models.py tests many other kinds of damage."""
        damage(saved / "tener_ner" / "model", change)
        with pytest.raises(ValueError, match=r"'tener_ner'.*restore") as error:
            spacy.load(saved)
        assert str(saved / "tener_ner") in str(error.value)

    @pytest.mark.parametrize(
        "content",
        ["{", "[]", "{}", '{"labels": 3}', '{"labels": ["PER"]}', '{"labels": ["A", "B", "C", "D"]}', "\x00"],
    )
    def test_invalid_cfg_file_error_names_path(self, saved, content):
        (saved / "tener_ner" / "cfg").write_text(content)
        with pytest.raises(ValueError, match=r"'tener_ner'.*[Rr]estore") as error:
            spacy.load(saved)
        assert str(saved / "tener_ner") in str(error.value)

    def test_truncated_bytes_raise_error(self, learned, blank):
        data = learned().get_pipe("tener_ner").to_bytes()
        with pytest.raises(ValueError, match=r"'tener_ner'.*the given bytes"):
            blank().get_pipe("tener_ner").from_bytes(data[: len(data) // 2])

    @pytest.mark.parametrize("name", ["model", "cfg"])
    def test_missing_file_error_names_component(self, saved, name):
        (saved / "tener_ner" / name).unlink()
        with pytest.raises((FileNotFoundError, ValueError), match="tener_ner"):
            spacy.load(saved)

    @pytest.mark.parametrize("change", [{"width": 32}, {"heads": 4}, {"layers": 3}], ids=str)
    def test_model_with_different_config_raises_error(self, learned, blank, tiny_model, change):
        nlp = blank(model={**tiny_model, "tok2vec": {**tiny_model["tok2vec"], **change}})
        with pytest.raises(ValueError, match=r"(?s)'tener_ner'.*another config.*config\.cfg"):
            nlp.from_bytes(learned().to_bytes())


class TestOtherCauses:
    """If the files are not the cause of an error, its message does not mention damage."""

    @pytest.fixture
    def failing(self, blank, monkeypatch):
        """Create a component whose model fails to load with the given error."""

        def make(error):
            def fail(self, data):
                raise error

            monkeypatch.setattr(TorchShim, "from_bytes", fail)
            return blank().get_pipe("tener_ner")

        return make

    @pytest.mark.parametrize(
        ("error", "error_type", "message"),
        [
            (ModuleNotFoundError("No module named 'jieba'"), ImportError, "'tener_ner'.*'jieba'.*Install"),
            (
                MissingPackageError("Texts need the package x", "Install x."),
                ImportError,
                r"component 'tener_ner' from the given bytes: Texts need the package x\. Install x\.$",
            ),
            (MemoryError("of the host"), MemoryError, "'tener_ner'.*of the host.*not enough memory.*require_cpu"),
            (torch.cuda.OutOfMemoryError("CUDA out of memory"), MemoryError, "CUDA out of memory.*require_cpu"),
            (RuntimeError("CUDA error: no kernel image"), RuntimeError, "'tener_ner'.*no kernel image.*require_cpu"),
            (FileNotFoundError("vectors.txt"), FileNotFoundError, "^vectors.txt$"),
        ],
        ids=["package", "package of an extra", "memory", "memory of the GPU", "GPU", "file"],
    )
    def test_error_names_cause_and_fix(self, learned, failing, error, error_type, message):
        data = learned().get_pipe("tener_ner").to_bytes()
        with pytest.raises(error_type, match=message) as raised:
            failing(error).from_bytes(data)
        assert "damaged" not in str(raised.value)

    def test_mismatched_labels_error_does_not_mention_damage(self, saved):
        path = saved / "tener_ner" / "cfg"
        path.write_text(json.dumps({**json.loads(path.read_text()), "labels": ["PER"]}))
        with pytest.raises(ValueError, match=r"'tener_ner'.*13 tags.*1 labels.*need 5.*same pipeline") as raised:
            spacy.load(saved)
        assert "damaged" not in str(raised.value)


class Bomb:
    """An object that creates a directory when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def with_weights(model_bytes, weights):
    """Return the bytes of a model file, in which the weights of the last torch shim are replaced."""
    message = srsly.msgpack_loads(model_bytes)
    shims = next(shims for shims in reversed(message["shims"]) if shims)
    shims[0] = weights
    return srsly.msgpack_dumps(message)


@pytest.mark.parametrize("serializer", ["pickle", "torch"])
def test_model_file_runs_no_code(saved, tmp_path, serializer):
    created_directory = tmp_path / "exploded"
    file = BytesIO()
    {"pickle": pickle.dump, "torch": torch.save}[serializer]({"weight": Bomb(created_directory)}, file)
    damage(saved / "tener_ner" / "model", lambda data: with_weights(data, file.getvalue()))
    with pytest.raises(ValueError, match=r"'tener_ner'"):
        spacy.load(saved)
    assert not created_directory.exists()
    # Check that unpickling it does create the directory.
    pickle.loads(pickle.dumps(Bomb(created_directory)))
    assert created_directory.exists()


def test_saved_files_are_json_and_safetensors(saved):
    """Labels and settings are saved as JSON, and weights as safetensors inside msgpack."""
    cfg = json.loads((saved / "tener_ner" / "cfg").read_text())
    assert cfg == {
        "labels": ["GPE", "ORG", "PER"],
        "token_length": 1.0,
        "text_length": 9,
        "text_sentences": 1,
        **NERSettings().to_cfg(),
    }
    message = srsly.msgpack_loads((saved / "tener_ner" / "model").read_bytes())
    blocks = [safetensors.numpy.load(shim) for shims in message["shims"] for shim in shims]
    assert all(json.loads(block.pop("values.json").tobytes()) for block in blocks)
    assert all(array.dtype == "f" for block in blocks for array in block.values())
    assert len(blocks) == 3
