"""The model card of a trained pipeline: what it finds, how well, what it learned from, and where it will not do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import srsly

from .card_sources import Source, dictionary_sources
from .scores import Metrics, Score, total

LANGUAGES = {"zh": "Chinese", "en": "English"}
_TEXTS = {"zh": "吴重阳在中国银行工作。", "en": "Jane Smith works for Northern Rail in York."}
# With fewer entities of a label in test, one more or less right is a percent or more of its recall.
_FEW = 100
Table = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Sizes:
    """How much there is to learn from. `entities` is by label."""

    docs: int
    tokens: int
    entities: Mapping[str, int]


@dataclass(frozen=True)
class Speed:
    """How fast the pipeline reads raw text: `nlp.pipe` in characters and words a second, `nlp(text)` in milliseconds.

    machine: What it ran on, and with how many threads.
    """

    characters: float
    words: float
    milliseconds: float
    machine: str


@dataclass(frozen=True)
class Card:
    """All that is said about a pipeline.

    meta: Its meta.json, filled.
    config: Its config.cfg.
    test: The scores on test.
    dev: The scores on dev of the checkpoint that was chosen.
    corpus: What it learned from and was tested on.
    training: How much that was.
    megabytes: Its size on disk.
    versions: What it was made with, by package.
    """

    meta: Mapping[str, Any]
    config: Mapping[str, Any]
    test: Metrics
    dev: Metrics | None
    corpus: Source | None
    training: Sizes | None
    speed: Speed | None
    megabytes: float
    versions: Mapping[str, str]

    @property
    def package(self) -> str:
        return package_name(self.meta)

    @property
    def language(self) -> str:
        return LANGUAGES.get(self.meta["lang"], str(self.meta["lang"]))

    @property
    def keeps_tokens(self) -> bool:
        """Whether it was trained on the corpus' own tokens, and not on those of its tokenizer."""
        dev = self.config.get("corpora", {}).get("dev", {})
        return bool(dev.get("gold_preproc", False))


def package_name(meta: Mapping[str, Any]) -> str:
    """What `spacy package` calls it, and `spacy.load` takes."""
    return f"{meta['lang']}_{meta['name']}"


def front_matter(card: Card) -> str:
    """What the Hugging Face Hub reads from the head of a card.

    `spacy huggingface-hub push` writes one of its own from meta.json, so this is for cards that go there by other ways.
    """
    data: dict[str, Any] = {
        "tags": ["spacy", "token-classification"],
        "language": [card.meta["lang"]],
        "library_name": "spacy",
        "model-index": [{"name": card.package, "results": [_result(card)]}],
    }
    if card.meta.get("license"):
        data["license"] = card.meta["license"].lower().replace(" ", "-")
    return f"---\n{srsly.yaml_dumps(data, sort_keys=False)}---\n\n"


def _result(card: Card) -> dict[str, Any]:
    score, corpus = card.test.overall, card.corpus.name if card.corpus else "test"
    metrics = [("Precision", "precision", score.p), ("Recall", "recall", score.r), ("F Score", "f_score", score.f)]
    return {
        "task": {"name": "NER", "type": "token-classification"},
        "dataset": {"name": corpus, "type": corpus},
        "metrics": [{"name": f"NER {name}", "type": kind, "value": value} for name, kind, value in metrics],
    }


def render_card(card: Card) -> str:
    """The card in Markdown."""
    parts = [
        f"# {card.package}",
        card.meta["description"],
        _markdown(("Feature", "Description"), _features(card)),
        "## Use",
        _usage(card),
        "## Scores",
        _scores_text(card),
        _markdown(*_scores(card)),
        "## Training data",
        _training_text(card),
        "## Limitations",
        "\n".join(f"- {line}" for line in _limitations(card)),
        "## Made with",
        ", ".join(f"{package} {version}" for package, version in card.versions.items()) + ".",
    ]
    sources = dictionary_sources(card.config)
    if sources:
        lines = [f"- {_link(source)}: {source.text}, {source.license}, {source.author}" for source in sources]
        parts += ["## Stored in it", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _features(card: Card) -> list[tuple[str, str]]:
    meta = card.meta
    labels = [label for each in meta.get("labels", {}).values() for label in each]
    rows = [
        ("Name", f"`{card.package}`"),
        ("Version", f"`{meta['version']}`"),
        ("Language", card.language),
        ("spaCy", f"`{meta['spacy_version']}`"),
        ("Pipeline", ", ".join(f"`{name}`" for name in meta["pipeline"])),
        ("Architecture", ", ".join(_architectures(card.config)) or "see config.cfg"),
        ("Labels", ", ".join(f"`{label}`" for label in dict.fromkeys(labels))),
        ("Size", f"{card.megabytes:.1f} MB"),
        ("Licence", meta.get("license") or "not stated"),
        ("Author", meta.get("author") or "not stated"),
    ]
    return rows if card.speed is None else [*rows, ("Speed", _speed(card.speed))]


def _architectures(config: Mapping[str, Any]) -> list[str]:
    """The tok2vec of each component, with its sizes."""
    found = []
    for component in config.get("components", {}).values():
        tok2vec = component.get("model", {}).get("tok2vec", {})
        if "@architectures" in tok2vec:
            # An encoder over an embedder has the sizes one section further down.
            part = tok2vec.get("encode", tok2vec)
            sizes = [f"{name} {part[name]}" for name in ("width", "layers", "heads") if name in part]
            found.append(" ".join([f"`{part.get('@architectures', tok2vec['@architectures'])}`", ", ".join(sizes)]))
    return [text.strip() for text in found]


def _speed(speed: Speed) -> str:
    return (
        f"{speed.characters:,.0f} characters ({speed.words:,.0f} tokens) a second by `nlp.pipe`, "
        f"{speed.milliseconds:.1f} ms for a text by `nlp(text)`: {speed.machine}"
    )


def _usage(card: Card) -> str:
    text = _TEXTS.get(card.meta["lang"], "...")
    return f"""Its wheel asks pip for spaCy and `spacy_tener`, which can also be installed from a clone.

    pip install {card.package}-{card.meta["version"]}-py3-none-any.whl

```python
import spacy

nlp = spacy.load("{card.package}")
doc = nlp("{text}")
print([(ent.text, ent.label_) for ent in doc.ents])
```"""


def _scores_text(card: Card) -> str:
    where = f"the test part of {_link(card.corpus)}" if card.corpus else "test data"
    dev = f" The checkpoint was chosen on dev, F1 there: {_percent(card.dev.overall.f)}." if card.dev else ""
    tokens = " The corpus' own tokens were kept." if card.keeps_tokens else ""
    return f"Precision, recall and F1 in percent on {where}, over entities with their spans and labels.{dev}{tokens}"


def _scores(card: Card) -> tuple[Sequence[str], Table]:
    """A row for each label; without counts of test or of training there is no such column."""
    scores, counts = card.test.labels, card.test.counts or {}
    gold = {label: count.gold for label, count in counts.items()}
    learned = card.training.entities if card.training else {}
    rows = [_score_row("**all**", card.test.overall, sum(gold.values()), sum(learned.values()))]
    for label in sorted({*scores, *learned}):
        rows.append(_score_row(label, scores.get(label), gold.get(label, 0), learned.get(label, 0)))
    header = ("Label", "P", "R", "F1", "Entities in test", "in training")
    kept = [0, 1, 2, 3, *([4] if counts else []), *([5] if learned else [])]
    return [header[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _score_row(name: str, score: Score | None, gold: int, learned: int) -> list[str]:
    parts = [_percent(part) for part in (score.p, score.r, score.f)] if score else ["", "", ""]
    return [name, *parts, f"{gold:,}", f"{learned:,}"]


def _training_text(card: Card) -> str:
    parts = [*_corpus_text(card.corpus), *_course(card.config.get("training", {}))]
    if card.training:
        entities = sum(card.training.entities.values())
        size = f"{card.training.docs:,} texts with {card.training.tokens:,} tokens and {entities:,} entities."
        parts.insert(1, size)
    paths = card.config.get("paths", {}).items()
    vectors = sorted({Path(value).name for name, value in paths if value and "vectors" in name})
    parts.append(f"Pretrained vectors: {', '.join(vectors)}." if vectors else "No pretrained vectors.")
    return " ".join(parts)


def _corpus_text(corpus: Source | None) -> Iterable[str]:
    if corpus:
        license, author = f"licence: {corpus.license or 'unknown'}", corpus.author and f"by {corpus.author}"
        yield f"{_link(corpus)}: {'; '.join(fact for fact in (corpus.text, license, author) if fact)}."


def _course(training: Mapping[str, Any]) -> Iterable[str]:
    if "max_steps" in training:
        optimizer = training["optimizer"].get("@optimizers", "an optimizer of its own")
        yield f"At most {training['max_steps']:,} steps of {optimizer}, seed {training['seed']}."


def _limitations(card: Card) -> Iterable[str]:
    if card.corpus and card.corpus.text:
        yield f"It learned from {card.corpus.text}. On other text expect lower scores; score it on some of yours first."
    yield "The scores are of one training. With another seed they differ, for small corpora by a point or more."
    rare = sorted(label for label, count in (card.test.counts or {}).items() if count.gold < _FEW)
    if rare:
        yield f"Labels with fewer than {_FEW} entities in test, so that their own scores are rough: {', '.join(rare)}."
    if card.test.counts:
        missed = total(card.test.counts.values())
        yield f"Of {missed.gold:,} entities in test it missed {missed.fn:,}; {missed.fp:,} that it found are wrong."
    yield "Entities do not overlap: of nested names it gives one."
    if card.keeps_tokens:
        yield "It learned on the corpus' own tokens. spaCy's tokenizer may cut raw text otherwise."
    elif card.config["nlp"].get("tokenizer", {}).get("segmenter") == "char":
        yield "Its tokens are single characters."


def _link(source: Source) -> str:
    return f"[{source.name}]({source.url})" if source.url else source.name


def _percent(score: float) -> str:
    return f"{100 * score:.2f}"


def _markdown(header: Sequence[str], rows: Table) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
