"""Exported pipelines, and test cases for the readers: texts with the entities that the pipelines predict.

`exported_cases()` returns a directory with an ONNX file for each system, and `cases.json`:

    {system: {"file": "tener.onnx", "cases": [{"text": "...", "entities": [
        {"start": 0, "end": 3, "label": "PER", "text": "...", "probability": 0.98}, ...]}, ...]}, ...}

Offsets count code points. Probabilities are null if the exported model does not compute them.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import spacy
import torch
from small_encoders import mean_encoder, recurrent_encoder, save
from small_systems import TEXTS, UNSEEN, examples_of, learn, pipeline, small_tok2vecs
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup

from spacy_tener.export.onnx_model import export_model
from spacy_tener.pipeline.finding import SCORES_KEY, probability_config

_FOLDER = tempfile.TemporaryDirectory(prefix="exported-")
SYSTEMS = [
    *("tener", "as-written", "characters", "vanilla", "unigrams"),
    *("grn", "relations", "convolutions"),
    *("encoders", "encoders-tokens", "lac", "lac-characters", "lac-alone", "nested"),
    *("tener-lists", "characters-lists", "nested-lists"),
]
LISTED_WORDS = {
    "北京大": "GPE",
    "大学": "FAC",
    "京大学": "GPE",
    "王小明": "B-ORG",
    "明去了": "ROUTE",
    "去了上": "ROUTE",
}
LISTED_WORDS |= {
    "哈哈": "PER",
    "哈哈哈": "FAC",
    "中國銀": "B-ORG",
    "ＡI": "PRODUCT",
    "iPhone 15": "PRODUCT",
    "3.5": "NUM",
    "OpenAI": "ORG",
}
# Words of entity lists with their labels. Some of the labels do not exist in any model.
LISTED_WORDS |= {
    "5G": "PRODUCT",
    "né": "PER",
    "上 \t海": "GPE",
    "京\n北": "GPE",
    "😀\u200b😀": "EMOJI",
    "𠮷野": "PER",
    "シカ": "ANIMAL",
}
BLOCKED_WORDS = ["上海", "北京", "中国银行工", "明天", "哈哈哈哈哈"]
# Texts with words of entity lists: parts of words and numbers, overlaps, white space, traditional and full-width
# characters.
ENTITY_LIST_TEXTS = [
    *("他在北京大学读书", "京大学生在北京大楼", "王小明去了上海", "王小明明天去了上海", "哈哈哈哈哈哈哈哈", "哈" * 41),
    *("中國銀行和中国银行工作", "AI MAIL ＡＩ云AI云", "iPhone 15和iPhone 150", "13.5 3.5 3.50 3.5.2 ３．５", "5G与15G"),
    *("René né ne\u0301 né", "上 \t海上 海上\t海", "京\n北京北", "😀\u200b😀北京", "𠮷野家𠮷野", "大学大学大学"),
    *("シカとシカ\u3099ク", "①AI云 OpenAI¹和OpenAI③", "②3.5元 3.5² 1，3.5 1．3.5"),
]
NESTED_KEY = "sc"
WINDOW = {"window": 24, "overlap": 5}
# Training texts in which a label contains a hyphen, like the separator in tags.
TRAINING_TEXTS = [
    (text, [(start, end, label.replace("ORG", "B-ORG")) for start, end, label in found]) for text, found in TEXTS
]
SPECIAL_CHARACTERS = [
    *("\n", "\r\n", "\t", " ", "  ", " \n ", "   ", "\u3000", "\xa0", "\u2028", "\x85", "\x1f", "\0"),
    *("\u200b", "\u200d", "\ufeff", "\ufe0f", "👨\u200d👩\u200d👧", "👍🏽", "❤️", "🇨🇳", "☀"),
    *("𠮷", "𠀀", "\U0001d504", "\U0010ffff", "\ufffe", "\ue000", "e\u0301", "\u0301", "नि", "אב"),
    *("陽", "學", "中國銀行", "吳重陽", "Ａ", "㈱", "\u3000\u3000", " \u3000", "，"),
    *("Apple", "Stoŕe", "A B", "iＰhone15", "é"),
    *("。", "！", "？", "；", "…", ".", "!", "?", ";", "，", "0", "12", "٣", "²", "A", "ａ", "İ", "ß", "<b>", "&amp;"),
]
# Texts that are part of all test cases.
FIXED_TEXTS = [
    *("", " ", "\n", "\0", "京", "😀", "\U0010ffff", "\u0301", UNSEEN, *(text for text, _ in TEXTS)),
    *("王小明 去了 上海 ", " 王小明去了\n上海", "王小\n明", "王小 明", "王小😀明", "北京\u200b大学", "王\u0301小明"),
    *(
        "\t张三在北京市工作，2019年5月加入中国银行。",
        "张三\t李四\n\n王五\r\n在 上海 ",
        "他在😀北京 大学😀工作\0",
        "美国\n\t\n总统",
        "加油！！！//@TFBOYS-王俊凯",
        "ABC",
    ),
    *("。" * 60, " " * 60, "北京大学" * 30, "王小明去了上海。\n" * 20),
]


def generate_texts(count: int, seed: int = 0, longest: int = 120) -> Iterator[str]:
    """Yield random texts that consist of training texts, parts of them, and special characters."""
    generator = random.Random(seed)
    training_texts = [text for text, _ in TEXTS]
    for _ in range(count):
        size = generator.choice([1, 2, 5, 23, 24, 25, 29, 30, 48, longest])
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            text = generator.choice(training_texts)
            start = generator.randrange(len(text))
            part = text[start : start + generator.randint(1, 4)]
            parts.append(generator.choice([text, text, part, part, generator.choice(SPECIAL_CHARACTERS)]))
        yield "".join(parts)[:size]


def make_systems(folder: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return the model config of each exported system, and its settings of the component.

    folder (Path): Directory for the files of ONNX encoders.
    """
    parts = small_tok2vecs(folder)
    tener, grn, characters = parts["TENER"], parts["GRN"], parts["TENER"]["embed"]

    def features(**encoder: Any) -> dict[str, Any]:
        return {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": 8, "dropout": 0.0, "encoder": encoder}

    def join(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
        return {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": second}

    def of_file(name: str, model: Any) -> dict[str, Any]:
        path = str(save(folder / name, model))
        return features(**{"@misc": "spacy_tener.OnnxEncoder.v1", "path": path, "window": 22, "overlap": 3})

    both = join(join(characters, of_file("recurrent", recurrent_encoder())), of_file("mean", mean_encoder()))
    lac = features(**{"@misc": "spacy_tener.LacEncoder.v1"})
    as_written = {**tener, "embed": {**characters, "simplify": False}}
    seen = {"view": "characters"}
    return {
        "tener": (tener, WINDOW),
        "as-written": (as_written, WINDOW),
        "characters": (tener, {**seen, **WINDOW, "threshold": {"PER": 0.6, "B-ORG": 0.4}}),
        "vanilla": ({**tener, "adapted": False}, {"threshold": 0.3}),
        "unigrams": ({**tener, "embed": {**characters, "bigram_width": 0, "digits": False}}, {**seen, **WINDOW}),
        "grn": (grn, WINDOW),
        "relations": ({**grn, "branches": []}, {**seen, **WINDOW, "threshold": 0.3}),
        "convolutions": ({**grn, "relation": None}, seen),
        "encoders": ({**tener, "embed": both}, {**seen, "window": 60, "overlap": 5}),
        "encoders-tokens": ({**tener, "embed": both}, {}),
        "lac": ({**tener, "embed": join(characters, lac)}, WINDOW),
        "lac-characters": ({**tener, "embed": join(characters, lac)}, seen),
        "nested": (tener, {**WINDOW, "depth": 3, "spans_key": NESTED_KEY, "threshold": {"GPE": 0.4}}),
    }


def make_pipeline(tok2vec: dict[str, Any], settings: dict[str, Any]) -> Language:
    """Train a pipeline briefly, so that its probabilities are not all close to 1, and set a temperature."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nlp = pipeline(tok2vec, **settings)
        examples = examples_of(nlp, TRAINING_TEXTS)
        if "depth" in settings:
            for example in examples:
                add_inner_entities(example.reference)
        learn(nlp, examples, steps=100, enough=1.0)
    nlp.get_pipe("tener_ner").cfg["temperature"] = 1.3
    # Save and load the pipeline, since training keeps cached features in float16.
    return spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())


def with_lists(nlp: Language) -> Language:
    """Return a copy of a pipeline with entity lists and blocked words."""
    nlp = spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())
    lists: Any = nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add(LISTED_WORDS)
    lists.block(BLOCKED_WORDS)
    lists.add({"王小": "PER"}, name="unnamed by texts")
    return nlp


def add_inner_entities(doc: Doc) -> None:
    """Add inner entities to organisations: the place at the start, and its first character."""
    inner = [
        Span(doc, ent.start, ent.start + size, label="GPE") for ent in doc.ents if len(ent) == 4 for size in (2, 1)
    ]
    doc.spans[NESTED_KEY] = [*doc.ents, *inner]


def find_entities(nlp: Language, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Return the entities that a pipeline predicts, in the format of the readers."""
    rows = []
    for doc in nlp.pipe(texts, component_cfg=probability_config(nlp)):
        group = doc.spans.get(NESTED_KEY, doc.spans.get(SCORES_KEY, doc.ents))
        scores = group.attrs["scores"].tolist() if isinstance(group, SpanGroup) else [None] * len(group)
        columns = ("start", "end", "label", "text", "probability")
        entities = ((span.start_char, span.end_char, span.label_, span.text) for span in group)
        rows.append(
            [dict(zip(columns, (*entity, score), strict=True)) for entity, score in zip(entities, scores, strict=True)]
        )
    return rows


@cache
def _systems() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    return make_systems(Path(_FOLDER.name))


@cache
def _pipeline(system: str) -> Language:
    if system.endswith("-lists"):
        return with_lists(_pipeline(system.removesuffix("-lists")))
    if system != "lac-alone":
        return make_pipeline(*_systems()[system])
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    return nlp


@cache
def exported(system: str) -> Path:
    """Export the pipeline of a system, once per process. Return the path of the file."""
    path = Path(_FOLDER.name, f"{system}.onnx")
    path.write_bytes(export_model(_pipeline(system)).SerializeToString())
    return path


@cache
def find_cases(system: str, n_generated: int = 60) -> list[dict[str, Any]]:
    """Return the test cases of a system.

    n_generated (int): Number of random texts.
    """
    texts = [*FIXED_TEXTS, *ENTITY_LIST_TEXTS, *generate_texts(n_generated)]
    texts.append("".join(generate_texts(n_generated // 5, seed=1))[:10_000])
    found = find_entities(_pipeline(system), texts)
    return [{"text": text, "entities": entities} for text, entities in zip(texts, found, strict=True)]


def exported_cases() -> Path:
    """Write the exported files and test cases of all systems, and return their directory."""
    rows = {system: {"file": exported(system).name, "cases": find_cases(system)} for system in SYSTEMS}
    (folder := exported(SYSTEMS[0]).parent).joinpath("cases.json").write_text(json.dumps(rows), encoding="utf8")
    return folder
