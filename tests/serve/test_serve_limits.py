"""Invalid requests, limits and overload: the service returns an error status with a reason in JSON."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest
import spacy
from spacy.language import Language
from waiting import wait_until

from spacy_tener.serve import Limits

JSON = {"content-type": "application/json"}


def error_message(answer: httpx.Response, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    return error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"text": null}',
        b'{"text": 3}',
        b'{"text": ["a"]}',
        b'{"text": "\\ud800"}',
        b'{"text": "a\\udc00b"}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "\xed\xa0\x80"}',
        b"\xff\xfe{\x00",
        b'{"text": "a", "minimum": NaN}',
        b'{"text": "a", "minimum": 2}',
        b'{"text": "a", "minimum": "x"}',
        b'{"text": "a", "offsets": "bytes"}',
        b'{"text": "a", "txet": "b"}',
        b'{"text": "a", "model": {}}',
        b'{"text": "a", "\\ud800": 1}',
        b"[" * 19_000,
        b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
        b'{"text": ' + b"9" * 9_000 + b"}",
        b'{"text": "a"} {"text": "b"}',
    ],
)
def test_malformed_body_returns_short_error(served, body):
    for path in ("/v1/entities", "/v1/entities/batch"):
        answer = served.client.post(path, content=body, headers=JSON)
        assert error_message(answer, 422, "invalid")
        assert len(answer.content) < 400


def test_error_message_names_invalid_field(served):
    def message(**body):
        return error_message(served.client.post("/v1/entities", json=body), 422, "invalid")

    assert message(txt="b") == "Unknown field: txt. Missing: text."
    assert message(text="a", **dict.fromkeys("bcde")) == "Unknown field: b, c, d, ...."
    assert len(message(text="a", **{"b" * 5000: 1})) < 80
    assert message() == "text: Field required."
    assert "offsets" in message(text="a", offsets="bytes")
    assert "text: " in error_message(
        served.client.post("/v1/entities", content=b'{"text": "\\ud800"}', headers=JSON), 422, "invalid"
    )
    assert "application/json" in error_message(
        served.client.post("/v1/entities", content=b'{"text": "a"}'), 422, "invalid"
    )
    truncated = served.client.post("/v1/entities", content=b'{"text": "a', headers=JSON)
    assert error_message(truncated, 422, "invalid") == "The body is not JSON."
    for content, problem in (
        (b"[" * 19_000, "The JSON is nested too deeply."),
        (b'{"text": ' + b"9" * 9_000 + b"}", "a number with thousands of digits"),
        (b'{"text": "\xff"}', "The body is not JSON in UTF-8."),
    ):
        assert problem in error_message(
            served.client.post("/v1/entities", content=content, headers=JSON), 422, "invalid"
        )
    unknown = error_message(served.client.post("/v1/entities", json={"text": "a", "model": "b"}), 404, "unknown_model")
    assert "tener, characters" in unknown
    lone_surrogate = served.client.post("/v1/entities", content=b'{"text": "a", "model": "\\ud800"}', headers=JSON)
    error_message(lone_surrogate, 404, "unknown_model")
    error_message(served.client.get("/v1/entities"), 405, "method_not_allowed")
    error_message(served.client.get("/nowhere"), 404, "not_found")


def test_oversized_texts_and_bodies_are_rejected(served):
    post = served.client.post
    assert post("/v1/entities", json={"text": "好" * 500}).status_code == 200
    assert "501" in error_message(post("/v1/entities", json={"text": "好" * 501}), 413, "text_too_long")
    assert post("/v1/entities/batch", json={"texts": ["好"] * 8}).status_code == 200
    error_message(post("/v1/entities/batch", json={"texts": ["好"] * 9}), 413, "too_many_texts")
    named = error_message(post("/v1/entities/batch", json={"texts": ["好", "好" * 501]}), 413, "text_too_long")
    assert named.startswith("texts.1 has")  # the same format as in errors of invalid texts
    body = b'{"text": "a"}'.ljust(20_000)
    for content in (body, iter([body])):
        assert post("/v1/entities", content=content, headers=JSON).status_code == 200
    for content in (body + b" ", iter([body, b" "])):
        error_message(post("/v1/entities", content=content, headers=JSON), 413, "body_too_large")
    # The connection can still be used.
    assert post("/v1/entities", json={"text": "好"}).status_code == 200


def test_incomplete_body_times_out(start):
    with start({"blank": spacy.blank("en")}, Limits(timeout=0.3)) as service:
        with socket.create_connection(service.socket_address) as slow:
            slow.sendall(b"POST /v1/entities HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
            slow.settimeout(5)
            answer = b"".join(iter(lambda: slow.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code": "too_slow"' in answer
        assert service.client.post("/v1/entities", json={"text": "a"}).status_code == 200


class Blocked:
    """A component that waits before each batch."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.batches: list[list[str]] = []

    def __call__(self, doc):
        raise AssertionError

    def pipe(self, stream, batch_size):
        docs = list(stream)
        self.go.wait(10)
        self.batches.append([doc.text for doc in docs])
        return iter(docs)


@pytest.fixture
def blocked() -> tuple[Language, Blocked]:
    nlp, component = spacy.blank("en"), Blocked()
    Language.component("blocked", func=component)
    nlp.add_pipe("blocked")
    return nlp, component


def test_overloaded_service_rejects_requests_and_recovers(start, blocked):
    """If the queue is full, new requests are rejected immediately. Requests that wait too long fail."""
    nlp, component = blocked
    answers: list[httpx.Response] = []
    with start({"blocked": nlp}, Limits(queue=10, timeout=0.5)) as service:

        def post() -> None:
            answers.append(httpx.post(f"{service.url}/v1/entities", json={"text": "a" * 10}, trust_env=False))

        thread = threading.Thread(target=post)
        thread.start()
        wait_until(lambda: service.service.waiting["blocked"] == 10)
        full = service.client.post("/v1/entities", json={"text": "a"})
        error_message(full, 503, "overloaded")
        assert int(full.headers["retry-after"]) >= 1
        error_message(service.client.post("/v1/entities/batch", json={"texts": ["a"]}), 503, "overloaded")
        assert service.client.get("/ready").status_code == 503
        assert service.client.get("/health").json() == {"status": "overloaded", "models": {"blocked": 10}}
        assert service.client.get("/health").status_code == 200
        thread.join(5)
        error_message(answers[0], 503, "overloaded")
        component.go.set()
        wait_until(lambda: service.client.get("/ready").status_code == 200)
        assert service.client.post("/v1/entities", json={"text": "a"}).status_code == 200


def test_timeout_applies_to_entire_batch(start):
    @Language.component("slow", assigns=["doc.ents"])
    def slow(doc):
        time.sleep(0.2)
        return doc

    nlp = spacy.blank("en")
    nlp.add_pipe("slow")
    texts = ["a" * 4000] * 5  # long enough for a separate batch
    with start({"slow": nlp}, Limits(timeout=0.5)) as service:
        message = error_message(service.client.post("/v1/entities/batch", json={"texts": texts}), 503, "overloaded")
        assert message in {f"{n} of 5 texts were predicted in 0.5 seconds. Send fewer at once." for n in (1, 2)}
        assert service.client.post("/v1/entities/batch", json={"texts": texts[:1]}).status_code == 200


def test_texts_of_disconnected_clients_are_skipped(start, blocked):
    nlp, component = blocked
    with start({"blocked": nlp}) as service:
        thread = threading.Thread(target=service.client.post, args=["/v1/entities"], kwargs={"json": {"text": "first"}})
        thread.start()
        wait_until(lambda: service.service.waiting["blocked"] == 5)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{service.url}/v1/entities", json={"text": "gone"}, timeout=0.2, trust_env=False)
        wait_until(lambda: b'/v1/entities",status="499"' in service.client.get("/metrics").content)
        component.go.set()
        thread.join()
        assert service.client.post("/v1/entities", json={"text": "last"}).status_code == 200
    assert component.batches == [["first"], ["last"]]


def test_pipeline_failure_does_not_affect_other_requests(start):
    def fails(doc):
        if "bad" in doc.text:
            raise ValueError("so bad")
        return doc

    nlp = spacy.blank("en")
    Language.component("fails", func=fails)
    nlp.add_pipe("fails")
    with start({"fails": nlp}) as service:
        texts = ["good", "bad", "good"]
        message = error_message(
            service.client.post("/v1/entities/batch", json={"texts": texts}), 500, "pipeline_failed"
        )
        assert "so bad" in message
        assert service.client.post("/v1/entities", json={"text": "good"}).status_code == 200
