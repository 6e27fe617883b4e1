"""Test the command `serve`: errors at startup, and shutdown after pending requests are answered."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import spacy
from command_line import run_tener
from waiting import wait_until

from spacy_tener.serve import bind, make_app, serve

pytestmark = pytest.mark.integration

KEY = "a-key-of-this-test"


def printed(*arguments: str | Path) -> str:
    """Return the output of a `serve` command that fails at startup."""
    return run_tener("serve", *arguments).text


def test_invalid_arguments_raise_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spacy.blank("zh").to_disk(tmp_path / "blank")
    assert "'runs/lr=0.1/model'" in printed("--port", "0", "runs/lr=0.1/model")
    assert "none: " in printed("--port", "0", "x=none")
    assert "no component that predicts entities" in printed("--port", "0", tmp_path / "blank")
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use Choose another" in printed("--port", port, tmp_path / "blank")
        assert "Can't find model 'x'" in printed("--port", port, "x")
    assert f"{tmp_path}/none: No such file" in printed("--api-key-file", tmp_path / "none", "x")
    (tmp_path / "key").write_text("two words\n")
    assert f"{tmp_path}/key contains no valid API key" in printed("--api-key-file", tmp_path / "key", "x")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("spacy_tener.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert "Serving requires uvicorn Run `pip install fastapi" in printed("x")


@pytest.fixture
def process(tmp_path: Path, saved: dict[str, Path], without_torch: None) -> Iterator[subprocess.Popen[str]]:
    model = f"zh={saved['tener']}"
    command = [sys.executable, "-um", "spacy", "tener", "serve", model, "--port", "0", "--max-characters", "90000"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TENER_API_KEY": KEY}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as started:
        yield started
        started.kill()


def test_sigterm_stops_server_after_pending_requests(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    # Warnings of libraries can precede the URL.
    url = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout)))
    authorization = {"Authorization": f"Bearer {KEY}"}
    with (
        httpx.Client(base_url=url[0], trust_env=False, timeout=60, headers=authorization) as client,
        ThreadPoolExecutor(8) as threads,
    ):
        text = "王小明去了上海。" * 400
        requests = [threads.submit(client.post, "/v1/entities", json={"text": text}) for _ in range(8)]
        wait_until(lambda: client.get("/health").json()["models"]["zh"] > 2 * len(text))
        process.send_signal(signal.SIGTERM)
        for future in requests:
            answer = future.result(60)
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["entities"]) == 800
    assert process.wait(60) == 0
    output = process.stdout.read()
    assert "Traceback" not in output


def test_server_restores_signal_handler_and_switch_interval() -> None:
    received, interval = list[int](), sys.getswitchinterval()
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        for _ in range(2):
            app, sock = make_app({"blank": spacy.blank("en")}), bind("127.0.0.1", 0)
            serve(app, sock, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert received == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM]
        assert sys.getswitchinterval() == pytest.approx(interval)
    finally:
        signal.signal(signal.SIGTERM, previous)
