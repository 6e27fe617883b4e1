"""Answers of the service: entities, probabilities, offsets, models, explanations, and the OpenAPI schema."""

from __future__ import annotations

import pytest
import small_corpora
import spacy
from spacy.language import Language

TEXTS = ["吴重阳在中国银行工作。", "今天天气很好", "", "王小明去了上海", "😀王小明𠮷去了上海", "\x00", " \n", "京"]


@pytest.fixture(scope="module")
def nlp(saved) -> Language:
    return spacy.load(saved["tener"])


def find_entities(nlp, text):
    return [(ent.start_char, ent.end_char, ent.label_, ent.text) for ent in nlp(text).ents]


def test_probabilities_match_component_and_can_be_filtered(served, nlp):
    text = "吴小明在上海银行工作。王重阳去了中国"
    scored = next(nlp.get_pipe("tener_ner").decode([nlp.make_doc(text)])).entities
    entities = served.client.post("/v1/entities", json={"text": text}).json()["entities"]
    assert [entity["probability"] for entity in entities] == pytest.approx([entity.probability for entity in scored])
    minimum = sorted(entity["probability"] for entity in entities)[1]
    probable = served.client.post("/v1/entities", json={"text": text, "minimum": minimum}).json()["entities"]
    assert probable == [entity for entity in entities if entity["probability"] >= minimum]
    assert 0 < len(probable) < len(entities)


def entity_tuples(entities):
    return [(entity["start"], entity["end"], entity["label"], entity["text"]) for entity in entities]


@pytest.mark.parametrize("text", TEXTS)
def test_single_text_returns_pipeline_entities(served, nlp, text):
    answer = served.client.post("/v1/entities", json={"text": text})
    assert answer.status_code == 200
    assert answer.json()["model"] == "tener"
    assert entity_tuples(answer.json()["entities"]) == find_entities(nlp, text)


def test_batch_preserves_order_of_texts(served, nlp):
    answer = served.client.post("/v1/entities/batch", json={"texts": TEXTS}).json()
    assert list(map(entity_tuples, answer["answers"])) == [find_entities(nlp, text) for text in TEXTS]
    assert served.client.post("/v1/entities/batch", json={"texts": []}).json()["answers"] == []


ADJACENT_STRINGS = ["", "😀", "𠮷😀", "e\u0301", "\u0301", "👨\u200d👩", "\ufeff", "\u2028", "\r\n", "\x85", "\u200f"]
ENCODINGS = {"characters": "utf-32-le", "utf16": "utf-16-le"}


@pytest.fixture(scope="module")
def rule_client(start):
    with start({"ruled": small_corpora.rule_pipeline(GPE="上海")}) as service:
        yield service.client


@pytest.mark.parametrize("offsets", ENCODINGS)
def test_offsets_count_code_points_or_utf16_units(rule_client, offsets):
    texts = [f"{before}上海{after}上海" for before in ADJACENT_STRINGS for after in ADJACENT_STRINGS]
    width = len("a".encode(ENCODINGS[offsets]))
    options = {"offsets": offsets}
    single = [rule_client.post("/v1/entities", json={"text": text, **options}).json()["entities"] for text in texts]
    batch = rule_client.post("/v1/entities/batch", json={"texts": texts, **options}).json()["answers"]
    assert single == batch
    for text, entities in zip(texts, single, strict=True):
        encoded = text.encode(ENCODINGS[offsets])
        marked = [
            encoded[width * entity["start"] : width * entity["end"]].decode(ENCODINGS[offsets]) for entity in entities
        ]
        assert marked == [entity["text"] for entity in entities] == ["上海", "上海"]


def test_models_are_listed_and_selected_by_name(served):
    listed = served.client.get("/v1/models").json()
    assert [model["name"] for model in listed["models"]] == ["tener", "characters"]
    assert listed["models"][0]["language"] == "zh"
    assert listed["models"][0]["labels"] == ["GPE", "ORG", "PER"]
    assert listed["limits"] == {"characters": 500, "explained": 100, "texts": 8, "body": 20_000}
    answer = served.client.post("/v1/entities", json={"text": "京", "model": "characters"}).json()
    assert answer["model"] == "characters"
    assert entity_tuples(answer["entities"]) == [(0, 1, "GPE", "京")]


def test_openapi_schema_lists_routes_and_errors(served):
    schema = served.client.get("/openapi.json").json()
    assert set(schema["paths"]) == {
        "/v1/models",
        "/v1/entities",
        "/v1/entities/batch",
        "/v1/explanation",
        "/setup",
        "/predict",
        "/webhook",
        "/health",
        "/ready",
        "/metrics",
    }
    for path in ("/v1/entities", "/v1/entities/batch"):
        responses = schema["paths"][path]["post"]["responses"]
        assert set(responses) == {"200", "401", "404", "408", "413", "422", "503"}
        errors = {
            body["content"]["application/json"]["schema"]["$ref"] for code, body in responses.items() if code != "200"
        }
        assert errors == {"#/components/schemas/ErrorResponse"}


def test_explanation_is_returned_as_json_or_html(served, nlp):
    text = "王小明去了上海"
    data = served.client.post("/v1/explanation", json={"text": text})
    assert data.headers["content-type"] == "application/json"
    explained = data.json()["texts"][0]
    assert entity_tuples(
        [{**entity, "text": text[entity["start"] : entity["end"]]} for entity in explained["entities"]]
    ) == find_entities(nlp, text)
    page = served.client.post("/v1/explanation", json={"text": text, "format": "html"})
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.startswith("<!DOCTYPE html>")
    assert data.json()["pipeline"]["name"] == "tener"
    assert str(nlp.path) not in data.text + page.text
    assert served.client.post("/v1/explanation", json={"text": "京" * 101}).status_code == 413


def test_explanation_cost_depends_on_text_and_window_length(served, monkeypatch):
    costs = []
    worker = served.service.models["tener"].worker
    submit = worker.submit
    monkeypatch.setattr(
        worker, "submit", lambda *args, **options: costs.append(options["cost"]) or submit(*args, **options)
    )
    for text in ("王小明去了上海", "王" * 100):
        assert served.client.post("/v1/explanation", json={"text": text}).status_code == 200
    # Long texts are split into windows of 32 characters, the length of most training texts of this model.
    assert costs == [7 * 7, 100 * 32]


def test_strings_of_texts_are_removed_from_vocabulary(served):
    strings = served.service.models["tener"].nlp.vocab.strings
    before = len(strings)
    for number in range(20):
        served.client.post("/v1/entities/batch", json={"texts": [f"new{number}word{index}" for index in range(8)]})
    assert len(strings) == before


@pytest.mark.parametrize("route", ["entities", "entities/batch", "explanation"])
def test_request_words_are_labelled_as_entities(served, route):
    text, words = "王小明去了云海一号", {"云海一号": "PRODUCT"}
    body = {"text": text, "words": words} if route != "entities/batch" else {"texts": [text], "words": words}
    answer = served.client.post(f"/v1/{route}", json=body).json()
    entities = {
        "entities": lambda: answer["entities"],
        "entities/batch": lambda: answer["answers"][0],
        "explanation": lambda: answer["texts"][0]["entities"],
    }[route]()
    assert (entities[-1]["start"], entities[-1]["end"], entities[-1]["label"]) == (5, 9, "PRODUCT")
    assert entities[-1]["probability"] == 1.0
    assert route != "explanation" or entities[-1]["is_existing"]
    later = served.client.post("/v1/entities", json={"text": text}).json()["entities"]
    assert "PRODUCT" not in {entity["label"] for entity in later}
    wrong = served.client.post("/v1/entities", json={"text": text, "words": {"云": "PRODUCT"}})
    assert wrong.status_code == 422
    assert "words" in wrong.json()["error"]["message"]
    blank = served.client.post(f"/v1/{route}", json={**body, "words": {"云海一号": " \x1c"}})
    assert (blank.status_code, blank.json()["error"]["message"]) == (422, "words.云海一号: Label should not be blank.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"云海": "A", "雲海": "B"}, "words: '雲海' has two labels, A and B. "),
        ({"AB": "A", "ＡＢ": "B"}, "words: 'ＡＢ' has two labels, A and B. "),
        ({"  ": "A"}, "words.  .[key]: Word should have 2 characters"),
        ({"云 ": "A"}, "words.云 .[key]: Word should have 2 characters"),
        ({"a\0b": "A"}, "words.a\0b.[key]: Word should have 2 characters"),
    ],
)
@pytest.mark.parametrize("route", ["entities", "entities/batch", "explanation"])
def test_request_with_invalid_or_conflicting_words_is_rejected(served, recwarn, route, words, message):
    body = {"texts": ["雲海"]} if route == "entities/batch" else {"text": "雲海"}
    answer = served.client.post(f"/v1/{route}", json={**body, "words": words})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert answer.json()["error"]["message"].startswith(message)
    assert not recwarn.list
    same = served.client.post(f"/v1/{route}", json={**body, "words": {"云海": "A", "雲海": "A"}})
    assert same.status_code == 200


def test_head_requests_are_answered_like_get_requests_without_body(served):
    public = ["/health", "/ready", "/metrics", "/v1/models", "/", "/docs", "/static/parts.css", "/openapi.json"]
    for path in (*public, "/label-studio/tener/health", "/label-studio/tener/ready"):
        # Both requests use one connection, which a body would break.
        answer, again = served.client.head(path), served.client.get(path)
        assert (answer.status_code, answer.content, again.status_code) == (200, b"", 200), path
        assert answer.headers["content-type"] == again.headers["content-type"]
    assert served.client.head("/v1/entities").status_code == 405
    assert served.client.head("/label-studio/none/health").status_code == 404
    assert {"head"}.isdisjoint(
        method for route in served.client.get("/openapi.json").json()["paths"].values() for method in route
    )
