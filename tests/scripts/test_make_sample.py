"""The bundled sample corpora, and the script that generates them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import make_sample
import pytest

SAMPLE = Path(__file__).parent.parent.parent / "assets" / "sample"
GERMAN = ("raw.txt", "annotated.jsonl", "test.jsonl")
PARTS = [(language, part) for language in make_sample.SCHEMES for part in make_sample.PARTS]


def read_sentences(language: str, part: str) -> list[list[tuple[str, str]]]:
    path = SAMPLE / language / f"{part}.{make_sample.SCHEMES[language].suffix}"
    blocks = path.read_text(encoding="utf8").strip("\n").split("\n\n")
    return [[(line.split(" ")[0], line.split(" ")[1]) for line in block.split("\n")] for block in blocks]


def text_of(sentence: list[tuple[str, str]]) -> str:
    return " ".join(token for token, _ in sentence)


def test_generated_sample_matches_committed_files(tmp_path: Path) -> None:
    make_sample.main(["--output", str(tmp_path)])
    names = [Path(language) / f"{part}.{make_sample.SCHEMES[language].suffix}" for language, part in PARTS]
    for name in [*names, *(Path("de") / name for name in GERMAN)]:
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
    annotated, test = ([entity for _, found in read_german(name) for entity in found] for name in GERMAN[1:])
    assert f"annotated.jsonl` | 120 | {len(annotated)} |" in readme
    assert f"test.jsonl` | 40 | {len(test)} |" in readme
    new = sum(mention not in set(annotated) for mention in test) / len(test)
    assert f"{100 * new:.0f} % (German)" in readme


def read_german(name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the texts of a German file, and the strings and labels of their entities."""
    records = map(json.loads, (SAMPLE / "de" / name).read_text(encoding="utf8").splitlines())
    return [
        (record["text"], [(record["text"][start:end], label) for start, end, label in record["label"]])
        for record in records
    ]


def test_german_test_texts_are_not_in_raw_texts() -> None:
    raw = (SAMPLE / "de" / "raw.txt").read_text(encoding="utf8").splitlines()
    annotated, test = ([text for text, _ in read_german(name)] for name in GERMAN[1:])
    assert [len(texts) for texts in (raw, annotated, test)] == [200, 120, 40]
    assert len({*raw, *test}) == 240
    assert set(annotated) < set(raw)


def test_german_entities_are_different_and_whole_words() -> None:
    for name in GERMAN[1:]:
        for line in (SAMPLE / "de" / name).read_text(encoding="utf8").splitlines():
            record = json.loads(line)
            text = f" {record['text']} "
            mentions = [text[start + 1 : end + 1] for start, end, _ in record["label"]]
            assert len({*mentions}) == len(mentions), line
            for start, end, _ in record["label"]:
                assert text[start] in ' („"', line
                assert text[end + 1] in " ,.;:?!)“", line
