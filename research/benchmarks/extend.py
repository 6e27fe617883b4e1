"""Compare ways to add a label to a trained pipeline: `tener extend`, and `nlp.update` with and without `rehearse`.

    python research/benchmarks/extend.py --data corpus/resume --work training/extend

One label is removed from the training set of Resume, and TENER is trained without it. The new texts are annotated with
this label only. Finished training runs are skipped.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.util import minibatch

from spacy_tener.pipeline.learning.targets import ANNOTATED_LABELS

SIZES = (100, 400)
STEPS, UPDATES = 800, 400
BASELINES = ("nlp.update", "with rehearse")
EXTENDED = ("extend", "extend --with")
SAME_TEXTS = "from scratch, same texts"
WAYS = ("before", *BASELINES, *EXTENDED, SAME_TEXTS, "from everything")
NOTE = (
    "F1 on Resume's test part, in percent; mean ± standard deviation over seeds. 400 texts, drawn at random, are "
    "new: they have nothing but one label. *before*: TENER with the config `resume` learned the other texts without "
    "that label, in {steps} steps. *extend*: `tener extend` on the 400 texts, or on 100 others of them for each "
    "seed, in {steps} steps. *--with*: beside the texts that *before* learned. *nlp.update*: `nlp.resume_training` "
    "on the new texts, {updates} steps of 16. *with rehearse*: and `nlp.rehearse` on 16 of the other texts after "
    "each. *from scratch, same texts*: trained on the texts of *--with*, of which the new ones are annotated for all "
    "labels, {steps} steps. *from everything*: trained on all texts with all labels, {steps} steps. LOC is in few "
    "texts of the training part: its 100 new texts have all of them, for each seed. It is 6 times in the test part, "
    "so its F1 says little."
)


def main() -> None:
    parser = _report.training_parser(__doc__, "{train,dev,test}.spacy of Resume")
    parser.add_argument("--labels", default="TITLE,ORG,LOC")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only-table", action="store_true", help="write the page of what is there")
    args = parser.parse_args()
    labels, seeds = args.labels.split(","), args.seeds.split(",")
    if not args.only_table:
        for number, seed in enumerate(seeds):
            for label in labels:
                learn(args.data, args.work, label, seed, number)
    scores = {label: [found for seed in seeds if (found := read(args.work, label, seed))] for label in labels}
    rows = []
    for label, runs in scores.items():
        for size in SIZES:
            for way in WAYS:
                found = [run[f"{way} {size}"] for run in runs if f"{way} {size}" in run]
                old, new = (_report.mean_sd([score[part] for score in found]) for part in ("old", "new"))
                if found:
                    rows.append([label, str(size), way, str(len(found)), old, "" if way == "before" else new])
    note = NOTE.format(steps=STEPS, updates=UPDATES)
    header = ("new label", "new texts", "", "seeds", "F1 of the old labels", "F1 of the new label")
    table = _report.table(header, rows)
    _report.write(_report.RESULTS / "extend.md", "A new label for a trained pipeline", note, table)


def read(work: Path, label: str, seed: str) -> dict[str, dict[str, float]]:
    path = work / seed / label / "scores.json"
    scores: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.is_file() else {}
    return scores


def learn(data: Path, work: Path, label: str, seed: str, number: int) -> None:
    """Train with all methods, and write their scores.

    number: Index of the seed.
    """
    folder, base, scores = work / seed / label, work / "base" / label, read(work, label, seed)
    nlp = spacy.blank("zh")
    train, dev, test = (list(DocBin().from_disk(data / f"{part}.spacy").get_docs(nlp.vocab)) for part in PARTS)
    random.Random(0).shuffle(train)
    with_label = {id(doc) for doc in train if any(ent.label_ == label for ent in doc.ents)}
    is_rare = len(with_label) < max(SIZES)
    if is_rare:  # a random sample of 100 texts contains LOC only once
        train.sort(key=lambda doc: id(doc) not in with_label)
    others = {ent.label_ for doc in train for ent in doc.ents} - {label}
    pool, rest = train[: max(SIZES)], train[max(SIZES) :]
    old_docs = [without(doc, {label}) for doc in rest]
    write(base / "old.spacy", old_docs)
    for doc in old_docs:
        doc.user_data[ANNOTATED_LABELS] = sorted(others)
    write(base / "dev.spacy", [without(doc, {label}) for doc in dev])
    before = train_anew(base, base / "old.spacy", base / "dev.spacy")
    everything = train_anew(work / "base" / "everything", data / "train.spacy", data / "dev.spacy")
    for size in SIZES[: 1 if is_rare else None]:
        first = 0 if is_rare or size == len(pool) else size * number
        new, new_docs = folder / f"new-{size}.spacy", pool[first : first + size]
        write(new, [without(doc, others) for doc in new_docs])
        for way in WAYS:
            if f"{way} {size}" in scores or (number and way not in EXTENDED):
                continue
            if way == SAME_TEXTS and size < max(SIZES):
                continue
            old = base / "old.spacy" if "with" in way else None
            if way in BASELINES:
                nlp = update(before, new, label, seed, old)
            elif way.startswith("extend"):
                nlp = extend(before, new, folder / f"{way.replace(' ', '')}-{size}", seed, old)
            elif way == SAME_TEXTS:
                same = folder / f"same-{size}"
                write(same.with_suffix(".spacy"), [*new_docs * (len(rest) // size), *old_docs])
                nlp = spacy.load(train_anew(same, same.with_suffix(".spacy"), data / "dev.spacy"))
            else:
                nlp = spacy.load(before if way == "before" else everything)
            scores[f"{way} {size}"] = score(nlp, test, label)
            (folder / "scores.json").write_text(json.dumps(scores, indent=1))
            print(seed, label, size, way, scores[f"{way} {size}"], flush=True)


PARTS = ("train", "dev", "test")


def without(doc: Doc, labels: set[str]) -> Doc:
    copy = doc.copy()
    copy.set_ents([ent for ent in doc.ents if ent.label_ not in labels], default="outside")
    return copy


def write(path: Path, docs: Sequence[Doc]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    DocBin(docs=docs, store_user_data=True).to_disk(path)


def train_anew(output: Path, train: Path, dev: Path) -> Path:
    if not (output / "model-best").is_dir():
        _report.tener("config", "resume", "-o", output.with_suffix(".cfg"), "--force")
        paths = ("--paths.train", train, "--paths.dev", dev)
        steps = ("--training.max_steps", STEPS, "--training.eval_frequency", STEPS // 8, "--system.seed", 1)
        _report.spacy_command("train", output.with_suffix(".cfg"), "--output", output, *paths, *steps)
    return output / "model-best"


def extend(base: Path, new: Path, output: Path, seed: str, old: Path | None) -> Language:
    options = ("--with", old) if old else ()
    _report.tener("extend", base, new, "-o", output, "-s", f"system.seed={seed}", *options)
    return spacy.load(output / "model-best")


def update(base: Path, new: Path, label: str, seed: str, rehearsed: Path | None) -> Language:
    """Continue training on the new texts with `nlp.update`, as with any spaCy component.

    rehearsed: Texts for `nlp.rehearse`.
    """
    spacy.util.fix_random_seed(int(seed))
    nlp = spacy.load(base)
    docs = list(DocBin().from_disk(new).get_docs(nlp.vocab))
    earlier = [doc.text for doc in DocBin().from_disk(rehearsed).get_docs(nlp.vocab)] if rehearsed else []
    nlp.get_pipe("tener_ner").add_label(label)  # type: ignore[attr-defined]
    optimizer, rng, steps = nlp.resume_training(), random.Random(int(seed)), 0
    while True:
        rng.shuffle(docs)
        for batch in minibatch(docs, 16):
            examples = [Example(nlp.make_doc(doc.text), doc) for doc in batch]
            nlp.update(examples, sgd=optimizer)
            if rehearsed:
                texts = (nlp.make_doc(text) for text in rng.sample(earlier, 16))
                nlp.rehearse([Example(doc, doc.copy()) for doc in texts], sgd=optimizer)
            steps += 1
            if steps == UPDATES:
                return nlp


def score(nlp: Language, test: Sequence[Doc], label: str) -> dict[str, float]:
    """Return F1 of all old labels together, and of the new label."""
    found = list(nlp.pipe([nlp.make_doc(doc.text) for doc in test]))
    scores = {}
    for name, keep in (("old", lambda ent: ent.label_ != label), ("new", lambda ent: ent.label_ == label)):
        pairs = [
            tuple({(e.start_char, e.end_char, e.label_) for e in doc.ents if keep(e)} for doc in docs)
            for docs in zip(test, found, strict=True)
        ]
        right = sum(len(gold & predicted) for gold, predicted in pairs)
        scores[name] = 200 * right / max(1, sum(len(gold) + len(predicted) for gold, predicted in pairs))
    return scores


if __name__ == "__main__":
    main()
