"""Tiny training runs: corpora of a few sentences, models that train in milliseconds, and fake training processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import DocBin
from spacy.util import load_config_from_str
from thinc.api import Config

from spacy_tener.training import runs

NAMES = ("王小明", "李雷", "吴重阳", "韩梅", "张三丰")
PLACES = ("上海", "北京", "南京", "长沙")
VERBS = ("去了", "住在", "喜欢")
# Dropout is used everywhere, so that every step consumes random numbers.
TENER = {
    "@architectures": "spacy_tener.TENER.v1",
    "width": 16,
    "heads": 2,
    "dropout": 0.1,
    "embed": {
        "@architectures": "spacy_tener.CharEmbed.v1",
        "width": 16,
        "bigram_width": 8,
        "dropout": 0.1,
        "word_dropout": 0.1,
        "bigram_dropout": 0.1,
    },
}
MODEL = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.1, "tok2vec": TENER}

BASE = """
[paths]
train = null
dev = null

[system]
seed = 1

[nlp]
lang = "zh"
pipeline = []

[components]

[corpora]

[corpora.train]
@readers = "spacy.Corpus.v1"
path = ${paths.train}

[corpora.dev]
@readers = "spacy.Corpus.v1"
path = ${paths.dev}

[training]
seed = ${system.seed}
gpu_allocator = null
train_corpus = "corpora.train"
dev_corpus = "corpora.dev"
max_steps = 13
max_epochs = 0
patience = 0
eval_frequency = 5
dropout = 0.2

[training.batcher]
@batchers = "spacy.batch_by_sequence.v1"
size = 4

[training.optimizer]
@optimizers = "Adam.v1"
use_averages = true

[training.optimizer.learn_rate]
@schedules = "spacy_tener.triangular.v1"
max_rate = 0.02
total_steps = 14

[training.logger]
@loggers = "spacy.ConsoleLogger.v3"
progress_bar = null
console_output = true
output_file = null
"""


def sentences() -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    for number, (name, verb, place) in enumerate((n, v, p) for n in NAMES for v in VERBS for p in PLACES):
        end = len(name) + len(verb)
        if number % 3 == 0:
            yield f"{name}{verb}{place}", [(0, len(name), "PER"), (end, end + len(place), "GPE")]


def write_corpus(path: Path, wanted: int | None = None, lang: str = "zh") -> Path:
    """Write a .spacy file with made-up sentences."""
    nlp = spacy.blank(lang)
    docs = DocBin()
    for text, entities in list(sentences())[:wanted]:
        doc = nlp.make_doc(text)
        doc.ents = [doc.char_span(start, end, label=label) for start, end, label in entities]
        docs.add(doc)
    path.parent.mkdir(parents=True, exist_ok=True)
    docs.to_disk(path)
    return path


def make_config(folder: Path, components: dict[str, Any], **training: Any) -> Config:
    """Return a config for a tiny training run, with its corpora in `folder`.

    training: Settings of [training]. Use two underscores for sections, such as `optimizer__L2` for `optimizer.L2`.
    """
    config = load_config_from_str(BASE, interpolate=False)
    config["paths"].update({name: str(folder / f"{name}.spacy") for name in ("train", "dev")})
    config["nlp"]["pipeline"] = list(components)
    config["components"] = components
    for name, value in training.items():
        section = config["training"]
        *sections, key = name.split("__")
        for section_name in sections:
            section = section[section_name]
        section[key] = value
    return config


def make_grid(folder: Path, corpora: Sequence[str], overlays: Mapping[str, str]) -> None:
    """Write the files for `python -m research grid` to a directory: corpora, configs and overlays."""
    config = make_config(folder, tener(), max_steps=4, eval_frequency=2)
    config["paths"] = {"train": None, "dev": None}
    (folder / "configs" / "models").mkdir(parents=True)
    for corpus in corpora:
        for part in ("train", "dev", "test"):
            write_corpus(folder / "corpus" / corpus / f"{part}.spacy", 8)
        config.to_disk(folder / "configs" / f"{corpus}.cfg")
    for name, overlay in overlays.items():
        (folder / "configs" / "models" / f"{name}.cfg").write_text(overlay, encoding="utf8")


# An overlay with which `fake_spacy` fails.
FAILING_OVERLAY = "[components.tener_ner.model.tok2vec]\nwidth = 24\nheads = 6\n[components.tener_ner]\nwindow = 99\n"


def tener(**settings: Any) -> dict[str, Any]:
    return {"tener_ner": {"factory": "tener_ner", "model": MODEL, **settings}}


def fake_training(monkeypatch: pytest.MonkeyPatch, hold: Path) -> None:
    """Run `fake_spacy` instead of spaCy in other processes. Training runs wait while the file `hold` exists."""
    monkeypatch.setattr(runs, "MODULE", "fake_spacy")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_HOLD", str(hold))


def start_process(function: Callable[..., object], *arguments: object) -> BaseProcess:
    """Call a function in a forked process, which starts immediately because it shares the imported modules."""
    process = get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A dead process remains as a zombie if its parent has not collected its exit status.
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "\nState:\tZ" not in status.read_text()


def code_options(folder: Path) -> list[str]:
    """Return options for a training run that needs a function from `--code`."""
    lines = ["import spacy", "", "spacy.registry.callbacks.register('mine.v1', func=lambda: lambda nlp, info: None)"]
    (folder / "mine.py").write_text("\n".join(lines) + "\n", encoding="utf8")
    return ["--code", str(folder / "mine.py"), "--set", 'training.before_update={"@callbacks": "mine.v1"}']
