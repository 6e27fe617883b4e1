"""Compare base configs for small corpora in languages without a config of their own, for `tener config --lang`.

Trains on random parts of a training set, and scores the best checkpoint on 300 development sentences. Each finished run
is a line in WORK/results.jsonl, so the script can be repeated.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import _report
import spacy

from spacy_tener.corpora.docs import read_docs, write_docs
from spacy_tener.training.overlays import compose
from spacy_tener.training.runs import MODEL, Processes, TrainingRun, train

# Number of training sentences, and of steps.
SIZES = {100: 1000, 400: 1400}
N_DEV = 300
HEADER = ("language", "sentences", "tokens", "config", "overlay", "F1, dev", "minutes")
NOTE = (
    "F1 on 300 development sentences: news and encyclopedia articles with persons, organisations and places (GermEval "
    "for German, KLUE for Korean, Turku NER for Finnish). One seed. `characters`: Hangul syllables are tokens. Minutes "
    "of the training on one core, beside other work: only the order of magnitude counts."
)


class Job(NamedTuple):
    """A training: language, number of sentences, base config, overlay, and type of the tokens."""

    lang: str
    size: int
    base: str
    overlay: str
    tokens: str


def main() -> None:
    parser = _report.training_parser(__doc__, "LANG-{train,dev}.spacy for de, fi and ko")
    args = parser.parse_args()
    finished = args.work / "results.jsonl"
    finished.parent.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in finished.read_text().splitlines()] if finished.exists() else []
    results = {Job(*record["key"]): record for record in records}
    for job in jobs():
        if job not in results:
            results[job] = run(job, args.data, args.work)
            with finished.open("a") as file:
                file.write(json.dumps(results[job]) + "\n")
    rows = [
        [job.lang, str(job.size), job.tokens, f"`{job.base}`", f"`{job.overlay}`" if job.overlay else "",
         f"{100 * results[job]['f']:.1f}", f"{results[job]['s'] / 60:.0f}"]
        for job in jobs()
    ]  # fmt: skip
    path = _report.RESULTS / "config-choice.md"
    _report.write_tables(path, "Base configs for other languages", (NOTE, HEADER, rows))


def jobs() -> Iterator[Job]:
    for lang in ("de", "fi"):
        for base in ("wnut17", "sample_en", "multilingual"):
            yield Job(lang, 100, base, "", "words")
            if base != "sample_en":
                yield Job(lang, 100, base, "e5", "words")
    for base in ("wnut17", "multilingual"):
        yield Job("de", 400, base, "e5", "words")
    for tokens in ("words", "characters"):
        yield Job("ko", 100, "multilingual", "", tokens)


def run(job: Job, data: Path, work: Path) -> dict[str, object]:
    """Train and return the result: the job, F1 and seconds."""
    steps = SIZES[job.size]
    vocab = spacy.blank("xx").vocab
    for part, size in (("train", job.size), ("dev", N_DEV)):
        docs = list(read_docs(data / f"{job.lang}-{part}.spacy", vocab))
        random.Random(1).shuffle(docs)
        write_docs(work / f"{part}.spacy", docs[:size])
    settings = [
        f"training.max_steps={steps}", f"training.eval_frequency={steps // 10}", "training.patience=0", "system.seed=1",
        f"paths.train={work / 'train.spacy'}", f"paths.dev={work / 'dev.spacy'}",
    ]  # fmt: skip
    if job.lang == "ko":
        settings += ['nlp.tokenizer.scripts=["han","kana","hangul"]'] * (job.tokens == "characters")
    else:
        settings += [f"nlp.lang={job.lang}", "components.tener_ner.scorer.@scorers=spacy_tener.char_ner_scorer.v1"]
        if job.base == "multilingual":
            settings.append('nlp.tokenizer={"@tokenizers":"spacy.Tokenizer.v1"}')
    config = compose(job.base, [job.overlay] if job.overlay else [], settings)
    started = time.time()
    folder = work / "-".join(map(str, job))
    if failure := train(TrainingRun("run", folder, config), Processes(1)):
        raise SystemExit(f"{folder}: {failure}")
    performance = json.loads((folder / MODEL / "meta.json").read_text())["performance"]
    return {"key": list(job), "f": performance["ents_f"], "s": round(time.time() - started)}


if __name__ == "__main__":
    main()
