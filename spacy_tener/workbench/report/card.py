"""The model card of a trained pipeline, and its meta.json: labels, scores, training data, limitations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from ...about import __title__, __version__
from ...errors import RemedyError
from ...manifest import installed_versions
from ..composing.files import entries
from .scores import Score, Scores, total

# Origin and licence of corpora, by the name of their config, and of dictionaries, by the function that reads them and
# stores them in the pipeline: name, url, license, author, and the kind of text.
_SOURCES = json.loads(Path(__file__).with_name("sources.json").read_text(encoding="utf8"))
CORPORA: dict[str, dict[str, str]] = _SOURCES["corpora"]
DICTIONARIES: dict[str, dict[str, str]] = _SOURCES["dictionaries"]
# Segmenter -> requirement at run time. `spacy package` itself finds the packages of registered functions.
_SEGMENTERS = {"jieba": "jieba>=0.42.1", "pkuseg": "spacy-pkuseg>=0.0.27"}
_LANGUAGES = {"zh": "Chinese", "en": "English"}
_TEXTS = {"zh": "吴重阳在中国银行工作。", "en": "Jane Smith works for Northern Rail in York."}
# With fewer entities of a label in test, a single one changes its recall by more than 1 %.
_FEW = 100


@dataclass(frozen=True)
class TrainingSize:
    """The size of a training corpus. `entities` is by label."""

    docs: int
    tokens: int
    entities: Mapping[str, int]


@dataclass(frozen=True)
class Card:
    """The content of a model card.

    meta: The filled meta.json.
    config: The pipeline's config.
    test: The scores on test.
    dev: The scores on dev of the chosen checkpoint.
    corpus: The corpus of training and test: an entry of `CORPORA`, or a name.
    training: The size of the training corpus.
    megabytes: The pipeline's size on disk.
    limitations: What it fails at, beside what the scores and the corpus tell.
    """

    meta: Mapping[str, Any]
    config: Mapping[str, Any]
    test: Scores
    dev: Scores | None
    corpus: Mapping[str, str] | None
    training: TrainingSize | None
    megabytes: float
    limitations: Sequence[str] = ()

    @property
    def package(self) -> str:
        """The name of the package, for `spacy.load`."""
        return f"{self.meta['lang']}_{self.meta['name']}"

    @property
    def keeps_tokens(self) -> bool:
        """Whether it was trained on the corpus' own tokens (gold_preproc), not on those of its tokenizer."""
        return bool(self.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False))


def fill_meta(
    meta: Mapping[str, Any],
    config: Mapping[str, Any],
    scores: Mapping[str, Any],
    corpus: Mapping[str, str] | None,
    chosen: Mapping[str, str | None],
) -> dict[str, Any]:
    """Return a pipeline's meta.json with its sources, and its scores on test instead of dev.

    chosen: Name, version, license and author; None keeps the value of meta.json.
    """
    filled: dict[str, Any] = {**meta, **{key: value for key, value in chosen.items() if value is not None}}
    # `spacy package` always puts the language before the name.
    filled["name"] = package_name(filled["name"]).removeprefix(f"{filled['lang']}_")
    _check_version(filled["version"])
    learned = f", trained on {corpus['name']}" if corpus else ""
    pipes = ", ".join(filled["pipeline"])
    filled["description"] = meta.get("description") or f"Named entity recognition by {pipes} of spacy_tener{learned}."
    sources = [*([corpus] if corpus else []), *dictionaries_in(config)]
    filled["sources"] = [{key: value for key, value in each.items() if key != "text"} for each in sources]
    names = ("ents_p", "ents_r", "ents_f", "ents_per_type", "speed")
    filled["performance"] = {name: scores[name] for name in names if scores.get(name) is not None}
    segmenter = config["nlp"].get("tokenizer", {}).get("segmenter")
    needed = [_SEGMENTERS[segmenter]] if segmenter in _SEGMENTERS else []
    filled["requirements"] = list(dict.fromkeys([*meta.get("requirements", []), *needed]))
    return filled


def package_name(name: str) -> str:
    """Return a name as one for a Python module and a wheel: `weibo_flat-atssa` becomes `weibo_flat_atssa`."""
    found = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if not re.match(r"[a-z]", found):
        raise RemedyError(f"'{name}' is not a package name", "Begin it with a letter, as in weibo_tener.")
    return found


def _check_version(version: str) -> None:
    """Refuse a version that is not normalized: a wheel's directory has it as written, its file name normalized."""
    try:
        normal = str(Version(version))
    except InvalidVersion as error:
        raise RemedyError(f"'{version}' is not a valid version", "Give one as in 1.0.0 or 1.0.0rc1.") from error
    if version != normal:
        raise RemedyError(f"The version '{version}' is not normalized", f"Give {normal}.")


def dictionaries_in(config: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the dictionaries stored in a pipeline, in the order of its config."""
    found = [DICTIONARIES[value] for _, value in entries(config) if isinstance(value, str) and value in DICTIONARIES]
    return list({source["name"]: source for source in found}.values())


def render_card(card: Card) -> str:
    """Return the card in Markdown."""
    wheel, text = f"{card.package}-{card.meta['version']}-py3-none-any.whl", _TEXTS.get(card.meta["lang"], "...")
    made_with = installed_versions("spacy_tener", "spacy", "thinc", "torch").items()
    parts = [
        f"# {card.package}",
        card.meta["description"],
        markdown_table(("Feature", "Description"), _features(card)),
        "## Use",
        f"It needs spaCy, and `{__title__}`, which is on no index: `pip wheel --no-deps CLONE` makes its wheel.",
        f"    pip install {__title__}-{__version__}-py3-none-any.whl {wheel}",
        "```python\nimport spacy\n\n"
        f'nlp = spacy.load("{card.package}")\ndoc = nlp("{text}")\n'
        "print([(ent.text, ent.label_) for ent in doc.ents])\n```",
        "## Scores",
        _scores_text(card),
        _scores(card),
        "## Training data",
        " ".join(_training(card)),
        "## Limitations",
        "\n".join(f"- {line}" for line in _limitations(card)),
        "## Made with",
        ", ".join(f"{package} {version}" for package, version in made_with) + ".",
    ]
    lines = [
        f"- {_link(source)}: {source['text']}, {source['license']}, {source['author']}"
        for source in dictionaries_in(card.config)
    ]
    for encoder in card.meta.get("encoders", []):
        terms = f"{encoder.get('origin') or 'origin not stated'}, {encoder.get('licence') or 'licence not stated'}"
        lines.append(f"- {encoder['name']}, a pretrained encoder: {terms}")
    if lines:
        parts += ["## Stored in it", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _features(card: Card) -> list[tuple[str, str]]:
    meta = card.meta
    labels = dict.fromkeys(label for each in meta.get("labels", {}).values() for label in each)
    rows = {
        "Name": f"`{card.package}`",
        "Version": f"`{meta['version']}`",
        "Language": _LANGUAGES.get(meta["lang"], meta["lang"]),
        "spaCy": f"`{meta['spacy_version']}`",
        "Pipeline": ", ".join(f"`{name}`" for name in meta["pipeline"]),
        "Architecture": ", ".join(_architectures(card.config)) or "see config.cfg",
        "Labels": ", ".join(f"`{label}`" for label in labels),
        "Size": f"{card.megabytes:.1f} MB",
        "Licence": meta.get("license") or "not stated",
        "Author": meta.get("author") or "not stated",
        "Speed": f"{card.test.speed:,.0f} tokens a second when it was scored" if card.test.speed else None,
    }
    return [(name, text) for name, text in rows.items() if text is not None]


def _architectures(config: Mapping[str, Any]) -> Iterable[str]:
    """Yield the tok2vec of each component, with its sizes."""
    for component in config.get("components", {}).values():
        tok2vec = component.get("model", {}).get("tok2vec", {})
        if "@architectures" in tok2vec:
            # An encoder over an embedder has its sizes in the section `encode`.
            part = tok2vec.get("encode", tok2vec)
            sizes = ", ".join(f"{name} {part[name]}" for name in ("width", "layers", "heads") if name in part)
            yield f"`{part.get('@architectures', tok2vec['@architectures'])}` {sizes}".strip()


def _scores_text(card: Card) -> str:
    where = f"the test part of {_link(card.corpus)}" if card.corpus else "test data"
    dev = f" The checkpoint was chosen on dev, F1 there: {100 * card.dev.overall.f:.2f}." if card.dev else ""
    tokens = " The corpus' own tokens were kept." if card.keeps_tokens else ""
    return f"Precision, recall and F1 in percent on {where}, over entities with their spans and labels.{dev}{tokens}"


def _scores(card: Card) -> str:
    """Return a table with a row for each label, and columns of counts in test and training if these are known."""
    scores: dict[str, Score] = {"**all**": card.test.overall, **card.test.labels}
    gold = {label: count.gold for label, count in (card.test.counts or {}).items()}
    learned = dict(card.training.entities) if card.training else {}
    columns = {name: counts for name, counts in (("Entities in test", gold), ("in training", learned)) if counts}
    for counts in (gold, learned):
        counts["**all**"] = sum(counts.values())
    rows: list[Sequence[str]] = []
    for label in ["**all**", *sorted({*card.test.labels, *learned} - {"**all**"})]:
        score = scores.get(label)
        parts = [f"{100 * part:.2f}" for part in (score.p, score.r, score.f)] if score else ["", "", ""]
        rows.append([label, *parts, *(f"{counts.get(label, 0):,}" for counts in columns.values())])
    return markdown_table(("Label", "P", "R", "F1", *columns), rows)


def _training(card: Card) -> Iterable[str]:
    if card.corpus:
        license, author = f"licence: {card.corpus.get('license', 'unknown')}", card.corpus.get("author")
        facts = (card.corpus.get("text"), license, author and f"by {author}")
        yield f"{_link(card.corpus)}: {'; '.join(fact for fact in facts if fact)}."
    if card.training:
        size, entities = card.training, sum(card.training.entities.values())
        yield f"{size.docs:,} texts with {size.tokens:,} tokens and {entities:,} entities."
    training = card.config.get("training", {})
    if "max_steps" in training:
        optimizer = training["optimizer"].get("@optimizers", "an optimizer of its own")
        yield f"At most {training['max_steps']:,} steps of {optimizer}, seed {training['seed']}."
    # A config may have paths that no section of it reads: those of overlays for other languages.
    read = {value for name, value in entries(card.config) if isinstance(value, str) and not name.startswith("paths.")}
    paths = {name: Path(value).name for name, value in card.config.get("paths", {}).items() if value in read}
    vectors = sorted({value for name, value in paths.items() if "vectors" in name})
    yield f"Pretrained vectors: {', '.join(vectors)}." if vectors else "No pretrained vectors."
    if "silver" in paths:
        yield f"As well raw texts as trained pipelines annotated them: {paths['silver']}."
    if "teacher" in paths:
        yield f"Taught by {paths['teacher']}."


def _limitations(card: Card) -> Iterable[str]:
    if text := (card.corpus or {}).get("text"):
        yield f"It learned from {text}. On other text expect lower scores; score it on some of yours first."
    yield "The scores are of one training. With another seed they differ, for small corpora by a point or more."
    if counts := card.test.counts:
        rare = sorted(label for label, count in counts.items() if count.gold < _FEW)
        if rare:
            names = ", ".join(rare)
            yield f"Labels with fewer than {_FEW} entities in test, so that their own scores are rough: {names}."
        missed = total(counts.values())
        yield f"Of {missed.gold:,} entities in test it missed {missed.fn:,}; {missed.fp:,} that it found are wrong."
    if not any(each.get("factory", "").startswith("spancat") for each in card.config["components"].values()):
        yield "Entities do not overlap: of nested names it gives one."
    if card.keeps_tokens:
        yield "It learned on the corpus' own tokens. spaCy's tokenizer may cut raw text otherwise."
    elif card.config["nlp"].get("tokenizer", {}).get("segmenter") == "char":
        yield "Its tokens are single characters."
    yield from filter(None, map(_one_line, card.limitations))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _link(source: Mapping[str, str]) -> str:
    return f"[{source['name']}]({source['url']})" if "url" in source else source["name"]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
