"""Registered functions for training configs: a callback, a corpus reader and a logger.

- `extension` is a callback for `[initialize.after_init]`, which adds labels to a trained component.
- `mixed_corpus` is a reader for `[corpora]`, which combines several corpora.
- `json_lines_logger` is a logger for `[training.logger]`, which writes JSONL.
"""

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

from ...errors import InputError, UserError
from ...processes import STOP_WITH_PARENT
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
    """Create a callback that adds labels to a trained `tener_ner` for further training.

    To prevent forgetting, the pipeline in `path` is used as the teacher. It supplies soft targets for labels that a
    text is not annotated for. List the annotated labels in `doc.user_data["spacy_tener.labels"]`.

    Registered as `spacy_tener.Extension.v1`, for `[initialize.after_init]`. The command `spacy tener extend` writes the
    config.

    labels (Sequence[str]): The labels to add.
    path (Optional[Union[str, Path]]): The trained pipeline, from which the component is sourced.
    component (str): Name of the `tener_ner` in both pipelines.
    rename (Optional[Mapping[str, str]]): New names for existing labels, as a dictionary from old to new names.
    cache_mb (int): Maximum memory for the teacher's cached soft targets, in MB.
    """

    def extend(nlp: Language) -> Language:
        # `nlp.pipe_names` does not contain sourced components, which are disabled during initialization.
        if component not in nlp.component_names:
            raise UserError(
                f"spacy_tener.Extension.v1: the pipeline has no component '{component}'",
                "Set `component` to the name of a tener_ner.",
            )
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
# Keys in `user_data` for a Doc's original weight. Each mixed corpus has its own key, because a mixed corpus can contain
# other mixed corpora.
_WEIGHT_KEYS = (f"tener_own_weight_{number}" for number in itertools.count())


def mixed_corpus(
    readers: dict[str, Any],
    weights: dict[str, float] | None = None,
    repeat: dict[str, int] | None = None,
) -> ReadExamples:
    """Create a corpus reader that yields the examples of several corpus readers, one reader after another.

    For example, combine a small gold-standard corpus with a large silver-standard corpus that has a lower weight. spaCy
    shuffles the examples in each epoch.

    Registered as `spacy_tener.MixedCorpus.v1`.

    readers (Dict[str, Callable[[Language], Iterator[Example]]]): The readers, by names of your choice.
    weights (Optional[Dict[str, float]]): Weight for each reader's examples in the loss of `tener_ner`, by reader name.
        The default is 1. If a Doc already has a weight, it is multiplied by the reader's weight. Other components
        ignore weights.
    repeat (Optional[Dict[str, int]]): How often each reader is used, by reader name. The default is 1.
    """
    # The type of `readers` is `Any`, because spaCy validates the config before it creates the readers.
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
                    # Always multiply the original weight: the same example may be returned several times, by this
                    # reader or by another one.
                    data[WEIGHT] = weight * data.setdefault(weight_key, data.get(WEIGHT, 1.0))
                    yield example
                if example is None:
                    fix = "Check its path, or remove the reader from the config."
                    raise InputError(_MIXED, f"the reader {name!r} has no examples", fix)

    return read


def _check_mixed(readers: Mapping[str, ReadExamples], weights: Mapping[str, float], repeat: Mapping[str, int]) -> None:
    """Raise an error if `weights` or `repeat` contains an unknown reader name or an invalid number."""
    unknown = sorted({*weights, *repeat} - set(readers))
    if unknown:
        raise InputError(_MIXED, f"no reader is named {unknown[0]!r}", f"The readers are: {', '.join(readers)}.")
    for name, weight in weights.items():
        if not 0.0 <= weight < float("inf"):
            raise InputError(_MIXED, f"the weight of {name!r} is {weight}", "Use a number of 0 or more.")
    for name, times in repeat.items():
        if times < 0:
            raise InputError(_MIXED, f"{name!r} is repeated {times} times", "Use a whole number of 0 or more.")


Log = Callable[[dict[str, Any] | None], None]


def json_lines_logger(output_file: str) -> Callable[[Language, IO[str], IO[str]], tuple[Log, Callable[[], None]]]:
    """Create a logger that prints spaCy's table and writes the scores to a JSONL file after each evaluation.

    The logger writes each line immediately, so that another process can follow the training run. In contrast, spaCy's
    logger buffers about thirty lines. A training run that was started by a command such as `spacy tener extend` stops
    if this command has ended, so that a new process can use the output directory. `spacy train` then keeps the
    checkpoints `model-best` and `model-last`. Other training runs continue if their parent
    process ends, for example with `nohup`.

    Registered as `spacy_tener.JsonLinesLogger.v1`, for `[training.logger]`.

    output_file (str): The JSONL file. Each line contains the step, the losses and the scores, as in
        `spacy.ConsoleLogger.v3`.
    """

    def set_up(nlp: Language, stdout: IO[str], stderr: IO[str]) -> tuple[Log, Callable[[], None]]:
        print_row, finish = console_logger_v3()(nlp, stdout, stderr)
        # Create the directory before training, so that an invalid path is reported immediately.
        Path(output_file).parent.mkdir(parents=True, exist_ok=True)
        stops_with_parent, parent = STOP_WITH_PARENT in os.environ, os.getppid()
        weights = nlp.config["training"]["score_weights"]
        columns = [name for name, weight in weights.items() if weight is not None]

        def log(info: dict[str, Any] | None) -> None:
            if stops_with_parent and os.getppid() != parent:
                raise SystemExit(
                    "The command that started this training run has ended, so the training run stops. "
                    "Run the command again."
                )
            print_row(info)
            if info is not None:
                scores = {name: 100 * float(info["other_scores"].get(name, 0.0)) for name in columns}
                losses = {name: float(loss) for name, loss in info["losses"].items()}
                row = {"epoch": info["epoch"], "step": info["step"], "losses": losses, "scores": scores}
                row["score"] = float(info["score"])
                srsly.write_jsonl(output_file, [row], append=True, append_new_line=False)

        return log, finish

    return set_up
