"""Figures: what is in them, and the logs that curves are drawn from."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from spacy.training.loggers import console_logger_v3

from research import canvas, plots
from research.canvas import COLOURS, styles
from research.comparing import Summary
from research.plots import Curve, curve, has_log, read_log
from research.runs import Run, find_runs, group_runs
from spacy_tener.errors import RemedyError

CORPORA = ("resume", "weibo")
SYSTEMS = ("flat-atssa-without-amplification", "ner", "tener")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two corpora, three systems, two seeds. The second seed trains longer."""
    folder = tmp_path_factory.mktemp("runs")
    for corpus in CORPORA:
        for place, system in enumerate(SYSTEMS):
            for seed in (1, 2):
                log = [
                    (step // 100, step, 10.0 * place + step / 100 + seed) for step in range(0, 300 + 100 * seed, 100)
                ]
                config = f'[model]\nk = {3 - place}\nalpha = {10**place}\nname = "n{place}"\n'
                speed, f = 1000.0 * (place + 1), 0.5 + 0.1 * place + 0.01 * seed
                make_run(folder, f"{corpus}/{system}/{seed}", f=f, speed=speed, log=log, config=config)
    return list(find_runs([folder]).runs)


@pytest.fixture(scope="module")
def weibo(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.corpus == "weibo"]


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def legend_lines(figure: Figure) -> int:
    FigureCanvasAgg(figure).draw()
    return len({round(text.get_window_extent().y0) for box in figure.legends for text in box.get_texts()})


def assert_nothing_is_clipped(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0) >= -0.02
    assert drawn.x1 <= width + 0.02
    assert drawn.y1 <= height + 0.02


@pytest.fixture(scope="module")
def figures(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Figure, Path]]:
    """One of each kind, of all runs, and where it was written."""
    folder = tmp_path_factory.mktemp("figures") / "new"
    draws: dict[str, tuple[Any, dict[str, Any]]] = {
        "convergence": (plots.draw_convergence, {}),
        "speed": (plots.draw_speed, {"baseline": "tener"}),
        "scores": (plots.draw_scores, {}),
        "sweep": (plots.draw_sweep, {"x": "k"}),
    }
    paths = {kind: folder / f"{kind}.png" for kind in draws}
    return {kind: (draw(runs, paths[kind], **options), paths[kind]) for kind, (draw, options) in draws.items()}


@pytest.mark.parametrize("kind", ["convergence", "speed", "scores", "sweep"])
def test_figures_are_written_and_nothing_in_them_is_clipped(figures: Any, kind: str) -> None:
    figure, path = figures[kind]
    width, height = png_size(path)
    assert width > 600
    assert height > 250
    assert_nothing_is_clipped(figure)
    assert [axis.get_title() for axis in figure.axes] == list(CORPORA)
    assert all(axis.get_xlabel() for axis in figure.axes)


def test_curves_are_means_with_a_band_and_tails(figures: Any) -> None:
    figure, _ = figures["convergence"]
    axis = figure.axes[0]
    lines = {str(line.get_label()): line for line in axis.lines if not str(line.get_label()).startswith("_")}
    assert set(lines) == set(SYSTEMS) == set(legend(figure))
    # Seeds 1 and 2 of the second system: 10 + step / 100 + seed, as far as the first went.
    assert list(lines["ner"].get_xdata()) == [0, 100, 200, 300]
    assert list(lines["ner"].get_ydata()) == pytest.approx([11.5, 12.5, 13.5, 14.5])
    tails = [line for line in axis.lines if str(line.get_label()).startswith("_")]
    assert [list(tail.get_xdata()) for tail in tails] == [[300, 400]] * len(SYSTEMS)
    band = axis.collections[0].get_paths()[0].get_extents()
    assert band.y1 - band.y0 > 3.0
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Training steps", "F1 on dev (%), mean ± sd")


def test_a_legend_has_as_many_lines_as_its_names_need(figures: Any, weibo: list[Run], tmp_path: Path) -> None:
    assert legend_lines(figures["convergence"][0]) == 1
    narrow = plots.draw_convergence(weibo, tmp_path / "a.svg")
    assert legend_lines(narrow) == len(SYSTEMS)
    assert_nothing_is_clipped(narrow)


def test_a_system_has_one_colour_in_all_panels(figures: Any) -> None:
    axes = figures["convergence"][0].axes
    first, second = ({line.get_label(): to_hex(line.get_color()) for line in axis.lines} for axis in axes)
    for system in SYSTEMS:
        assert first[system] == second[system]
    assert len({first[system] for system in SYSTEMS}) == len(SYSTEMS)


def test_curves_over_epochs_and_from_a_higher_start(weibo: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_convergence(weibo, tmp_path / "a.svg", x="epoch", y_min=10.0).axes
    assert list(axis.lines[0].get_xdata()) == [0, 1, 2, 3]
    assert axis.get_xlabel() == "Epochs"
    assert axis.get_ylim()[0] == 10.0


def test_a_band_stays_between_0_and_100_and_a_single_evaluation_is_seen(tmp_path: Path) -> None:
    for seed, f in ((1, 0.0), (2, 30.0)):
        make_run(tmp_path, f"weibo/a/{seed}", f=0.5, log=[(0, 1, f), (0, 2, 100.0 - f)])
    make_run(tmp_path, "weibo/b/1", f=0.5, log=[(0, 1, 50.0)])
    (axis,) = plots.draw_convergence(find_runs([tmp_path]).runs, tmp_path / "a.png").axes
    band = axis.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (0.0, 100.0)
    assert [line.get_marker() for line in axis.lines] == ["None", "s"]


def test_speed_is_times_the_baseline_the_first_system_on_top(figures: Any) -> None:
    axis = figures["speed"][0].axes[0]
    assert [bar.get_width() for bar in axis.patches] == [pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0]
    assert [text.get_text() for text in axis.texts] == ["×0.33", "×0.67", "×1.00"]
    assert [text.get_text() for text in axis.get_yticklabels()] == list(SYSTEMS)
    assert axis.get_xlim()[0] == 0.0
    FigureCanvasAgg(figures["speed"][0]).draw()
    assert max(text.get_window_extent().x1 for text in axis.texts) < axis.get_window_extent().x1
    bottom, top = axis.get_ylim()
    assert bottom > top


def test_speed_is_in_words_per_second_and_bars_are_equally_high(runs: list[Run], tmp_path: Path) -> None:
    fewer = [run for run in runs if run.corpus == "weibo" or run.system == "ner"]
    axes = plots.draw_speed(fewer, tmp_path / "a.svg").axes
    assert axes[1].get_xlabel() == "Tokens per second"
    assert [text.get_text() for text in axes[1].texts] == ["1,000", "2,000", "3,000"]
    assert len({axis.get_ylim() for axis in axes}) == 1


def test_scores_show_every_seed_the_mean_and_what_was_printed(figures: Any, weibo: list[Run], tmp_path: Path) -> None:
    figure, _ = figures["scores"]
    drawn = [list(line.get_xdata()) for line in figure.axes[1].lines]
    # TENER has 71 and 72 percent; the paper 58.17.
    assert any(values == pytest.approx([71.0, 72.0]) for values in drawn)
    assert any(values == pytest.approx([71.5]) for values in drawn)
    assert [58.17] in drawn
    assert legend(figure) == [
        "printed: pretrained vectors",
        "released code: random embeddings, one seed",
        "one seed",
    ]
    without = plots.draw_scores(weibo, tmp_path / "a.svg", published=False)
    assert legend(without) == ["one seed"]
    assert [58.17] not in [list(line.get_xdata()) for line in without.axes[0].lines]


def points(axis: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {
        box.get_label(): (list(box.lines[0].get_xdata()), pytest.approx(list(box.lines[0].get_ydata())))
        for box in axis.containers
    }


def test_a_sweep_is_a_score_against_a_setting(figures: Any) -> None:
    figure, _ = figures["sweep"]
    for axis in figure.axes:
        # The systems are sorted by their k, not by their names.
        assert list(points(axis).values()) == [([1, 2, 3], [71.5, 61.5, 51.5])]
        assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "2", "3"]
        assert axis.get_xlabel() == "k"
    assert legend(figure) == []


def test_a_sweep_can_have_a_line_for_each_setting_another_setting_and_be_logarithmic(
    weibo: list[Run], tmp_path: Path
) -> None:
    figure = plots.draw_sweep(weibo, tmp_path / "a.svg", x="alpha", by=["name"], log_x=True)
    (axis,) = figure.axes
    assert legend(figure) == ["n0", "n1", "n2"]
    assert points(axis)["n1"] == ([10], [61.5])
    assert axis.get_xscale() == "log"
    assert list(axis.get_xticks(minor=True)) == []
    assert [text.get_text() for text in axis.get_xticklabels()] == ["1", "10", "100"]


def test_settings_that_are_no_numbers_stand_side_by_side(weibo: list[Run], tmp_path: Path) -> None:
    (axis,) = plots.draw_sweep(weibo, tmp_path / "a.svg", x="name").axes
    assert list(axis.get_xticks()) == [0, 1, 2]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["n0", "n1", "n2"]


def test_styles_stay_apart_beyond_the_colours() -> None:
    names = [f"s{i}" for i in range(4 * len(COLOURS))]
    drawn = {(style.color, style.linestyle) for style in styles(names).values()}
    assert len(drawn) == len(names)


def test_svg_is_written_and_the_same_every_time(weibo: list[Run], tmp_path: Path) -> None:
    for name in ("a", "b"):
        plots.draw_scores(weibo[:2], tmp_path / f"{name}.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf8")
    assert "<svg" in text
    assert text == (tmp_path / "b.svg").read_text(encoding="utf8")


# The machine may have no font with Chinese characters.
@pytest.mark.filterwarnings("ignore:Glyph")
def test_many_panels_fill_rows_and_names_may_be_chinese(tmp_path: Path) -> None:
    for corpus in "abcdef":
        make_run(tmp_path, f"{corpus}/tener/1", f=0.5)
    make_run(tmp_path, "微博/双向网络/1", f=0.5)
    figure = plots.draw_scores(find_runs([tmp_path]).runs, tmp_path / "a.png")
    assert [axis.get_title() for axis in figure.axes] == [*"abcdef", "微博"]
    assert len({round(axis.get_position().y0, 3) for axis in figure.axes}) == 3
    assert_nothing_is_clipped(figure)


def test_a_font_is_found_that_was_installed_after_matplotlib_made_its_list(
    weibo: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, manager = "DejaVu Sans Mono", font_manager.fontManager
    path = font_manager.findfont(name)
    (tmp_path / "damaged.ttf").write_bytes(b"no font")
    monkeypatch.setattr(canvas, "_CHINESE", (name,))
    monkeypatch.setattr(manager, "ttflist", [font for font in manager.ttflist if font.name != name])
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(tmp_path / "damaged.ttf"), path])
    (axis,) = plots.draw_scores(weibo, tmp_path / "a.svg").axes
    assert axis.title.get_fontfamily() == ["DejaVu Sans", name]


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.PNG.txt"])
def test_other_endings_are_an_error(weibo: list[Run], tmp_path: Path, name: str) -> None:
    with pytest.raises(RemedyError, match=r"figures are \.png or \.svg"):
        plots.draw_scores(weibo, tmp_path / name)


def test_what_cannot_be_drawn_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    for draw in (plots.draw_scores, plots.draw_convergence):
        with pytest.raises(RemedyError, match="nothing to draw"):
            draw([], path)
        with pytest.raises(RemedyError, match="Unknown metric"):
            draw(runs, path, metric="x")
    assert not path.exists()


LOG = [(0, 100, 10.0), (0, 200, 20.0), (1, 300, 30.0)]


def only(root: Path) -> Run:
    (run,) = find_runs([root]).runs
    return run


@pytest.mark.parametrize(("x", "scores"), [("step", {100: 10.0, 200: 20.0, 300: 30.0}), ("epoch", {0: 20.0, 1: 30.0})])
def test_scores_are_read_by_step_and_the_last_of_an_epoch_counts(tmp_path: Path, x: str, scores: dict) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, log=LOG)
    assert read_log(only(tmp_path), x=x, metric="f") == scores


def test_what_spacys_logger_writes_is_read(tmp_path: Path) -> None:
    import spacy

    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    nlp = spacy.blank("zh")
    nlp.config["training"] = {
        "max_steps": 1,
        "eval_frequency": 1,
        "score_weights": {"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
    }
    log, finish = console_logger_v3(console_output=False, output_file=folder / "training.jsonl")(nlp)
    for step, f in ((85, 0.25), (170, 0.5)):
        scores = {"ents_f": f, "ents_p": 0.75, "ents_r": 0.125, "ents_per_type": {}}
        log({"epoch": 1, "step": step, "losses": {}, "other_scores": scores, "score": f})
    finish()
    assert read_log(only(tmp_path), x="step", metric="f") == {85: 25.0, 170: 50.0}
    assert read_log(only(tmp_path), x="step", metric="p") == {85: 75.0, 170: 75.0}


def test_a_log_of_the_final_score_only_is_read_as_f1(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    (folder / "training.jsonl").write_text('{"epoch": 0, "step": 5, "score": 0.25}\n\n', encoding="utf8")
    assert read_log(only(tmp_path), x="step", metric="f") == {5: 25.0}
    with pytest.raises(RemedyError, match=r"training\.jsonl:1: there is no 'precision"):
        read_log(only(tmp_path), x="step", metric="p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"epoch": 0, "step": 1, "score": 0.5}\n{"epoch"', "training.jsonl:2: not a line of that log"),
        ("[1]\n", "training.jsonl:1: not a line of that log"),
        ('{"epoch": 0, "score": 0.5}\n', "training.jsonl:1: there is no 'step'"),
        ('{"epoch": 0, "step": 1}\n', "there is no 'F1"),
        ("\n", "nothing is logged there"),
    ],
)
def test_broken_logs_are_named(tmp_path: Path, text: str, words: str) -> None:
    folder = make_run(tmp_path, "weibo/a/1", f=0.5)
    (folder / "training.jsonl").write_text(text, encoding="utf8")
    with pytest.raises(RemedyError) as error:
        read_log(only(tmp_path), x="step", metric="f")
    assert words in str(error.value)


def test_a_missing_log_says_how_to_get_one(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5)
    assert not has_log(only(tmp_path))
    with pytest.raises(RemedyError, match=r"there is no training\.jsonl.*ConsoleLogger\.v3"):
        read_log(only(tmp_path), x="step", metric="f")


def group_curve(root: Path, *logs: list[tuple[int, int, float]]) -> Curve:
    for seed, log in enumerate(logs, start=1):
        make_run(root, f"weibo/a/{seed}", f=0.5, log=log)
    (group,) = group_runs(find_runs([root]).runs)
    return curve(group, x="step", metric="f")


def test_seeds_are_averaged_where_all_were_evaluated(tmp_path: Path) -> None:
    line = group_curve(tmp_path, [(0, 100, 10.0), (0, 200, 20.0)], [(0, 100, 14.0), (0, 200, 26.0)])
    assert line.mean == {
        100: Summary(mean=12.0, sd=pytest.approx(4 / math.sqrt(2)), n=2),
        200: Summary(mean=23.0, sd=pytest.approx(6 / math.sqrt(2)), n=2),
    }
    assert line.tails == ()


def test_the_mean_ends_where_the_first_seed_stopped(tmp_path: Path) -> None:
    line = group_curve(tmp_path, LOG, LOG[:2], [*LOG, (1, 400, 35.0)])
    assert list(line.mean) == [100, 200]
    assert line.tails == ({200: 20.0, 300: 30.0}, {200: 20.0, 300: 30.0, 400: 35.0})


def test_seeds_without_a_common_step_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RemedyError, match=r"No step at which all.*weibo/a/1, weibo/a/2"):
        group_curve(tmp_path, [(0, 100, 1.0)], [(0, 90, 1.0)])
