"""Clients that send requests to the HTTP service, for `serve.py`.

    python _clients.py PORT CLIENTS BATCH < texts.json

The input is a JSON list of texts. Prints the latency of each request in seconds, followed by the total time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence


async def run_clients(port: int, n: int, batch: int, texts: Sequence[str]) -> list[float]:
    """Send all texts with `n` concurrent clients. Return the latency of each request, followed by the total time, in
    seconds."""
    if batch == 1:
        bodies = iter([("entities", {"text": text}) for text in texts])
    else:
        parts = (texts[start : start + batch] for start in range(0, len(texts), batch))
        bodies = iter([("entities/batch", {"texts": part}) for part in parts])
    found: list[float] = []
    start = time.perf_counter()
    await asyncio.gather(*(run_client(port, bodies, found) for _ in range(n)))
    return [*found, time.perf_counter() - start]


async def run_client(port: int, bodies: Iterator[tuple[str, object]], found: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path, body in bodies:
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        )
        start = time.perf_counter()
        writer.write(head.encode() + b"\r\n\r\n" + content)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        assert " 200 " in answer.partition("\r\n")[0], answer
        await reader.readexactly(int(answer.partition("content-length: ")[2].partition("\r\n")[0]))
        found.append(time.perf_counter() - start)
    writer.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_clients(*map(int, sys.argv[1:]), json.load(sys.stdin)))))
