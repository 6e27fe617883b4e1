"""Label Studio itself, on the loopback: from tasks to predictions, to annotation, to a model that has learned it.

It is installed into an environment of its own by `make test-slow`, because it pins versions of what this package uses.
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
IMAGES = """<View>
  <Image name="image" value="$image"/>
  <RectangleLabels name="label" toName="image"><Label value="PER"/></RectangleLabels>
</View>"""

# The region that an annotator adds to those of the model: the text, the label and the marked part.
MARKED = [
    ("😀王小明𠮷去了上海", "ORG", "𠮷"),
    ('<b>王小明</b> &amp; "去了"\r\n上海\r\n\r\n北京大学', "ORG", "amp"),
    ("e\u0301王小明\u200d去了👩\u200d👧上海", "ORG", "👩\u200d👧"),
    (" \t王小明  去了\n上海\\n", "Person", "\\n"),
    ("王小明😀去\r\n了 上海", "ORG", "去\r\n了"),
]
# Selects a part of the text as a person does. Each character that ends a line is an element of its own in the page.
MARK = r"""
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
        """Have the backend predict all tasks, as the button of the data manager does, and return what is there then."""
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
    # Nothing is told or asked of its makers; backends and webhooks may be on this machine.
    off = ("COLLECT_ANALYTICS", "LATEST_VERSION_CHECK", "ML_BLOCK_LOCAL_IP", "SSRF_PROTECTION_ENABLED")
    settings = {**dict.fromkeys(off, "false"), "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "", "HOME": str(folder)}
    who = ["--username", EMAIL, "--password", PASSWORD, "--user-token", TOKEN, "--enable-legacy-api-token"]
    where = ["--internal-host", "127.0.0.1", "--port", str(port), "--data-dir", str(folder)]
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(STUDIO), "start", "--no-browser", *where, *who],
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
    """A browser in which the annotator has signed in."""
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
    """Open a task, mark a part of its text, and submit it with what the model found."""
    annotator.open(url)
    annotator.wait(lambda: annotator.run("return document.querySelector('.htx-highlight')"))
    labels = "[...document.querySelectorAll('.lsf-label')].find((each) => each.innerText.startsWith(arguments[0]))"
    annotator.run(f"{labels}.click()", label)
    regions = "return document.querySelectorAll('.lsf-richtext__container [data-index]').length"
    before = annotator.run(regions)
    assert annotator.run(MARK, part)
    annotator.wait(lambda: annotator.run(regions) > before)
    annotator.run("document.getElementsByName('submit')[0].click()")


def named(doc: Doc) -> set[tuple[int, int, str]]:
    return {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}


def converted(path: Path, *options: str) -> list[Doc]:
    ran = run_tener("convert", path, "-o", path.with_suffix(".spacy"), "--lang", "zh", "--force", *options)
    assert ran.code == 0, ran.text
    return list(DocBin().from_disk(path.with_suffix(".spacy")).get_docs(spacy.blank("zh").vocab))


def expected(nlp, text: str) -> set[tuple[int, int, str]]:
    return {(start, end, label.replace("PER", "Person")) for start, end, label in named(nlp(text))}


def test_from_tasks_to_a_model_that_has_learned_their_annotation(studio, annotator, start, saved, tmp_path):
    nlp = spacy.load(saved["characters"])
    project = studio.project(INTERFACE, *({"text": text} for text, _, _ in MARKED))
    with start({"tener": nlp}) as service:
        backend = studio.connect(project, service.url).json()
        assert (backend["readable_state"], backend["model_version"][:6]) == ("Connected", "tener ")

        predictions = studio.predictions(project)
        tasks = {task["id"]: task["data"]["text"] for task in studio.tasks(project)}
        assert list(tasks.values()) == [text for text, _, _ in MARKED]
        for task, (prediction,) in predictions.items():
            assert 0 < prediction["score"] <= 1
            values = [region["value"] for region in prediction["result"]]
            places = {(value["start"], value["end"], value["labels"][0]) for value in values}
            assert places == expected(nlp, tasks[task]) != set()
        assert studio.predictions(project) == predictions  # there are those of this model already

        for task, (_, label, part) in zip(tasks, MARKED, strict=True):
            old = len(studio.ask("GET", f"/api/tasks/{task}/annotations"))
            annotate(annotator, f"{studio.client.base_url}/projects/{project}/data?task={task}", label, part)
            wait_until(lambda task=task, old=old: len(studio.ask("GET", f"/api/tasks/{task}/annotations")) > old)
        wait_until(lambda: 'tener_requests_total{path="/webhook",status="200"} 5.0' in metrics(service))
        assert studio.client.post(f"/api/ml/{backend['id']}/train", json={}).status_code == 200
        assert 'tener_requests_total{path="/webhook",status="501"} 1.0' in metrics(service)

    meant = [
        expected(nlp, text) | {(text.index(part), text.index(part) + len(part), label)} for text, label, part in MARKED
    ]
    for kind in ("JSON", "JSON_MIN"):
        docs = converted(studio.export(project, kind, tmp_path / f"{kind}.json"))
        assert {doc.text: named(doc) for doc in docs} == dict(zip(tasks.values(), meant, strict=True))

    learned = learn(nlp, docs)
    learned.to_disk(tmp_path / "learned")
    with start({"tener": spacy.load(tmp_path / "learned")}) as service:
        studio.ask("PATCH", f"/api/ml/{backend['id']}", json={"url": service.url, "project": project, "title": "tener"})
        for task, found in studio.predictions(project).items():
            assert len({prediction["model_version"] for prediction in found}) == len(found) == 2
            values = [region["value"] for region in max(found, key=lambda prediction: prediction["id"])["result"]]
            places = {(value["start"], value["end"], value["labels"][0]) for value in values}
            assert places == dict(zip(tasks, meant, strict=True))[task]


def metrics(service) -> str:
    text: str = service.client.get("/metrics").text
    return text


def learn(nlp, docs: list[Doc]):
    """Continue training until the model predicts the annotation."""
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    pipe = nlp.get_pipe("tener_ner")
    for label in {ent.label_ for doc in docs for ent in doc.ents}:
        pipe.add_label(label)
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.01
    for _ in range(300):
        nlp.update(examples, sgd=optimizer)
        if all(named(nlp(doc.text)) == named(doc) for doc in docs):
            return nlp
    raise AssertionError("not learned")


def test_several_texts_several_annotators_and_cancelled_annotation(studio, start, saved, tmp_path):
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
    annotations(first, result, result[1:])  # a second annotator does not find the first entity
    annotations(second, [], was_cancelled=True)
    annotations(third, [])
    path = studio.export(project, "JSON", tmp_path / "export.json")
    texts_of_task = ("--texts", "title,article.body")
    found = {doc.text: named(doc) for doc in converted(path, *texts_of_task)}
    assert found == {**{text: named(nlp(text)) for text in texts[0]}, **{text: set() for text in texts[2]}}


def test_what_cannot_be_served_is_refused_where_the_backend_is_connected(studio, start, saved):
    nlp = spacy.load(saved["tener"])
    with start({"tener": nlp}) as service:
        answer = studio.connect(studio.project(IMAGES), service.url)
        assert answer.status_code == 400
        assert "422 Client Error" in answer.text
        assert "incompatible with the current labeling configuration" in answer.text
    with start({"tener": nlp}, api_key="secret") as service:
        project = studio.project(INTERFACE)
        who = {"auth_method": "BASIC_AUTH", "basic_auth_user": "label-studio"}
        assert studio.connect(project, service.url).status_code == 400
        assert studio.connect(project, service.url, **who, basic_auth_pass="wrong").status_code == 400
        assert studio.connect(project, service.url, **who, basic_auth_pass="secret").status_code == 201


def test_its_export_is_what_the_formats_of_convert_say(studio, tmp_path):
    """Two labels of one span, which Label Studio lets an interface allow, are refused or one of them is read."""
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
    (doc,) = converted(path, "--overlap", "longest")
    assert named(doc) == {(0, 3, "Person")}
