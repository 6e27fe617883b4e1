"""The commands with spaCy's `spancat`, whose entities may overlap."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
import spacy
from command_line import CommandResult, run_tener
from small_corpora import add_rules
from spacy.cli.train import train
from spacy.language import Language

from spacy_tener.annotate.tasks import entity_task
from spacy_tener.serve import make_app
from spacy_tener.training.overlays import compose

pytestmark = pytest.mark.integration

SPANCAT = Path(__file__).parents[1] / "research" / "overlays" / "spancat.cfg"
SHORT_TRAINING = [
    "training.max_steps=80",
    "training.eval_frequency=40",
    "components.spancat.model.tok2vec.dropout=0.0",
    "components.spancat.suggester.min_size=2",
    "components.spancat.suggester.max_size=7",
]
TEXT = "他在北京大学医学院工作"
NESTED = [[2, 4, "GPE"], [2, 6, "ORG"], [2, 9, "ORG"]]
TEXTS = [
    {"text": TEXT, "entities": NESTED},
    {"text": "他去了北京", "entities": [[3, 5, "GPE"]]},
    {"text": "北京大学很大", "entities": [[0, 2, "GPE"], [0, 4, "ORG"]]},
    {"text": "今天天气很好", "entities": []},
]
ENGLISH = {"text": "Bank of China in Bonn", "entities": [[0, 13, "ORG"], [8, 13, "GPE"], [17, 21, "GPE"]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the corpus, with and without overlapping entities, and with the texts alone."""
    path = tmp_path_factory.mktemp("nested")
    (path / "train.jsonl").write_text("".join(f"{json.dumps(text)}\n" for text in TEXTS), encoding="utf8")
    (path / "texts.jsonl").write_text(json.dumps({"text": TEXT}) + "\n", encoding="utf8")
    (path / "en.jsonl").write_text(json.dumps(ENGLISH), encoding="utf8")
    for name, lang, overlap in (("train", "zh", "spans"), ("train", "zh", "longest"), ("en", "en", "spans")):
        options = ["--output", path / overlap, "--lang", lang, "--overlap", overlap]
        assert run_tener("convert", path / f"{name}.jsonl", *options).code == 0
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    compose("weibo", [SPANCAT], SHORT_TRAINING).to_disk(folder / "config.cfg", interpolate=False)
    data = str(folder / "spans" / "train.spacy")
    train(folder / "config.cfg", folder / "trained", overrides={"paths.train": data, "paths.dev": data})
    return folder / "trained" / "model-last"


def offsets_and_labels(entities: list[dict[str, Any]]) -> list[list[Any]]:
    return [[entity["start"], entity["end"], entity["label"]] for entity in entities]


async def post_requests(nlp: Language, requests: dict[str, Any]) -> list[Any]:
    """Send requests, given by route, to a service. Return its answers."""
    app = make_app({"zh": nlp})
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://zh") as client:
        return [(await client.post(route, json=request)).json() for route, request in requests.items()]


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(("format", "processes"), [("jsonl", []), ("parquet", ["--processes", "1"])])
def test_annotate_writes_overlapping_entities(
    model: Path, folder: Path, tmp_path: Path, format: str, processes: list[str]
) -> None:
    options = ["--format", format, "--probability", *processes]
    assert run_tener("annotate", model, folder / "texts.jsonl", "--output", tmp_path, *options).code == 0
    (part,) = tmp_path.glob(f"part-*.{format}")
    if format == "jsonl":
        row = json.loads(part.read_text(encoding="utf8"))
    else:
        (row,) = pq.read_table(part).to_pylist()
    assert offsets_and_labels(row["entities"]) == NESTED
    assert all(0.5 <= entity["probability"] <= 1 for entity in row["entities"])


def test_service_returns_overlapping_entities(model: Path) -> None:
    labels = "".join(f'<Label value="{label}"/>' for label in ("GPE", "ORG"))
    interface = f'<View><Labels name="l" toName="t">{labels}</Labels><Text name="t" value="$text"/></View>'
    requests = {
        "/v1/entities": {"text": TEXT},
        "/predict": {"label_config": interface, "tasks": [{"id": 1, "data": {"text": TEXT}}]},
        "/v1/explanation": {"text": TEXT},
    }
    entities, predicted, refused = asyncio.run(post_requests(spacy.load(model), requests))
    assert offsets_and_labels(entities["entities"]) == NESTED
    values = [region["value"] for region in predicted["results"][0]["result"]]
    assert [[value["start"], value["end"], *value["labels"]] for value in values] == NESTED
    assert refused["error"]["code"] == "not_explained"


def test_duplicate_entities_of_components_are_merged(model: Path) -> None:
    nlp = spacy.load(model)
    add_rules(nlp, ORG="北京大学")
    (found,) = entity_task(nlp)([TEXT])
    assert [[entity.start, entity.end, entity.label] for entity in found] == NESTED


@pytest.mark.parametrize("text", ["", "京"])
def test_text_shorter_than_suggested_spans_is_processed(model: Path, text: str) -> None:
    nlp = spacy.load(model)
    assert entity_task(nlp)([text, TEXT, text])[::2] == [[], []]
    add_rules(nlp, GPE="京")
    assert [len(found) for found in entity_task(nlp)([text])] == [len(text)]


def test_spans_of_later_component_have_no_probability(model: Path) -> None:
    nlp = spacy.load(model)
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "PER", "pattern": "他"}])  # type: ignore[attr-defined]
    (found,) = entity_task(nlp)([TEXT])
    assert [(*entity.offsets, entity.probability) for entity in found if entity.label == "PER"] == [(0, 1, "PER", None)]


def test_spacy_evaluate_scores_span_group(model: Path, folder: Path, tmp_path: Path) -> None:
    data, scores = folder / "spans" / "train.spacy", tmp_path / "scores.json"
    ran = run_tener("evaluate", model, data)
    assert ran.code == 1
    assert "--spans-key sc" in ran.text
    assert CommandResult("evaluate", model, data, "--spans-key", "sc", "--output", scores).code == 0
    assert json.loads(scores.read_text())["spans_sc_f"] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        ("explain", "{model}", TEXT, "--output", "{out}/page.html"),
        ("suggest", "{model}", "{texts}", "--output", "{out}/tasks.json"),
        ("calibrate", "{model}", "{data}", "--output", "{out}/calibrated"),
        ("review", "{model}", "{data}", "--output", "{out}/review"),
        ("trim", "{model}", "{texts}", "--output", "{out}/trimmed"),
    ],
)
def test_command_without_tener_ner_raises_error(
    model: Path, folder: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    paths = {
        "model": model,
        "texts": folder / "texts.jsonl",
        "data": folder / "spans" / "train.spacy",
        "out": tmp_path,
    }
    ran = run_tener(*(word.format_map(paths) for word in options))
    assert ran.code == 1
    assert "no tener_ner" in ran.text
    assert not any(path.is_file() and path.name != ".lock" for path in tmp_path.rglob("*"))


def test_silver_command_rejects_spancat(model: Path, folder: Path, tmp_path: Path) -> None:
    ran = run_tener("silver", model, folder / "texts.jsonl", "--output", tmp_path / "silver")
    assert ran.code == 1
    assert "spancat may be nested" in ran.text


def test_convert_warns_about_partial_annotation(tmp_path: Path) -> None:
    is_warned = {}
    for answer in ("accept", "reject"):
        spans = [{"start": 2, "end": 4, "label": "GPE"}, {"start": 2, "end": 6, "label": "ORG", "answer": answer}]
        (tmp_path / "in.jsonl").write_text(json.dumps({"text": TEXT, "spans": spans, "answer": "accept"}))
        ran = run_tener("convert", tmp_path / "in.jsonl", "-o", tmp_path / "out.spacy", "--overlap", "spans", "--force")
        assert ran.code == 0
        is_warned[answer] = "spancat treats 2 tokens with missing annotation" in ran.text
    assert is_warned == {"accept": False, "reject": True}
