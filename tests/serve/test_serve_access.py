"""Authentication with an API key, and cross-origin requests (CORS)."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import spacy

from spacy_tener.errors import UserError
from spacy_tener.serve import check_origins, read_api_key

KEY, ORIGIN = "open-sesame", "https://tool.example"


@pytest.fixture(scope="module")
def protected(start) -> Iterator:
    """A service with an API key, which allows cross-origin requests from `ORIGIN`."""
    with start({"blank": spacy.blank("en")}, api_key=KEY, allow_origins=[ORIGIN]) as service:
        yield service


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'user:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer {KEY}", 200),
        (basic(KEY), 200),
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        (KEY, 401),
        (f"Bearer {KEY}x", 401),
        (f"Bearer {KEY[:-1]}", 401),
        (f"Token {KEY}", 401),
        (basic(""), 401),
        ("Basic ???", 401),
        ("Bearer \xff", 401),
    ],
)
def test_requests_require_valid_api_key(protected, header, status):
    headers = {} if header is None else {"Authorization": header.encode("latin-1")}
    answer = protected.client.post("/v1/entities", json={"text": "Berlin"}, headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert answer.json()["error"]["code"] == "unauthorized"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert KEY not in answer.text


def test_only_health_routes_and_pages_are_public(protected):
    public_routes = {"/health", "/ready"}
    for path, methods in protected.client.get("/openapi.json").json()["paths"].items():
        for method, route in methods.items():
            answer = protected.client.request(method, path)
            assert answer.status_code == (200 if path in public_routes else 401), path
            assert ("security" in route) == (path not in public_routes)
    for path in ("/", "/docs", "/static/page.js"):
        assert protected.client.get(path).status_code == 200


def test_unauthorized_request_is_rejected_before_body(protected):
    with socket.create_connection(protected.socket_address) as client:
        client.sendall(b"POST /v1/entities HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n")
        client.settimeout(5)
        assert client.recv(100).startswith(b"HTTP/1.1 401 ")


def test_service_without_key_accepts_all_requests(served):
    assert served.client.get("/v1/models", headers={"Authorization": "Bearer whatever"}).status_code == 200
    assert "security" not in served.client.get("/openapi.json").text


def test_cors_allows_only_configured_origins(protected, served):
    preflight_headers = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    preflight = protected.client.options("/v1/entities", headers={"Origin": ORIGIN, **preflight_headers})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    headers = {"Origin": ORIGIN, "Authorization": f"Bearer {KEY}"}
    answer = protected.client.post("/v1/entities", json={"text": "a"}, headers=headers)
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    refused = protected.client.options("/v1/entities", headers={"Origin": "https://other.example", **preflight_headers})
    assert refused.status_code == 400
    assert "access-control-allow-origin" not in refused.headers
    assert "access-control-allow-origin" not in served.client.get("/health", headers={"Origin": ORIGIN}).headers


def test_api_key_is_read_from_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TENER_API_KEY", raising=False)
    assert read_api_key(None) == ""
    monkeypatch.setenv("TENER_API_KEY", "from-environment")
    assert read_api_key(None) == "from-environment"
    (tmp_path / "key").write_text("from-file\n")
    assert read_api_key(tmp_path / "key") == "from-file"
    for content in (b"", b"\n", b"two words", "schlüssel".encode(), b"\xff\xfe"):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(UserError, match="key"):
            read_api_key(tmp_path / "key")


@pytest.mark.parametrize("origin", ["tool.example", "https://tool.example/", "https://tool.example/page", "null", ""])
def test_invalid_origin_raises_error(origin):
    with pytest.raises(UserError, match="not an origin"):
        check_origins([origin])
    assert check_origins(["*", "http://localhost:3000"]) == ["*", "http://localhost:3000"]
