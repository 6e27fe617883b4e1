"""Concurrent clients get the answers to their own requests, even if other clients disconnect."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import spacy
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

from spacy_tener.serve import Limits, Server, make_app

pytestmark = pytest.mark.integration

NAMES = ["吴重阳", "王小明", "李四", "张三"]
PLACES = ["上海", "中国", "京", "银行"]


def make_text(number: int) -> str:
    draw = random.Random(number)
    return f"{draw.choice(NAMES)}在{draw.choice(PLACES)}{number}" * draw.randint(1, 9) + "去了" + draw.choice(PLACES)


@pytest.fixture(scope="module")
def expected(saved) -> dict[str, list[tuple[int, int, str]]]:
    nlp = spacy.load(saved["tener"])
    docs = nlp.pipe(map(make_text, range(300)))
    return {doc.text: [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs}


def assert_entities(entities, text, expected) -> None:
    assert [(entity["start"], entity["end"], entity["label"]) for entity in entities] == expected[text]


def test_concurrent_clients_get_correct_answers(served, expected):
    texts = list(expected)
    assert sum(map(bool, expected.values())) > 200

    def send_requests(number: int) -> None:
        draw = random.Random(number)
        sample = draw.sample(texts, 16)
        with httpx.Client(base_url=served.url, trust_env=False, timeout=20) as client:
            for text in sample[:8]:
                assert_entities(client.post("/v1/entities", json={"text": text}).json()["entities"], text, expected)
            answers = client.post("/v1/entities/batch", json={"texts": sample[8:]}).json()["answers"]
            for text, entities in zip(sample[8:], answers, strict=True):
                assert_entities(entities, text, expected)

    def disconnect(number: int) -> None:
        """Send a request, or all but its last byte, and disconnect without reading the answer."""
        body = json.dumps({"text": make_text(number)}).encode()
        route = ("entities", "entities/batch")[number // 2 % 2]
        head = f"POST /v1/{route} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        with socket.create_connection(served.socket_address) as client:
            client.sendall(head.encode() + b"\r\n\r\n" + body[: len(body) - number % 2])

    with ThreadPoolExecutor(16) as threads:
        answers = [threads.submit(send_requests, number) for number in range(16)]
        disconnected = [threads.submit(disconnect, number) for number in range(60)]
        for future in [*answers, *disconnected]:
            future.result(60)
    assert served.client.get("/health").json()["status"] == "ok"
    wait_until(lambda: served.client.get("/health").json()["models"] == {"tener": 0, "characters": 0})
    batches = read_metrics(served)["tener_batch_texts_count", "tener"]
    assert read_metrics(served)["tener_batch_texts_sum", "tener"] > 1.2 * batches


def read_metrics(service) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(service.client.get("/metrics").text)
    return {
        (sample.name, *(value for key, value in sample.labels.items() if key != "le")): sample.value
        for family in families
        for sample in family.samples
    }


def test_disconnecting_clients_log_no_warnings(start, saved, caplog):
    nlp = spacy.load(saved["tener"])

    @spacy.Language.component("slow_and_fails")
    def slow_and_fails(doc):
        time.sleep(0.002)
        raise ValueError

    nlp.add_pipe("slow_and_fails")
    logging.getLogger("spacy_tener").setLevel(logging.CRITICAL)
    try:
        with start({"a": nlp}) as service:
            for number in range(60):
                body = json.dumps({"texts": ["王小明去了上海" * (1 + number % 5)] * 50}).encode()
                head = "POST /v1/entities/batch HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                with socket.create_connection(service.socket_address) as client:
                    client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                    time.sleep(0.003 * (number % 4))
            wait_until(lambda: service.client.get("/health").json()["models"] == {"a": 0})
        gc.collect()  # asyncio logs tasks with unretrieved exceptions when they are garbage-collected
    finally:
        logging.getLogger("spacy_tener").setLevel(logging.NOTSET)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_two_models_can_share_one_pipeline(start, saved):
    """Both models share a vocabulary, which only one thread may modify at a time."""
    nlp = spacy.load(saved["tener"])
    with start({"a": nlp, "b": nlp}) as service, ThreadPoolExecutor(8) as threads:
        post = service.client.post
        bodies = [{"text": make_text(number), "model": "ab"[number % 2]} for number in range(200)]
        answers = list(threads.map(lambda body: post("/v1/entities", json=body), bodies))
    assert {answer.status_code for answer in answers} == {200}


def test_serving_does_not_change_pipeline_settings(start, saved):
    nlp = spacy.load(saved["tener"])
    before = dict(nlp.get_pipe("tener_ner").cfg)
    with start({"a": nlp}) as service:
        entities = service.client.post("/v1/entities", json={"text": "王小明去了上海"}).json()["entities"]
        assert entities
        assert all(0 < entity["probability"] <= 1 for entity in entities)
    assert nlp.get_pipe("tener_ner").cfg == before


def test_application_can_be_restarted(saved):
    app = make_app({"a": spacy.load(saved["tener"])})

    async def run_once() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://service") as client,
        ):
            assert (await client.get("/ready")).json()["status"] == "ok"
            assert (await client.post("/v1/entities", json={"text": "王小明"})).status_code == 200
            app.state.service.stopping = True

    asyncio.run(run_once())
    asyncio.run(run_once())


def test_metrics_count_requests_texts_and_batches(served):
    before = read_metrics(served)
    served.client.post("/v1/entities", json={"text": "王小明", "model": "characters"})
    served.client.post("/v1/entities", json={"text": "京" * 501})
    served.client.post("/v1/entities", json={"text": "a" * 20_000})
    served.client.get("/nowhere/1")
    served.client.get("/nowhere/2")
    after = read_metrics(served)

    def increase(*key: str) -> float:
        return after[key] - before.get(key, 0.0)

    assert increase("tener_requests_total", "/v1/entities", "200") == 1
    assert increase("tener_requests_total", "/v1/entities", "413") == 2
    assert increase("tener_requests_total", "other", "404") == 2
    assert increase("tener_request_seconds_count", "/v1/entities") == 3
    assert increase("tener_characters_total", "characters") == 3
    assert increase("tener_batch_texts_count", "characters") == increase("tener_batch_seconds_count", "characters") == 1
    assert after["tener_waiting_characters", "tener"] == 0
    assert after["process_resident_memory_bytes",] > 0


def test_shutdown_waits_for_request_timeout():
    app = make_app({"zh": spacy.blank("zh")}, Limits(timeout=7.5))
    assert Server(app, lambda: None).config.timeout_graceful_shutdown >= 7.5
