"""The pages: one to try texts on, and one that shows the schema. Neither needs the network."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from .. import explain

STATIC = Path(__file__).parent / "static"
STYLE = Path(explain.__file__).with_name("page.css")
# `unsafe-inline` is for the page of an explanation, which has its style and script inside and inherits this.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-src 'self'",
        "img-src data:",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
    ]
)


def add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _page("page.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return _page("docs.html")

    @app.get("/static/explain.css", include_in_schema=False)
    async def style() -> Response:
        return FileResponse(STYLE)

    app.mount("/static", StaticFiles(directory=STATIC))


def _page(name: str) -> Response:
    return FileResponse(STATIC / name, headers={"content-security-policy": POLICY, "cache-control": "no-cache"})
