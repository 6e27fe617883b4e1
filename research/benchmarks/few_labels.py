"""Compare systems trained on few annotated sentences: `ner`, TENER, self-training, and distillation from a larger
model.

    python research/benchmarks/few_labels.py --data corpus --work training/few --transformer DIRECTORY

A random sample of the training set is used with its annotation, and the remaining sentences as raw text. All models are
trained for the same number of steps and selected on the development set. `ner` is trained for more steps, since its
batches start small. Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import _report
import spacy
from spacy.tokens import DocBin

# With NER_STEPS_ALONE, `ner` processes as many words as the other systems in STEPS, since its batches start small.
STEPS, NER_STEPS, NER_STEPS_ALONE = 800, 2000, 1300
SCHEDULE = _report.overrides("training.eval_frequency=100", steps=STEPS)
TEACHERS = {"resume": "mect+segment", "wnut17": "transformer-crf"}
SELF, DISTILLED = "tener+silver", "tener+silver+distilled"
NOTE = (
    "F1 on test, of models chosen on dev; mean ± standard deviation over seeds 1, 2 and 3, which share their gold "
    f"sentences. {STEPS} steps. `ner`: spaCy's own, trained as `spacy init config` has it, for {NER_STEPS:,} "
    "steps: its batches grow, and together hold half as many sentences again, or more. "
    f"`{SELF}`: the three TENERs annotate the raw text together (`tener silver`), and new ones learn from that beside "
    "three times the gold annotation: a round of self-training. "
    f"`{DISTILLED}`: the teacher, trained on the same gold sentences, annotates the raw text, and "
    "teaches its whole distribution. Teachers, one seed: MECT with a segmenter's tags on Resume, all-MiniLM-L6-v2 with "
    "a CRF on WNUT 2017. p: paired bootstrap against `tener`."
)
PLAIN = (
    "F1 on test, of models chosen on dev; mean ± standard deviation over seeds, which share their gold "
    f"sentences. {STEPS} steps, and nothing but these sentences; {NER_STEPS_ALONE:,} for `ner`, "
    "which read as many words. p: paired bootstrap against `tener`, where that is a row."
)


def main() -> None:
    args = parse_args()
    parts = []
    for corpus in args.corpora.split(","):
        for size in map(int, args.sizes.split(",")):
            work = args.work / str(size)
            if not args.only_table:
                prepare(args.data / corpus, work / "data" / corpus, size)
                if args.systems:
                    for system in args.systems.split(","):
                        learn_alone(work, corpus, system, args)
                else:
                    learn(work, corpus, args)
            baseline = "tener" if (work / "runs" / corpus / "tener").exists() else None
            table, meaning = _report.scores([work / "runs"], baseline, "--corpus", corpus)
            parts += [f"## {corpus}, {size:,} sentences", table]
    note = PLAIN if args.systems else NOTE
    _report.write(_report.RESULTS / args.out, "Few labels", note, *parts, meaning)


def prepare(source: Path, target: Path, size: int) -> None:
    """Write a corpus with a smaller training set, and the remaining training texts as raw text."""
    target.mkdir(parents=True, exist_ok=True)
    nlp = spacy.blank("xx")
    docs = [doc for doc in DocBin().from_disk(source / "train.spacy").get_docs(nlp.vocab) if doc.text.strip()]
    random.Random(0).shuffle(docs)
    DocBin(docs=docs[:size]).to_disk(target / "train.spacy")
    texts = dict.fromkeys(" ".join(doc.text.split()) for doc in docs[size:])
    (target / "rest.txt").write_text("\n".join(texts) + "\n", encoding="utf8")
    for part in ("dev.spacy", "test.spacy"):
        (target / part).write_bytes((source / part).read_bytes())


def learn(work: Path, corpus: str, args: argparse.Namespace) -> None:
    grid = partial(train, work, corpus, [f"--jobs={args.jobs}"])
    runs, raw, teacher = work / "runs", work / "data" / corpus / "rest.txt", TEACHERS[corpus]
    grid("ner", schedule=[f"--set=training.max_steps={NER_STEPS}"])
    grid("tener")
    silver, silver_of_teacher = work / f"silver-{corpus}", work / f"silver-{corpus}-teacher"
    models = ",".join(str(runs / corpus / "tener" / seed / "model-best") for seed in "123")
    sure = ("--entity-threshold", 0.9, "--outside-threshold", 0.9)
    _report.tener("silver", models, raw, "-o", silver, *sure)
    grid(SELF, f"paths.silver={silver}")
    named = [f"paths.transformer={args.transformer}"] if teacher == "transformer-crf" else []
    grid(teacher, *named, seeds="1")
    best = runs / corpus / teacher / "1" / "model-best"
    _report.tener("silver", best, raw, "-o", silver_of_teacher, *sure)
    grid(DISTILLED, f"paths.silver={silver_of_teacher}", f"paths.teacher={best}")


def learn_alone(work: Path, corpus: str, system: str, args: argparse.Namespace) -> None:
    """Train a system on the annotated sentences only, without raw text."""
    schedule = [f"--set=training.max_steps={NER_STEPS_ALONE}"] if system == "ner" else SCHEDULE
    settings = [f"paths.static_vectors={args.static_vectors}"] if "static" in system.split("+") else []
    train(work, corpus, [f"--jobs={args.jobs}"], system, *settings, schedule=schedule)


def train(
    work: Path,
    corpus: str,
    engine: Sequence[str],
    system: str,
    *settings: str,
    seeds: str = "1,2,3",
    schedule: Sequence[str] = SCHEDULE,
) -> None:
    where = ("--corpora", corpus, "--systems", system, "--seeds", seeds, "--data", work / "data")
    _report.research("grid", work / "runs", *where, *schedule, *_report.overrides(*settings), *engine)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--work", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--transformer", type=Path, help="a pretrained transformer, the teacher of WNUT")
    parser.add_argument("--systems", help="train these alone, without raw text: tener,tener+segment,tener+lac")
    parser.add_argument("--static-vectors", type=Path, help="what `tener vectors` wrote, for the overlay static")
    parser.add_argument("--out", default="few-labels.md", help="name of the page")
    parser.add_argument("--corpora", default="resume,wnut17")
    parser.add_argument("--sizes", default="100,300,1000")
    parser.add_argument("--jobs", type=int, default=1, help="how many are trained at once")
    parser.add_argument("--only-table", action="store_true", help="write the page of what is there")
    args = parser.parse_args()
    with_teacher = not (args.systems or args.only_table) and "wnut17" in args.corpora.split(",")
    if with_teacher and args.transformer is None:
        parser.error("the teacher of wnut17 is a transformer: name it by --transformer")
    return args


if __name__ == "__main__":
    main()
