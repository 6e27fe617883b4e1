"""Train a first model without annotation: rules annotate raw text, a student is trained, and 50 texts are corrected.

    python research/benchmarks/first_model.py --data corpus --work training/first --cpu 0

The raw text consists of the distinct texts in Resume's training set. The rules in `_cv_rules.py` annotate them as
silver-standard data, on which a student is trained. To simulate the correction of 50 texts, they are replaced with the
annotation of the corpus. The texts are selected by `tener suggest` with the student, or at random. New models are
trained on the corrected texts and the silver-standard data. Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus, Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train
from spacy.util import import_file

from spacy_tener.corpora.folds import text_key
from spacy_tener.files import write_text
from spacy_tener.review.active_learning import suggest
from spacy_tener.training.overlays import compose

HERE = Path(__file__).parent
RULES = HERE / "_cv_rules.py"
CORPUS, PARTS, SEEDS = "resume", ("dev", "test"), (1, 2, 3)
FIFTY, REPEAT = 50, 10
RULES_ALONE, RANDOM_ALONE, STUDENT = "the rules", f"{FIFTY} random texts, nothing else", "a student of the rules"
RANDOM, SUGGESTED = f"and {FIFTY} random texts, corrected", f"and {FIFTY} suggested texts, corrected"
SMALL = [
    "components.tener_ner.model.tok2vec.width=128",
    "components.tener_ner.model.tok2vec.layers=1",
    "components.tener_ner.model.tok2vec.ff_width=256",
]
FULL = 93.62  # TENER trained on the whole training set, from results/together-resume.md
NOTE = (
    f"F1; mean ± standard deviation of seeds {', '.join(map(str, SEEDS))}, each with random texts of its own and those "
    "that its student suggests. TENER, one layer of width 128, {steps:,} steps, the weights of the last step: no "
    "annotated text is used but those named. The rules were written from general knowledge, with the raw text and the "
    "annotated dev part in view, and the number of repeats was chosen on dev. Corrected texts are learned "
    f"{REPEAT} times for each silver text. Share: of what TENER of full size reaches on test with all annotated texts, "
    f"{FULL} ([page](together-resume.md))."
)


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    import_file("cv_rules", RULES)
    rules, raw, silver = args.work / "rules", args.work / "raw.txt", args.work / "silver"
    pool = read_pool(args.data / CORPUS / "train.spacy")
    write_text(raw, "".join(f"{doc.text}\n" for doc in pool.values()))
    make_rules().to_disk(rules)
    _report.tener("silver", rules, raw, "--output", silver, "--code", RULES)
    scores = {RULES_ALONE: [evaluate(spacy.load(rules), args.data)]}
    for seed in SEEDS:
        for name, nlp in first_models(args, pool, silver, seed):
            scores.setdefault(name, []).append(evaluate(nlp, args.data))
            print(seed, name, *scores[name][-1], flush=True)
    rows = [
        [name, *(_report.mean_sd(part, 2) for part in zip(*found, strict=True)), share(found)]
        for name, found in scores.items()
    ]
    table = _report.table(["learned from", "dev", "test", "share"], rows)
    _report.write(args.out, "From nothing to a first model", NOTE.format(steps=args.steps), table)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("corpus"), help=f"holds {CORPUS}/{{train,dev,test}}.spacy")
    parser.add_argument("--work", type=Path, default=Path("training/first"), help="what is finished is kept here")
    parser.add_argument("--steps", type=int, default=1500, help="of each training")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "first-model.md")
    return parser.parse_args()


def read_pool(path: Path) -> dict[str, Doc]:
    """Return the annotated texts without duplicates."""
    docs = DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab)
    return {text_key(doc.text): doc for doc in docs}


def make_rules() -> Language:
    nlp = spacy.blank("zh", config={"nlp": {"tokenizer": {"@tokenizers": "spacy_tener.CharTokenizer.v1"}}})
    nlp.add_pipe("cv_rules")
    return nlp


def first_models(
    args: argparse.Namespace, pool: dict[str, Doc], silver: Path, seed: int
) -> Iterator[tuple[str, Language]]:
    """Yield the models of a seed, with their names in the table."""
    work = args.work / str(seed)
    drawn = random.Random(seed).sample(sorted(pool), FIFTY)
    at_random = annotated(work / "random.spacy", [pool[key] for key in drawn])
    yield RANDOM_ALONE, trained(args, work / "random-alone", seed, f"paths.train={at_random}")
    student = trained(args, work / "student", seed, f"paths.train={silver}")
    yield STUDENT, student
    chosen = suggest(student, [doc.text for doc in pool.values()], FIFTY)
    suggested = annotated(work / "suggested.spacy", [pool[text_key(suggestion.text)] for suggestion in chosen])
    for name, folder, gold in ((RANDOM, "random", at_random), (SUGGESTED, "suggested", suggested)):
        mixed = (f"paths.train={gold}", f"paths.silver={silver}", f"corpora.train.repeat.gold={REPEAT}")
        yield name, trained(args, work / folder, seed, *mixed, overlays=["silver"])


def annotated(path: Path, docs: Sequence[Doc]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    DocBin(docs=docs).to_disk(path)
    return path


def trained(
    args: argparse.Namespace, folder: Path, seed: int, *settings: str, overlays: Sequence[str] = ()
) -> Language:
    finished = folder / "done"
    if not finished.is_file():  # an interrupted training run leaves an earlier model behind
        folder.mkdir(parents=True, exist_ok=True)
        steps = (f"training.max_steps={args.steps}", f"training.eval_frequency={args.steps}")
        # The last weights are used, so the development set is not needed for model selection.
        dev = (f"paths.dev={args.data / CORPUS / 'dev.spacy'}", "corpora.dev.limit=20")
        config = compose(CORPUS, overlays, [f"system.seed={seed}", *SMALL, *steps, *dev, *settings])
        train(init_nlp(config), folder, stdout=StringIO(), stderr=StringIO())
        write_text(finished, "")
    return spacy.load(folder / "model-last")


def evaluate(nlp: Language, data: Path) -> tuple[float, ...]:
    """Return F1 on the development set and on the test set."""
    return tuple(100 * ner_f1(nlp, data / CORPUS / f"{part}.spacy") for part in PARTS)


def ner_f1(nlp: Language, path: Path) -> float:
    examples = list(Corpus(path)(nlp))
    docs = nlp.pipe(example.reference.text for example in examples)
    found = [Example(doc, example.reference) for doc, example in zip(docs, examples, strict=True)]
    return float(get_ner_prf(found)["ents_f"])


def share(scores: Sequence[tuple[float, ...]]) -> str:
    return f"{100 * sum(test for _, test in scores) / len(scores) / FULL:.0f} %"


if __name__ == "__main__":
    main()
