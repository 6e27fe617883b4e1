"""A training that was stopped, wherever that was, ends as one that was not: the same weights, bit by bit."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_trainings import LOG, MODEL, make_config, run, stop, tener, write_corpus
from spacy.language import Language
from spacy.training import Corpus, Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as spacys_train
from spacy.util import registry
from thinc.api import Config

from spacy_tener.workbench.files import FileError
from spacy_tener.workbench.runs.checkpoint import read_checkpoint
from spacy_tener.workbench.runs.fingerprint import digest
from spacy_tener.workbench.runs.output_folder import CHECKPOINT, RECORD
from spacy_tener.workbench.runs.resumable import train

MODELS = ("model-last", "model-best")
BY_WORDS = {
    "@batchers": "spacy.batch_by_words.v1",
    "size": {"@schedules": "compounding.v1", "start": 20, "stop": 60, "compound": 1.1},
    "tolerance": 0.2,
    "discard_oversize": False,
}
PADDED = {"@batchers": "spacy.batch_by_padded.v1", "size": 60, "buffer": 8, "discard_oversize": False}
PLAIN_ADAM = {"@optimizers": "Adam.v1", "use_averages": False, "learn_rate": 0.01}
WARMUP = {"@schedules": "warmup_linear.v1", "initial_rate": 0.01, "warmup_steps": 8, "total_steps": 30}
RADAM = {"@optimizers": "RAdam.v1", "learn_rate": WARMUP, "use_averages": True}
SGD = {"@optimizers": "spacy_tener.SGD.v1", "learn_rate": WARMUP, "momentum": 0.9}
HASHED = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "width": 16,
    "depth": 1,
    "embed_size": 50,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
    "pretrained_vectors": None,
}
TOK2VEC = {"factory": "tok2vec", "model": HASHED}
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
PARSER = {
    "@architectures": "spacy.TransitionBasedParser.v2",
    "state_type": "ner",
    "extra_state_tokens": False,
    "hidden_width": 8,
    "maxout_pieces": 2,
    "use_upper": True,
    "tok2vec": LISTENER,
}
# Cut to pieces of random length: then the order of the examples depends on what the updates before drew.
NER = {"factory": "ner", "update_with_oracle_cut_size": 3, "model": PARSER}
LISTENING = {"factory": "tener_ner", "model": {**MODEL, "tok2vec": LISTENER}}

PIPELINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "averages and lazy rows": (tener(), {}),
    "momentum": (tener(), {"optimizer": SGD}),
    "radam, patience, parts of batches": (
        tener(),
        {"optimizer": RADAM, "patience": 12, "max_steps": 0, "accumulate_gradient": 2, "batcher": PADDED},
    ),
    "listeners": ({"tok2vec": TOK2VEC, "tener_ner": LISTENING}, {"max_epochs": 3, "max_steps": 0}),
    "spaCy's ner": (
        {"tok2vec": TOK2VEC, "ner": NER},
        {"optimizer": PLAIN_ADAM, "batcher": BY_WORDS},
    ),
}


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "train.spacy")
    write_corpus(tmp_path / "dev.spacy", 6)
    return tmp_path


def contents(output: Path) -> dict[str, Any]:
    """Everything that a training is for: pipelines, their scores and the log; but for speeds."""
    files = {
        str(path.relative_to(output)): path.read_bytes()
        for model in MODELS
        for path in (output / model).rglob("*")
        if path.is_file() and path.name not in ("config.cfg", "meta.json")
    }
    metas = {model: json.loads((output / model / "meta.json").read_text(encoding="utf8")) for model in MODELS}
    for meta in metas.values():
        meta["performance"].pop("speed", None)
    log = [json.loads(line) for line in (output / LOG).read_text(encoding="utf8").splitlines()]
    for line in log:
        line["scores"].pop("speed", None)
    return {**files, **metas, LOG: log}


def differing(first: Path, second: Path) -> list[str]:
    """The names of what two trainings have made differently."""
    a, b = contents(first), contents(second)
    return sorted(name for name in {*a, *b} if a.get(name) != b.get(name))


def refusal(config: Config, output: Path) -> FileError:
    """What a training says that does not go on; and it leaves everything as it was."""
    before = digests(output)
    with pytest.raises(FileError) as caught:
        run(config, output)
    assert digests(output) == before
    return caught.value


def digests(output: Path) -> dict[str, str]:
    return {str(path.relative_to(output)): digest(path) for path in output.rglob("*") if path.is_file()}


# The same result


@pytest.mark.parametrize(("components", "training"), PIPELINES.values(), ids=PIPELINES)
def test_a_training_stopped_twice_ends_as_spacy_train_does(data: Path, components: dict, training: dict) -> None:
    config = make_config(data, components, **training)
    config["training"]["logger"]["output_file"] = str(data / "spacys" / LOG)
    stop.before, stop.updates = None, []
    spacys_train(init_nlp(config), data / "spacys")
    steps = stop.updates[-1]
    for before in (steps // 2 + 1, steps):
        run(config, data / "ours", before=before)
    assert f"Continuing after step {5 * ((steps - 1) // 5)}" in run(config, data / "ours")
    assert stop.updates[-1] == steps
    assert differing(data / "ours", data / "spacys") == []


def test_a_frozen_component_that_annotates_is_left_alone(data: Path) -> None:
    run(make_config(data, tener(), max_steps=2), data / "before")
    components = {"rules": {"source": str(data / "before" / "model-last"), "component": "tener_ner"}, **tener()}
    frozen = {"frozen_components": ["rules"], "annotating_components": ["rules"]}
    config = make_config(data, components, max_steps=8, **frozen)
    run(config, data / "whole")
    run(config, data / "parts", before=7)
    assert not any(name.startswith("rules/") for name in read_checkpoint(data / "parts" / CHECKPOINT)["structure"])
    assert "Set annotations on update for: ['rules']" in run(config, data / "parts")
    assert differing(data / "whole", data / "parts") == []
    for part in ("whole", "parts"):
        model = (data / part / "model-last" / "rules" / "model").read_bytes()
        assert model == (data / "before" / "model-last" / "tener_ner" / "model").read_bytes()


@registry.readers("tests.noisy.v1")
def noisy(path: Path, repeatable: bool) -> Callable[[Language], Iterator[Example]]:
    """A reader that draws random numbers between its examples. One that is not repeatable is so for `initialize`."""
    number = next(readers)
    shift = number if number % 2 and not repeatable else 0

    def read(nlp: Language) -> Iterator[Example]:
        examples = list(Corpus(path)(nlp))
        for _ in examples:
            chosen = random.randrange(len(examples)) + np.random.randint(3) + shift
            yield examples[chosen % len(examples)]

    return read


readers = itertools.count()


def streamed(data: Path, *, repeatable: bool = True) -> Config:
    config = make_config(data, tener(), max_epochs=-1, max_steps=14, batcher=PADDED)
    config["corpora"]["train"] = {"@readers": "tests.noisy.v1", "path": "${paths.train}", "repeatable": repeatable}
    return config


def test_a_streamed_corpus_is_read_again_up_to_where_it_was(data: Path) -> None:
    config = streamed(data)
    run(config, data / "whole")
    run(config, data / "parts", before=13)
    assert "Continuing after step 10" in run(config, data / "parts")
    assert differing(data / "whole", data / "parts") == []


def test_a_corpus_that_gives_other_examples_each_time_is_found_out(data: Path) -> None:
    config = streamed(data, repeatable=False)
    run(config, data / "out", before=13)
    error = refusal(config, data / "out")
    assert error.reason == "corpora.train gives other examples than when this training began"
    assert "--restart" in error.remedy


def test_without_a_seed_a_training_goes_on_with_its_own_random_numbers(data: Path) -> None:
    config = make_config(data, tener(), seed=None, max_steps=9)
    random.seed(5)
    run(config, data / "out", before=8)
    kept = read_checkpoint(data / "out" / CHECKPOINT)
    random.seed(6)
    assert "Continuing after step 5" in run(config, data / "out", before=6)
    again = read_checkpoint(data / "out" / CHECKPOINT)
    assert json.dumps(plain(again)) == json.dumps(plain(kept))


def plain(tree: Any) -> Any:
    """A tree with arrays and bytes as text."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [plain(value) for value in tree]
    return tree.tobytes().hex() if isinstance(tree, np.ndarray) else str(tree)


told: list[dict[str, Any]] = []


@registry.loggers("tests.told.v1")
def tell() -> Callable[..., Any]:
    def set_up(nlp: Language, stdout: Any, stderr: Any) -> tuple[Callable[..., None], Callable[[], None]]:
        told.clear()
        return (
            lambda info: told.append({**info, "checkpoints": list(info["checkpoints"])}) if info else None
        ), told.copy

    return set_up


def test_any_logger_is_told_of_everything_once(data: Path) -> None:
    config = make_config(data, tener(), logger={"@loggers": "tests.told.v1"})
    stories = []
    for output, stops in (("whole", [None]), ("parts", [12, 7, None])):
        for before in stops:
            stop.before, stop.updates = before, []
            with contextlib.suppress(KeyboardInterrupt):
                train(config, data / output, stdout=io.StringIO(), stderr=io.StringIO())
        assert all(type(each["seconds"]) is int for each in told)
        stories.append([{k: v for k, v in each.items() if k not in ("seconds", "output_path")} for each in told])
    for each in (each for story in stories for each in story):
        each["other_scores"].pop("speed")
    assert json.loads(json.dumps(stories[0])) == json.loads(json.dumps(stories[1]))
    assert [each["step"] for each in stories[1]] == [0, 5, 10]
    assert [len(each["checkpoints"]) for each in stories[1]] == [1, 2, 3]


class KilledError(BaseException):
    """What no code of a training may catch."""


# Everything by which a training changes what is on the disk.
MOMENTS = [
    (Path, "rename"),
    (Path, "replace"),
    (Path, "unlink"),
    (shutil, "rmtree"),
    (shutil, "copytree"),
    (np, "savez"),
    (Language, "to_disk"),
]


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int, *, halfway: bool) -> list[str]:
    """End the process, so to speak, at the n-th change of what is on the disk: before it, or in its midst."""
    seen: list[str] = []

    def watched(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen.append(name)
            if len(seen) == number:
                if halfway and name == "to_disk":
                    args[0].tokenizer.to_disk(args[1])
                elif halfway and name == "savez":
                    args[0].write(b"PK")
                elif halfway:
                    original(*args, **kwargs)
                raise KilledError
            return original(*args, **kwargs)

        return call

    for owner, name in MOMENTS:
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    return seen


def test_a_training_can_be_killed_at_any_moment_again_and_again(data: Path) -> None:
    config = make_config(data, tener(), max_steps=3, eval_frequency=2)
    run(config, data / "whole")
    number, finished = 0, False
    while not finished:
        number += 1
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, number, halfway=number % 2 == 1)
            try:
                run(config, data / "killed")
                finished = True
            except KilledError:
                pass
    assert number > 10
    assert differing(data / "whole", data / "killed") == []
    assert {path.name for path in (data / "killed").iterdir()} == {*MODELS, LOG, RECORD}
