"""`python -m spacy tener self-train`"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code
from wasabi.printer import Printer

from ..errors import RemedyError
from ..files import check_folder, locked
from ..workbench.composing.compose import compose
from ..workbench.composing.files import ConfigError
from ..workbench.runs.processes import Processes, interrupted_by_signals
from ..workbench.runs.requirements import missing
from ..workbench.teaching.self_training import Plan, Round, Told, self_train
from ..workbench.teaching.silver import Sureness
from ..workbench.vectors.raw_text import comes_once, find_texts, read_all
from . import tener_cli
from ._common import Code, GpuId, Settings, messages, numbers, setup_gpu
from .annotation import said


@tener_cli.command("self-train")
def self_train_cli(
    config: Annotated[str, typer.Argument(help="A config with its data, or the name of one of the package's")],
    raw: Annotated[list[str], typer.Argument(help="Text files, JSONL, .spacy, directories of them")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write")],
    overlays: Annotated[
        list[str] | None, typer.Option("--overlay", help="Overlays, as for `config`; may be repeated")
    ] = None,
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(help="One model for each; they vote")] = "1,2,3",
    rounds: Annotated[int, typer.Option(help="Most rounds after the first training", min=1)] = 3,
    sure: Annotated[float, typer.Option(help="Least probability of an entity that is kept")] = 0.9,
    outside: Annotated[float, typer.Option(help="Least probability of a token that is kept as no entity")] = 0.9,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most raw texts; 0 for all", min=0)] = 0,
    weight: Annotated[float, typer.Option(help="What a silver text counts in the loss", min=0.0)] = 1.0,
    repeat: Annotated[int, typer.Option(help="How often the gold texts are read beside them", min=1)] = 1,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Let models teach themselves from raw text, in rounds.

    Models are trained on your annotation, one for each seed; together they annotate the raw text, as `tener silver`
    does; new ones are trained on both. It ends when the mean F1 on dev stops rising, or after --rounds. The best model
    of the best round is OUTPUT/model-best. The config names its data: --set paths.train=... --set paths.dev=...
    Stopped, the same command goes on.
    """
    import_code(code)
    with messages(stopped="The same command goes on; it trains again what was being trained.") as msg:
        setup_gpu(gpu_id, silent=False)
        check_folder(output)
        composed = compose(config, overlays or [], settings or []).config
        if lacking := missing(composed):
            raise ConfigError("Nothing was trained, since something is missing", "\n".join(lacking))
        sources, _ = find_texts(raw)
        if once := [source for source in sources if comes_once(source)]:
            reason = f"{', '.join(once)}: can be read only once, but every round reads the texts"
            raise RemedyError(reason, "Write them to a file, and name that.")

        def texts() -> Iterable[str]:
            return itertools.islice(read_all(sources), limit or None)

        if not any(True for _ in texts()):
            raise RemedyError(f"{', '.join(raw)}: there is no text", "Give files with a text on each line.")
        plan = Plan(
            config=composed,
            output=output,
            seeds=numbers("--seeds", seeds),
            rounds=rounds,
            texts=texts,
            sources=sources,
            limit=limit,
            sure=Sureness(sure, outside),
            weight=weight,
            repeat=repeat,
            gpu_id=gpu_id,
            code=code,
        )
        told = Told(
            training=lambda number, seed: msg.info(f"round {number}, seed {seed}: training"),
            annotated=lambda counts, made: msg.info(said(counts, made=made)),
            ended=lambda each: _ended(msg, each),
            echo=sys.stderr.write,
        )
        with interrupted_by_signals(), locked(output / ".lock"):
            best = self_train(plan, Processes(), told)
        msg.good(f"{output / 'model-best'}: round {best.number}, seed {best.best_seed}")


def _ended(msg: Printer, each: Round) -> None:
    scores = ", ".join(f"{100 * score:.2f}" for score in each.scores.values())
    msg.good(f"round {each.number}: F1 {100 * each.mean:.2f} on dev ({scores})")
