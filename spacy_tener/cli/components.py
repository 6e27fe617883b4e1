"""`python -m spacy tener components`"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import spacy
import typer
from spacy.language import Language
from wasabi.printer import Printer

from ..workbench.report import ReportError
from ..workbench.report.component_cosines import Floats, Kinship
from ..workbench.report.component_figure import draw_component_space
from ..workbench.report.component_report import HEADER, ComponentReport, component_report
from ._app import fail, tener_cli
from .table import write

if TYPE_CHECKING:
    from ..workbench.report.component_space import ComponentEmbedder

MIDDLE = "华"
"""The character around which the paper draws its Figure 5."""
_SHOWN = 20
_WIDEST = 50


@dataclass(frozen=True)
class _Characters:
    """The characters that are compared, and what an embedder makes of them.

    left_out: those of which training has not shown all components.
    before, after: training. *Shape* [n, width]
    seed: of the weights before training.
    """

    all: list[str]
    left_out: list[str]
    kinship: Kinship
    before: Floats
    after: Floats
    seed: int


@tener_cli.command("components")
def components_cli(
    model: Annotated[str, typer.Argument(help="Name or path of a pipeline with spacy_tener.ComponentEmbed.v1 in it")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", "-p", help="Figure to write: .png or .svg")] = None,
    characters: Annotated[
        str | None,
        typer.Option("--characters", "-c", help="The characters to compare (default: all that the pipeline has seen)"),
    ] = None,
    middle: Annotated[
        str | None,
        typer.Option("--middle", "-m", help=f"The character to show the nearest of (default: {MIDDLE}, or the first)"),
    ] = None,
    nearest: Annotated[int, typer.Option("--nearest", "-n", min=1, help="How many of the nearest to show")] = 24,
    initial: Annotated[bool, typer.Option("--initial", help="Draw the embeddings before training as well")] = False,
) -> None:
    """
    Measure whether characters that share components lie closer than others, as MECT's section 5.4 says.

    Prints the mean cosine, with the standard deviation, over all pairs of characters that share a component, share the
    radical, or share no component, before and after training: before are fresh weights, made with the config's seed.
    Filters before training give every character much the same, so that all cosines are high: the lower part of the
    table is of embeddings without their common mean. The last row is the part of each character's nearest ones that
    share a component with it.

    A component is what the pipeline reads of a character: its kind and depth are the config's. Characters are compared
    if training has shown all of their components.

    --plot draws the paper's Figure 5: the characters in the plane, in the two directions in which their embeddings (of
    unit length) differ most, and those nearest to one of them with their names. Needs matplotlib: pip install
    'spacy_tener[plot]'. A character that no font on the machine has is written as its code point.
    """
    msg = Printer()
    try:
        nlp = spacy.load(model)
        embedder = _embedder(nlp, model)
        found = _characters(nlp, embedder, characters)
        middle = _middle(found.all, middle)
        report = component_report(
            found.all, found.kinship, before=found.before, after=found.after, middle=middle, count=nearest
        )
        _print(msg, embedder, found, report)
        if output:
            write(output, _json(model, embedder, found, report))
            msg.good(str(output))
        if plot:
            _plot(msg, found, plot, middle, nearest, initial)
    except ReportError as error:
        fail(msg, error)
    except OSError as error:
        msg.fail(str(error), exits=1)


def _embedder(nlp: Language, name: str) -> ComponentEmbedder:
    # Not above: it needs torch, which would make every command of spaCy's slower.
    from ..workbench.report.component_space import component_embedders

    found = component_embedders(nlp)
    if not found:
        raise ReportError(
            f"{name}: nothing in this pipeline reads the components of characters ({', '.join(nlp.pipe_names)})",
            "Train one with configs/models/mect.cfg, or with spacy_tener.ComponentEmbed.v1 in its embedder.",
        )
    return found[0]


def _characters(nlp: Language, embedder: ComponentEmbedder, wanted: str | None) -> _Characters:
    from ..workbench.report.component_space import chinese_characters, radicals

    characters = chinese_characters(nlp.vocab.strings) if wanted is None else list(dict.fromkeys(wanted))
    known = embedder.known(characters)
    if len(known) < 2:
        raise ReportError(
            f"There are no two characters to compare: training has shown all components of {len(known)} "
            f"of {len(characters)}",
            "Name others by --characters.",
        )
    components = embedder.components(known)
    seed = int(nlp.config.interpolate().get("training", {}).get("seed") or 0)
    return _Characters(
        all=known,
        left_out=sorted(set(characters) - set(known)),
        kinship=Kinship(components, radicals(components, known)),
        before=embedder.untrained(seed).vectors(known),
        after=embedder.vectors(known),
        seed=seed,
    )


def _middle(characters: Sequence[str], wanted: str | None) -> str:
    if wanted is None:
        return MIDDLE if MIDDLE in characters else characters[0]
    if wanted not in characters:
        raise ReportError(f"--middle {wanted}: not one of the characters that are compared", "Choose another one.")
    return wanted


def _print(msg: Printer, embedder: ComponentEmbedder, found: _Characters, report: ComponentReport) -> None:
    msg.info(
        f"{report.characters} characters of {report.components} components, as {embedder.pipe} reads them; "
        f"before training: seed {found.seed}"
    )
    if found.left_out:
        shown = "".join(found.left_out[:_SHOWN]) + (" ..." if len(found.left_out) > _SHOWN else "")
        msg.info(f"Left out, with components that training has not shown: {len(found.left_out)}", shown)
    msg.table(report.rows(), header=HEADER, aligns=("l", "r", "r", "r"), divider=True, max_col=_WIDEST)
    closest = " ".join(f"{each.character}{'*' * each.shares_component}" for each in report.nearest)
    msg.text(f"Nearest to {report.middle} (* shares a component): {closest}")


def _json(model: str, embedder: ComponentEmbedder, found: _Characters, report: ComponentReport) -> str:
    data = {"model": model, "pipe": embedder.pipe, "seed": found.seed, **report.data(), "left_out": found.left_out}
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def _plot(msg: Printer, found: _Characters, path: Path, middle: str, nearest: int, initial: bool) -> None:
    spaces = {"before training": found.before} if initial else {}
    spaces["after training"] = found.after
    _, without = draw_component_space(spaces, found.all, found.kinship, path, middle=middle, count=nearest)
    if without:
        msg.warn(
            f"No font here has {len(without)} of the characters: they are drawn as code points",
            "Install one, such as Noto Sans CJK SC (Debian: fonts-noto-cjk).",
        )
    msg.good(str(path))
