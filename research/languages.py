"""Score a multilingual pipeline by language, with one corpus each. Used by `python -m research languages`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from spacy.language import Language

from spacy_tener.corpora.docs import read_examples
from spacy_tener.evaluation.scores import COUNTS_KEY, CountingScorer

from .scores import Confusion, total


def score_languages(nlp: Language, files: Iterable[Path]) -> dict[str, dict[str, Confusion]]:
    """Return the true and false positives and false negatives for each label, by file name (without suffix)."""
    found = {}
    for path in files:
        scores = nlp.evaluate(read_examples(nlp, path), scorer=CountingScorer(nlp))
        found[path.stem] = {label: Confusion(**counts) for label, counts in scores[COUNTS_KEY].items()}
    return found


def language_table(counts: dict[str, dict[str, Confusion]]) -> str:
    """Return a Markdown table with precision, recall and F1 of each language, and F1 of each label."""
    labels = sorted({label for language in counts.values() for label in language})
    lines = [["Language", "Entities", "P", "R", "F1", *labels], ["---"] * (5 + len(labels))]
    for name, language in counts.items():
        whole = total(language.values())
        each = [f"{100 * language[label].score.f:.1f}" if label in language else "" for label in labels]
        score = [f"{100 * value:.1f}" for value in vars(whole.score).values()]
        lines.append([name, f"{whole.gold:,}", *score, *each])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
