"""Lines in, lines out: in order, while they come, and no more of them at a time than are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
import threading
import time

import httpx
import pytest
import spacy
from fastapi import FastAPI
from waiting import wait_until

from spacy_tener.pipeline.doc_entities import TOGETHER
from spacy_tener.serve import Limits, make_app
from spacy_tener.serve.schema import LineRequest, ServiceError
from spacy_tener.serve.stream import PendingLine, _PendingLines

PATH = "/v1/entities/stream"


def post(service, content, **params):
    answer = service.client.post(PATH, content=content, params=params)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_lines_are_answered_in_order_whatever_is_wrong_with_some(served):
    lines = [
        '{"text": "王小明去了上海", "id": "a"}',
        "",
        "{",
        '{"text": "京", "id": 7}\r',
        '{"text": "%s"}' % ("好" * 501),
        '{"text": "\\ud800"}',
        "[" * 5000,
        '{"text": ""}',
        '{"text": "😀京"}',
        '{"txt": "京"}',
    ]
    answers = post(served, "\n".join(lines).encode(), offsets="utf16", model="characters")
    assert [answer["line"] for answer in answers] == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert [answer.get("id") for answer in answers][:3] == ["a", None, 7]
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [None, "invalid", None, "text_too_long", "invalid", "invalid", None, None, "invalid"]
    assert [entity["text"] for entity in answers[0]["entities"]] == ["王小明", "上海"]
    assert answers[-3]["entities"] == []
    assert [entity["end"] for entity in answers[-2]["entities"]] in ([], [3])
    assert answers[-1]["error"]["message"] == "Unknown field: txt. Missing: text."
    assert post(served, b"") == []


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(served, ends):
    (answer,) = post(served, b"\xef\xbb\xbf" + '{"text": "京"}'.encode() + ends)
    assert [entity["text"] for entity in answer["entities"]] == ["京"]


def test_wrong_options_are_told_before_anything_is_read(served):
    assert served.client.post(PATH, params={"model": "none"}).status_code == 404
    wrong = served.client.post(PATH, params={"minimum": "2"}, content=b"{}")
    assert wrong.status_code == 422
    assert "minimum" in wrong.json()["error"]["message"]


def test_a_line_without_end(served):
    answers = post(served, b'{"text": "\xe4\xba\xac"}\n' + b"a" * 300_000)
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, "line_too_long"]


def test_a_line_may_have_as_many_bytes_as_the_longest_text_written_in_escapes(served):
    longest = json.dumps({"text": "😀" * 500}).encode()
    limit = served.service.limits.line
    lines = [longest, b'{"text": "a"}'.ljust(limit), b'{"text": "a"}'.ljust(limit + 1)]
    answers = post(served, b"\n".join(lines) + b"\n")
    assert len(longest) > 12 * 500
    assert limit >= 12 * 500 + 100
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, None, "line_too_long"]


def test_behind_a_line_that_is_too_long_the_stream_goes_on(served):
    ok = '{"text": "京"}'.encode()
    chunks = [ok + b"\n" + b"a" * 5000, b"a" * 5000, b"a" * 10 + b"\n" + ok, b"\n" + b"a" * 9000 + b"\n", ok]
    answers = post(served, iter(chunks))
    assert [answer["line"] for answer in answers] == [1, 2, 3, 4, 5]
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [None, "line_too_long", None, "line_too_long", None]


def test_mounted_in_another_application_it_answers_all_the_same(saved):
    outer = FastAPI()
    outer.mount("/ner", make_app({"zh": spacy.load(saved["tener"])}, Limits(body=2000)))

    async def ask():
        transport = httpx.ASGITransport(app=outer)
        async with httpx.AsyncClient(transport=transport, base_url="http://outer/ner") as client:
            assert (await client.get("/health")).json()["status"] == "ok"
            answer = await client.post("/v1/entities", json={"text": "王小明去了上海"})
            assert [entity["text"] for entity in answer.json()["entities"]] == ["王小明", "上海"]
            answer = await client.post(PATH, content=b'{"text": "a"}\n' * 200)
            assert len(answer.text.splitlines()) == 200
            assert (await client.get("/health")).json()["status"] == "ok"

    asyncio.run(ask())


def test_an_answer_comes_before_the_next_line_is_sent(served):
    connection = http.client.HTTPConnection(*served.place, timeout=10)
    connection.putrequest("POST", PATH)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()

    def send(data: bytes) -> None:
        connection.send(b"%x\r\n%s\r\n" % (len(data), data))

    send(b'{"text": "a"}\n')
    response = connection.getresponse()
    for number in range(1, 4):
        assert json.loads(response.readline())["line"] == number
        send(b'{"text": "\xe4\xba')
        send(b'\xac"}\n')
    connection.send(b"0\r\n\r\n")
    assert json.loads(response.read())["entities"][0]["text"] == "京"
    connection.close()


def test_who_does_not_read_answers_is_not_read(start):
    """A client that only sends is stopped once the sockets are full, and cut off after the time allowed."""
    path = PATH.encode()
    with start({"blank": spacy.blank("en")}, Limits(timeout=1.5), send_buffer=4096) as service:

        def metrics() -> bytes:
            return service.client.get("/metrics").content

        with socket.create_connection(service.place) as client:
            client.settimeout(0.7)
            client.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n" % path)
            with pytest.raises(TimeoutError):
                client.sendall(b"x\n" * 50_000_000)
            wait_until(lambda: b'path="%s",status="200"' % path in metrics())
        (answered,) = re.findall(rb'tener_errors_total{code="invalid"} (\S+)', metrics())
        assert 0 < float(answered) < 50_000  # as many answers as the sockets hold
        assert service.client.post("/v1/entities", json={"text": "a"}).status_code == 200


def test_ids_count_as_their_texts_do():
    """A stream whose answers nobody reads holds few lines with long ids."""

    async def fill(request):
        pending, n_lines = _PendingLines(), 0
        line = PendingLine(1, request, ServiceError(400, "a", "b"))
        with contextlib.suppress(TimeoutError):
            while True:
                await asyncio.wait_for(pending.put(line), 0.1)
                n_lines += 1
        assert await pending.get() is line
        await asyncio.wait_for(pending.put(line), 1)
        return n_lines

    assert asyncio.run(fill(LineRequest(text="a", id="x" * (TOGETHER // 4)))) == 3
    assert asyncio.run(fill(None)) == 256


def test_a_stream_that_stands_still_is_ended(start):
    with start({"blank": spacy.blank("en")}, Limits(timeout=0.3)) as service:
        with socket.create_connection(service.place) as client:
            client.settimeout(5)
            client.sendall(b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n" % PATH.encode())
            client.sendall(b'{"text": "a"}\n{"te')
            answer = b""
            while b"too_slow" not in answer:
                answer += client.recv(1000)
        assert b'{"line":1,"entities":[]}' in answer


def test_many_lines_beside_single_requests(served):
    """A long stream holds nobody up for long."""
    texts = [f"王小明去了上海{n}" for n in range(600)]
    lines = "\n".join(json.dumps({"text": text, "id": n}) for n, text in enumerate(texts)).encode()
    answers: list[dict] = []
    thread = threading.Thread(target=lambda: answers.extend(post(served, lines)))
    thread.start()
    slowest = 0.0
    while thread.is_alive():
        start_time = time.perf_counter()
        assert served.client.post("/v1/entities", json={"text": "京"}).status_code == 200
        slowest = max(slowest, time.perf_counter() - start_time)
    thread.join()
    assert [answer["id"] for answer in answers] == list(range(600))
    assert all(answer["entities"][0]["text"] == "王小明" for answer in answers)
    assert slowest < 2.0
