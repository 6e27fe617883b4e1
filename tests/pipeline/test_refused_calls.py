"""Calls that raise errors leave labels, word lists, settings and predictions unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs
from spacy.language import Language

from spacy_tener.architectures.tagger import TaggerModel
from spacy_tener.nn.serialize import from_safetensors, to_safetensors
from spacy_tener.pipeline import tener_ner as module
from spacy_tener.pipeline import words as pipeline_words

SURROGATE = "\ud800"
INVALID_LABELS = ["", "  ", 3, None, SURROGATE]
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
    **{f"add_label {label!r}": on_pipe("add_label", label) for label in INVALID_LABELS},
    **{f"extend by {label!r}": on_pipe("extend", ["NEW", label]) for label in INVALID_LABELS},
    **{f"rename to {label!r}": on_pipe("extend", ["NEW"], rename={"PER": label}) for label in INVALID_LABELS},
    "extend by a string": on_pipe("extend", "NEW"),
    "rename to an existing label": on_pipe("extend", ["NEW"], rename={"PER": "ORG"}),
    "rename two labels to the same label": on_pipe("extend", ["NEW"], rename={"PER": "A", "ORG": "A"}),
    "rename an unknown label": on_pipe("extend", ["NEW"], rename={"PER": "A", "NONE": "B"}),
    "initialize by a string": initialize("NEW"),
    **{f"initialize by {label!r}": initialize(["NEW", label]) for label in INVALID_LABELS},
    "add words without a list": on_list("add", "云海"),
    "add a dictionary with a tag": on_list("add", {"云海": "place"}, "place"),
    "add words with an unknown tag": on_list("add", {"云海": "place", "云山": "NONE"}),
    "add a word that is not a string": on_list("add", ["云海", 3]),
    "add to an invalid list name": on_list("add", ["云海"], name=SURROGATE),
    "remove a string": on_list("remove", "上海"),
    "remove a word that is not a string": on_list("remove", ["上海", None]),
    "words of an unknown list": on_list("words", "none"),
    "read a list with an unknown tag": read_list("云海\n云山\tNONE\n"),
    "read a list with too many columns": read_list("云海\n云山\tplace\t3\t4\n"),
    "read a missing file": on_list("read", "none.txt"),
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
    """Return the labels, settings, word lists, weights and predictions of a component."""
    pipe: Any = nlp.get_pipe("tener_ner")
    lists = {name: pipe.lexicon.words(name) for name in ("", *pipe.lexicon.names)}
    found = [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in nlp.pipe(text for text, _ in TEXTS)]
    return [pipe.labels, deepcopy(pipe.cfg), lists, pipe.model.get_dim("nO"), pipe.model.to_bytes(), found]


@pytest.mark.parametrize("name", CALLS)
def test_failed_call_leaves_component_unchanged(name: str, nlp: Language, tmp_path: Path) -> None:
    before = state(nlp)
    with pytest.raises((ValueError, OSError)):
        CALLS[name](nlp, nlp.get_pipe("tener_ner"), tmp_path)
    assert state(nlp) == before


@pytest.mark.parametrize("name", ["add_label", "extend", "initialize"])
def test_failed_model_resizing_leaves_component_unchanged(
    name: str, nlp: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(model: TaggerModel, n_labels: int) -> None:
        raise ValueError("Needs torch.")

    monkeypatch.setattr(module, "set_labels", fail)
    calls = {"add_label": on_pipe("add_label", "NEW"), "extend": on_pipe("extend", ["NEW"], rename={"PER": "NAME"})}
    before = state(nlp)
    with pytest.raises(ValueError, match="Needs torch"):
        calls.get(name, initialize(["NEW"]))(nlp, nlp.get_pipe("tener_ner"), tmp_path)
    assert state(nlp) == before


def fail_after(*words: Any) -> Iterator[Any]:
    """Yield words, and raise an error afterwards."""
    yield from words
    raise ValueError("No more words.")


def read_file(text: str, *arguments: Any) -> Callable[[Any, Path], object]:
    def read(words: Any, folder: Path) -> None:
        (folder / "list.txt").write_text(text, encoding="utf8")
        words.read(folder / "list.txt", *arguments)

    return read


def call(method: str, *arguments: Any, **options: Any) -> Callable[[Any, Path], object]:
    return lambda words, folder: getattr(words, method)(*arguments, **options)


WORD_CALLS: dict[str, Callable[[Any, Path], object]] = {
    "add a string": call("add", "云海", "LOC"),
    "add nothing": call("add", None, "LOC"),
    "add a dictionary with a label": call("add", {"云海": "LOC"}, "LOC"),
    "add a word that is not a string": call("add", ["云海", 3], "LOC"),
    "add from a failing iterator": lambda words, folder: words.add(fail_after("云海"), "LOC"),
    "add to an invalid list name": call("add", ["云海"], "LOC", name=SURROGATE),
    "add too many words": call("add", ["云海", "云山", "云天"], "LOC"),
    "remove a string": call("remove", "上海"),
    "remove a word that is not a string": call("remove", ["上海", None]),
    "remove from a failing iterator": lambda words, folder: words.remove(fail_after("上海")),
    "remove from an invalid list name": call("remove", ["上海"], name=3),
    "clear an invalid list name": call("clear", ["days"]),
    "words of an unknown list": call("words", "none"),
    "read a missing file": call("read", "none.txt"),
    "read too many columns": read_file("云海\n云山\tLOC\t3\t4\n", "LOC"),
    "read too many words": read_file("云海\n云山\n云天\n云地\n云水\n", "LOC"),
    "read into an invalid list name": call("read", "none.txt", "LOC", name=SURROGATE),
}
LAC_CALLS = {
    **WORD_CALLS,
    "add an unknown tag": call("add", {"云海": "LOC", "云山": "NONE"}),
    "read an unknown tag": read_file("云海\tLOC\n云山\tNONE\n"),
}
LIST_CALLS = {
    **WORD_CALLS,
    **{f"add with the label {label!r}": call("add", ["云海"], label) for label in INVALID_LABELS},
    **{f"add {label!r} among others": call("add", {"云海": "LOC", "云山": label}) for label in INVALID_LABELS},
    **{f"rename to {label!r}": call("rename", {"DAY": "DATE", "LOC": label}) for label in INVALID_LABELS},
    "add two labels of a word": call("add", {"云海": "LOC", "雲海": "SHIP"}),
    "block a string": call("block", "云海"),
    "block words with labels": call("block", {"云海": "LOC"}),
    "block a word that is not a string": call("block", ["云海", None]),
    "block from a failing iterator": lambda words, folder: words.block(fail_after("云海")),
    "blocked words of an unknown list": call("blocked", "none"),
    "remove from an unknown list": call("remove", ["上海"], name="none"),
    "read a word without a label": read_file("云海\tLOC\niphone 15 pro\n"),
    "read two labels of a word": read_file("云海\tLOC\n云海\tSHIP\n"),
}
INVALID_BYTES = [b"", b"\xc1", srsly.msgpack_dumps({"": [["云海"]]}), srsly.msgpack_dumps([1])]


@pytest.fixture(scope="module")
def lac() -> Any:
    return spacy.blank("zh").add_pipe("lac")


@pytest.fixture
def small_word_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_words, "MAX_WORDS", 4)


def fill(words: Any) -> list[Any]:
    """Add words to a component, also to a list that is not saved, and return all lists."""
    words.clear()
    words.add({"上海": "LOC", "云海一号": "ORG"})
    words.add(["昨天"], "TIME", name="days", saved=False)
    return word_lists(words)


def word_lists(words: Any) -> list[Any]:
    return [words.names, *(words.words(name) for name in ("", *words.names))]


@pytest.mark.parametrize("name", LAC_CALLS)
def test_failed_call_leaves_lac_lexicon_unchanged(name: str, lac: Any, small_word_limit: None, tmp_path: Path) -> None:
    before, saved = fill(lac.lexicon), lac.to_bytes()
    with pytest.raises((ValueError, TypeError, OSError)):
        LAC_CALLS[name](lac.lexicon, tmp_path)
    assert (word_lists(lac.lexicon), lac.to_bytes()) == (before, saved)


@pytest.mark.parametrize("name", [*LIST_CALLS, *INVALID_BYTES])
def test_failed_call_leaves_entity_lists_unchanged(name: str | bytes, small_word_limit: None, tmp_path: Path) -> None:
    lists: Any = spacy.blank("zh").add_pipe("entity_lists")
    before = fill(lists)
    lists.block(["云天"])
    saved = lists.to_bytes()
    with pytest.raises((ValueError, TypeError, OSError)):
        lists.from_bytes(name) if isinstance(name, bytes) else LIST_CALLS[name](lists, tmp_path)
    assert (word_lists(lists), lists.blocked(), lists.to_bytes()) == (before, ["云天"], saved)


@pytest.mark.parametrize("data", INVALID_BYTES)
def test_invalid_bytes_leave_lac_unchanged(data: bytes, lac: Any) -> None:
    before, saved = fill(lac.lexicon), lac.to_bytes()
    lists = {**from_safetensors(saved), "lists": srsly.msgpack_loads(data) if data[:1] == b"\x81" else None}
    for invalid in (data, to_safetensors(lists)):
        with pytest.raises(ValueError, match="Cannot load the component 'lac'"):
            lac.from_bytes(invalid)
    assert (word_lists(lac.lexicon), lac.to_bytes()) == (before, saved)
