"""The bundled sample corpora, and the script that generates them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import make_sample
import pytest

SAMPLE = Path(__file__).parent.parent.parent / "assets" / "sample"
PARTS = [(language, part) for language in make_sample.SCHEMES for part in make_sample.PARTS]


def read_sentences(language: str, part: str) -> list[list[tuple[str, str]]]:
    path = SAMPLE / language / f"{part}.{make_sample.SCHEMES[language].suffix}"
    blocks = path.read_text(encoding="utf8").strip("\n").split("\n\n")
    return [[(line.split(" ")[0], line.split(" ")[1]) for line in block.split("\n")] for block in blocks]


def text_of(sentence: list[tuple[str, str]]) -> str:
    return " ".join(token for token, _ in sentence)


def test_generated_sample_matches_committed_files(tmp_path: Path) -> None:
    make_sample.main(["--output", str(tmp_path)])
    for language, part in PARTS:
        name = Path(language) / f"{part}.{make_sample.SCHEMES[language].suffix}"
        assert (tmp_path / name).read_bytes() == (SAMPLE / name).read_bytes(), name


@pytest.mark.parametrize("language", make_sample.SCHEMES)
def test_sample_splits_share_no_sentences(language: str) -> None:
    counts = Counter(text_of(sentence) for part in make_sample.PARTS for sentence in read_sentences(language, part))
    assert max(counts.values()) == 1


def test_sample_readme_contains_correct_statistics() -> None:
    readme = (SAMPLE / "README.md").read_text(encoding="utf8")
    for language in make_sample.SCHEMES:
        parts = [read_sentences(language, part) for part in make_sample.PARTS]
        tokens = sum(len(sentence) for part in parts for sentence in part)
        mentions = sum(len(make_sample.entities(part)) for part in parts)
        in_train = set(make_sample.entities(parts[0]))
        test = make_sample.entities(parts[2])
        new = sum(mention not in in_train for mention in test) / len(test)
        assert f"| {tokens:,} " in readme
        assert f"| {mentions:,} |" in readme
        assert f"{100 * new:.0f} % ({'Chinese' if language == 'zh' else 'English'})" in readme
