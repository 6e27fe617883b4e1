"""A call that is refused changes nothing: not the labels, the lists, the settings, or what is found."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs
from spacy.language import Language

from spacy_tener.architectures.tagger import TaggerModel
from spacy_tener.pipeline import tener_ner as module

SURROGATE = "\ud800"
WRONG_LABELS = ["", "  ", 3, None, SURROGATE]
Call = Callable[[Language, Any, Path], object]


def on_pipe(method: str, *arguments: Any, **options: Any) -> Call:
    return lambda nlp, pipe, folder: getattr(pipe, method)(*arguments, **options)


def on_list(method: str, *arguments: Any, **options: Any) -> Call:
    return lambda nlp, pipe, folder: getattr(pipe.lexicon, method)(*arguments, **options)


def read_list(text: str, tag: str = "") -> Call:
    def read(nlp: Language, pipe: Any, folder: Path) -> None:
        (folder / "list.txt").write_text(text, encoding="utf8")
        pipe.lexicon.read(folder / "list.txt", tag)

    return read


def initialize(labels: Any) -> Call:
    return lambda nlp, pipe, folder: pipe.initialize(partial(examples_of, nlp), labels=labels)


CALLS: dict[str, Call] = {
    **{f"add_label {label!r}": on_pipe("add_label", label) for label in WRONG_LABELS},
    **{f"extend by {label!r}": on_pipe("extend", ["NEW", label]) for label in WRONG_LABELS},
    **{f"rename to {label!r}": on_pipe("extend", ["NEW"], rename={"PER": label}) for label in WRONG_LABELS},
    "extend by a string": on_pipe("extend", "NEW"),
    "rename to a label that is there": on_pipe("extend", ["NEW"], rename={"PER": "ORG"}),
    "rename two to one": on_pipe("extend", ["NEW"], rename={"PER": "A", "ORG": "A"}),
    "rename what is not there": on_pipe("extend", ["NEW"], rename={"PER": "A", "NONE": "B"}),
    "initialize by a string": initialize("NEW"),
    **{f"initialize by {label!r}": initialize(["NEW", label]) for label in WRONG_LABELS},
    "add words without a list": on_list("add", "云海"),
    "add words with an unknown tag": on_list("add", {"云海": "place", "云山": "NONE"}),
    "add what is no word": on_list("add", ["云海", 3]),
    "add to what is no name": on_list("add", ["云海"], name=SURROGATE),
    "remove a string": on_list("remove", "上海"),
    "remove what is no word": on_list("remove", ["上海", None]),
    "words of an unknown list": on_list("words", "none"),
    "read a list with an unknown tag": read_list("云海\n云山\tNONE\n"),
    "read a list with too many columns": read_list("云海\n云山\tplace\t3\t4\n"),
    "read a file that is not there": on_list("read", "none.txt"),
}


@pytest.fixture(scope="module")
def saved_words(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sources")
    tok2vec = small_tok2vecs(folder)["FLAT"]
    lexicon = {"@misc": "spacy_tener.WordList.v1", "path": str(folder / "words.txt"), "tag": "place"}
    nlp = pipeline({**tok2vec, "words": {**tok2vec["words"], "tag_width": 4, "lexicon": lexicon}})
    nlp.initialize(lambda: examples_of(nlp))
    pipe: Any = nlp.get_pipe("tener_ner")
    pipe.cfg |= {"threshold": {"PER": 0.01}, "latin_edges": {"PER": [9, 1]}, "labels_over_lines": ["PER"]}
    pipe.lexicon.add(["天气", "银行"], "place")
    pipe.lexicon.add(["昨天"], name="days")
    return nlp.to_bytes()


@pytest.fixture
def nlp(saved_words: bytes, tmp_path: Path) -> Language:
    tok2vec = small_tok2vecs(tmp_path)["FLAT"]
    return pipeline({**tok2vec, "words": {**tok2vec["words"], "tag_width": 4}}).from_bytes(saved_words)


def state(nlp: Language) -> list[Any]:
    """Return all that a component says of itself, and what it finds."""
    pipe: Any = nlp.get_pipe("tener_ner")
    lists = {name: pipe.lexicon.words(name) for name in ("", *pipe.lexicon.names)}
    found = [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in nlp.pipe(text for text, _ in TEXTS)]
    return [pipe.labels, deepcopy(pipe.cfg), lists, pipe.model.get_dim("nO"), pipe.model.to_bytes(), found]


@pytest.mark.parametrize("name", CALLS)
def test_a_refused_call_changes_nothing(name: str, nlp: Language, tmp_path: Path) -> None:
    before = state(nlp)
    with pytest.raises((ValueError, OSError)):
        CALLS[name](nlp, nlp.get_pipe("tener_ner"), tmp_path)
    assert state(nlp) == before


@pytest.mark.parametrize("name", ["add_label", "extend", "initialize"])
def test_a_model_that_cannot_grow_has_its_labels_still(
    name: str, nlp: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: TaggerModel, n_labels: int) -> None:
        raise ValueError("Needs torch.")

    monkeypatch.setattr(module, "set_labels", fail)
    call = {"add_label": on_pipe("add_label", "NEW"), "extend": on_pipe("extend", ["NEW"], rename={"PER": "NAME"})}
    before = state(nlp)
    with pytest.raises(ValueError, match="Needs torch"):
        call.get(name, initialize(["NEW"]))(nlp, nlp.get_pipe("tener_ner"), tmp_path)
    assert state(nlp) == before
