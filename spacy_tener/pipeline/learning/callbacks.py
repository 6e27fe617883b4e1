"""Registered functions for the config of a training run: a callback that adds labels to a trained component, a reader
that combines corpora, and a logger that writes JSON lines."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import srsly
from pydantic import NonNegativeInt
from spacy.language import Language
from spacy.training import Example
from spacy.training.loggers import console_logger_v3

from ...errors import InputError, RemedyError
from ...requirements import add_requirements
from ...validation import validated
from ..entity_lists import EntityLists
from .distillation import load_teacher
from .targets import WEIGHT


@validated("spacy_tener.Extension.v1")
def extension(
    labels: Sequence[str],
    path: str | Path | None = None,
    component: str = "tener_ner",
    rename: Mapping[str, str] | None = None,
    cache_mb: NonNegativeInt = 1000,
) -> Callable[[Language], Language]:
    """Add labels to a sourced `tener_ner`, so that the trained component learns them without forgetting its other
    labels.

    The component before the extension is the teacher in training. It supplies soft targets for the labels that a text
    is not annotated for. The labels that a text is annotated for are in `doc.user_data["spacy_tener.labels"]`.

    Registered as `spacy_tener.Extension.v1`, for `[initialize.after_init]`. The command `spacy tener extend` writes the
    config.

    labels (Sequence[str]): The labels to add.
    path (Optional[Union[str, Path]]): The trained pipeline.
    component (str): Name of the `tener_ner` in both pipelines.
    rename (Optional[Mapping[str, str]]): New names of existing labels, by their present names.
    cache_mb (int): Maximum memory for the teacher's cached soft targets, in MB.
    """

    def extend(nlp: Language) -> Language:
        # Not `nlp.pipe_names`, because sourced components are disabled during initialization.
        if component not in nlp.component_names:
            raise RemedyError(f"spacy_tener.Extension.v1: there is no '{component}'", "Set `component` to a tener_ner.")
        pipe: Any = nlp.get_pipe(component)
        pipe.extend(labels, load_teacher(path, component, cache_mb=cache_mb, only_missing_labels=True), rename)
        for _, lists in nlp.components:
            if isinstance(lists, EntityLists):
                lists.rename(rename or {})
        add_requirements(nlp)
        return nlp

    return extend


ReadExamples = Callable[[Language], Iterator[Example]]

_MIXED = "spacy_tener.MixedCorpus.v1"
# Keys in `user_data` for the weight that a Doc had before its corpus multiplied it. Each corpus has its own key,
# because it may contain other mixed corpora.
_WEIGHT_KEYS = (f"tener_own_weight_{number}" for number in itertools.count())


def mixed_corpus(
    readers: dict[str, Any],
    weights: dict[str, float] | None = None,
    repeat: dict[str, int] | None = None,
) -> ReadExamples:
    """Combine the examples of several readers, one reader after the other. spaCy shuffles them in each epoch.

    For example, combine little gold data with much silver-standard data, with a lower weight in the loss.

    Registered as `spacy_tener.MixedCorpus.v1`.

    readers (Dict[str, Callable[[Language], Iterator[Example]]]): The readers, by names of your choice.
    weights (Optional[Dict[str, float]]): The weight of a reader's examples in the loss of `tener_ner`, by the name of
        the reader. The default is 1. If a Doc has a weight, both are multiplied. Other components ignore weights.
    repeat (Optional[Dict[str, int]]): How often a reader is repeated, by its name. The default is 1.
    """
    # The annotation of `readers` is `Any`, because spaCy validates the section before it creates the readers.
    readers, weights, repeat = dict(readers), dict(weights or {}), dict(repeat or {})
    _check_mixed(readers, weights, repeat)
    weight_key = next(_WEIGHT_KEYS)

    def read(nlp: Language) -> Iterator[Example]:
        for name, reader in readers.items():
            weight = weights.get(name, 1.0)
            for _ in range(repeat.get(name, 1)):
                example = None
                for example in reader(nlp):
                    data = example.reference.user_data
                    # Compute the weight from the original one, since a reader may return the same example again, or two
                    # readers may share it.
                    data[WEIGHT] = weight * data.setdefault(weight_key, data.get(WEIGHT, 1.0))
                    yield example
                if example is None:
                    remedy = "Check its path, or take it out of the config."
                    raise InputError(_MIXED, f"the reader {name!r} has no examples", remedy)

    return read


def _check_mixed(readers: Mapping[str, ReadExamples], weights: Mapping[str, float], repeat: Mapping[str, int]) -> None:
    """Raise an error if weights or repetitions do not fit the readers."""
    unknown = sorted({*weights, *repeat} - set(readers))
    if unknown:
        raise InputError(_MIXED, f"no reader is named {unknown[0]!r}", f"The readers are: {', '.join(readers)}.")
    for name, weight in weights.items():
        if not 0.0 <= weight < float("inf"):
            raise InputError(_MIXED, f"the weight of {name!r} is {weight}", "Give a number of 0 or more.")
    for name, times in repeat.items():
        if times < 0:
            raise InputError(_MIXED, f"{name!r} is repeated {times} times", "Give a whole number of 0 or more.")


Log = Callable[[dict[str, Any] | None], None]


def json_lines_logger(output_file: str) -> Callable[[Language, IO[str], IO[str]], tuple[Log, Callable[[], None]]]:
    """Create a logger that prints spaCy's table, and appends a line to a JSONL file after each evaluation.

    spaCy's own logger buffers about thirty lines before it writes them. This logger writes each line at once, so that
    another process can follow the training run. It also stops training if the parent process has ended, so that a new
    process can use the output directory.

    Registered as `spacy_tener.JsonLinesLogger.v1`, for `[training.logger]`.

    output_file (str): The file. The lines contain steps, losses and scores, as in `spacy.ConsoleLogger.v3`.
    """

    def set_up(nlp: Language, stdout: IO[str], stderr: IO[str]) -> tuple[Log, Callable[[], None]]:
        print_row, finish = console_logger_v3()(nlp, stdout, stderr)
        # Create the directory before training, so that a wrong path is reported at once.
        Path(output_file).parent.mkdir(parents=True, exist_ok=True)
        parent = os.getppid()
        weights = nlp.config["training"]["score_weights"]
        columns = [name for name, weight in weights.items() if weight is not None]

        def log(info: dict[str, Any] | None) -> None:
            if os.getppid() != parent:
                raise SystemExit("The parent process of this training run has ended.")
            print_row(info)
            if info is not None:
                scores = {name: 100 * float(info["other_scores"].get(name, 0.0)) for name in columns}
                losses = {name: float(loss) for name, loss in info["losses"].items()}
                row = {"epoch": info["epoch"], "step": info["step"], "losses": losses, "scores": scores}
                row["score"] = float(info["score"])
                srsly.write_jsonl(output_file, [row], append=True, append_new_line=False)

        return log, finish

    return set_up
