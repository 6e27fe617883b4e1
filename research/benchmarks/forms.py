"""Texts in traditional script and in full-width letters: TENER with and without forms of characters (`simplify`).

    pip install opencc==1.4.2
    python research/benchmarks/forms.py --data corpus --work training/forms

The test part is converted sentence by sentence with OpenCC's s2t; entities keep their places. What is finished is not
done again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

SYSTEM = "tener"
STEPS = {"resume": 800, "weibo": None}
"""None: the config's own schedule."""
SEEDS = (1, 2, 3)
ROUNDS = 30
SETTING = "components.tener_ner.model.tok2vec.embed.simplify"
WIDTHS = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}
NOTE = (
    "F1 of TENER, chosen on dev; mean ± standard deviation over seeds 1, 2 and 3. Resume: 800 steps; Weibo: its "
    "config's schedule. Traditional: the test part in traditional script, converted by OpenCC (s2t), where the "
    "conversion keeps the length. Full-width: its ASCII in full-width letters. The models learned from simplified text "
    "alone. Seconds: CPU time in which a pipeline reads the test part, median of 30 rounds in turns with the other."
)


def main() -> None:
    args = _report.training_parser(__doc__, "CORPUS/{train,dev,test}.spacy").parse_args()
    rows = []
    for corpus in STEPS:
        pipelines = {}
        for simplify in ("false", "true"):
            models = train(args, corpus, f"simplify-{simplify}", *_report.overrides(f"{SETTING}={simplify}"))
            pipelines[simplify] = spacy.load(models[0])
            scores = [score(spacy.load(model), args.data / corpus) for model in models]
            rows.append([corpus, simplify, *(_report.mean_sd(column) for column in zip(*scores, strict=True))])
        for row, seconds in zip(rows[-2:], speeds(pipelines, args.data / corpus), strict=True):
            row.append(f"{seconds:.3f}")
    header = ("corpus", "simplify", "dev", "test", "test, traditional", "test, full-width", "seconds")
    _report.write(
        _report.RESULTS / "forms.md",
        "Traditional script and full-width letters",
        NOTE,
        _report.table(header, rows),
    )


def train(args: argparse.Namespace, corpus: str, name: str, *options: object) -> list[Path]:
    """Train TENER with three seeds, where that is not done. Returns the pipelines."""
    runs = args.work / name
    models = [runs / corpus / SYSTEM / str(seed) / "model-best" for seed in SEEDS]
    if not all(model.is_dir() for model in models):
        where = ("--corpora", corpus, "--systems", SYSTEM, "--seeds", ",".join(map(str, SEEDS)), "--data", args.data)
        _report.research("grid", runs, *where, *options, *_report.overrides(steps=STEPS[corpus]))
    return models


def speeds(pipelines: dict[str, Language], data: Path) -> list[float]:
    """Return the median seconds in which each pipeline reads test, in turns."""
    texts = [doc.text for doc in DocBin().from_disk(data / "test.spacy").get_docs(spacy.blank("zh").vocab)]
    tasks = {name: (lambda nlp=nlp: list(nlp.pipe(texts))) for name, nlp in pipelines.items()}
    return list(_report.median_seconds(tasks, ROUNDS).values())


def score(nlp: Language, data: Path) -> list[float]:
    """Return F1 in percent on dev, and on test as it is, in traditional script and in full-width letters."""
    dev, test = (list(DocBin().from_disk(data / f"{part}.spacy").get_docs(nlp.vocab)) for part in ("dev", "test"))
    converted = [[convert(doc, change) for doc in test] for change in (to_traditional(), widen)]
    return [f1(nlp, docs) for docs in (dev, test, *converted)]


def f1(nlp: Language, docs: list[Doc]) -> float:
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    return 100 * float(nlp.evaluate(examples)["ents_f"])


def convert(doc: Doc, change: Callable[[str], str]) -> Doc:
    """Return a Doc whose characters are changed, one for one."""
    text = change(doc.text)
    assert len(text) == len(doc.text)
    words = [text[token.idx : token.idx + len(token)] for token in doc]
    tags = [f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else "O" for token in doc]
    return Doc(doc.vocab, words=words, spaces=[bool(token.whitespace_) for token in doc], ents=tags)


def to_traditional() -> Callable[[str], str]:
    from opencc import OpenCC

    change = OpenCC("s2t").convert
    return lambda text: converted if len(converted := change(text)) == len(text) else text


def widen(text: str) -> str:
    return text.translate(WIDTHS)


if __name__ == "__main__":
    main()
