"""Commands that help to annotate: silver, suggest, review."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import spacy
import typer
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from ..annotate.records import find_texts, stream_records
from ..annotate.settings import TEXT_COLUMN
from ..errors import RemedyError, counted
from ..files import check_folder, locked, write_bytes, write_text
from ..manifest import file_input
from ..pipeline.finding import PipelineNER, crf_pipes, entity_finders, entity_labels, nested_pipes
from ..pipeline.gpu import check_gpu
from ..processes import interrupted_by_signals
from ..workbench.compose import compose
from ..workbench.config_files import BASES, ConfigError, names_in
from ..workbench.corpus.docs import open_docbin, read_docs, repacked
from ..workbench.pipelines import blank_pipeline
from ..workbench.silver import (
    DEFAULT_SURENESS,
    Sureness,
    check_teachers,
    made_of,
    unknown_labels,
    write_silver,
)
from ..workbench.suggestions.review import (
    Crossing,
    JudgedDoc,
    cross_train,
    judge,
    of_most_suspicious_texts,
    rank_doubts,
)
from ..workbench.suggestions.review_page import (
    annotation_page,
    apply_decisions,
    docs_jsonl,
    doubts_jsonl,
    read_decisions,
    review_page,
)
from ..workbench.suggestions.suggest import make_tasks, suggest
from ..workbench.suggestions.tasks import TOOLS
from . import options
from ._common import (
    CommandLineError,
    check_file,
    command,
    load_pipeline,
    msg,
    names,
    no_text,
    refuse_options,
    setup_gpu,
)

INTERFACE, BLANK = "-interface.xml", "blank:"
ANNOTATION_PAGE = "page"
BY_ENDING = {".jsonl": "doccano", ".json": "labelstudio", ".html": ANNOTATION_PAGE}
"""Ending of `suggest`'s output -> format, where none is named."""
PAGE, DOUBTS, DOCS = "review.html", "review.jsonl", "docs.jsonl"
TRAINING = ("dev", "folds", "settings", "jobs")
"""Arguments of `review` that are about training."""


@command("silver", stopped="The same command resumes after the last whole file, unless it reads standard input.")
def silver_cli(
    teachers: Annotated[str, typer.Argument(help="Pipelines that find entities, separated by commas")],
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a directory of files")],
    sure: Annotated[
        float, typer.Option(help="Minimum probability of the entities to keep", min=0.5, max=1)
    ] = DEFAULT_SURENESS,
    outside: Annotated[
        float, typer.Option(help="Minimum probability of the tokens to keep as outside", min=0.5, max=1)
    ] = DEFAULT_SURENESS,
    limit: Annotated[int | None, options.limit("to annotate; default: all")] = None,
    part_size: options.PartSize = 5000,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Annotate raw text by trained pipelines, as training data.

    Keeps entities with a probability of at least --sure, and tokens that are outside of entities with a probability of
    at least --outside. All other tokens have missing annotation, which `tener_ner` learns as such. With several
    teachers, the mean of their probabilities counts. `tener_ner` gives probabilities (`spacy tener calibrate` corrects
    them); entities of other components have the probability 1.

    Each line of a text file is a text. A record of JSONL, CSV or a .spacy file stays whole, and keeps its id.
    `spacy.Corpus.v1` reads the output; `spacy_tener.MixedCorpus.v1` mixes it with your own annotation. The same command
    resumes a stopped one after the last whole file, unless teachers or texts have changed, or come from standard input.
    """
    setup_gpu(gpu_id)
    check_folder(output)
    sureness = Sureness(sure, outside)
    pipelines = {name: load_pipeline(name) for name in names(teachers)}
    if not pipelines:
        raise CommandLineError("No pipeline given", "Name one or more, as in teacher/model-best.")
    sources, left_out = find_texts(texts)
    msg.warn_list("Files left out, as they hold no text", left_out, most=5)
    check_teachers(pipelines)
    if silent := [name for name, teacher in pipelines.items() if not entity_finders(teacher)]:
        remedy = "Where it finds none, its tokens count as outside with the probability 1."
        msg.warn(f"No component is known to set entities: {', '.join(silent)}", remedy)
    if lacks := unknown_labels(pipelines):
        lines = [f"{name} does not know {', '.join(labels)}" for name, labels in lacks.items()]
        msg.warn("A label that a pipeline does not know has the probability 0 there", "\n".join(lines))
    inputs = made_of(list(pipelines), list(pipelines.values()), sources)
    settings = {**inputs, "limit": limit, "code": file_input(code) if code else None}
    with closing(stream_records(sources)) as records:
        if (first := next(records, None)) is None:
            raise no_text(texts)
        with interrupted_by_signals(), locked(output / ".lock"):
            total = write_silver(
                list(pipelines.values()),
                itertools.islice(itertools.chain([first], records), limit),
                output,
                sureness,
                settings=settings,
                part_size=part_size,
            )
    missing = 100 * total.missing / max(1, total.tokens)
    said = f"{counted(total.texts, 'text')}, {counted(total.entities, 'entity', 'entities')}"
    msg.good(f"{output}: {said}, {missing:.1f} % of the tokens without annotation")
    if total.is_starved:
        few = f"Only {counted(total.entities, 'entity', 'entities')} of about {total.expected:,.0f} kept"
        remedy = (
            "Lower --sure." if sure > DEFAULT_SURENESS else "Raise --outside, so that fewer tokens count as outside."
        )
        why = "A model that learns from so few entities, beside many tokens outside, misses most."
        msg.warn(few, f"{remedy} {why} Calibration often lowers probabilities.")


@command("suggest")
def suggest_cli(
    ctx: typer.Context,
    model: Annotated[str, typer.Argument(help="Pipeline: its directory or package; blank:LANG without a model")],
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a file")],
    limit: Annotated[int, options.limit("to choose")] = 200,
    format: Annotated[str | None, options.output_format((*TOOLS, ANNOTATION_PAGE))] = None,
    labels: Annotated[str, typer.Option(help="Labels, as in PER,ORG (to annotate; default: the model's)")] = "",
    known: Annotated[list[str] | None, typer.Option(help="Texts that are annotated already; may be repeated")] = None,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Choose the texts that are most worth annotating.

    Chooses the texts that the model is most uncertain about, each different from those chosen before, without
    duplicates; there may be millions. Each line of a text file is a text. A record of JSONL, CSV or a .spacy file stays
    whole, and keeps its id. The output is for import into doccano, Label Studio or Prodigy, with the model's entities
    to correct and their probabilities. `spacy tener convert` reads the tools' exports. The format page is one HTML file
    to annotate in a browser. Without --format, the output's ending decides: .jsonl is doccano's, .json Label Studio's,
    .html the page.

    Without a model, blank:zh chooses texts that differ from each other, and annotates nothing in them.
    """
    if format is None and (format := BY_ENDING.get(output.suffix)) is None:
        remedy = f"Name one by --format: {', '.join((*TOOLS, ANNOTATION_PAGE))}."
        raise CommandLineError(f"{output}: no format has this ending", remedy)
    interface = output.with_name(f"{output.stem}{INTERFACE}")
    has_interface = format != ANNOTATION_PAGE and TOOLS[format].interface is not None
    for path in (output, interface if has_interface else None):
        check_file(path, force)
    blank = model.startswith(BLANK)
    if format != ANNOTATION_PAGE and not TOOLS[format].interface:
        refuse_options(
            ctx, ["labels"], f"{format} gets its labels from its own project", "Set them there, and leave it out."
        )
    setup_gpu(gpu_id)
    nlp = blank_pipeline(model.removeprefix(BLANK)) if blank else load_pipeline(model)
    if not blank:
        PipelineNER.of(nlp)  # refuses a pipeline without tener_ner
    shown = list(dict.fromkeys(names(labels))) or entity_labels(nlp)
    records = stream_records(find_texts(texts)[0])
    first = next(records, None)
    if first is None:
        raise no_text(texts)
    known_texts = [record[TEXT_COLUMN] for record in stream_records(find_texts(known or [])[0])]
    chosen = suggest(None if blank else nlp, itertools.chain([first], records), limit, annotated=known_texts)
    if not chosen:
        raise RemedyError("No text is left to suggest: all are known or empty", "Give other texts, or fewer --known.")
    tasks = make_tasks(nlp, chosen, shown)
    if format == ANNOTATION_PAGE:
        sources = {"model": _judge_of(nlp, model), "inputs": ", ".join(texts)}
        numbered, nested = entity_labels(nlp), bool(nested_pipes(nlp))
        page = annotation_page(tasks, shown, **sources, numbered=numbered, lang=str(nlp.lang), nested=nested)
        write_text(output, page)
        msg.good(f"{output.resolve()}: {counted(len(chosen), 'text')} to annotate in a browser")
    else:
        tool = TOOLS[format]
        write_text(output, tool.write(tasks))
        msg.good(f"{output}: {counted(len(chosen), 'text')} to annotate in {format}")
        if tool.interface:
            write_text(interface, tool.interface(shown))
            msg.info(f"{interface}: the labelling interface")


def _judge_of(nlp: Language, model: str) -> str:
    """Return the name of a pipeline, and of the component whose probabilities count if it has several."""
    names = list(crf_pipes(nlp))
    return f"{names[0]}, the first tener_ner of {model}" if len(names) > 1 else model


@command("review", stopped="The same command resumes; an interrupted training begins again.")
def review_cli(
    ctx: typer.Context,
    model_or_config: Annotated[
        str, typer.Argument(help="Config (a .cfg, or a name as `weibo`) or pipeline; with --apply the .spacy file")
    ],
    data: Annotated[Path | None, typer.Argument(help="Gold annotation, a .spacy file", show_default=False)] = None,
    *,
    output: Annotated[Path, options.output("a directory; with --apply a .spacy file")],
    apply: Annotated[
        Path | None, typer.Option("--apply", help="Decisions from a review's page, to apply to the annotation")
    ] = None,
    force: options.Force = False,
    dev: Annotated[Path | None, typer.Option(help="Texts to choose models by (the config's paths.dev)")] = None,
    folds: Annotated[int, typer.Option("--folds", help="Folds of the cross-validation", min=2)] = 5,
    settings: options.Settings = None,
    limit: Annotated[int, options.limit("on the page; the JSONL has all")] = 500,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    jobs: options.Jobs = 1,
) -> None:
    """
    Rank doubts about gold annotation, which may be wrong there.

    With a config, models are trained by cross-validation: each judges the fold that it was not trained on. The same
    command resumes a stopped review. With a pipeline, that pipeline judges all texts; if it was trained on them, it has
    learned wrong annotation too, and finds less of it.

    A doubt is where the model's best reading differs from gold. They are ranked by how probable its entities are and
    how improbable gold's; where it has none, by how rarely it misses one. review.html shows them to decide on in a
    browser, review.jsonl has them as data; docs.jsonl has the probability of each text's gold annotation as a whole.

    review --apply decisions.json corpus.spacy --output mended.spacy writes the corpus with the decisions of the page,
    and changes nothing else. It lists the decisions that no longer fit a changed corpus.

    --jobs trains several models at once, which share the cores.
    """
    if apply is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --apply needs no model", "Name the .spacy file only.")
        refuse_options(ctx, [*TRAINING, "limit", "gpu_id", "code"], "--apply reads no text by a model", "Leave it out.")
        check_file(output, force)
        _apply_decisions(apply, Path(model_or_config), output)
        return
    refuse_options(ctx, ["force"], "the same command resumes a review", "Leave it out.")
    if data is None:
        raise CommandLineError("There is no annotation to review", "Name a .spacy file after the pipeline or config.")
    check_folder(output)
    docs = list(read_docs(data, spacy.blank("xx").vocab))
    if not any(doc.ents for doc in docs):
        raise RemedyError(f"{data}: no entity is annotated in it", "Name gold annotation to review.")
    if model_or_config.endswith(".cfg") or model_or_config in names_in(BASES):
        check_gpu(gpu_id)
        crossing = _crossing(model_or_config, docs, output, dev, folds, settings or [], gpu_id, code)

        def begun(fold: int, trained: bool) -> None:
            msg.info(f"{crossing.folder(fold)}: {'trained already' if trained else 'training'}")

        with interrupted_by_signals(), locked(output / ".lock"):
            judged = list(cross_train(crossing, jobs, echo=sys.stderr.write, begun=begun))
            how = f"{folds} models judged the folds that they were not trained on."
            _write_review(output, judged, str(data), how, limit)
    else:
        refuse_options(
            ctx, TRAINING, f"for training, and {model_or_config} is trained", "Leave it out, or name a config."
        )
        setup_gpu(gpu_id)
        nlp = load_pipeline(model_or_config)
        judged = list(judge(nlp, enumerate(docs)))
        judge_name = _judge_of(nlp, model_or_config)
        how = f"Judged by {judge_name}. Was it trained on these texts, errors and all? Then give a config instead."
        msg.warn(how, "With a config, each text is judged by a model that has not seen it.")
        with interrupted_by_signals(), locked(output / ".lock"):
            _write_review(output, judged, str(data), how, limit, entity_labels(nlp))


def _apply_decisions(decisions: Path, data: Path, output: Path) -> None:
    """Write a corpus with decisions in it."""
    records = read_decisions(decisions)
    corpus = open_docbin(data)
    docs = list(corpus.get_docs(Vocab()))
    applied = apply_decisions(docs, records)
    if applied.misfits and not applied.changed + applied.unchanged:
        about = {str(record.get("corpus") or "texts to annotate") for record in records}
        raise RemedyError(
            f"{decisions}: no decision fits {data}: {applied.misfits[0]}",
            f"They are about: {', '.join(sorted(about))}.",
        )
    write_bytes(output, repacked(corpus, docs))
    msg.warn_list("Decisions that do not fit the corpus, left out", applied.misfits)
    msg.good(f"{output}: {counted(applied.changed, 'decision')} applied, {applied.unchanged:,} agreed already")


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
    composed = compose(config, settings=settings)
    # A component without a factory is sourced, perhaps from a pipeline with a tener_ner.
    if not any(component.get("factory") in ("tener_ner", None) for component in composed["components"].values()):
        reason = f"{config}: there is no tener_ner in its pipeline, which is {', '.join(composed['nlp']['pipeline'])}"
        raise ConfigError(reason, "Name a config with one: its probabilities are what judges the annotation.")
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(f"paths.dev is {path}, which is not a file to choose models by", "Name one: --dev dev.spacy")
    return Crossing(composed, docs, output, folds, gpu_id, code)


def _write_review(
    output: Path, judged: Sequence[JudgedDoc], data: str, how: str, limit: int, numbered: Sequence[str] = ()
) -> None:
    by_number = {doc.number: doc for doc in judged}
    doubts = rank_doubts(judged)
    shown = of_most_suspicious_texts(doubts, limit)
    entities = sum(len(doc.entities) for doc in judged)
    summary = (
        f"{counted(len(doubts), 'doubt')} about {counted(len(judged), 'text')} with "
        f"{counted(entities, 'entity', 'entities')}. {how}"
    )
    if len(shown) < len(doubts):
        summary = f"The {counted(len(shown), 'doubt')} about the most suspicious texts, of {summary}"
    write_text(output / DOUBTS, doubts_jsonl(doubts, by_number))
    write_text(output / DOCS, docs_jsonl(judged))
    write_text(output / PAGE, review_page(shown, by_number, corpus=data, numbered=numbered))
    if unknown := sum(doc.unknown for doc in judged):
        msg.warn(f"Entities left out: {unknown:,}", "The model that judges them was trained without their label.")
    msg.good(f"{output / PAGE}: {summary}")
