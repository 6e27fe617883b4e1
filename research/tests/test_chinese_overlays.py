"""Tests of the configs of Chinese corpora with overlays of lexicon architectures: all combinations can be trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from losses import get_loss
from spacy.language import Language
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config

from research import variants  # noqa: F401 (registers the functions that some systems name)
from research.systems import ablations, find_system
from spacy_tener.features.tokens import join_texts
from spacy_tener.training.overlays import compose

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = {*ablations(), *(path.stem for path in (CONFIGS / "models").glob("*.cfg"))}
STACKS = {
    ("flat",): {"@architectures": "spacy_tener.FLAT.v1"},
    ("flat-atssa",): {"@architectures": "spacy_tener.FLAT_ATSSA.v1", "selection": "adaptive", "k": 3, "alpha": 50.0},
    ("flat-atssa-no-selection",): {"selection": "none"},
    ("flat-atssa-no-top-k",): {"selection": "adaptive", "k": 0},
    ("flat-atssa-no-amplification",): {"alpha": 1.0},
    ("flat-atssa-fixed-threshold",): {"selection": {"@misc": "research.FixedThreshold.v1"}},
    ("flat-atssa-top-k",): {"selection": {"@misc": "research.LargestKeys.v1"}, "k": 3},
    ("mect",): {"@architectures": "spacy_tener.MECT.v1", "random_attention": 320},
    ("mect-single-stream",): {"streams": {"@misc": "research.SingleStream.v1"}},
    ("mect-no-cross",): {"streams": {"@misc": "research.ParallelStreams.v1"}},
    ("mect-no-random-attention",): {"random_attention": 0},
}
BASES = ("weibo", "resume", "msra", "ontonotes4")
# Points in figures of FLAT-ATSSA's paper, each of which changes one setting.
SWEEPS = {
    **{(f"flat-atssa-k-{k}",): {"k": k, "alpha": 50.0} for k in (1, 2, 4, 5)},
    **{(f"flat-atssa-alpha-{alpha}",): {"k": 3, "alpha": alpha} for alpha in (10, 25, 75, 100)},
}
TEXT = "吴重阳在中国银行工作。"
ENTITIES = [(0, 3, "PER"), (4, 8, "ORG")]


def name_of(value: object) -> str:
    return "+".join(value) if isinstance(value, tuple) else value if isinstance(value, str) else "settings"


@cache
def composed(base: str, overlays: tuple[str, ...]) -> Config:
    return compose(CONFIGS / f"{base}.cfg", *find_system("+".join(overlays or ("tener",))))


def settings(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all settings with their dotted paths."""
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def loss_without_dropout(nlp: Language, examples: list[Example]) -> float:
    component = nlp.get_pipe("tener_ner")
    scores = component.model.predict([example.predicted for example in examples])
    return float(get_loss(component, examples, scores)[0])


@pytest.mark.parametrize(
    ("base", "overlays", "settings"),
    [
        *(("weibo", *stack) for stack in STACKS.items()),
        *((base, *stack) for base in BASES[1:] for stack in STACKS.items() if len(stack[0]) == 1),
        *(("resume", *stack) for stack in SWEEPS.items()),
    ],
    ids=name_of,
)
def test_overlay_sets_what_its_name_says_and_keeps_the_corpus_training(
    base: str, overlays: tuple[str, ...], settings: dict[str, Any]
) -> None:
    config, base_config = composed(base, overlays), composed(base, ())
    tok2vec = config["components"]["tener_ner"]["model"]["tok2vec"]
    assert {name: tok2vec[name] for name in settings} == settings
    assert tok2vec["embed"]["vectors"] == "${paths.char_vectors}"
    assert tok2vec["words"]["vectors"] == "${paths.word_vectors}"
    assert tok2vec["embed"]["whiten_vectors"] is tok2vec["words"]["whiten_vectors"] is True
    assert config["training"] == base_config["training"]


@pytest.mark.parametrize("base", BASES)
def test_grn_reads_characters_with_its_own_sizes_and_rate(base: str) -> None:
    config, base_config = composed(base, ("char-grn",)), composed(base, ())
    grn_config = composed("conll2003", ("grn",))
    model, words = (composed_config["components"]["tener_ner"]["model"] for composed_config in (config, grn_config))
    assert {**model["tok2vec"], "embed": None, "dropout": 0.5} == {**words["tok2vec"], "embed": None}
    assert model["tok2vec"]["embed"] == base_config["components"]["tener_ner"]["model"]["tok2vec"]["embed"]
    expected = deepcopy(base_config["training"])
    expected["optimizer"]["learn_rate"]["max_rate"] = 0.002
    assert config["training"] == expected


@pytest.mark.parametrize(
    ("base", "layers", "heads", "head_width"),
    [("weibo", 1, 4, 32), ("resume", 2, 4, 64), ("ontonotes4", 2, 4, 48), ("msra", 2, 6, 80)],
)
def test_the_sizes_are_those_of_the_released_code(base: str, layers: int, heads: int, head_width: int) -> None:
    tok2vec = composed(base, ())["components"]["tener_ner"]["model"]["tok2vec"]
    width = heads * head_width
    sizes = {"layers": layers, "heads": heads, "width": width, "ff_width": 2 * width}
    assert {name: tok2vec[name] for name in sizes} == sizes


@pytest.mark.parametrize("base", BASES)
def test_a_base_differs_from_weibos_in_size_and_length_only(base: str) -> None:
    base_config, weibo = (dict(settings(composed(name, ()))) for name in (base, "weibo"))
    sizes = {f"components.tener_ner.model.tok2vec.{name}" for name in ("width", "layers", "heads", "ff_width")}
    rates = {f"training.optimizer.learn_rate.{name}" for name in ("max_rate", "total_steps")}
    changed = {name for name in base_config.keys() | weibo.keys() if base_config.get(name) != weibo.get(name)}
    assert changed <= {*sizes, *rates, "training.max_steps", "training.patience", "training.eval_frequency"}


@pytest.mark.parametrize("overlays", [*STACKS, ("char-grn",), ("segment",), ("mect", "segment")], ids="+".join)
def test_every_stack_trains_and_lowers_its_loss(overlays: tuple[str, ...]) -> None:
    nlp = load_model_from_config(composed("weibo", overlays).interpolate(), auto_fill=False)
    examples = [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})]
    optimizer = nlp.initialize(lambda: examples)
    before = loss_without_dropout(nlp, examples)
    for _ in range(8):
        nlp.update(examples, sgd=optimizer)
    assert loss_without_dropout(nlp, examples) < before


def test_every_overlay_of_the_lexicon_is_in_a_stack() -> None:
    assert {name for name in NAMES if name.startswith(("flat", "mect"))} == {
        name for stack in (*STACKS, *SWEEPS) for name in stack
    }


def write_vectors(folder: Path, width: int = 50) -> None:
    """Write vectors as `spacy project run vectors` does, with a vector for each string in the text."""
    folder.mkdir()
    strings = {"chars": list(TEXT), "bigrams": [*map("".join, pairwise(TEXT)), "。<eos>"], "words": ["中国", "银行"]}
    for kind, found in strings.items():
        rows = [f"{string} {' '.join(str((i + j) % 7 - 3) for j in range(width))}" for i, string in enumerate(found)]
        (folder / f"{kind}.vec").write_text("\n".join([f"{len(found)} {width}", *rows, ""]), encoding="utf8")


@pytest.mark.parametrize(
    ("system", "overlay"),
    [
        *((system, overlay) for system in ("flat-atssa", "tener") for overlay in ("vectors", "vectors-chars")),
        *(("flat-atssa", overlay) for overlay in ("vectors-bigrams", "vectors-words")),
    ],
)
def test_vectors_of_the_project_are_read_where_their_overlay_is_laid(
    system: str, overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    overlays = (overlay,) if system == "tener" else (system, overlay)
    config = composed("weibo", overlays).interpolate()
    monkeypatch.chdir(tmp_path)
    write_vectors(tmp_path / "vectors")
    nlp = load_model_from_config(config, auto_fill=False)
    with caplog.at_level("INFO", logger="spacy"):
        nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})])
    kinds = {"chars": "unigram", "bigrams": "bigram", "words": "word"}
    wanted = set(kinds) if overlay == "vectors" else {overlay.partition("-")[2]}
    wanted -= {"words"} if system == "tener" else set()
    found = {kind for kind, table in kinds.items() if f"Pretrained {table} vectors: found" in caplog.text}
    assert found == wanted


@pytest.mark.parametrize("system", ["tener", "flat", "flat-atssa", "mect", "char-grn"])
def test_vectors_change_where_rows_come_from_and_how_many_drop_out(system: str) -> None:
    overlays = () if system == "tener" else (system,)
    before, after = (dict(settings(composed("weibo", names))) for names in (overlays, (*overlays, "vectors")))
    dropout = "components.tener_ner.model.tok2vec.embed.dropout"
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed - {dropout, "paths.word_vectors"} == {"paths.char_vectors", "paths.bigram_vectors"}
    assert after[dropout] == 0.5


def lexicons(nlp: Language) -> Iterator[Any]:
    for node in nlp.get_pipe("tener_ner").model.walk():
        if "vocabulary" in node.attrs and hasattr(node.attrs["vocabulary"], "lexicon"):
            yield node.attrs["vocabulary"].lexicon


def test_lists_join_jiebas_words_where_their_overlay_is_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("weibo", ("flat", "lexicon-joined", "lexicon-tags")).interpolate()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "assets" / "lexicons").mkdir(parents=True)
    (tmp_path / "assets" / "lexicons" / "people.txt").write_text("吴重阳\t7\n", encoding="utf8")
    nlp = load_model_from_config(config, auto_fill=False)
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})])
    lexicon = next(iter(lexicons(nlp)))
    found = lexicon.find(join_texts([nlp.make_doc(TEXT)]), max_words=5)
    tags = {lexicon.words[word]: lexicon.tag_names[lexicon.tags[word]] for word in found.words}
    expected = {"吴重阳": "people", "重阳": "ns", "中国": "ns", "中国银行": "nt", "银行": "n"}
    assert expected.items() <= tags.items()
