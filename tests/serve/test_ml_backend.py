"""The service as an ML backend of Label Studio: requests as its client sends them, answered in the project's labels."""

from __future__ import annotations

import json
import logging
import math
import time
from typing import Any

import httpx
import pytest
import spacy
from small_corpora import add_rules

from spacy_tener.review.active_learning import Suggestion, make_tasks
from spacy_tener.review.annotation_tools import TOOLS
from spacy_tener.serve.ml_backend import read_interface

INTERFACE = """<View>
  <Labels name="label" toName="text">
    <Label value="PER"/><Label value="ORG"/><Label value="GPE"/>
  </Labels>
  <Text name="text" value="$text"/>
</View>"""
TEXT = "吴重阳在中国银行工作。"


@pytest.fixture(scope="module")
def nlp(saved):
    return spacy.load(saved["tener"])


def set_up(served, interface: str, base: str = "") -> httpx.Response:
    """Send the request that Label Studio sends when a backend is connected, and before each prediction."""
    body = {"project": "1.1700000000", "schema": interface, "hostname": "", "access_token": "x", "extra_params": None}
    return served.client.post(f"{base}/setup", json=body)


def predict(served, *data: dict[str, Any], interface: str = INTERFACE, base: str = "") -> httpx.Response:
    tasks = [{"id": 7 + number, "project": 1, "data": texts, "meta": {}} for number, texts in enumerate(data)]
    params = {"login": None, "password": None, "context": None}
    body = {"tasks": tasks, "project": "1.17", "label_config": interface, "params": params}
    return served.client.post(f"{base}/predict", json=body)


def find_entities(nlp, text: str) -> list[tuple[int, int, str]]:
    return [(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents]


def regions(result: dict[str, Any], to_name: str = "text") -> list[tuple[int, int, str]]:
    values = [region["value"] for region in result["result"] if region["to_name"] == to_name]
    return [(value["start"], value["end"], value["labels"][0]) for value in values]


def validation_message(answer: httpx.Response, code: str) -> str:
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["code"] == code
    return answer.json()["error"]["message"]


def test_setup_returns_stable_model_version(served):
    version = set_up(served, INTERFACE).json()["model_version"]
    name, _, weights = version.split()
    assert (name, len(weights)) == ("tener", 8)
    assert set_up(served, INTERFACE).json()["model_version"] == version
    assert served.client.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "😀王小明𠮷去了上海",
        "<b>王小明</b> &amp; 去了\r\n上海\r\n\r\n北京大学",
        "e\u0301王小明\u200d去了上海",
        "今天天气很好",
        "",
    ],
)
def test_regions_match_entities_of_original_text(served, nlp, text):
    answer = predict(served, {"text": text}).json()
    (result,) = answer["results"]
    assert answer["errors"] == []
    assert regions(result) == find_entities(nlp, text)
    for region in result["result"]:
        assert (region["from_name"], region["to_name"], region["type"]) == ("label", "text", "labels")
        assert region["value"]["text"] == text[region["value"]["start"] : region["value"]["end"]]


def test_scores_match_model_probabilities(served, nlp):
    (result,) = predict(served, {"text": TEXT}).json()["results"]
    pipe = nlp.get_pipe("tener_ner")
    decoding = next(pipe.decode([nlp.make_doc(TEXT)]))
    assert [region["score"] for region in result["result"]] == pytest.approx(
        [entity.probability for entity in decoding.entities]
    )
    (best,) = decoding.k_best(1)
    assert result["score"] == pytest.approx(best.probability ** (1 / math.sqrt(len(TEXT))))


def test_suggest_and_predict_return_equal_scores(served, nlp):
    texts = [TEXT, "吴小明在上海银行工作。王重阳去了中国"]
    tasks = make_tasks(nlp, [Suggestion({"text": text}, 0.5) for text in texts], nlp.get_pipe("tener_ner").labels)
    suggested = [task["predictions"][0]["score"] for task in json.loads(TOOLS["labelstudio"].write(tasks))]
    predicted = [result["score"] for result in predict(served, *({"text": text} for text in texts)).json()["results"]]
    assert suggested == pytest.approx(predicted, abs=1e-4)


def test_labels_are_mapped_to_project_labels(served):
    interface = INTERFACE.replace('"PER"', '"Person" predicted_values="NAME, PER"').replace('"ORG"', '"org"')
    interface = interface.replace('<Label value="GPE"/>', '<Label value="Place" alias="GPE"/>')
    (result,) = predict(served, {"text": "王小明去了上海"}, {"text": TEXT}, interface=interface).json()["results"][:1]
    assert regions(result) == [(0, 3, "Person"), (5, 7, "GPE")]
    (result,) = predict(served, {"text": TEXT}, interface=interface).json()["results"]
    assert regions(result) == [(0, 3, "Person"), (4, 8, "org")]


def test_entities_without_project_label_are_omitted_and_logged(served, caplog):
    interface = INTERFACE.replace('<Label value="ORG"/>', "")
    assert set_up(served, interface).status_code == 200
    assert "no label for ORG over the text 'text'" in caplog.text
    (result,) = predict(served, {"text": TEXT}, interface=interface).json()["results"]
    assert regions(result) == [(0, 3, "PER")]


def test_task_with_several_texts_is_predicted(served, nlp):
    interface = """<View>
      <labels name="people" toName="title, body"><Label value="PER"/></labels>
      <Labels name="others" toname="body"><Label value="ORG"/><Label value="PER"/><Label value="GPE"/></Labels>
      <Text name="title" value="$title"/><text name="body" value="$article.body"/><Text name="note" value="$note"/>
      <Image name="image" value="$image"/>
    </View>"""
    data = {"title": "王小明去了上海", "article": {"body": TEXT}, "note": "京", "image": "a.png"}
    (result,) = predict(served, data, interface=interface).json()["results"]
    assert regions(result, "title") == [(0, 3, "PER")]
    assert regions(result, "body") == find_entities(nlp, TEXT)
    assert [region["from_name"] for region in result["result"]] == ["people", "people", "others"]
    assert len({region["id"] for region in result["result"]}) == 3
    alone = [predict(served, {"text": text}).json()["results"][0]["score"] for text in (data["title"], TEXT)]
    logs = sum(math.log(score) * math.sqrt(size) for score, size in zip(alone, (7, 11), strict=True))
    assert result["score"] == pytest.approx(math.exp(logs / math.sqrt(18)))


def test_invalid_tasks_are_skipped_and_reported(served, nlp, caplog):
    data = [{"text": TEXT}, {"image": "a.png"}, {"text": 3}, {"text": "好" * 501}, {"text": "京"}]
    answer = predict(served, *data).json()
    assert [regions(result) if result else result for result in answer["results"]] == [
        find_entities(nlp, TEXT),
        [],
        [],
        [],
        [(0, 1, "GPE")],
    ]
    assert [error["task"] for error in answer["errors"]] == [8, 9, 10]
    assert "no text 'text'" in answer["errors"][0]["message"]
    assert "501 characters" in answer["errors"][2]["message"]
    assert "task 8: The task has no text 'text' in its data." in caplog.text


def test_pipeline_failure_does_not_affect_other_tasks(start, nlp):
    broken = spacy.blank("zh")

    @spacy.Language.component("fails_at_x")
    def fail(doc):
        if "x" in doc.text:
            raise ValueError("x")
        return doc

    broken.add_pipe("fails_at_x")
    add_rules(broken, GPE="上海")
    with start({"broken": broken}) as service:
        answer = predict(service, {"text": "x"}, {"text": "去了上海"}).json()
    assert [error["task"] for error in answer["errors"]] == [7]
    assert answer["results"][0] == []
    # Without a tener_ner, predictions have no probabilities, so Label Studio cannot sort them.
    assert answer["results"][1]["score"] is None
    assert regions(answer["results"][1]) == [(2, 4, "GPE")]
    assert answer["results"][1]["result"][0]["score"] is None


def test_predict_accepts_more_tasks_than_batch_limit(served):
    """Label Studio sends all selected tasks in one request."""
    answer = predict(served, *[{"text": "京"}] * 50).json()
    assert [regions(result) for result in answer["results"]] == [[(0, 1, "GPE")]] * 50


ENTITY_EXPANSION = '<!DOCTYPE v [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><View>&b;</View>'
EXTERNAL_ENTITY = '<!DOCTYPE v SYSTEM "file:///etc/passwd" [<!ENTITY x SYSTEM "file:///etc/passwd">]><View>&x;</View>'

IMAGE_INTERFACE = """<View>
  <Image name="image" value="$image"/>
  <RectangleLabels name="label" toName="image"><Label value="PER"/></RectangleLabels>
</View>"""


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        ("", "is not XML"),
        ("{}", "is not XML"),
        ("<View><Text></View>", "is not XML: mismatched tag"),
        ("<View>&a;</View>", "is not XML: undefined entity"),
        (ENTITY_EXPANSION, "has a document type"),
        (EXTERNAL_ENTITY, "has a document type"),
        ("<View/>", "needs a Labels tag and a Text tag, but has nothing"),
        (IMAGE_INTERFACE, "needs a Labels tag and a Text tag, but has Image, Label, RectangleLabels"),
        (INTERFACE.replace("Text", "HyperText"), "needs a Labels tag and a Text tag, but has HyperText, Label, Labels"),
        (INTERFACE.replace('toName="text"', 'toName="other"'), "has no label of the model for its Text"),
        (
            INTERFACE.replace("value=", "background="),
            "has no label of the model for its Text. The labels of the model are: GPE, ORG",
        ),
        (
            INTERFACE.replace('value="$text"', 'value="$text" valueType="url"'),
            "value is not one plain text of the task",
        ),
        (INTERFACE.replace('value="$text"', 'value="Read: $text"'), "value is not one plain text of the task"),
        (
            INTERFACE.replace('value="$text"', 'value="$text" encoding="base64"'),
            "value is not one plain text of the task",
        ),
        ("<View>" * 500 + "</View>" * 500, "needs a Labels tag and a Text tag, but has View"),
    ],
)
def test_unusable_interface_raises_error(served, interface, reason, caplog):
    assert reason in validation_message(set_up(served, interface), "unusable_interface")
    assert reason in validation_message(predict(served, {"text": TEXT}, interface=interface), "unusable_interface")
    # Label Studio only shows the status, and refers users to this log.
    setup_log, predict_log = caplog.messages
    assert setup_log.startswith("Label Studio, /setup: The labelling interface ")
    assert predict_log.startswith("Label Studio, /predict: The labelling interface ")
    assert reason in setup_log


def test_interface_with_declaration_and_comments_is_parsed(served):
    interface = '<?xml version="1.0" encoding="utf-16"?><!-- 😀 -->' + INTERFACE.replace(
        "<Label ", "<Header/><Label ", 1
    )
    assert set_up(served, interface).status_code == 200


def test_model_is_selected_by_name_in_url(served):
    base = "/label-studio/characters"
    assert set_up(served, INTERFACE, base).json()["model_version"].startswith("characters ")
    assert predict(served, {"text": "京"}, base=base).json()["results"][0]["model_version"].startswith("characters ")
    for name, status in (("characters", 200), ("charakters", 404)):
        base = f"/label-studio/{name}"
        assert served.client.get(f"{base}/health").status_code == status
        assert served.client.get(f"{base}/ready").status_code == status
        assert set_up(served, INTERFACE, base).status_code == status


def test_webhook_ignores_repeated_annotation_events(served):
    body = {"action": "ANNOTATION_CREATED", "annotation": {"result": []}, "task": {}, "project": {"id": 1}}
    answers = [served.client.post("/webhook", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["status"] == "ignored"
    assert served.client.post("/webhook", json={"annotation": {}}).status_code == 422


def test_training_request_returns_not_implemented(served):
    answer = served.client.post("/webhook", json={"action": "START_TRAINING", "project": {"id": 1}})
    assert answer.status_code == 501
    assert "does not train" in answer.json()["error"]["message"]


def test_backend_applies_limits_metrics_and_api_key(served, start, caplog):
    caplog.set_level(logging.WARNING)
    assert predict(served, {"text": "好" * 20_000}).status_code == 413
    assert "Label Studio, /predict: The body is larger than 20,000 bytes" in caplog.text
    assert 'tener_requests_total{path="/predict",status="413"}' in served.client.get("/metrics").text
    with start({"blank": spacy.blank("zh")}, api_key="secret") as service:
        assert service.client.get("/health").status_code == 200
        assert set_up(service, INTERFACE).status_code == 401
        assert predict(service, {"text": "好"}).status_code == 401
        service.client.auth = ("anyone", "secret")  # as Label Studio sends it
        assert set_up(service, INTERFACE).status_code == 422


def test_deeply_nested_labels_are_parsed_in_linear_time():
    depth = 20_000  # an implementation that searches the descendants of every tag takes more than a minute
    inner = '<Labels name="inner" toName="text"><Label value="PER"/></Labels>'
    nested = "<Labels name='l' toName='text'>" * depth + inner + "</Labels>" * depth
    start = time.perf_counter()
    (tag,) = read_interface(f"<View>{nested}<Text name='text' value='$text'/></View>", ["PER"])
    assert tag.labels == {"PER": ("inner", "PER")}
    assert time.perf_counter() - start < 10


def predict_raw_task(served, task: str) -> httpx.Response:
    body = f'{{"label_config": {json.dumps(INTERFACE)}, "tasks": [{task}]}}'
    return served.client.post("/predict", content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("task_id", ['"\\ud800"', "NaN"])
def test_unserializable_task_id_raises_error(served, task_id):
    assert "tasks.0.id" in validation_message(predict_raw_task(served, f'{{"id": {task_id}, "data": {{}}}}'), "invalid")


def test_lone_surrogate_in_text_is_reported(served):
    answer = predict_raw_task(served, '{"id": 1, "data": {"text": "\\ud800"}}').json()
    assert answer["results"] == [[]]
    assert "surrogate" in answer["errors"][0]["message"]
