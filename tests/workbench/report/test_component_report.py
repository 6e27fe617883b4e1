"""The numbers of the components' embeddings as a table and as data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spacy_tener.workbench.report.component_cosines import Kinship, centred, compare
from spacy_tener.workbench.report.component_report import HEADER, component_report

CHARACTERS = list("江河林村")
KINSHIP = Kinship(["氵工", "氵可", "木木", "木寸"], ["氵", "氵", "木", "木"])
RNG = np.random.default_rng(0)
BEFORE, AFTER = (RNG.normal(size=(4, 5)).astype("f") for _ in range(2))


def report(**changes):
    return component_report(
        CHARACTERS, KINSHIP, **{"before": BEFORE, "after": AFTER, "middle": "江", "count": 2, **changes}
    )


def test_a_report_compares_before_and_after_with_and_without_the_mean() -> None:
    made = report()
    assert made.before.cosines == compare(BEFORE, KINSHIP)
    assert made.after.cosines == compare(AFTER, KINSHIP)
    assert made.before.without_mean == compare(centred(BEFORE), KINSHIP)
    assert (made.characters, made.components) == (4, 5)


def test_the_nearest_are_those_after_training() -> None:
    made = report(count=10)
    units = AFTER / np.linalg.norm(AFTER, axis=1, keepdims=True)
    order = np.argsort(-(units @ units[0]))[1:]
    assert [each.character for each in made.nearest] == [CHARACTERS[place] for place in order]
    assert {each.character for each in made.nearest if each.shares_component} == {"河"}


def test_rows_fit_the_header_and_say_what_is_in_the_data() -> None:
    rows = report().rows()
    assert {len(row) for row in rows} == {len(HEADER)}
    group = report().after.cosines.component
    assert rows[0] == (
        "pairs that share a component",
        "2",
        rows[0][2],
        f"{group.mean:.3f} ± {group.sd:.3f}",
    )
    assert rows[3][3] == f"{report().after.cosines.difference:+.3f}"


def test_what_there_is_none_of_is_a_dash() -> None:
    alone = component_report(
        ["江", "林"], Kinship(["氵", "木"], ["氵", "木"]), before=BEFORE[:2], after=AFTER[:2], middle="林", count=5
    )
    rows = alone.rows()
    assert rows[0][1:] == ("0", "-", "-")
    assert rows[3][2:] == rows[-1][2:] == ("-", "-")
    assert [each.character for each in alone.nearest] == ["江"]


def test_data_goes_through_json_unchanged() -> None:
    data = json.loads(json.dumps(report().data()))
    assert data["after"]["cosines"]["component"]["mean"] == pytest.approx(report().after.cosines.component.mean)
    assert data["nearest"][0]["cosine"] == report().nearest[0].cosine
