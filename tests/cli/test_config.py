"""Test the command `config`, which combines a base config, overlays and settings into a complete config."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import spacy
from command_line import run_tener
from small_corpora import annotated, save_docs
from spacy.cli.init_config import fill_config, init_config
from spacy.cli.train import train
from spacy.util import load_config, load_model_from_config
from thinc.api import Config

from spacy_tener.training.config_files import BASES, OVERLAYS, ConfigError, names_in, read_config
from spacy_tener.training.overlays import compose

BASE = Path(__file__).parent.parent.parent / "configs" / "weibo.cfg"
TOK2VEC = "components.tener_ner.model.tok2vec"
DESCRIPTIONS = {"weibo": "Weibo NER", "multilingual": "Any language"}
TOTAL_STEPS = "training.optimizer.learn_rate.total_steps"
CNN = f"""
[{TOK2VEC}]
@architectures = "spacy.HashEmbedCNN.v2"
width = 96
depth = 4
embed_size = 500
window_size = 1
maxout_pieces = 3
subword_features = false
pretrained_vectors = null
"""


@pytest.fixture
def overlay(tmp_path: Path):
    count = iter(range(9))

    def write(text: str) -> Path:
        path = tmp_path / f"overlay{next(count)}.cfg"
        path.write_text(text, encoding="utf8")
        return path

    return write


def value(composed: Config, key: str) -> object:
    node = composed
    for part in key.split("."):
        node = node[part]
    return node


def run(*arguments: str | Path) -> tuple[int, str, str]:
    ran = run_tener("config", *arguments)
    return ran.code, ran.stdout, ran.stderr


def compose_error(*overlays: Path | str, settings: tuple[str, ...] = (), base: Path = BASE) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compose(base, overlays, settings)
    assert caught.value.fix.endswith((".", "?"))
    return caught.value


# Output


def test_base_config_is_filled_as_by_spacy(tmp_path: Path, overlay) -> None:
    nlp, component = '[nlp]\nlang = "zh"\npipeline = ["ner"]\n', '[components.ner]\nfactory = "ner"\n'
    _, filled = fill_config(tmp_path / "filled.cfg", overlay(f"{nlp}[components]\n{component}"), silent=True)
    assert compose(overlay(component + nlp)) == filled


def test_composed_config_loads_and_keeps_variables(tmp_path: Path, overlay) -> None:
    path = overlay(f"[paths]\nmore = null\n[{TOK2VEC}.embed]\nbigram_vectors = ${{paths.more}}\nwidth = 20\n")
    code, _, _ = run(BASE, path, "--output", tmp_path / "new" / "out.cfg")
    assert code == 0
    config = load_config(tmp_path / "new" / "out.cfg")
    assert value(config, f"{TOK2VEC}.embed.bigram_vectors") == "${paths.more}"
    assert value(config, "training.seed") == "${system.seed}"
    assert value(config, f"{TOK2VEC}.embed.width") == 20
    assert load_model_from_config(config).config == config


def test_stdout_contains_only_the_config() -> None:
    code, output, _ = run(BASE, "--set", "training.max_steps=100")
    assert code == 0
    assert value(Config().from_str(output, interpolate=False), "training.max_steps") == 100
    assert output.splitlines()[0] == f"# python -m spacy tener config {BASE} --set training.max_steps=100"


def test_output_file_starts_with_command_line(tmp_path: Path, overlay) -> None:
    path = overlay("[training]\npatience = 5\n")
    code, output, messages = run(BASE, path, "-s", "nlp.batch_size=2", "-o", tmp_path / "a b.cfg")
    assert (code, output) == (0, "")
    assert messages == f"✔ {tmp_path / 'a b.cfg'}: tener_ner"
    heading = (tmp_path / "a b.cfg").read_text(encoding="utf8").splitlines()[0]
    assert heading == f"# python -m spacy tener config {BASE} {path} --set nlp.batch_size=2"


# Overlays


def test_duplicate_overlay_raises_error(overlay) -> None:
    path = overlay("[training]\npatience = 5\n")
    assert compose_error("segment", path, "segment").reason == "Overlays given twice: segment"


def test_overlay_replaced_by_later_overlay_raises_error() -> None:
    with pytest.raises(ConfigError, match=r"^segment: has no effect, since lac replaces it") as raised:
        compose("weibo", ["segment", "lac"])
    assert raised.value.fix == "Use them in the order lac segment."
    assert compose("weibo", ["lac", "segment"])


def test_invalid_value_is_not_fixed_by_order_that_drops_it(overlay) -> None:
    own = overlay(f'[{TOK2VEC}]\nwidth = "wide"\n')
    assert compose_error("flat-atssa", own).fix == f"These overlays cannot be combined in any order. Remove {own}."


def test_config_without_nlp_raises_error(overlay) -> None:
    with pytest.raises(ConfigError, match=r"no section \[nlp\]"):
        compose(overlay("[training]\nmax_steps = 3\n"))


def test_later_overlay_takes_precedence(overlay) -> None:
    first = overlay(f"[{TOK2VEC}]\nwidth = 64\nheads = 2\n")
    second = overlay(f"[{TOK2VEC}]\nwidth = 96\n")
    composed = compose(BASE, [first, second])
    assert (value(composed, f"{TOK2VEC}.width"), value(composed, f"{TOK2VEC}.heads")) == (96, 2)
    assert value(composed, f"{TOK2VEC}.dropout") == 0.15
    assert value(compose(BASE, [second, first]), f"{TOK2VEC}.width") == 64


def test_different_function_replaces_section(overlay) -> None:
    section = value(compose(BASE, [overlay(CNN)]), TOK2VEC)
    assert "embed" not in section
    assert "layers" not in section
    assert section["@architectures"] == "spacy.HashEmbedCNN.v2"


def test_same_function_keeps_other_settings(overlay) -> None:
    same = overlay(f'[{TOK2VEC}]\n@architectures = "spacy_tener.TENER.v1"\nwidth = 64\n')
    section = value(compose(BASE, [same]), TOK2VEC)
    assert section["embed"] == value(load_config(BASE), f"{TOK2VEC}.embed")
    assert section["width"] == 64


def test_null_removes_section_and_later_overlay_adds_it(overlay) -> None:
    off = overlay(f"[{TOK2VEC}]\nembed = null\n")
    back = overlay(f'[{TOK2VEC}.embed]\n@architectures = "spacy_tener.CharEmbed.v1"\nwidth = 7\n')
    assert value(compose(BASE, [off]), f"{TOK2VEC}.embed") is None
    assert value(compose(BASE, [off, back]), f"{TOK2VEC}.embed.width") == 7


def test_different_factory_replaces_component(overlay) -> None:
    ner = overlay('[components.tener_ner]\nfactory = "ner"\n')
    component = value(compose(BASE, [ner]), "components.tener_ner")
    assert component["factory"] == "ner"
    assert component["model"]["@architectures"] == "spacy.TransitionBasedParser.v2"
    assert "window" not in component


def test_pipeline_setting_adds_and_removes_components(overlay) -> None:
    tagger = '[components.tagger]\nfactory = "tagger"\n'
    tagger_first = overlay(f'[nlp]\npipeline = ["tagger", "tener_ner"]\n{tagger}')
    assert list(value(compose(BASE, [tagger_first]), "components")) == ["tagger", "tener_ner"]
    alone = overlay(f'[nlp]\npipeline = ["tagger"]\n{tagger}')
    assert list(value(compose(BASE, [alone]), "components")) == ["tagger"]


def test_sections_can_precede_parents_and_contain_function_lists(overlay) -> None:
    path = overlay(f"""
[{TOK2VEC}.embed.*.first]
@architectures = "spacy_tener.CharEmbed.v1"

[{TOK2VEC}.embed]
@layers = "chain.v1"
""")
    section = read_config(path)["components"]["tener_ner"]["model"]["tok2vec"]["embed"]
    assert section == {"@layers": "chain.v1", "*": {"first": {"@architectures": "spacy_tener.CharEmbed.v1"}}}


# Settings


@pytest.mark.parametrize(
    ("setting", "key", "expected"),
    [
        ("training.dropout=0.1", "training.dropout", 0.1),
        ("paths.train=a b.spacy", "paths.train", "a b.spacy"),
        ('paths.train="a=b"', "paths.train", "a=b"),
        ("paths.train=${paths.dev}", "paths.train", "${paths.dev}"),
        ("nlp.disabled=[]", "nlp.disabled", []),
        (f"{TOK2VEC}.ff_width=null", f"{TOK2VEC}.ff_width", None),
        (f"{TOK2VEC}.embed=null", f"{TOK2VEC}.embed", None),
        ("training.optimizer.learn_rate=0.002", "training.optimizer.learn_rate", 0.002),
    ],
)
def test_setting_value_is_parsed_as_in_config(setting: str, key: str, expected: object) -> None:
    assert value(compose(BASE, settings=[setting]), key) == expected


def test_settings_override_overlays_and_earlier_settings(overlay) -> None:
    path = overlay(f"[{TOK2VEC}]\nwidth = 64\n")
    assert value(compose(BASE, [path], [f"{TOK2VEC}.width=32", f"{TOK2VEC}.width=16"]), f"{TOK2VEC}.width") == 16


def test_dictionary_setting_replaces_value_in_given_order(overlay) -> None:
    optimizer = '[training.optimizer]\n@optimizers = "spacy_tener.Adam.v1"\n\n'
    adam = overlay(f"{optimizer}[training.optimizer.rates]\n* = 1.0\nchars.* = 0.5\n")
    composed = compose(BASE, [adam], ['training.optimizer.rates={"crf.*": 0.0, "*": 2.0}'])
    assert list(value(composed, "training.optimizer.rates").items()) == [("crf.*", 0.0), ("*", 2.0)]


def test_settings_are_validated_together() -> None:
    composed = compose(BASE, settings=[f"{TOK2VEC}.heads=5", f"{TOK2VEC}.width=100"])
    assert value(composed, f"{TOK2VEC}.width") == 100


def test_setting_can_change_default_missing_from_files(overlay) -> None:
    short = overlay('[nlp]\nlang = "zh"\npipeline = ["tener_ner"]\n[components.tener_ner]\nfactory = "tener_ner"\n')
    composed = compose(short, settings=[f"{TOK2VEC}.width=64"])
    assert value(composed, f"{TOK2VEC}.width") == 64


def test_settings_can_change_function_and_then_arguments() -> None:
    functions = (f"{TOK2VEC}.embed.@architectures=spacy.CharacterEmbed.v2", f"{TOK2VEC}.embed.width=32")
    error = compose_error(settings=functions[:1])
    assert "spacy.CharacterEmbed.v2" in error.reason
    encoder = (f"{TOK2VEC}.@architectures=spacy_tener.CharEmbed.v1", f"{TOK2VEC}.bigram_width=9")
    assert value(compose(BASE, settings=encoder), f"{TOK2VEC}.bigram_width") == 9


# Learning rate schedules


FLAT, ENGLISH = ["weibo", "flat"], ["conll2003"]
REQUIRED_OVERLAYS = {"lexicon-joined": FLAT, "lexicon-tags": FLAT, "grn": ENGLISH, "chars-shape": ENGLISH}
COMBINATIONS = [
    *([base] for base in names_in(BASES)),
    *([*REQUIRED_OVERLAYS.get(name, ["weibo"]), name] for name in names_in(OVERLAYS)),
]


@pytest.mark.parametrize("names", COMBINATIONS)
def test_learning_rate_schedule_ends_with_training(names: list[str], tmp_path: Path) -> None:
    """This also applies if `max_steps` is set on the command line of `spacy train`."""
    compose(names[0], names[1:]).to_disk(tmp_path / "my.cfg")
    config = load_config(tmp_path / "my.cfg", overrides={"training.max_steps": 200}, interpolate=True)
    rate = config["training"]["optimizer"]["learn_rate"]
    assert not isinstance(rate, dict) or rate["total_steps"] == 200


def test_explicit_total_steps_are_not_overwritten(overlay) -> None:
    total = overlay("[training.optimizer.learn_rate]\ntotal_steps = 9999\n")
    assert value(compose(BASE, [total], ["training.max_steps=500"]), TOTAL_STEPS) == 9999


# Errors


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[a]\nb = 1\nfoo bar\n", 3, "'foo bar' is neither a [section] nor a `key = value` line in a section"),
        ("b = 1\n[a]\n", 1, "'b = 1' is neither a [section]"),
        ("[a\nb = 1\n", 1, "'[a' is neither a [section]"),
        ("[a]\nb = 1\n[a]\nc = 1\n", 3, "the section [a] occurs twice"),
        ("[a]\nb = 1\nb = 2\n", 3, "'b' occurs twice in [a]"),
    ],
)
def test_syntax_error_names_file_and_line(overlay, text: str, line: int, reason: str) -> None:
    path = overlay(text)
    assert compose_error(path).reason.startswith(f"{path}:{line}: {reason}")
    assert compose_error(base=path).reason.startswith(f"{path}:{line}: {reason}")


NEEDS_SECTION = "has a value where a section is needed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[training]\nbatcher = 1\n[training.batcher]\nsize = 1\n", "training.batcher: found conflicting values"),
        ("[training..batcher]\nsize = 1\n", "the section [training..batcher] has an empty part in its name"),
        ("[components]\ntener_ner = 3\n", f"[components] {NEEDS_SECTION}"),
        ("[components]\ntener_ner = null\n", f"[components] {NEEDS_SECTION}"),
        ("[initialize.components]\ntener_ner = 3\n", f"[initialize.components] {NEEDS_SECTION}"),
        ("[initialize.components]\ntener_ner = null\n", f"[initialize.components] {NEEDS_SECTION}"),
        ("[initialize]\ncomponents = 3\n", f"[initialize.components] {NEEDS_SECTION}"),
        ("[nlp]\npipeline = 3\n", "nlp.pipeline is not a list"),
    ],
)
def test_invalid_overlay_structure_raises_error(overlay, text: str, reason: str) -> None:
    path = overlay(text)
    assert compose_error(path).reason == f"{path}: {reason}"


def test_missing_or_binary_file_error_names_the_file(overlay, tmp_path: Path) -> None:
    assert "nope.cfg: cannot be read: No such file" in compose_error(tmp_path / "nope.cfg").reason
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    assert compose_error(tmp_path / "x.bin").reason == f"{tmp_path / 'x.bin'}: is not UTF-8 text"


def test_overlay_with_section_for_plain_value_raises_error() -> None:
    error = compose_error("grn", base=Path("sample_en"))
    assert (
        error.reason
        == "grn: sets 'max_rate' in [training.optimizer.learn_rate], but in the config, training.optimizer.learn_rate "
        "is not a section and has the value 0.001"
    )
    compose("sample_en", ["sgd"])


def test_incompatible_overlay_error_names_missing_setting(overlay) -> None:
    error = compose_error("grn")
    assert error.reason == "grn: needs paths.word_vectors, which this config does not have"
    assert error.fix == "Use a config with this setting, or add the setting with the value null."
    path = overlay(f"[{TOK2VEC}]\nk = 1\n")
    assert f"{TOK2VEC.removeprefix('components.')}.k: unexpected argument" in compose_error(path).reason


@pytest.mark.parametrize(
    ("overlays", "component"),
    [(("ner", "distilled"), "tener_ner"), (("distilled", "ner"), "tener_ner")],
)
def test_overlay_initializing_missing_component_raises_error(overlays, component) -> None:
    name = next(name for name in overlays if name != "ner")
    error = compose_error(*overlays)
    assert error.reason == f"{name}: sets [initialize] for '{component}', which the pipeline does not have"
    assert error.fix == f"These overlays cannot be combined in any order. Remove {overlays[0]} or {overlays[1]}."


def test_variable_can_be_defined_by_another_overlay(overlay) -> None:
    needs = overlay(f"[{TOK2VEC}.embed]\nvectors = ${{paths.mine}}\n")
    assert value(compose(BASE, [needs, overlay("[paths]\nmine = null\n")]), "paths.mine") is None


@pytest.mark.parametrize(
    ("text", "reason", "fix"),
    [
        ("[components.ner.model]\nnO = 3\n", "the config has no component 'ner'", "Its components are: tener_ner."),
        (
            '[components.tagger]\nfactory = "tagger"\n',
            "'tagger' is not in nlp.pipeline",
            'nlp.pipeline are ["tener_ner"].',
        ),
        ("[trainning]\nmax_steps = 3\n", "the config has no section [trainning]", "training"),
        (
            "[training.batcher]\na = ${here.rate}\n",
            "uses ${here.rate} in [training.batcher], but the config does not have this section",
            "Use the overlay with",
        ),
    ],
)
def test_missing_section_error_suggests_alternatives(overlay, text: str, reason: str, fix: str) -> None:
    error = compose_error(overlay(text))
    assert reason in error.reason
    assert fix in error.fix


@pytest.mark.parametrize(
    ("text", "reason", "fix"),
    [
        ("[training]\nmax_step = 3\n", "spaCy has no setting 'training.max_step'", "training.max_steps"),
        (f"[{TOK2VEC}]\nwdith = 3\n", f"{TOK2VEC.removeprefix('components.')}.wdith: unexpected argument", ""),
        (f"[{TOK2VEC}]\nwidth = 65\n", "width must be a multiple of heads", ""),
        ('[training]\neval_frequency = "x"\n', "eval_frequency: Input should be a valid integer", ""),
        (CNN.replace("HashEmbedCNN", "HashEmbdCNN"), "no 'spacy.HashEmbdCNN.v2' among the registered arch", "CNN.v2"),
        ('[training.batcher]\n@batchers = "x.y.v1"\n', "no 'x.y.v1' among the registered batchers", "install"),
        ('[components.tener_ner]\nfactory = "nerr"\n', "no factory 'nerr' is registered", "install"),
        ('[nlp]\nlang = "qqq"\n', "qqq", ""),
        ('[components.tener_ner]\nsource = "/nowhere"\n', "Can't find model '/nowhere'", ""),
    ],
)
def test_unresolvable_config_raises_short_error(overlay, text: str, reason: str, fix: str) -> None:
    path = overlay(text)
    error = compose_error(path)
    assert error.reason.startswith(f"{BASE} + {path}: ")
    assert reason in error.reason
    assert fix in error.fix
    assert len(error.reason) < 600


@pytest.mark.parametrize(
    ("setting", "reason", "fix"),
    [
        ("training.max_step=3", "the config has no 'training.max_step'", "training.max_steps"),
        (f"{TOK2VEC}.embed.width.x=3", f"the config has no '{TOK2VEC}.embed.width.x'", f"{TOK2VEC}.embed.width"),
        ("components.ner.window=3", "the config has no 'components.ner.window'", "components.tener_ner.window"),
        ("qqq.zzz=3", "the config has no 'qqq.zzz'", "filled config"),
        ("training.max_steps", "not a setting", "section.key=value"),
        ("training=3", "not a setting", "section.key=value"),
        ("training.score_weights.ents_f=x", "unsupported operand", "Correct or remove the value."),
        ("components.tener_ner.window=x", "tener_ner.window: at root: 'x' is not", ""),
        ("components.tener_ner=null", f"[components] {NEEDS_SECTION}", ""),
    ],
)
def test_invalid_setting_raises_error(setting: str, reason: str, fix: str) -> None:
    error = compose_error(settings=(setting,))
    assert error.reason.startswith(f"--set {setting}: ")
    assert reason in error.reason
    assert fix in error.fix


@pytest.mark.parametrize("setting", ["components.tener_ner.threshold=7", f"{TOK2VEC}.heads=5"])
def test_error_of_registered_function_has_one_solution(setting: str) -> None:
    error = compose_error(settings=(setting,))
    assert error.fix == "Correct the setting."
    assert "Correct" not in error.reason


@pytest.mark.parametrize(
    ("arguments", "warning"),
    [
        (["multilingual", "glove", "e5"], "the vectors of English words (spacy_tener.GloVe.v1), but nlp.lang is xx"),
        (["sample_en", "--set", "nlp.lang=de", "glove"], "(spacy_tener.GloVe.v1), but nlp.lang is de"),
        (["sample_en", "glove", "e5"], ""),
        (["multilingual", "e5"], ""),
        (["weibo", "flat", "lac"], ""),
    ],
)
def test_overlay_for_other_language_warns(arguments: list[str], warning: str, tmp_path: Path) -> None:
    status, _, messages = run(*arguments, "--output", tmp_path / "out.cfg")
    assert status == 0
    assert warning in " ".join(messages.split())
    assert bool(warning) == ("Remove the overlays" in " ".join(messages.split()))


def test_command_without_arguments_lists_systems() -> None:
    status, printed, _ = run()
    assert status == 0
    assert re.search(r"\nmect\n    MECT .*\n    Use it for", printed)
    assert printed.index("\ntener\n") < printed.index("\nner\n") < printed.index("\nvectors\n")
    starts = [re.search(rf"^{name} +({text})", printed, re.MULTILINE) for name, text in DESCRIPTIONS.items()]
    assert len({match and match.start(1) - match.start() for match in starts}) == 1, "descriptions are aligned"


@pytest.fixture
def ner_config(tmp_path: Path) -> Path:
    """Write a config that spaCy creates for `ner`, in which only the factory is changed."""
    config = init_config(lang="en", pipeline=["ner"], optimize="efficiency")
    config["components"]["ner"]["factory"] = "tener_ner"
    config.to_disk(tmp_path / "ner.cfg")
    return tmp_path / "ner.cfg"


@pytest.mark.parametrize("command", ["config", "debug-data"])
def test_ner_config_with_new_factory_error_shows_fix(command: str, ner_config: Path) -> None:
    ran = run_tener(command, ner_config)
    assert ran.code == 1
    assert (
        "[components.ner] has the factory tener_ner, but moves, update_with_oracle_cut_size, model of spaCy's ner"
        in ran.text
    )
    assert "Replace the sections [components.ner] and [components.ner.model]" in ran.text
    # The four lines in docs/from-ner.md make the config valid.
    page = (BASE.parent.parent / "docs" / "from-ner.md").read_text(encoding="utf8")
    lines = '[components.ner]\nfactory = "tener_ner"\n\n[components.ner.model]\n'
    lines += '@architectures = "spacy_tener.CRFTagger.v1"\n'
    assert lines in page
    assert ran.lines[-4:] == lines.replace("\n\n", "\n").splitlines()
    text = ner_config.read_text(encoding="utf8")
    for section in ("components.ner", "components.ner.model"):
        text = re.sub(rf"^\[{re.escape(section)}\]\n.*?(?=^\[)", "", text, flags=re.MULTILINE | re.DOTALL)
    ner_config.write_text(f"{text}\n{lines}", encoding="utf8")
    assert compose(ner_config)["components"]["ner"]["model"]["tok2vec"]["width"]


# Configs for a corpus


@pytest.fixture
def german_corpus(tmp_path: Path) -> Path:
    texts = [
        (f"Wir suchen {name} mit Erfahrung in Python", [(11, 11 + len(name), "ROLE")]) for name in ("Köche", "Ärzte")
    ]
    return save_docs(tmp_path / "train.spacy", *(annotated(text, entities, lang="de") for text, entities in texts * 20))


def test_config_for_corpus_explains_its_choices(tmp_path: Path, german_corpus: Path) -> None:
    code, output, messages = run(
        "--lang", "de", "--train", german_corpus, "--optimize", "efficiency", "--set", "training.max_steps=40"
    )
    assert code == 0
    for choice in (
        "Config sample_en",
        "No overlay e5",
        "1,000 steps",
        "No early stopping",
        "Training time on this machine",
    ):
        assert choice in messages
    config = Config().from_str(output, interpolate=False)
    assert value(config, "nlp.lang") == "de"
    assert value(config, "paths.train") == str(german_corpus)
    assert value(config, "training.max_steps") == 40
    path = tmp_path / "job.cfg"
    path.write_text(output, encoding="utf8")
    train(path, tmp_path / "trained", overrides={"paths.dev": str(german_corpus), "training.eval_frequency": 20})
    nlp = spacy.load(tmp_path / "trained" / "model-best")
    assert nlp.meta["lang"] == "de"


def test_language_is_detected_in_corpus(tmp_path: Path) -> None:
    train = save_docs(tmp_path / "train.spacy", annotated("王小明去了上海", [(0, 3, "PER")]))
    code, output, messages = run(
        "--train", train, "--set", "training.max_steps=2", "--set", "training.eval_frequency=1"
    )
    assert code == 0
    assert "Language zh: detected" in messages
    assert 'lang = "zh"' in output


def test_corpus_sets_schedule_of_named_config(german_corpus: Path) -> None:
    code, output, messages = run("sample_en", "--train", german_corpus, "--dev", german_corpus)
    assert code == 0
    assert "1,000 steps: 400 epochs of 40 texts" in messages
    config = Config().from_str(output, interpolate=False)
    assert value(config, "paths.dev") == str(german_corpus)
    assert value(config, "training.max_steps") == 1000
    assert value(config, "nlp.lang") == "en"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["weibo", "--lang", "de"], "--lang: used only to choose a config, but the config weibo is already given"),
        (["weibo", "--optimize", "accuracy"], "--optimize: used only to choose a config"),
        (["--lang", "de", "--dev", "dev.spacy"], "--dev: used only with --train"),
        (["--optimize", "accuracy"], "--optimize: applies only when a config is created, but without BASE"),
        (["--lang", "xy"], "spaCy has no tokenizer for the language 'xy'"),
        (["--train", "missing.spacy"], "missing.spacy: cannot be read"),
    ],
)
def test_useless_options_of_corpus_raise_error(arguments: list[str], message: str) -> None:
    code, output, messages = run(*arguments)
    assert code != 0
    assert not output
    assert message in messages


def test_unknown_language_needs_option(tmp_path: Path) -> None:
    train = save_docs(tmp_path / "train.spacy", annotated("Анна живёт в Москве", [(0, 4, "PER")], lang="ru"))
    code, _, messages = run("--train", train)
    assert code == 2
    assert "Set the language, for example with --lang ja." in messages
