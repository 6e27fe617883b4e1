"""`python -m spacy tener evaluate`"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from spacy.vocab import Vocab

from ..errors import RemedyError
from ..files import write_text
from ..workbench.docbins import read_docs
from ..workbench.report.scores import CountingScorer
from ._app import Code, GpuId, load_pipeline, messages, setup_gpu
from ._group import tener_cli

_WARMING = 16


class NamingCorpus(Corpus):
    """spaCy's reader of corpora, which here names the file that cannot be read."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        return (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))


def read_examples(nlp: Language, path: Path, *, gold_preproc: bool = False) -> list[Example]:
    """All that is annotated in a corpus, of which there must be something."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\[W090\]")  # no files: said below
        examples = list(NamingCorpus(path, gold_preproc=gold_preproc)(nlp))
    if not examples:
        raise RemedyError(f"{path}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
    return examples


@tener_cli.command("evaluate")
def evaluate_cli(
    model: Annotated[str, typer.Argument(help="Name or path of a pipeline")],
    data: Annotated[Path, typer.Argument(help="A .spacy file, or a directory of them", exists=True)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write")] = None,
    gold_preproc: Annotated[bool, typer.Option("--gold-preproc", "-G", help="Keep the tokens of the data")] = False,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Score a pipeline as `spacy evaluate` does, and store counts beside the scores.

    The output has all scores of spaCy's scorer and `ents_counts`: for each label how many entities were found and
    right (tp), found and wrong (fp), and missed (fn); and `ents_counts_per_doc`: these three of each document. With
    them `spacy tener table` takes labels together exactly (--named-nominal), which precision, recall and F1 by label do
    not allow, and tests whether systems differ (--baseline).
    """
    import_code(code)
    with messages() as msg:
        if output and output.is_dir():
            raise RemedyError(f"--output {output}: is a directory", "Name a file, as in -o metrics.json.")
        setup_gpu(gpu_id, silent=False)
        nlp = load_pipeline(model)
        examples = read_examples(nlp, data, gold_preproc=gold_preproc)
        # What a first text loads, such as a dictionary, is no part of the speed.
        deque(nlp.pipe(example.reference.text for example in examples[:_WARMING]), maxlen=0)
        scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
        if scores.get("ents_f") is None:
            raise RemedyError(f"{data}: no entities to score", "Are they annotated, and does the pipeline find any?")
        msg.table(_table(scores), header=("", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)
        msg.info(f"{scores['speed']:.0f} words per second")
        if output:
            write_text(output, _json(scores))
            msg.good(str(output))


def _json(scores: Mapping[str, Any]) -> str:
    """A line for each score: one for each number would make the counts of documents a long file."""
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in scores.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def _table(scores: Mapping[str, Any]) -> list[list[str]]:
    counts = {label: each["tp"] + each["fn"] for label, each in scores["ents_counts"].items()}
    overall = {part: scores[f"ents_{part}"] for part in "prf"}
    rows = [_row("All", overall, sum(counts.values()))]
    return rows + [_row(label, each, counts[label]) for label, each in sorted(scores["ents_per_type"].items())]


def _row(name: str, score: Mapping[str, float], gold: int) -> list[str]:
    return [name, *(f"{100 * score[part]:.2f}" for part in "prf"), str(gold)]
