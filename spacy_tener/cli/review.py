"""`python -m spacy tener review`"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import spacy
import typer
from spacy.cli._util import import_code
from spacy.tokens import Doc
from wasabi.printer import Printer

from ..errors import RemedyError
from ..files import check_folder, locked, write_text
from ..workbench.composing.compose import compose
from ..workbench.composing.files import ConfigError
from ..workbench.composing.named import BASES, names_in
from ..workbench.docbins import read_docs
from ..workbench.runs.processes import interrupted_by_signals
from ..workbench.runs.requirements import missing
from ..workbench.suggestions.crossing import Crossing, cross_train
from ..workbench.suggestions.doubts import Judged, judge, ranked
from ..workbench.suggestions.page import as_json, docs_as_json, render
from ._app import Code, GpuId, Settings, load_pipeline, messages, setup_gpu
from ._group import tener_cli

PAGE, DOUBTS, DOCS = "review.html", "review.jsonl", "docs.jsonl"


@tener_cli.command("review")
def review_cli(
    model_or_config: Annotated[str, typer.Argument(help="Config (a .cfg, or a name as `weibo`), or a pipeline")],
    data: Annotated[Path, typer.Argument(help="Gold annotation, a .spacy file")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write to")],
    dev: Annotated[Path | None, typer.Option(help="The config's paths.dev, by which models are chosen")] = None,
    folds: Annotated[int, typer.Option("--folds", "-k", help="Parts that the data is cut into", min=2)] = 5,
    settings: Settings = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="Most places on the page; the JSONL has all", min=1)
    ] = 500,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="How many are trained at once", min=1)] = 1,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Rank the places where gold annotation may be wrong.

    With a config, a model is trained on all parts of the data but one, and judges that one; so no model has seen the
    annotation that it judges. Stopped, the same command goes on. With a pipeline, that one judges all: where it was
    trained on the same data, it knows wrong annotation by heart and finds less of it.

    Ranked are the places where the model's best reading is another than gold: by how probable its entities are and how
    improbable gold's; where it has none, by how rarely it overlooks one. review.html has them for reading, review.jsonl
    as data; docs.jsonl has the probability of each text's gold annotation as a whole.
    """
    import_code(code)
    stopped = "The same command goes on; it trains again what was being trained."
    with messages(stopped=stopped) as msg:
        check_folder(output)
        is_config = model_or_config.endswith(".cfg") or model_or_config in names_in(BASES)
        blank = spacy.blank("xx")
        docs = list(read_docs(data, blank.vocab))
        if not any(doc.ents for doc in docs):
            raise RemedyError(f"{data}: no entity is annotated in it", "Name gold annotation to review.")
        with interrupted_by_signals(), locked(output / ".lock"):
            if is_config:
                crossing = _crossing(model_or_config, docs, output, dev, folds, settings or [], gpu_id, code)
                judged = list(_cross_trained(msg, crossing, jobs))
                how = f"{folds} models judged what they were not trained on."
            else:
                setup_gpu(gpu_id, silent=False)
                judged = list(judge(load_pipeline(model_or_config), enumerate(docs)))
                how = f"Judged by {model_or_config}, which finds less where it was trained on this data."
                msg.warn(how, "With a config instead, each text is judged by a model that has not seen it.")
            _write(msg, output, judged, str(data), how, limit)


def _crossing(
    config: str,
    docs: Sequence[Doc],
    output: Path,
    dev: Path | None,
    folds: int,
    settings: list[str],
    gpu_id: int,
    code: Path | None,
) -> Crossing:
    composed = compose(config, settings=settings).config
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(f"paths.dev is {path}, which is no file to choose models by", "Name one: --dev dev.spacy")
    if lacking := missing(composed):
        raise ConfigError("Nothing was trained, since something is missing", "\n".join(lacking))
    return Crossing(composed, docs, output, folds, gpu_id, code)


def _cross_trained(msg: Printer, crossing: Crossing, jobs: int) -> Iterator[Judged]:
    def begun(fold: int, trained: bool) -> None:
        msg.info(f"{crossing.folder(fold)}: {'trained already' if trained else 'training'}")

    return cross_train(crossing, jobs, begun=begun, echo=sys.stderr.write)


def _write(msg: Printer, output: Path, judged: Sequence[Judged], data: str, how: str, limit: int) -> None:
    by_number = {each.number: each for each in judged}
    doubts = ranked(judged)
    entities = sum(len(each.doc.ents) for each in judged)
    summary = f"{len(doubts):,} places in {len(judged):,} texts with {entities:,} entities. {how}"
    write_text(output / DOUBTS, as_json(doubts, by_number))
    write_text(output / DOCS, docs_as_json(judged))
    write_text(output / PAGE, render(f"Review of {data}", summary, doubts[:limit], by_number))
    if unknown := sum(each.unknown for each in judged):
        msg.warn(f"Entities left out: {unknown:,}", "Their model has never seen their label.")
    msg.good(f"{output / PAGE}: {summary}")
