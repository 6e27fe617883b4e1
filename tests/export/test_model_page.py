"""Test the page of an exported model in a browser, from disk and from a static host, against the pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browser import DESKTOP, PHONE, Browser
from command_line import run_tener
from small_systems import TEXTS, UNSEEN, examples_of, learn, pipeline, small_tok2vecs
from spacy.language import Language

from spacy_tener.errors import UserError
from spacy_tener.export.onnx_model import describe, find_tagger
from spacy_tener.export.page import MAX_CHARACTERS, make_model_page, read_runtime
from spacy_tener.pipeline.finding import SCORES_KEY, probability_config

pytestmark = pytest.mark.integration

WASM = Path(__file__).parents[2] / "readers" / "js" / "node_modules" / "onnxruntime-web"
HOSTILE = "</script><img src=x onerror=document.title='taken'>&amp;<!--"
LABEL = "<b>GPE</b>-" + "L" * 60
ENTITIES = "return [...document.querySelectorAll('#text .ent')].map((node) => [node.firstChild.data, node.title])"
CHOOSE = """
    const files = new DataTransfer();
    files.items.add(new File([Uint8Array.from(arguments[0])], "texts.txt"));
    document.getElementById("file").files = files.files;
    document.getElementById("file").dispatchEvent(new Event("change"));
"""
CATCH = """
    window.saved = [];
    URL.createObjectURL = (blob) => { blob.text().then((text) => window.saved.push(text)); return "data:,"; };
    HTMLAnchorElement.prototype.click = () => {};
"""


class ModelPage:
    """A page with the actions of a user."""

    def __init__(self, browser: Browser, nlp: Language, url: str) -> None:
        self.browser = browser
        self.nlp = nlp
        self.url = url

    def open(self, url: str = "", size: tuple[int, int] = DESKTOP) -> None:
        self.browser.open(url or self.url, size)

    def text(self, name: str) -> str:
        return str(self.browser.driver.find_element("id", name).text)

    def enter(self, text: str) -> None:
        script = """const input = document.getElementById('input'); input.value = arguments[0];
            input.dispatchEvent(new Event('input', { bubbles: true }))"""
        self.browser.run(script, text)

    def choose(self, content: bytes) -> None:
        self.browser.run(CHOOSE, list(content))

    def wait_for_entities(self, *entities: tuple[str, str, float]) -> None:
        """Wait until the text has these entities: text, label and probability."""
        expected = [[text, label, pytest.approx(100 * probability, abs=0.6)] for text, label, probability in entities]
        self.browser.wait(lambda: self.entities() == expected)

    def entities(self) -> list[list[Any]]:
        found = []
        for text, title in self.browser.run(ENTITIES):
            label, percent = re.fullmatch(r"(.*) (?:[<>] )?([\d.]+) %", title).groups()
            found.append([text, label, float(percent)])
        return found

    def expected(self, text: str) -> list[tuple[str, str, float]]:
        return [(entity["text"], entity["label"], entity["probability"]) for entity in find_entities(self.nlp, text)]

    def assert_no_problems(self) -> None:
        """Assert that the console is empty, that nothing was requested, and that the page fits into the window."""
        assert (self.browser.console_messages(), self.browser.requested_urls()) == ([], [])
        width = self.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1]


def find_entities(nlp: Language, text: str) -> list[dict[str, Any]]:
    [doc] = nlp.pipe([text], component_cfg=probability_config(nlp))
    spans = doc.spans[SCORES_KEY]
    return [
        {"start": s.start_char, "end": s.end_char, "label": s.label_, "text": s.text, "probability": probability}
        for s, probability in zip(spans, spans.attrs["scores"].tolist(), strict=True)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a trained pipeline, its ONNX file and its page. A label contains markup."""
    folder = tmp_path_factory.mktemp("exported")
    nlp = pipeline(small_tok2vecs(folder)["TENER"], view="characters", window=60, overlap=10)
    label_names = {"PER": "PER", "ORG": "ORG", "GPE": LABEL}
    texts = [(text, [(start, end, label_names[label]) for start, end, label in entities]) for text, entities in TEXTS]
    learn(nlp, examples_of(nlp, texts), steps=200, enough=0.05)
    nlp.meta.update(license=HOSTILE, sources=[{"name": HOSTILE, "url": "https://example.com"}])
    nlp.to_disk(folder / "model")
    arguments = ("--output", folder / "ner.onnx", "--page", folder / "page", "--wasm", WASM)
    run = run_tener("export", folder / "model", *arguments)
    assert (run.code, "with the same probabilities" in run.text) == (0, True), run.text
    return folder


@pytest.fixture(scope="module")
def nlp(folder: Path) -> Language:
    from spacy import load

    return load(folder / "model")


@pytest.fixture
def page(browser: Browser, folder: Path, nlp: Language) -> ModelPage:
    return ModelPage(browser, nlp, (folder / "page" / "index.html").as_uri())


@pytest.fixture
def host(folder: Path) -> Iterator[str]:
    """Return the address of a static web server with the page."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder / "page")) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_page_from_disk_finds_entities_of_pipeline(page: ModelPage) -> None:
    page.open(size=PHONE)
    page.wait_for_entities(*page.expected(page.browser.run("return document.getElementById('input').value")))
    for text in (UNSEEN, "😀𠮷王小明去了上海\n北京大学", "今天天气很好"):
        page.enter(text)
        page.wait_for_entities(*page.expected(text))
    assert page.text("count") == "6"
    assert page.text("nothing") == "No entities were found in this text."
    page.assert_no_problems()
    assert page.browser.violations() == []


def test_markup_in_texts_and_labels_is_escaped(page: ModelPage) -> None:
    page.open(size=PHONE)
    page.enter(f"王小明去了上海{HOSTILE}")
    page.browser.wait(lambda: [LABEL in entity for entity in page.entities()] == [False, True])
    assert HOSTILE in page.text("origin")
    assert page.browser.run("return document.querySelectorAll('main img, main b:not(.chip b)').length") == 0
    assert page.browser.driver.title == "Find entities"
    page.assert_no_problems()


@pytest.mark.slow
def test_hosted_page_blocks_foreign_scripts_and_requests(page: ModelPage, host: str) -> None:
    page.open(host)
    page.enter(UNSEEN)
    page.wait_for_entities(*page.expected(UNSEEN))
    page.assert_no_problems()
    injected = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    assert page.browser.run(f"{injected}; return window.ran") is None
    assert page.browser.run("return fetch('x').then(() => 'fetched', () => 'refused')") == "refused"
    policy = page.browser.run("return document.querySelector('[http-equiv]').content")
    assert not re.search(r"'unsafe|https?:|\*|'self'|connect-src", policy)


@pytest.mark.slow
def test_switching_to_chinese_preserves_text(page: ModelPage) -> None:
    page.open()
    page.enter(UNSEEN)
    page.wait_for_entities(*page.expected(UNSEEN))
    try:
        page.browser.driver.find_element("id", "language").click()
        page.browser.wait(lambda: page.browser.run("return document.documentElement.lang") == "zh")
        page.wait_for_entities(*page.expected(UNSEEN))
        assert page.text("file-title") == "每行一条文本的文件"
        assert "10,000" in page.text("pieces")
        assert not re.search(r"[A-Za-z]{3}", page.text("private") + page.text("pieces") + page.text("about")[5:])
        page.assert_no_problems()
    finally:
        page.browser.run("localStorage.clear(); history.replaceState(null, '')")


@pytest.mark.slow
def test_long_text_is_processed_in_parts_with_progress(page: ModelPage) -> None:
    page.open()
    line = "𠮷王小明去了上海。\n"
    text = line * (2 * MAX_CHARACTERS // len(line)) + "今天天气很好" * (MAX_CHARACTERS // 5)
    page.browser.run(
        """window.percentages = [];
            new MutationObserver(() => percentages.push(document.getElementById("working").textContent))
            .observe(document.getElementById("working"), { childList: true })"""
    )
    page.enter(text)
    page.browser.wait(lambda: page.text("shown").startswith(f"{2 * text.count(line):,}"), seconds=60)
    messages = " ".join(page.browser.run("return percentages"))
    percentages = [int(percentage) for percentage in re.findall(r"(\d+) % of the text", messages)]
    assert len(percentages) > 1
    assert percentages == sorted(percentages)
    found = page.entities()
    assert {entity for entity, *_ in found} == {"王小明", "上海"}
    # A new text interrupts the processing of the previous one.
    page.enter(text)
    page.enter("王小明")
    page.wait_for_entities(*page.expected("王小明"))


@pytest.mark.slow
def test_lines_can_be_separate_texts(page: ModelPage) -> None:
    lines = ["王小明", "", "𠮷去了上海", *["李华和张伟昨天从南京大学去了北京大学"] * 300]
    page.open()
    try:
        page.enter("\n".join(lines))
        page.browser.run("lines.value = 'lines'; lines.dispatchEvent(new Event('change'))")
        expected = {line: page.expected(line) for line in lines}
        page.wait_for_entities(*(entity for line in lines for entity in expected[line]))
        page.assert_no_problems()
    finally:
        page.browser.run("localStorage.clear()")


@pytest.mark.slow
def test_lines_of_file_are_saved_as_records(page: ModelPage, nlp: Language) -> None:
    texts = ["王小明去了上海", "", "𠮷北京大学😀", "王小明去了上海。" * (MAX_CHARACTERS // 6), *["京"] * 3000]
    page.open()
    page.browser.run(CATCH)
    page.choose(("\ufeff" + "\r\n".join(texts)).encode())
    [saved] = page.browser.wait(lambda: page.browser.run("return window.saved"), seconds=60)
    assert page.text("progress") == f"Texts saved: {len(texts):,}"
    records = [json.loads(line) for line in saved.split("\n")[:-1]]
    assert [record["text"] for record in records] == texts
    for record in records[:3]:
        assert record["entities"] == [
            {**entity, "probability": pytest.approx(entity["probability"], abs=1e-4)}
            for entity in find_entities(nlp, record["text"])
        ]
    long = records[3]
    assert len(long["entities"]) == 2 * (MAX_CHARACTERS // 6)
    assert all(long["text"][entity["start"] : entity["end"]] == entity["text"] for entity in long["entities"])
    page.choose("上海".encode("gb18030"))
    page.browser.wait(
        lambda: page.text("file-problem") == "The file is not a text file in UTF-8. Save it as UTF-8 first."
    )
    page.choose("王小明去了上海\n".encode() * 30_000)
    page.browser.wait(lambda: page.text("progress").startswith("Texts processed: "))
    page.browser.driver.find_element("id", "stop").click()
    page.browser.wait(lambda: page.text("progress") == "Stopped: nothing is saved.")
    assert len(page.browser.run("return window.saved")) == 1
    page.assert_no_problems()


@pytest.mark.slow
def test_damaged_model_shows_message(page: ModelPage, folder: Path, nlp: Language) -> None:
    html = make_model_page(b"no model", describe(nlp, find_tagger(nlp)), read_runtime(WASM))
    (folder / "damaged.html").write_text(html, encoding="utf8")
    page.open((folder / "damaged.html").as_uri())
    page.browser.wait(lambda: "The model cannot be loaded as an ONNX model" in page.text("problem"))
    assert page.entities() == []


def test_output_contains_no_local_paths(folder: Path) -> None:
    page = (folder / "page" / "index.html").read_text(encoding="utf8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert data["about"]["pipeline"]["name"] == "model"
    for place in (folder, WASM, Path.home(), Path.cwd()):
        assert str(place) not in page
        assert str(place).encode() not in (folder / "ner.onnx").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "No output path was given Add --output or --page."),
        (["-o", "ner.onnx", "--wasm", "."], 2, "--wasm: used only with --page Add --page, or remove --wasm."),
        (["--page", "page/index.html"], 1, "index.html: exists already"),
        (["--page", "page"], 1, "index.html: exists already Choose another path, or add --force to overwrite it."),
    ],
)
def test_invalid_arguments_raise_error_before_export(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(folder)
    run = run_tener("export", "nothing", *words)
    assert (run.code, message in run.text) == (code, True)


def test_wrong_onnx_runtime_version_raises_error(tmp_path: Path) -> None:
    (tmp_path / "ort.wasm.bundle.min.mjs").write_text("// ONNX Runtime Web v9\nexport default 1;", encoding="utf8")
    (tmp_path / "ort-wasm-simd-threaded.wasm").write_bytes(b"")
    with pytest.raises(UserError, match=r"Use onnxruntime-web@1\.30\.0"):
        read_runtime(tmp_path)
