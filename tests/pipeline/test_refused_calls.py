"""A call that is refused changes nothing: not the labels, the lists, the settings, or what is found."""

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


def stopping(*words: Any) -> Iterator[Any]:
    """Yield words, and fail behind them."""
    yield from words
    raise ValueError("No more words.")


def reading(text: str, *arguments: Any) -> Callable[[Any, Path], object]:
    def read(words: Any, folder: Path) -> None:
        (folder / "list.txt").write_text(text, encoding="utf8")
        words.read(folder / "list.txt", *arguments)

    return read


def calling(method: str, *arguments: Any, **options: Any) -> Callable[[Any, Path], object]:
    return lambda words, folder: getattr(words, method)(*arguments, **options)


OF_WORDS: dict[str, Callable[[Any, Path], object]] = {
    "add a string": calling("add", "云海", "LOC"),
    "add nothing": calling("add", None, "LOC"),
    "add what is no word": calling("add", ["云海", 3], "LOC"),
    "add words that stop": lambda words, folder: words.add(stopping("云海"), "LOC"),
    "add to what is no name": calling("add", ["云海"], "LOC", name=SURROGATE),
    "add too many words": calling("add", ["云海", "云山", "云天"], "LOC"),
    "remove a string": calling("remove", "上海"),
    "remove what is no word": calling("remove", ["上海", None]),
    "remove words that stop": lambda words, folder: words.remove(stopping("上海")),
    "remove from what is no name": calling("remove", ["上海"], name=3),
    "clear what is no name": calling("clear", ["days"]),
    "words of an unknown list": calling("words", "none"),
    "read a file that is not there": calling("read", "none.txt"),
    "read too many columns": reading("云海\n云山\tLOC\t3\t4\n", "LOC"),
    "read too many words": reading("云海\n云山\n云天\n云地\n云水\n", "LOC"),
    "read into what is no name": calling("read", "none.txt", "LOC", name=SURROGATE),
}
OF_LAC = {
    **OF_WORDS,
    "add an unknown tag": calling("add", {"云海": "LOC", "云山": "NONE"}),
    "read an unknown tag": reading("云海\tLOC\n云山\tNONE\n"),
}
OF_LISTS = {
    **OF_WORDS,
    **{f"add with the label {label!r}": calling("add", ["云海"], label) for label in WRONG_LABELS},
    **{f"add {label!r} among others": calling("add", {"云海": "LOC", "云山": label}) for label in WRONG_LABELS},
    **{f"rename to {label!r}": calling("rename", {"DAY": "DATE", "LOC": label}) for label in WRONG_LABELS},
    "add two labels of a word": calling("add", {"云海": "LOC", "雲海": "SHIP"}),
    "block a string": calling("block", "云海"),
    "block words with labels": calling("block", {"云海": "LOC"}),
    "block what is no word": calling("block", ["云海", None]),
    "block words that stop": lambda words, folder: words.block(stopping("云海")),
    "blocked words of an unknown list": calling("blocked", "none"),
    "remove from an unknown list": calling("remove", ["上海"], name="none"),
    "read a word without a label": reading("云海\tLOC\niphone 15 pro\n"),
    "read two labels of a word": reading("云海\tLOC\n云海\tSHIP\n"),
}
WRONG_BYTES = [b"", b"\xc1", srsly.msgpack_dumps({"": [["云海"]]}), srsly.msgpack_dumps([1])]


@pytest.fixture(scope="module")
def lac() -> Any:
    return spacy.blank("zh").add_pipe("lac")


@pytest.fixture
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_words, "MAX_WORDS", 4)


def fill(words: Any) -> list[Any]:
    """Give words to a component, in a list that is not saved too, and return what it holds."""
    words.clear()
    words.add({"上海": "LOC", "云海一号": "ORG"})
    words.add(["昨天"], "TIME", name="days", saved=False)
    return held(words)


def held(words: Any) -> list[Any]:
    return [words.names, *(words.words(name) for name in ("", *words.names))]


@pytest.mark.parametrize("name", OF_LAC)
def test_a_refused_call_changes_no_word_of_lac(name: str, lac: Any, few_words: None, tmp_path: Path) -> None:
    before, saved = fill(lac.lexicon), lac.to_bytes()
    with pytest.raises((ValueError, TypeError, OSError)):
        OF_LAC[name](lac.lexicon, tmp_path)
    assert (held(lac.lexicon), lac.to_bytes()) == (before, saved)


@pytest.mark.parametrize("name", [*OF_LISTS, *WRONG_BYTES])
def test_a_refused_call_changes_no_list(name: str | bytes, few_words: None, tmp_path: Path) -> None:
    lists: Any = spacy.blank("zh").add_pipe("entity_lists")
    before = fill(lists)
    lists.block(["云天"])
    saved = lists.to_bytes()
    with pytest.raises((ValueError, TypeError, OSError)):
        lists.from_bytes(name) if isinstance(name, bytes) else OF_LISTS[name](lists, tmp_path)
    assert (held(lists), lists.blocked(), lists.to_bytes()) == (before, ["云天"], saved)


@pytest.mark.parametrize("data", WRONG_BYTES)
def test_bytes_that_are_no_lac_leave_it_as_it_was(data: bytes, lac: Any) -> None:
    before, saved = fill(lac.lexicon), lac.to_bytes()
    lists = {**from_safetensors(saved), "lists": srsly.msgpack_loads(data) if data[:1] == b"\x81" else None}
    for wrong in (data, to_safetensors(lists)):
        with pytest.raises(ValueError, match="Cannot load the component 'lac'"):
            lac.from_bytes(wrong)
    assert (held(lac.lexicon), lac.to_bytes()) == (before, saved)
