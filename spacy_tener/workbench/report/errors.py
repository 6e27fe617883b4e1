"""What all of this package raises when it cannot do what it was asked."""

from __future__ import annotations

from ...errors import RemedyError


class ReportError(RemedyError):
    """Runs that cannot be reported as asked: what is wrong, and what to do about it."""
