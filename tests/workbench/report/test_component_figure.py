"""MECT's Figure 5: what is in the picture, with and without a font for it."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from spacy_tener.workbench.report import canvas
from spacy_tener.workbench.report.canvas import settings
from spacy_tener.workbench.report.component_cosines import Kinship, unit_length
from spacy_tener.workbench.report.component_figure import draw_component_space, label_of, label_offsets, plane
from spacy_tener.workbench.report.errors import ReportError

COMPONENTS = ["氵工", "氵可", "木木", "木寸", "艹化", "十", "钅十", "氵木"]
CHARACTERS = list("江河林村花十针沐")
KINSHIP = Kinship(COMPONENTS, [each[0] for each in COMPONENTS])
VECTORS = np.random.default_rng(0).normal(size=(8, 5)).astype("f")


def picture(path: Path, characters: list[str] = CHARACTERS, **options) -> tuple[Figure, list[str]]:
    asked = {"middle": characters[0], "count": 3, **options}
    spaces = {"before training": VECTORS + 3.0, "after training": VECTORS}
    return draw_component_space(spaces, characters, KINSHIP, path, **asked)


def texts(figure: Figure) -> list[list[str]]:
    return [[text.get_text() for text in axis.texts] for axis in figure.axes]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_figure_is_written_the_same_every_time(tmp_path: Path, ending: str) -> None:
    for name in "ab":
        picture(tmp_path / f"{name}.{ending}")
    first, second = ((tmp_path / f"{name}.{ending}").read_bytes() for name in "ab")
    assert first[:5] in (b"\x89PNG\r", b"<?xml")
    assert first == second


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"figures are \.png or \.svg"):
        picture(tmp_path / "a.pdf")


def test_there_is_a_panel_for_each_space_with_all_characters_in_it(tmp_path: Path) -> None:
    figure, _ = picture(tmp_path / "a.png")
    titles = [axis.get_title() for axis in figure.axes]
    assert [title.partition(" (")[0] for title in titles] == ["before training", "after training"]
    for axis in figure.axes:
        everyone, kin, strangers, middle = axis.collections
        assert len(everyone.get_offsets()) == 8
        assert len(kin.get_offsets()) + len(strangers.get_offsets()) == 3
        assert len(middle.get_offsets()) == 1


def test_the_nearest_are_named_and_coloured_by_what_they_share(tmp_path: Path) -> None:
    units = unit_length(VECTORS)
    nearest = [int(place) for place in np.argsort(-(units @ units[0]))[1:4]]
    figure, without = picture(tmp_path / "a.png")
    expected = [CHARACTERS[place] for place in (0, *nearest)]
    shown = [f"U+{ord(each):04X}" if each in without else each for each in expected]
    assert texts(figure)[1] == shown
    _, kin, strangers, _ = figure.axes[1].collections
    assert len(kin.get_offsets()) == sum("氵" in COMPONENTS[place] for place in nearest)
    assert kin.get_facecolor().tolist() != strangers.get_facecolor().tolist()


def test_characters_that_no_font_has_are_written_as_code_points(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(canvas, "_CHINESE", ())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure, without = picture(tmp_path / "a.png")
    assert "U+6C5F" in texts(figure)[0]
    assert set(without) <= set(CHARACTERS)
    assert "江" in without
    legend = [text.get_text() for box in figure.legends for text in box.get_texts()]
    assert "near U+6C5F, shares a component" in legend


def test_a_character_that_a_font_has_is_written_as_it_is() -> None:
    with settings():
        assert label_of("é") == "é"
        assert label_of("\U0010fffd") == "U+10FFFD"


def test_names_that_a_font_has_are_not_reported(tmp_path: Path) -> None:
    figure, without = picture(tmp_path / "a.png", list("abcdefgh"))
    assert without == []
    assert texts(figure)[0][0] == "a"


def test_the_plane_keeps_distances_that_lie_in_it() -> None:
    angles = np.linspace(0.0, 3.0, 6)
    flat = np.stack([np.cos(angles), np.sin(angles), np.zeros(6)], axis=1).astype("f")
    points, part = plane(7.0 * flat)
    assert part == pytest.approx(1.0)
    distances = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
    np.testing.assert_allclose(np.linalg.norm(points[:, None] - points[None], axis=-1), distances, atol=1e-5)


def test_the_plane_s_part_of_the_variance_is_its_part() -> None:
    points, part = plane(VECTORS)
    units = unit_length(VECTORS)
    apart = units - units.mean(axis=0)
    assert part == pytest.approx(float((points**2).sum() / (apart**2).sum()), abs=1e-5)
    assert 0.3 < part < 1.0


def test_equal_vectors_are_one_point() -> None:
    points, part = plane(np.ones((4, 3), dtype="f"))
    assert np.abs(points).max() < 1e-5
    assert part == pytest.approx(0.0, abs=1e-3)


def test_labels_keep_apart_from_each_other_and_from_points() -> None:
    points = np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 2.0], [40.0, 40.0]])
    sizes = np.full((4, 2), 10.0)
    centres = points + label_offsets(points, sizes)
    for i in range(4):
        assert not (np.abs(centres[i] - points) < 5.0).all(axis=1).any()
        for j in range(i):
            assert (np.abs(centres[i] - centres[j]) >= 10.0 - 1e-9).any()


def test_a_label_alone_stays_as_near_as_may_be() -> None:
    (offset,) = label_offsets(np.zeros((1, 2)), np.full((1, 2), 10.0))
    assert 5.0 < np.linalg.norm(offset) <= 8.0 + 1e-9
