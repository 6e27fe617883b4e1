"""Errors that say what to do."""

from __future__ import annotations

import pytest

from spacy_tener.errors import RemedyError, check_choice


def test_a_value_that_is_none_of_the_choices_is_refused_with_them() -> None:
    check_choice("metric", "f", ["p", "r", "f"])
    with pytest.raises(RemedyError, match=r"Unknown metric 'F1'\. Use one of: p, r, f\."):
        check_choice("metric", "F1", ["p", "r", "f"])
