"""What all of this package raises when it cannot do what it was asked."""

from __future__ import annotations


class ReportError(ValueError):
    """Runs that cannot be reported as asked: what is wrong, and what to do about it."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}")
