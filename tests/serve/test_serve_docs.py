"""The example clients and the error codes in docs/serve.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx
import pytest

from spacy_tener import serve

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf8")
BLOCKS = re.findall(r"^<!-- test: not run \(tests/serve runs[^)]*\) -->\n```(\w+)\n(.*?)^```$", PAGE, flags=re.M | re.S)
PROGRAMS = [code for language, code in BLOCKS if language == "python"]
CURL_COMMANDS = [shlex.split(code) for language, code in BLOCKS if language == "bash"]


@pytest.mark.parametrize("code", PROGRAMS)
def test_python_example_prints_entities(served, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = code.replace("http://127.0.0.1:8000", served.url)
    exec(compile(code, "docs/serve.md", "exec"), {})
    assert "王小明" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", CURL_COMMANDS)
def test_curl_example_returns_entities(served, arguments: list[str]) -> None:
    options = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    assert arguments[0] == "curl"
    url = arguments[1].replace("http://127.0.0.1:8000", served.url)
    headers = dict([options["-H"].split(": ")])
    answer = httpx.post(url, content=options["-d"].encode(), headers=headers, trust_env=False)
    assert answer.status_code == 200
    assert [entity["text"] for entity in answer.json()["entities"]] == ["王小明", "上海"]


def test_all_service_errors_are_documented() -> None:
    raised = set()
    for path in Path(serve.__file__).parent.glob("*.py"):
        raised |= set(re.findall(r'ServiceError\(\s*(\d+), "(\w+)"', path.read_text(encoding="utf8")))
    assert len(raised) > 10
    prose = " ".join(PAGE.split())
    for status, code in raised:
        assert f"`{code}`" in prose, code
        documented = set(re.findall(rf"(\d{{3}}) `{code}`", prose))
        assert documented <= {status}, code


def test_page_has_python_and_curl_example() -> None:
    assert len(PROGRAMS) == len(CURL_COMMANDS) == 1
