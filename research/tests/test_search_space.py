"""Spaces: files with choices, ranges and formulas, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from research.search import SearchPlan
from research.search_space import as_settings, bounds, read_space
from spacy_tener.workbench.composing.compose import compose
from spacy_tener.workbench.composing.files import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"
SEARCH = CONFIGS.parent / "research" / "spaces"
# Base, overlays and space of each search that the papers made.
SEARCHES = [
    ("weibo", (), "tener"),
    ("resume", ("models/sgd",), "tener"),
    ("conll2003", (), "tener-english"),
    ("ontonotes5", ("models/sgd",), "tener-english"),
    ("weibo", ("models/flat-atssa",), "flat-atssa"),
    ("resume", ("models/flat-atssa", "models/sgd"), "flat-atssa"),
    ("weibo", ("models/mect", "models/sgd"), "mect"),
]
TOK2VEC = "components.tener_ner.model.tok2vec"


@pytest.fixture
def space(tmp_path: Path):
    def read(text: str):
        path = tmp_path / "space.cfg"
        path.write_text(text, encoding="utf8")
        return read_space(path)

    return read


# What is drawn from


def test_lists_are_choices_and_lows_with_highs_are_ranges(space) -> None:
    read = space(
        """
[a.b]
choice = [1, 2.5, "x", true, null]
whole = {"low": 1, "high": 9, "step": 2}
rate = {"low": 0.001, "high": 0.1, "log": true, "step": null}

[a.b.section]
low = 0.5
high = 1
"""
    )
    assert read.draws == {
        "a.b.choice": CategoricalDistribution((1, 2.5, "x", True, None)),
        "a.b.whole": IntDistribution(1, 9, step=2),
        "a.b.rate": FloatDistribution(0.001, 0.1, log=True),
        "a.b.section": FloatDistribution(0.5, 1),
    }


def test_formulas_are_computed_from_what_is_drawn(space) -> None:
    read = space(
        """
[draws]
head_width = [16]
rate = [0.003]

[model]
heads = [4, 8]
width = "= heads * head_width"
half = "= (heads * head_width + 2 - 2) // 2"
rates = "= {'radicals.*': rate / 0.001}"
same = "= rate"
"""
    )
    values = read.values({"draws.head_width": 16, "draws.rate": 0.003, "model.heads": 8})
    assert values == {
        "model.heads": 8,
        "model.width": 128,
        "model.half": 64,
        "model.rates": {"radicals.*": pytest.approx(3.0)},
        "model.same": 0.003,
    }
    assert isinstance(values["model.width"], int)
    assert read.settings == ["model.heads", "model.width", "model.half", "model.rates", "model.same"]


def test_the_example_has_the_first_of_each_choice_and_the_lowest_of_each_range(space) -> None:
    read = space('[a]\nx = [3, 1]\ny = {"low": 2, "high": 5}\n')
    assert read.example() == {"a.x": 3, "a.y": 2}


def test_values_are_settings_that_compose_reads_back() -> None:
    values = {
        f"{TOK2VEC}.heads": 8,
        f"{TOK2VEC}.adapted": False,
        f"{TOK2VEC}.ff_width": None,
        "training.optimizer.learn_rate.max_rate": 0.0009,
    }
    config = compose(CONFIGS / "weibo.cfg", settings=as_settings(values))
    tok2vec = config["components"]["tener_ner"]["model"]["tok2vec"]
    assert (tok2vec["heads"], tok2vec["adapted"], tok2vec["ff_width"]) == (8, False, None)
    assert config["training"]["optimizer"]["learn_rate"]["max_rate"] == pytest.approx(0.0009)


# What is wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\nx = 3\n", "a.x: 3 is neither a choice nor a range"),
        ('[a]\nx = "y"\n', 'a.x: "y" is neither a choice nor a range'),
        ("[a]\nx = []\n", "a.x: The `choices` must contain one or more elements"),
        ("[a]\nx = [[1, 2]]\n", "a.x: [1, 2] is not a number, string, true, false or null"),
        ("[a]\nx = [1, 2, 1]\n", "a.x: a value occurs twice"),
        ('[a]\nx = {"low": 1, "high": 1}\n', "a.x: `low` must be below `high`"),
        ('[a]\nx = {"low": 0, "high": 1, "log": true}\n', "`low"),
        ('[a]\nx = {"low": 1, "high": 5, "log": true, "step": 2}\n', "step is 1 when `log` argument is True"),
        ('[a]\nx = {"low": 1, "high": 5, "step": 0.5}\n', "`step` must be an integer in a range of integers"),
        ('[a]\nx = {"low": 1, "high": 5, "log": 1}\n', "`log` is true or false"),
        ('[a]\nx = {"low": "1", "high": 5}\n', "`low`, `high` and `step` are numbers"),
        ('[a]\nx = {"low": 1, "high": 5, "step": "2"}\n', "`low`, `high` and `step` are numbers"),
        ('[a]\nx = {"low": 1, "high": 5, "base": 2}\n', "a range has high, log, low, step, not base"),
        ('[a]\nx = [1]\ny = "= x *"\n', '"= x *" is not a formula'),
        ('[a]\nx = [1]\ny = "= max(x, 2)"\n', "'max' in"),
        ('[a]\nx = [1]\ny = "= x ** 2"\n', "has more than + - * / // of numbers"),
        ('[a]\nx = [0]\ny = "= 1 / x"\n', '"= 1 / x" has no value: division by zero'),
        ('[a]\nx = ["s"]\ny = "= x / 2"\n', '"= x / 2" has no value'),
        (
            '[a]\nheads = [1]\ny = "= haeds"\n',
            "'haeds' in \"= haeds\" is not sampled. Did you mean heads",
        ),
        ('[a]\nx = [1]\n[b]\nx = [1]\ny = "= x"\n', "is ambiguous: several sampled values end in it"),
        ("[draws]\nx = [1]\n[a]\ny = [1]\n", "draws.x: no formula uses it"),
        ("", "there is nothing to sample"),
        ("[a]\nx = [1]\nx = [2]\n", "'x' occurs twice in [a]"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_setting(space, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        space(text)
    assert "space.cfg" in caught.value.reason
    assert message in str(caught.value)
    assert caught.value.remedy.endswith((".", "?"))


def test_a_formula_does_nothing_but_compute(space) -> None:
    for harm in ("__import__('os')", "x.real", "[x]", "(lambda: x)()", "{**x}"):
        with pytest.raises(ConfigError):
            space(f'[a]\nx = [1]\ny = "= {harm}"\n')


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.cfg: cannot be read"):
        read_space(tmp_path / "nothing.cfg")


# The papers' spaces


def plan(base: str, overlays: tuple[str, ...], space: str) -> SearchPlan:
    layers = tuple(CONFIGS / f"{name}.cfg" for name in overlays)
    return SearchPlan(CONFIGS / f"{base}.cfg", layers, (), read_space(SEARCH / f"{space}.cfg"))


def test_every_space_and_overlay_of_the_papers_is_tried_here() -> None:
    tried = {space for _, _, space in SEARCHES} | {name.removeprefix("search/") for _, o, _ in SEARCHES for name in o}
    assert {path.stem for path in SEARCH.glob("*.cfg")} <= tried


@pytest.mark.parametrize(("base", "overlays", "space"), SEARCHES)
def test_the_papers_spaces_fit_their_configs(base: str, overlays: tuple[str, ...], space: str) -> None:
    search_plan = plan(base, overlays, space)
    search_plan.check()
    # The largest of everything makes a model, too.
    largest = {name: bounds(draw)[-1] for name, draw in search_plan.space.draws.items()}
    config = search_plan.config(search_plan.space.values(largest))
    again = config.from_str(config.to_str(interpolate=False), interpolate=False)
    assert again == config


def choices(space: str) -> dict[str, tuple]:
    draws = read_space(SEARCH / f"{space}.cfg").draws
    shown = {name: bounds(draw) for name, draw in draws.items()}
    return {name.rpartition(".")[2] if "dropout" not in name else name: values for name, values in shown.items()}


def test_ranges_are_those_that_the_papers_print() -> None:
    assert choices("tener") == {
        "layers": (1, 2),
        "heads": (4, 6, 8, 10),
        "head_width": (32, 48, 64, 80, 96),
        "max_rate": (1e-3, 7e-4, 5e-4),
    }
    assert choices("tener-english") == {
        "layers": (1, 2),
        "heads": (8, 10, 12, 14),
        "head_width": (64, 80, 96, 112, 128),
        "max_rate": (9e-4, 7e-4, 5e-4),
    }
    assert choices("flat-atssa") == {
        "heads": (4, 8, 12),
        "head_width": (8, 10, 12),
        "ff_times": (4, 6, 8),
        "max_rate": (1e-3, 8e-4, 6e-4),
        "warmup": (0.01, 0.05, 0.1),
    }
    assert choices("mect") == {
        "components.tener_ner.model.dropout": (0.1, 0.2, 0.3),
        "draws.lattice_dropout": (0.1, 0.2, 0.3),
        f"{TOK2VEC}.radicals.dropout": (0.1, 0.2, 0.3, 0.4),
        "warmup": (0.1, 0.2, 0.3),
        "head_width": (16, 20),
        "max_rate": (1e-3, 25e-4),
        "radical_rate": (6e-4, 25e-4),
        "momentum": (0.85, 0.97),
    }


def test_mect_is_as_wide_as_the_paper_has_it_and_its_radicals_have_their_own_rate() -> None:
    search_plan = plan("weibo", ("models/mect", "models/sgd"), "mect")
    drawn = {**search_plan.space.example(), "draws.head_width": 20, "draws.radical_rate": 0.0012}
    config = search_plan.config(search_plan.space.values({**drawn, "training.optimizer.learn_rate.max_rate": 0.002}))
    assert config["components"]["tener_ner"]["model"]["tok2vec"]["width"] == 160
    assert config["training"]["optimizer"]["rates"] == {"radicals.*": pytest.approx(0.6)}
