"""Figures: what is in them, and that they can be read."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from spacy_tener.workbench.files import FileError
from spacy_tener.workbench.report import plots
from spacy_tener.workbench.report.canvas import COLOURS, styles
from spacy_tener.workbench.report.errors import ReportError
from spacy_tener.workbench.report.runs import Run, find_runs

CORPORA = ("weibo", "resume")
SYSTEMS = ("ner", "tener", "flat-atssa-without-amplification", "双向网络")


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Two corpora, four systems, two seeds. The second seed trains longer."""
    for corpus in CORPORA:
        for place, system in enumerate(SYSTEMS):
            for seed in (1, 2):
                log = [
                    (step // 100, step, 10.0 * place + step / 100 + seed) for step in range(0, 300 + 100 * seed, 100)
                ]
                config = f'[model]\nk = {place + 1}\nalpha = {10**place}\nname = "n{place}"\n'
                speed, f = 1000.0 * (place + 1), 0.5 + 0.1 * place + 0.01 * seed
                make_run(tmp_path, f"{corpus}/{system}/{seed}", f=f, speed=speed, log=log, config=config)
    return list(find_runs([tmp_path]).runs)


def of_corpus(runs: list[Run], corpus: str) -> list[Run]:
    return [run for run in runs if run.corpus == corpus]


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def assert_nothing_is_clipped(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= -0.02
    assert drawn.x1 <= width + 0.02
    assert drawn.y1 <= height + 0.02


def draw_all(runs: list[Run], path: Path) -> dict[str, Figure]:
    return {
        "convergence": plots.draw_convergence(runs, path / "convergence.png"),
        "speed": plots.draw_speed(runs, path / "speed.png", baseline="ner"),
        "scores": plots.draw_scores(runs, path / "scores.png"),
        "sweep": plots.draw_sweep(runs, path / "sweep.png", x="k"),
    }


def test_figures_are_written_and_nothing_in_them_is_clipped(runs: list[Run], tmp_path: Path) -> None:
    for kind, figure in draw_all(runs, tmp_path / "figures").items():
        width, height = png_size(tmp_path / "figures" / f"{kind}.png")
        assert width > 600
        assert height > 250
        assert_nothing_is_clipped(figure)
        assert [axis.get_title() for axis in figure.axes] == sorted(CORPORA)
        for axis in figure.axes:
            assert axis.get_xlabel(), f"{kind} says nothing about its x-axis"


def test_curves_are_means_with_a_band_and_tails(runs: list[Run], tmp_path: Path) -> None:
    figure = plots.draw_convergence(of_corpus(runs, "weibo"), tmp_path / "a.png")
    (axis,) = figure.axes
    lines = {str(line.get_label()): line for line in axis.lines if not str(line.get_label()).startswith("_")}
    assert set(lines) == set(SYSTEMS) == set(legend(figure))
    # Seeds 1 and 2 of the second system: 10 + step / 100 + seed, as far as the first went.
    assert list(lines["tener"].get_xdata()) == [0, 100, 200, 300]
    assert list(lines["tener"].get_ydata()) == pytest.approx([11.5, 12.5, 13.5, 14.5])
    tails = [line for line in axis.lines if str(line.get_label()).startswith("_")]
    assert [list(tail.get_xdata()) for tail in tails] == [[300, 400]] * len(SYSTEMS)
    band = axis.collections[0].get_paths()[0].get_extents()
    assert band.y1 - band.y0 > 3.0
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Training steps", "F1 on dev (%), mean ± sd")


def test_curves_over_epochs_and_from_a_higher_start(runs: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_convergence(of_corpus(runs, "weibo"), tmp_path / "a.png", x="epoch", y_min=10.0).axes
    assert list(axis.lines[0].get_xdata()) == [0, 1, 2, 3]
    assert axis.get_xlabel() == "Epochs"
    assert axis.get_ylim()[0] == 10.0


def test_a_band_stays_between_0_and_100(tmp_path: Path) -> None:
    for seed, f in ((1, 0.0), (2, 30.0)):
        make_run(tmp_path, f"weibo/a/{seed}", f=0.5, log=[(0, 1, f), (0, 2, 100.0 - f)])
    (axis,) = plots.draw_convergence(find_runs([tmp_path]).runs, tmp_path / "a.png").axes
    band = axis.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (0.0, 100.0)


def test_a_single_evaluation_is_seen(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, log=[(0, 1, 50.0)])
    (axis,) = plots.draw_convergence(find_runs([tmp_path]).runs, tmp_path / "a.png").axes
    assert axis.lines[0].get_marker() == "o"


def test_speed_is_in_words_per_second_or_times_the_baseline(runs: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_speed(of_corpus(runs, "weibo"), tmp_path / "a.png").axes
    assert axis.get_xlabel() == "Words per second"
    assert [text.get_text() for text in axis.texts] == ["3,000", "1,000", "2,000", "4,000"]
    (axis,) = plots.draw_speed(of_corpus(runs, "weibo"), tmp_path / "a.png", baseline="tener").axes
    assert [bar.get_width() for bar in axis.patches] == [1.5, 0.5, 1.0, 2.0]
    assert [text.get_text() for text in axis.texts] == ["×1.50", "×0.50", "×1.00", "×2.00"]
    assert [text.get_text() for text in axis.get_yticklabels()] == sorted(SYSTEMS)
    assert axis.get_xlim()[0] == 0.0


def test_the_first_system_stands_on_top(runs: list[Run], tmp_path: Path) -> None:
    for figure in (plots.draw_speed(runs, tmp_path / "a.png"), plots.draw_scores(runs, tmp_path / "a.png")):
        bottom, top = figure.axes[0].get_ylim()
        assert bottom > top


def test_bars_are_equally_high_in_all_panels(runs: list[Run], tmp_path: Path) -> None:
    fewer = [run for run in runs if run.corpus == "weibo" or run.system == "ner"]
    limits = {axis.get_ylim() for axis in plots.draw_speed(fewer, tmp_path / "a.png").axes}
    assert len(limits) == 1


def test_a_baseline_without_speed_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"resume: no speed of the baseline grn\. There are: .*tener"):
        plots.draw_speed(runs, tmp_path / "a.png", baseline="grn")


def test_scores_show_every_seed_the_mean_and_what_was_printed(runs: list[Run], tmp_path: Path) -> None:
    figure = plots.draw_scores(of_corpus(runs, "weibo"), tmp_path / "a.png")
    (axis,) = figure.axes
    drawn = [list(line.get_xdata()) for line in axis.lines]
    # The second system has 61 and 62 percent; the paper 58.17.
    assert any(values == pytest.approx([61.0, 62.0]) for values in drawn)
    assert any(values == pytest.approx([61.5]) for values in drawn)
    assert [58.17] in drawn
    assert legend(figure) == [
        "printed: pretrained vectors",
        "released code: random embeddings, one seed",
        "one seed",
    ]
    without = plots.draw_scores(of_corpus(runs, "weibo"), tmp_path / "a.png", printed=False)
    assert legend(without) == ["one seed"]
    assert [58.17] not in [list(line.get_xdata()) for line in without.axes[0].lines]


def points(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {
        box.get_label(): (list(box.lines[0].get_xdata()), pytest.approx(list(box.lines[0].get_ydata())))
        for box in axis.containers
    }


def test_a_sweep_is_a_score_against_a_setting(runs: list[Run], tmp_path: Path) -> None:
    figure = plots.draw_sweep(runs, tmp_path / "a.png", x="k")
    for axis in figure.axes:
        # The systems are sorted by their k, not by their names.
        assert list(points(axis).values()) == [([1, 2, 3, 4], [51.5, 61.5, 71.5, 81.5])]
        assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "2", "3", "4"]
        assert axis.get_xlabel() == "k"
    assert legend(figure) == []


def test_a_sweep_can_have_a_line_for_each_value_of_another_setting(runs: list[Run], tmp_path: Path) -> None:
    figure = plots.draw_sweep(of_corpus(runs, "weibo"), tmp_path / "a.png", x="k", by=["name"])
    assert legend(figure) == ["n0", "n1", "n2", "n3"]
    assert points(figure.axes[0])["n1"] == ([2], [61.5])


def test_a_sweep_can_be_logarithmic(runs: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_sweep(of_corpus(runs, "weibo"), tmp_path / "a.png", x="alpha", log=True).axes
    assert axis.get_xscale() == "log"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "10", "100", "1000"]
    with pytest.raises(ReportError, match="'name' has values without a logarithm"):
        plots.draw_sweep(runs, tmp_path / "a.png", x="name", log=True)


def test_settings_that_are_no_numbers_stand_side_by_side(runs: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_sweep(of_corpus(runs, "weibo"), tmp_path / "a.png", x="name").axes
    assert list(axis.get_xticks()) == [0, 1, 2, 3]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["n0", "n1", "n2", "n3"]


def test_two_systems_with_one_value_are_an_error_in_a_sweep(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="seed 1 is there twice"):
        plots.draw_sweep(runs, tmp_path / "a.png", x="corpus")


def test_a_system_has_one_colour_in_all_panels(runs: list[Run], tmp_path: Path) -> None:
    figure = plots.draw_convergence(runs, tmp_path / "a.png")
    first, second = ({line.get_label(): to_hex(line.get_color()) for line in axis.lines} for axis in figure.axes)
    for system in SYSTEMS:
        assert first[system] == second[system]
    assert len({first[system] for system in SYSTEMS}) == len(SYSTEMS)


def test_styles_stay_apart_beyond_the_colours() -> None:
    names = [f"s{i}" for i in range(4 * len(COLOURS))]
    drawn = {(style.color, style.linestyle) for style in styles(names).values()}
    assert len(drawn) == len(names)


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_is_seen_on_white() -> None:
    for colour in COLOURS:
        assert 1.05 / (luminance(colour) + 0.05) > 2.0


def test_svg_is_written_and_the_same_every_time(runs: list[Run], tmp_path: Path) -> None:
    for name in ("a", "b"):
        plots.draw_scores(runs, tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf8")
    assert "<svg" in text
    assert text == (tmp_path / "b.svg").read_text(encoding="utf8")


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.PNG.txt"])
def test_other_endings_are_an_error(runs: list[Run], tmp_path: Path, name: str) -> None:
    with pytest.raises(ReportError, match=r"figures are \.png or \.svg"):
        plots.draw_scores(runs, tmp_path / name)


def test_a_place_that_cannot_be_written_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be written"):
        plots.draw_scores(runs, tmp_path / "file" / "a.png")


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    for draw in (plots.draw_scores, plots.draw_speed, plots.draw_convergence):
        with pytest.raises(ReportError, match="nothing to draw"):
            draw([], tmp_path / "a.png")


def test_an_unknown_metric_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    for draw in (plots.draw_scores, plots.draw_convergence):
        with pytest.raises(ReportError, match="Unknown metric"):
            draw(runs, tmp_path / "a.png", metric="x")


def test_without_matplotlib_the_extra_is_named(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ReportError, match=r"pip install 'spacy_tener\[plot\]'"):
        plots.draw_scores(runs, tmp_path / "a.png")


def test_many_panels_fill_rows(tmp_path: Path) -> None:
    for corpus in "abcd":
        make_run(tmp_path, f"{corpus}/tener/1", f=0.5)
    figure = plots.draw_scores(find_runs([tmp_path]).runs, tmp_path / "a.png")
    assert [axis.get_title() for axis in figure.axes] == list("abcd")
    assert len({round(axis.get_position().y0, 3) for axis in figure.axes}) == 2
    for corpus in "efg":
        make_run(tmp_path, f"{corpus}/tener/1", f=0.5)
    figure = plots.draw_scores(find_runs([tmp_path]).runs, tmp_path / "a.png")
    assert len(figure.axes) == 7
    assert_nothing_is_clipped(figure)
