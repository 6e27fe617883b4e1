"""Test what the pages on pre-annotation and personal data say about other packages, with these packages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import spacy
from command_line import run_tener
from pages import blocks

from spacy_tener.corpora.docs import read_docs
from spacy_tener.pipeline.entities import read_entities

pytestmark = pytest.mark.integration

TEXTS = ["吴重阳在中国银行工作。", "王小明去了上海"]
ANSWERS = {
    TEXTS[0]: "1. 吴重阳 | True | PER | a name\n2. 工作 | False | ==NONE== | a verb",
    TEXTS[1]: "There is one name.",
}


@pytest.fixture
def chat_server() -> Iterator[str]:
    """A server with the chat API of OpenAI, which has an answer to each text. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body["messages"][0]["content"]
            content = next(answer for text, answer in ANSWERS.items() if f"Paragraph: {text}" in prompt)
            reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.mark.filterwarnings("ignore:Task supports sharding")
def test_llm_annotates_and_unreadable_answers_leave_no_entities(tmp_path: Path, chat_server: str) -> None:
    code = next(block.code for block in blocks("docs/pre-annotation.md") if block.file == "chat_server.py")
    (tmp_path / "chat_server.py").write_text(code, encoding="utf8")
    exec(compile(code, "chat_server.py", "exec"), {"__name__": "chat_server"})
    nlp = spacy.blank("zh")
    task = {"@llm_tasks": "spacy.NER.v3", "labels": ["PER", "ORG", "LOC"]}
    server = {"@llm_models": "example.ChatServer.v1", "url": chat_server, "name": "any"}
    nlp.add_pipe("llm", config={"task": task, "model": server, "save_io": True})
    docs = list(nlp.pipe(TEXTS))
    assert [[(ent.text, ent.label_) for ent in doc.ents] for doc in docs] == [[("吴重阳", "PER")], []]
    assert {token.ent_iob_ for token in docs[1]} == {"O"}
    assert ANSWERS[TEXTS[1]] in str(docs[1].user_data["llm_io"])

    nlp.to_disk(tmp_path / "llm")
    rules = spacy.blank("zh")
    patterns: Any = [{"label": "PER", "pattern": "吴重阳"}, {"label": "ORG", "pattern": "中国银行"}]
    rules.add_pipe("entity_ruler").add_patterns(patterns)  # type: ignore[attr-defined]
    rules.to_disk(tmp_path / "rules")
    raw = tmp_path / "raw.txt"
    raw.write_text("\n".join(TEXTS), encoding="utf8")
    options = ("--code", tmp_path / "chat_server.py", "--output")
    ran = run_tener("silver", tmp_path / "llm", raw, *options, tmp_path / "one")
    assert "No component declares that it assigns doc.ents" in " ".join(ran.text.split())
    assert "2 texts, 1 entity, 0.0 % of the tokens with missing annotation" in " ".join(ran.text.split())
    run_tener("silver", f"{tmp_path / 'llm'},{tmp_path / 'rules'}", raw, *options, tmp_path / "two")
    first, _ = read_docs(tmp_path / "two" / "part-00000.spacy")
    assert ([ent.text for ent in first.ents], "".join(token.text for token in first if not token.ent_iob_)) == (
        ["吴重阳"],
        "中国银行",
    )


def test_annotation_page_needs_tener_ner_and_shows_no_entities_of_a_file(tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "ORG", "pattern": "中国银行"}])  # type: ignore[attr-defined]
    nlp.to_disk(tmp_path / "rules")
    (tmp_path / "raw.txt").write_text("\n".join(TEXTS), encoding="utf8")
    run_tener("silver", tmp_path / "rules", tmp_path / "raw.txt", "--output", tmp_path / "silver")
    file = tmp_path / "silver" / "part-00000.spacy"
    assert [ent.text for doc in read_docs(file) for ent in doc.ents] == ["中国银行"]
    ran = run_tener("suggest", tmp_path / "rules", file, "--output", tmp_path / "page.html")
    assert (ran.code, "has no tener_ner" in ran.text) == (1, True)
    ran = run_tener("suggest", "blank:zh", file, "--labels", "ORG", "--output", tmp_path / "page.html")
    questions = re.findall(r'"questions":(\[.*?\])', (tmp_path / "page.html").read_text(encoding="utf8"))
    assert (ran.code, questions) == (0, ["[]", "[]"])


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the code of the page on personal data defines."""
    names: dict[str, Any] = {}
    for block in blocks("docs/personal-data.md"):
        if block.language == "python":
            exec(compile(block.code, f"docs/personal-data.md:{block.line}", "exec"), names)
    return names


def test_scores_in_presidio_are_probabilities(page: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Max Weber lives in Leipzig and Mary Jones is from Boston."
    results = {(result.start, result.end): result.score for result in page["analyzer"].analyze(text, "en")}
    entities = read_entities(page["nlp"](text))
    assert results == {(entity.start, entity.end): entity.probability for entity in entities}
    monkeypatch.setattr(page["CautiousRecognizer"], "minimum", 1e-4)
    cautious = {(result.start, result.end): result.score for result in page["cautious"].analyze(text, "en")}
    assert results.keys() < cautious.keys()
    assert 1e-4 <= min(cautious.values()) < min(results.values())


def test_patterns_after_chinese_characters_need_ascii_flag(page: dict[str, Any]) -> None:
    card, mail = page["CreditCardRecognizer"](supported_language="zh"), page["EmailRecognizer"](supported_language="zh")
    text = "邮箱zhang@example.com，卡号4111111111111111"

    def found(recognizer: Any) -> list[str]:
        return [text[result.start : result.end] for result in recognizer.analyze(text, recognizer.supported_entities)]

    assert (found(card), found(mail)) == ([], ["邮箱zhang@example.com"])
    card.global_regex_flags |= page["regex"].ASCII
    mail.global_regex_flags |= page["regex"].ASCII
    assert (found(card), found(mail)) == (["4111111111111111"], ["zhang@example.com"])
    assert re.ASCII != page["regex"].ASCII


@pytest.mark.parametrize(("number", "is_found"), [("11010519491231002X", True), ("110105194912310021", False)])
def test_check_character_of_identity_card_is_validated(page: dict[str, Any], number: str, is_found: bool) -> None:
    recognizer = page["IdentityCardRecognizer"]("zh")
    assert bool(recognizer.analyze(f"身份证{number}", ["CN_IDENTITY_CARD"])) is is_found


def test_missed_names_are_counted_unless_redacted_completely(page: dict[str, Any]) -> None:
    doc = page["nlp"].make_doc("Mary Jones met Zzyzx Qwrty.")
    doc.set_ents([doc.char_span(0, 10, "PER"), doc.char_span(15, 26, "PER")], default="outside")

    class Partial:
        def analyze(self, text: str, language: str) -> list[Any]:
            return [page["RecognizerResult"]("PERSON", *span, 1.0) for span in ((0, 10), (15, 20))]

    assert [ent.text for ent in page["missed"](Partial(), [doc], "en")] == ["Zzyzx Qwrty"]
