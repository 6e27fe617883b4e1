"""What the config of a training calls: more labels for a component, which learns them without forgetting its own;
several corpora as one; a log as JSON lines, which another process reads while it grows."""

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
    """Add labels to a sourced `tener_ner`, and let its earlier self teach the labels that a text is not annotated for.

    Registered as `spacy_tener.Extension.v1`, for `[initialize.after_init]`; `spacy tener extend` writes the config. A
    text says which labels it is annotated for in `doc.user_data["spacy_tener.labels"]`.

    labels (Sequence[str]): The labels to add.
    path (Optional[Union[str, Path]]): The trained pipeline, which is the teacher.
    component (str): Name of the `tener_ner`, in both pipelines.
    rename (Optional[Mapping[str, str]]): Other names of labels that it has.
    cache_mb (int): Maximum memory for the teacher's cached distributions, in MB.
    """

    def extend(nlp: Language) -> Language:
        if component not in nlp.component_names:  # what is sourced is disabled at that time
            raise RemedyError(f"spacy_tener.Extension.v1: there is no '{component}'", "Set `component` to a tener_ner.")
        pipe: Any = nlp.get_pipe(component)
        pipe.extend(labels, load_teacher(path, component, cache_mb=cache_mb, completes=True), rename)
        for _, lists in nlp.components:
            if isinstance(lists, EntityLists):
                lists.rename(rename or {})
        add_requirements(nlp)
        return nlp

    return extend


ReadExamples = Callable[[Language], Iterator[Example]]

_MIXED = "spacy_tener.MixedCorpus.v1"
_WEIGHT_KEYS = (f"tener_own_weight_{number}" for number in itertools.count())
"""Keys in a Doc's `user_data` of its own weight, before that of its reader. Each corpus has one: it may hold others."""


def mixed_corpus(
    readers: dict[str, Any],
    weights: dict[str, float] | None = None,
    repeat: dict[str, int] | None = None,
) -> ReadExamples:
    """Read the examples of several readers, one reader after the other; spaCy shuffles them on each epoch.

    For example little gold and much silver annotation, each with its weight in the loss.

    Registered as `spacy_tener.MixedCorpus.v1`.

    readers (Dict[str, Callable[[Language], Iterator[Example]]]): The readers, by names of your choice.
    weights (Optional[Dict[str, float]]): The weight of a reader's examples in the loss of `tener_ner`, by the reader's
        name; default 1. It multiplies a Doc's own weight. Other components ignore weights.
    repeat (Optional[Dict[str, int]]): How often each reader is read, by its name; default 1.
    """
    # `Any`: spaCy validates the section's values before it creates the readers.
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
                    # A reader may give the same example again, and two readers may share it.
                    data[WEIGHT] = weight * data.setdefault(weight_key, data.get(WEIGHT, 1.0))
                    yield example
                if example is None:
                    remedy = "Check its path, or take it out of the config."
                    raise InputError(_MIXED, f"the reader {name!r} has no examples", remedy)

    return read


def _check_mixed(readers: Mapping[str, ReadExamples], weights: Mapping[str, float], repeat: Mapping[str, int]) -> None:
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
    """Make a logger that prints spaCy's table, and appends a line to a file at each evaluation.

    spaCy's own logger writes such a file some thirty lines at a time. This one also ends the training with the process
    that began it: a new process then has the directory for itself.

    Registered as `spacy_tener.JsonLinesLogger.v1`, for `[training.logger]`.

    output_file (str): The file: steps, losses and scores, as those of `spacy.ConsoleLogger.v3`.
    """

    def set_up(nlp: Language, stdout: IO[str], stderr: IO[str]) -> tuple[Log, Callable[[], None]]:
        print_row, finish = console_logger_v3()(nlp, stdout, stderr)
        # Before the first step, so that a wrong path costs no training.
        Path(output_file).parent.mkdir(parents=True, exist_ok=True)
        parent = os.getppid()
        weights = nlp.config["training"]["score_weights"]
        columns = [name for name, weight in weights.items() if weight is not None]

        def log(info: dict[str, Any] | None) -> None:
            if os.getppid() != parent:
                raise SystemExit("The process that began this training has ended.")
            print_row(info)
            if info is not None:
                scores = {name: 100 * float(info["other_scores"].get(name, 0.0)) for name in columns}
                losses = {name: float(loss) for name, loss in info["losses"].items()}
                row = {"epoch": info["epoch"], "step": info["step"], "losses": losses, "scores": scores}
                row["score"] = float(info["score"])
                srsly.write_jsonl(output_file, [row], append=True, append_new_line=False)

        return log, finish

    return set_up
