"""What the service accepts, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """The bounds of one request, and of what waits in one process.

    characters: Most characters of a text.
    explained: Most characters of a text that is explained, which takes as long as reading it many times.
    texts: Most texts of one batch.
    body: Most bytes of a request's body. A stream has no such limit: its lines have.
    seconds: How long a request may take to arrive, how long its texts may wait for their answer, and how long a stream
        may stand still.
    waiting: Most characters that wait for a model, over all requests.
    connections: Most connections.
    """

    characters: int = 20_000
    explained: int = 2_000
    texts: int = 256
    body: int = 2 * 2**20
    seconds: float = 30.0
    waiting: int = 1_000_000
    connections: int = 512

    @property
    def line(self) -> int:
        """Most bytes of a line of a stream: every character may be written as \\uXXXX\\uXXXX."""
        return 12 * self.characters + 1024


class RefusedError(Exception):
    """A request that gets no answer: the HTTP status, a word for programs, and a sentence for people.

    retry_after: Seconds after which the same request may succeed.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        super().__init__(message)

    @property
    def body(self) -> dict[str, dict[str, str]]:
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


def too_long(length: int, most: int, where: str = "The text") -> RefusedError:
    return RefusedError(413, "text_too_long", f"{where} has {length:,} characters, and the most is {most:,}. Split it.")


def too_slow(limits: Limits) -> RefusedError:
    return RefusedError(
        408, "too_slow", f"The request did not arrive within {limits.seconds:g} seconds. Send it again."
    )


def overloaded(seconds: int) -> RefusedError:
    return RefusedError(
        503, "overloaded", f"Too many texts are waiting. Try again in {seconds} seconds.", retry_after=seconds
    )


def invalid(errors: Sequence[Mapping[str, Any]]) -> RefusedError:
    """What pydantic found wrong. The value itself is not repeated: it may be large, or no valid text."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    more = f" ({len(errors) - 1} more like this)" if len(errors) > 1 else ""
    return RefusedError(422, "invalid", f"{place}: {first['msg']}.{more}" if place else f"{first['msg']}.{more}")
