"""Tests of the content of figures, and of reading training logs."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from run_directories import make_run
from spacy.training.loggers import console_logger_v3

from research import canvas, plots
from research.comparing import Summary
from research.plots import Curve, curve, has_log, read_log
from research.runs import Run, find_runs, group_runs
from spacy_tener.errors import UserError

CORPORA = ("resume", "weibo")
SYSTEMS = ("flat-atssa-without-amplification", "ner", "tener")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Runs of two corpora, three systems and two seeds. The second seed trains longer."""
    folder = tmp_path_factory.mktemp("runs")
    for corpus in CORPORA:
        for place, system in enumerate(SYSTEMS):
            for seed in (1, 2):
                log = [
                    (step // 100, step, 10.0 * place + step / 100 + seed) for step in range(0, 300 + 100 * seed, 100)
                ]
                speed, f = 1000.0 * (place + 1), 0.5 + 0.1 * place + 0.01 * seed
                config = f'[model]\nk = {3 - place}\nname = "n{place}"\n'
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
    """One figure of each kind with all runs, and its path."""
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
    # The mean of seeds 1 and 2 of the second system (10 + step / 100 + seed), up to the last step of the first seed.
    assert list(lines["ner"].get_xdata()) == [0, 100, 200, 300]
    assert list(lines["ner"].get_ydata()) == pytest.approx([11.5, 12.5, 13.5, 14.5])
    tails = [line for line in axis.lines if str(line.get_label()).startswith("_")]
    assert [list(tail.get_xdata()) for tail in tails] == [[300, 400]] * len(SYSTEMS)
    band = axis.collections[0].get_paths()[0].get_extents()
    assert band.y1 - band.y0 > 3.0
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Training steps", "F1 on dev (%), mean ± sd")


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


def test_scores_show_every_seed_the_mean_and_what_was_printed(figures: Any, weibo: list[Run], tmp_path: Path) -> None:
    figure, _ = figures["scores"]
    drawn = [list(line.get_xdata()) for line in figure.axes[1].lines]
    # The scores of TENER are 71 % and 72 %. The published score is 58.17 %.
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


@pytest.mark.parametrize(("x", "places", "means"), [("k", [1, 2, 3], [71.5, 61.5, 51.5]), ("name", [0, 1, 2], None)])
def test_a_sweep_is_a_score_against_a_setting(
    weibo: list[Run], tmp_path: Path, x: str, places: list[int], means: list[float] | None
) -> None:
    """Numbers are sorted and drawn at their values; other values are evenly spaced."""
    (axis,) = plots.draw_sweep(weibo, tmp_path / "a.webp", x=x).axes
    (drawn,) = axis.containers
    assert list(drawn.lines[0].get_xdata()) == places
    assert list(drawn.lines[0].get_ydata()) == pytest.approx(means or [51.5, 61.5, 71.5])
    assert [text.get_text() for text in axis.get_xticklabels()] == (["1", "2", "3"] if means else ["n0", "n1", "n2"])
    assert (tmp_path / "a.webp").read_bytes()[8:12] == b"WEBP"


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


def test_what_cannot_be_drawn_is_an_error(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    for draw in (plots.draw_scores, plots.draw_convergence):
        with pytest.raises(UserError, match="nothing to draw"):
            draw([], path)
        with pytest.raises(UserError, match="Unknown metric"):
            draw(runs, path, metric="x")
    with pytest.raises(UserError, match=r"figures are \.png, \.webp, \.svg"):
        plots.draw_scores(runs, tmp_path / "a.pdf")
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
    with pytest.raises(UserError, match=r"training\.jsonl:1: there is no 'precision"):
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
    with pytest.raises(UserError) as error:
        read_log(only(tmp_path), x="step", metric="f")
    assert words in str(error.value)


def test_a_missing_log_says_how_to_get_one(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5)
    assert not has_log(only(tmp_path))
    with pytest.raises(UserError, match=r"there is no training\.jsonl.*ConsoleLogger\.v3"):
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
    with pytest.raises(UserError, match=r"No step at which all.*weibo/a/1, weibo/a/2"):
        group_curve(tmp_path, [(0, 100, 1.0)], [(0, 90, 1.0)])
