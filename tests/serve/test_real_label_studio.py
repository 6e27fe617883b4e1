"""A running Label Studio with the service as its backend: import, prediction, annotation, export and training.

`make test-slow` installs Label Studio in a separate environment, because it pins versions of packages that this package
also uses.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import spacy
from browser import Browser
from command_line import run_tener
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from waiting import wait_until

from spacy_tener.serve import bind

pytestmark = pytest.mark.slow

STUDIO = Path(__file__).parents[2] / ".venv-label-studio" / "bin" / "label-studio"
EMAIL, PASSWORD, TOKEN = "annotator@example.com", "correct horse", "0123456789abcdef0123456789abcdef01234567"
INTERFACE = """<View>
  <Labels name="label" toName="text">
    <Label value="Person" predicted_values="PER"/><Label value="ORG"/><Label value="GPE"/>
  </Labels>
  <Text name="text" value="$text"/>
</View>"""
TWO_TEXTS = """<View>
  <Labels name="label" toName="heading,content"><Label value="PER"/><Label value="ORG"/><Label value="GPE"/></Labels>
  <Text name="heading" value="$title"/><Text name="content" value="$article.body"/>
</View>"""
IMAGE_INTERFACE = """<View>
  <Image name="image" value="$image"/>
  <RectangleLabels name="label" toName="image"><Label value="PER"/></RectangleLabels>
</View>"""

# The region that an annotator adds to the predicted regions of a text: the text, the label and the marked substring.
MARKED_TEXTS = [
    ("😀王小明𠮷去了上海", "ORG", "𠮷"),
    ('<b>王小明</b> &amp; "去了"\r\n上海\r\n\r\n北京大学', "ORG", "amp"),
    ("e\u0301王小明\u200d去了👩\u200d👧上海", "ORG", "👩\u200d👧"),
    (" \t王小明  去了\n上海\\n", "Person", "\\n"),
    ("王小明😀去\r\n了 上海", "ORG", "去\r\n了"),
]
# Selects a substring in the page as a user does. The page has a separate element for each line break.
SELECT_SCRIPT = r"""
const inside = document.querySelector('.lsf-richtext__container');
const walker = document.createTreeWalker(inside, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
const places = [];
let text = '';
for (let node; (node = walker.nextNode()); ) {
  const shown = node.nodeName === 'BR' ? '\n' : node.data ?? '';
  for (let at = 0; at < shown.length; at++) places.push([node, at]);
  text += shown;
}
const from = text.indexOf(arguments[0].replace(/\r/g, '\n'));
const [first, start] = places[from], [last, end] = places[from + arguments[0].length - 1];
const range = document.createRange();
range.setStart(first, start);
range.setEnd(last, end + 1);
getSelection().removeAllRanges();
getSelection().addRange(range);
for (const type of ['mousedown', 'mouseup']) first.parentElement.dispatchEvent(new MouseEvent(type, {bubbles: true}));
return getSelection().isCollapsed;
"""


@dataclass(frozen=True)
class Studio:
    """A running Label Studio, and a client of its API."""

    client: httpx.Client
    log: Path

    def ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self.client.request(method, path, **options)
        assert answer.is_success, f"{answer.status_code} {answer.text[:500]}\n{self.log.read_text()[-2000:]}"
        return answer.json() if answer.content else None

    def project(self, interface: str, *tasks: dict[str, Any]) -> int:
        project: int = self.ask("POST", "/api/projects", json={"title": "A project", "label_config": interface})["id"]
        if tasks:
            self.ask("POST", f"/api/projects/{project}/import", json=list(tasks))
        return project

    def connect(self, project: int, url: str, **options: Any) -> httpx.Response:
        return self.client.post("/api/ml", json={"url": url, "project": project, "title": "tener", **options})

    def tasks(self, project: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("GET", f"/api/projects/{project}/tasks")
        return sorted(found, key=lambda task: task["id"])

    def predictions(self, project: int) -> dict[int, list[dict[str, Any]]]:
        """Predict all tasks, as the button in the data manager does. Return all predictions of each task by its id."""
        selected = {"selectedItems": {"all": True, "excluded": []}}
        self.ask("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", json=selected)
        found: dict[int, list[dict[str, Any]]] = {task["id"]: [] for task in self.tasks(project)}
        for prediction in self.ask("GET", f"/api/predictions?project={project}"):
            found[prediction["task"]].append(prediction)
        return found

    def export(self, project: int, kind: str, path: Path) -> Path:
        answer = self.client.get(f"/api/projects/{project}/export?exportType={kind}")
        path.write_bytes(answer.content)
        return path


@pytest.fixture(scope="module")
def studio(tmp_path_factory) -> Iterator[Studio]:
    assert STUDIO.exists(), "Label Studio is not installed: `make .venv-label-studio/.installed` does it"
    folder = tmp_path_factory.mktemp("studio")
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
    # Disable analytics and update checks, and allow backends and webhooks on this machine.
    disabled = ("COLLECT_ANALYTICS", "LATEST_VERSION_CHECK", "ML_BLOCK_LOCAL_IP", "SSRF_PROTECTION_ENABLED")
    settings = {**dict.fromkeys(disabled, "false"), "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "", "HOME": str(folder)}
    user_options = ["--username", EMAIL, "--password", PASSWORD, "--user-token", TOKEN, "--enable-legacy-api-token"]
    server_options = ["--internal-host", "127.0.0.1", "--port", str(port), "--data-dir", str(folder)]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(STUDIO), "start", "--no-browser", *server_options, *user_options],
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        headers = {"authorization": f"Token {TOKEN}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=60) as client:

            def listens() -> bool:
                assert process.poll() is None, log.read_text(errors="replace")[-3000:]
                try:
                    return client.get("/health").is_success
                except httpx.TransportError:
                    return False

            wait_until(listens, seconds=600)
            yield Studio(client, log)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def annotator(studio, browser) -> Browser:
    """A browser in which an annotator is signed in."""
    browser.open(f"{studio.client.base_url}/user/login/")
    browser.run(
        "const [email, password] = ['email', 'password'].map((name) => document.getElementsByName(name)[0]);"
        "email.value = arguments[0]; password.value = arguments[1]; password.form.submit();",
        EMAIL,
        PASSWORD,
    )
    browser.wait(lambda: "login" not in browser.driver.current_url)
    return browser


def annotate(annotator: Browser, url: str, label: str, part: str) -> None:
    """Open a task, mark a substring of its text, and submit it with the predicted entities."""
    annotator.open(url)
    annotator.wait(lambda: annotator.run("return document.querySelector('.htx-highlight')"))
    labels = "[...document.querySelectorAll('.lsf-label')].find((each) => each.innerText.startsWith(arguments[0]))"
    annotator.run(f"{labels}.click()", label)
    regions = "return document.querySelectorAll('.lsf-richtext__container [data-index]').length"
    before = annotator.run(regions)
    assert annotator.run(SELECT_SCRIPT, part)
    annotator.wait(lambda: annotator.run(regions) > before)
    annotator.run("document.getElementsByName('submit')[0].click()")


def entity_set(doc: Doc) -> set[tuple[int, int, str]]:
    return {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}


def convert_export(path: Path, *options: str) -> list[Doc]:
    ran = run_tener("convert", path, "-o", path.with_suffix(".spacy"), "--lang", "zh", "--force", *options)
    assert ran.code == 0, ran.text
    return list(DocBin().from_disk(path.with_suffix(".spacy")).get_docs(spacy.blank("zh").vocab))


def expected_entities(nlp, text: str) -> set[tuple[int, int, str]]:
    return {(start, end, label.replace("PER", "Person")) for start, end, label in entity_set(nlp(text))}


def test_tasks_are_predicted_annotated_exported_and_learned(studio, annotator, start, saved, tmp_path):
    nlp = spacy.load(saved["characters"])
    project = studio.project(INTERFACE, *({"text": text} for text, _, _ in MARKED_TEXTS))
    with start({"tener": nlp}) as service:
        backend = studio.connect(project, service.url).json()
        assert (backend["readable_state"], backend["model_version"][:6]) == ("Connected", "tener ")

        predictions = studio.predictions(project)
        tasks = {task["id"]: task["data"]["text"] for task in studio.tasks(project)}
        assert list(tasks.values()) == [text for text, _, _ in MARKED_TEXTS]
        for task, (prediction,) in predictions.items():
            assert 0 < prediction["score"] <= 1
            values = [region["value"] for region in prediction["result"]]
            entities = {(value["start"], value["end"], value["labels"][0]) for value in values}
            assert entities == expected_entities(nlp, tasks[task]) != set()
        assert studio.predictions(project) == predictions  # the tasks already have predictions of this model

        for task, (_, label, part) in zip(tasks, MARKED_TEXTS, strict=True):
            old = len(studio.ask("GET", f"/api/tasks/{task}/annotations"))
            annotate(annotator, f"{studio.client.base_url}/projects/{project}/data?task={task}", label, part)
            wait_until(lambda task=task, old=old: len(studio.ask("GET", f"/api/tasks/{task}/annotations")) > old)
        wait_until(lambda: 'tener_requests_total{path="/webhook",status="200"} 5.0' in metrics(service))
        assert studio.client.post(f"/api/ml/{backend['id']}/train", json={}).status_code == 200
        assert 'tener_requests_total{path="/webhook",status="501"} 1.0' in metrics(service)

    expected_annotation = [
        expected_entities(nlp, text) | {(text.index(part), text.index(part) + len(part), label)}
        for text, label, part in MARKED_TEXTS
    ]
    for kind in ("JSON", "JSON_MIN"):
        docs = convert_export(studio.export(project, kind, tmp_path / f"{kind}.json"))
        assert {doc.text: entity_set(doc) for doc in docs} == dict(
            zip(tasks.values(), expected_annotation, strict=True)
        )

    learned = train_until_learned(nlp, docs)
    learned.to_disk(tmp_path / "learned")
    with start({"tener": spacy.load(tmp_path / "learned")}) as service:
        studio.ask("PATCH", f"/api/ml/{backend['id']}", json={"url": service.url, "project": project, "title": "tener"})
        for task, found in studio.predictions(project).items():
            assert len({prediction["model_version"] for prediction in found}) == len(found) == 2
            values = [region["value"] for region in max(found, key=lambda prediction: prediction["id"])["result"]]
            entities = {(value["start"], value["end"], value["labels"][0]) for value in values}
            assert entities == dict(zip(tasks, expected_annotation, strict=True))[task]


def metrics(service) -> str:
    text: str = service.client.get("/metrics").text
    return text


def train_until_learned(nlp, docs: list[Doc]):
    """Continue training until the model predicts the annotation."""
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    pipe = nlp.get_pipe("tener_ner")
    for label in {ent.label_ for doc in docs for ent in doc.ents}:
        pipe.add_label(label)
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01
    for _ in range(300):
        nlp.update(examples, sgd=optimizer)
        if all(entity_set(nlp(doc.text)) == entity_set(doc) for doc in docs):
            return nlp
    raise AssertionError("not learned")


def test_convert_reads_several_annotators_and_cancelled_annotation(studio, start, saved, tmp_path):
    nlp = spacy.load(saved["characters"])
    texts = [("王小明去了上海", "吴重阳在中国银行工作。"), ("京", "京京"), ("今天天气很好", "无")]
    tasks = [{"title": title, "article": {"body": body}} for title, body in texts]
    project = studio.project(TWO_TEXTS, *tasks)
    with start({"other": spacy.blank("zh"), "tener": nlp}) as service:
        assert studio.connect(project, f"{service.url}/label-studio/tener").status_code == 201
        predictions = studio.predictions(project)

    def annotations(task: int, *results: list[dict[str, Any]], **keys: Any) -> None:
        for result in results:
            studio.ask("POST", f"/api/tasks/{task}/annotations", json={"result": result, **keys})

    first, second, third = predictions
    result = predictions[first][0]["result"]
    annotations(first, result, result[1:])  # a second annotator misses the first entity
    annotations(second, [], was_cancelled=True)
    annotations(third, [])
    path = studio.export(project, "JSON", tmp_path / "export.json")
    texts_of_task = ("--texts", "title,article.body")
    found = {doc.text: entity_set(doc) for doc in convert_export(path, *texts_of_task)}
    assert found == {**{text: entity_set(nlp(text)) for text in texts[0]}, **{text: set() for text in texts[2]}}


def test_connecting_unusable_backend_raises_error(studio, start, saved):
    nlp = spacy.load(saved["tener"])
    with start({"tener": nlp}) as service:
        answer = studio.connect(studio.project(IMAGE_INTERFACE), service.url)
        assert answer.status_code == 400
        assert "422 Client Error" in answer.text
        assert "incompatible with the current labeling configuration" in answer.text
    with start({"tener": nlp}, api_key="secret") as service:
        project = studio.project(INTERFACE)
        auth = {"auth_method": "BASIC_AUTH", "basic_auth_user": "label-studio"}
        assert studio.connect(project, service.url).status_code == 400
        assert studio.connect(project, service.url, **auth, basic_auth_pass="wrong").status_code == 400
        assert studio.connect(project, service.url, **auth, basic_auth_pass="secret").status_code == 201


def test_two_labels_for_same_span_raise_error_or_are_resolved(studio, tmp_path):
    """Label Studio supports several labels for a span. `convert` raises an error, or reads one with `--overlap`."""
    interface = INTERFACE.replace("<Labels ", '<Labels choice="multiple" ')
    project = studio.project(interface, {"text": "王小明"})
    (task,) = studio.tasks(project)
    value = {"start": 0, "end": 3, "text": "王小明", "labels": ["Person", "ORG"]}
    region = {"id": "a", "type": "labels", "from_name": "label", "to_name": "text", "value": value}
    studio.ask("POST", f"/api/tasks/{task['id']}/annotations", json={"result": [region]})
    path = studio.export(project, "JSON", tmp_path / "export.json")
    assert json.loads(path.read_text())[0]["annotations"][0]["result"][0]["value"] == value
    ran = run_tener("convert", path, "-o", tmp_path / "refused.spacy")
    assert (ran.code, "Person 0-3 '王小明' and ORG 0-3 '王小明' overlap" in ran.text) == (1, True)
    (doc,) = convert_export(path, "--overlap", "longest")
    assert entity_set(doc) == {(0, 3, "Person")}
