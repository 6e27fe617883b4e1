"""Count the functions of the package that `nlp.pipe` and a training step call, and measure their CPU time.

Run the script with PYTHONPATH set to one version of the package, then to another version. It uses TENER or FLAT.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import spacy
import torch
from spacy.language import Language
from spacy.training import Example
from thinc.api import Adam, fix_random_seed

import spacy_tener

PACKAGE = str(Path(spacy_tener.__file__).parent) + os.sep
PARTS = [
    ("PER", ["王小明", "李四"], "去了"),
    ("GPE", ["上海", "北京市"], "的"),
    ("ORG", ["中国银行", "清华大学"], "。"),
]
COUNTED = ("view_of", "settings", "walk", "finish_update")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=["TENER", "FLAT"])
    system = parser.parse_args().system
    torch.set_num_threads(1)
    nlp = spacy.blank("zh")
    model = {
        "@architectures": "spacy_tener.CRFTagger.v1",
        "tok2vec": {"@architectures": f"spacy_tener.{system}.v1"},
    }
    nlp.add_pipe("tener_ner", config={"model": model})
    fix_random_seed(0)
    examples = make_examples(nlp, 256)
    nlp.initialize(lambda: examples)
    batches, optimizer = [examples[start : start + 32] for start in range(0, 256, 32)], Adam(0.001)
    losses = [nlp.update(batch, sgd=optimizer)["tener_ner"] for batch in [*batches, *batches[:2]]]
    texts = [example.text for example in examples]
    steps = [cpu_time(lambda batch=batch: nlp.update(batch, sgd=optimizer)) for batch in 3 * batches]  # type: ignore[misc]
    pipes = [cpu_time(lambda: list(nlp.pipe(2 * texts, batch_size=128))) for _ in range(9)]
    print(f"{system}: nlp.pipe {statistics.median(pipes):.1f} ms, step {statistics.median(steps):.1f} ms")
    print("losses", " ".join(f"{loss:.5f}" for loss in losses))
    print_calls("nlp.pipe", lambda: list(nlp.pipe(texts[:64], batch_size=64)))
    print_calls("step", lambda: nlp.update(examples[:64], sgd=optimizer))


def make_examples(nlp: Language, count: int) -> list[Example]:
    rng, examples = random.Random(0), []
    for _ in range(count):
        text, entities = "", []
        for label, names, following in PARTS * rng.randint(1, 5):
            name = rng.choice(names)
            entities.append((len(text), len(text) + len(name), label))
            text += name + following
        examples.append(Example.from_dict(nlp.make_doc(text), {"entities": entities}))
    return examples


def cpu_time(action: Callable[[], Any]) -> float:
    """Return the CPU time of an action in milliseconds."""
    start = time.process_time()
    action()
    return 1000 * (time.process_time() - start)


def print_calls(title: str, action: Callable[[], Any]) -> None:
    """Print the number of functions and files of the package that an action calls, and how often it calls those in
    COUNTED."""
    calls, counts = set[tuple[str, str]](), Counter[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event == "call" and (path.startswith(PACKAGE) or name == "Model.walk"):
            calls.add((path, name))
            counts[name.rpartition(".")[2]] += 1

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    package_calls = {call for call in calls if call[0].startswith(PACKAGE)}
    counted = ", ".join(f"{name} {counts[name]}" for name in COUNTED)
    print(f"{title}: {len(package_calls)} functions in {len({path for path, _ in package_calls})} files; {counted}")


if __name__ == "__main__":
    main()
