"""Compare systems for nested entities: `tener_ner` with the overlay `nested`, spaCy's `spancat`, and flat `tener_ner`.

    python research/benchmarks/overlapping.py --data corpus --places THUOCL_diming.txt --work training/overlapping

The corpus is Resume NER with added inner entities, which are prefixes of its organisations: the longest place (深圳市
in 深圳市政府) from a list of places sorted by frequency, and the longest organisation that is annotated elsewhere
(清华大学 in 清华大学经济管理学院). Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc, DocBin, Span
from spacy.util import filter_spans

KEY = "sc"
PARTS = ("train", "dev", "test")
# Number of places at the start of the list that are used as they are. The remaining places have to be administrative
# units, or be named like one.
FREQUENT = 100
UNITS = ("省", "市", "县", "区", "州")
# Minimum number of characters of an inner organisation. Shorter strings are common nouns (公司, 集团).
SHORTEST = 4
# Minimum probability of a span. A `nested` model is also evaluated with all spans above it, not only with its best
# label sequences.
MINIMUM = 0.25
CNN = """[components.tener_ner.model.tok2vec]
@architectures = "spacy.HashEmbedCNN.v2"
width = 96
depth = 4
embed_size = 2000
window_size = 1
maxout_pieces = 3
subword_features = true
pretrained_vectors = null
"""
CNN_OVERLAY = "cnn.cfg"
SPANCAT = str(_report.ROOT / "research" / "overlays" / "spancat.cfg")
# Fraction of the entities whose lengths are covered by the suggester of `spancat`. Longer spans are rare, and each
# additional length makes it slower.
SHARE = 0.99
SYSTEMS = {
    "`tener_ner` on TENER with LAC": ("lac",),
    "`tener_ner`, `nested`, on TENER with LAC": ("lac", "nested"),
    "`spancat` on spaCy's HashEmbedCNN": (CNN_OVERLAY, SPANCAT),
    "`spancat` on TENER": (SPANCAT,),
    "`spancat` on TENER with LAC": ("lac", SPANCAT),
}
Entity = tuple[int, int, int, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds resume/{train,dev,test}.spacy")
    parser.add_argument("--places", type=Path, required=True, help="a place a line, the most frequent first")
    parser.add_argument("--work", type=Path, required=True, help="where corpora and pipelines are kept")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", default="", help="a regular expression: measure the systems whose names have a match")
    parser.add_argument("--out", default="overlapping.md", help="name of the page")
    args = parser.parse_args()
    _report.single_thread(cpu=-1)
    args.work.mkdir(parents=True, exist_ok=True)
    seeds = args.seeds.split(",")
    counts = prepare(args.data / "resume", args.work, read_places(args.places))
    measured: dict[str, list[tuple[float, ...]]] = {}
    for seed in seeds:
        for name in filter(re.compile(args.only).search, SYSTEMS):
            pipeline, test = spacy.load(train(args.work, name, args.steps, seed)), args.work / "test.spacy"
            measured.setdefault(name, []).append(measure(pipeline, test, run_pipeline))
            if "nested" in SYSTEMS[name]:
                measured.setdefault(f"{name}: all of {MINIMUM} or more", []).append(
                    measure(pipeline, test, run_probable)
                )
    rows = []
    for name, scores in measured.items():
        *shares, speeds = zip(*scores, strict=True)
        rows.append([name, *map(_report.mean_sd, shares), f"{statistics.median(speeds):,.0f}"])
    columns = ("system", "all: P", "R", "F1", "inner: P", "recall", "outermost: F1", "characters a second")
    note = (
        "Resume NER, and within its organisations the longest place and the longest other organisation that they begin "
        "with, found by lists, not by people. Entities of the parts, and those within others: "
        + "; ".join(f"{part} {total:,}, {inner:,}" for part, (total, inner) in counts.items())
        + f". {args.steps} steps of 16 sentences, the checkpoint chosen on dev, scores on test"
        + (f", mean ± standard deviation over seeds {args.seeds}" if len(seeds) > 1 else ", one seed")
        + ". Outermost: entities that lie in no other, and of what is found the longest where spans overlap. "
        "Characters a second: `nlp.pipe` from raw text on one thread, seconds of CPU."
    )
    _report.write(_report.RESULTS / args.out, "Names within names", note, _report.table(columns, rows))


def read_places(path: Path) -> set[str]:
    words = [line.split("\t")[0].strip() for line in path.read_text(encoding="utf8").splitlines()]
    every = set(words)
    units = {word for word in every if word.endswith(UNITS) or any(word + unit in every for unit in UNITS)}
    return {word for word in units | set(words[:FREQUENT]) if len(word) > 1}


def prepare(source: Path, target: Path, places: set[str]) -> dict[str, tuple[int, int]]:
    """Write the corpus with nested entities in `doc.spans`. Return the number of all entities and of inner entities in
    each data set."""
    vocab = spacy.blank("zh").vocab
    docs = {part: list(DocBin().from_disk(source / f"{part}.spacy").get_docs(vocab)) for part in PARTS}
    of_corpus = {ent.text for part in PARTS for doc in docs[part] for ent in doc.ents if ent.label_ == "ORG"}
    organisations = {name for name in of_corpus if len(name) >= SHORTEST} - places
    counts = {}
    for part in PARTS:
        found: Counter[str] = Counter()
        for doc in docs[part]:
            inner = [
                span
                for ent in doc.ents
                if ent.label_ == "ORG"
                for names, label in ((places, "LOC"), (organisations, "ORG"))
                for span in longest_prefix(ent, names, label)
            ]
            doc.spans[KEY] = [*doc.ents, *inner]
            found.update(all=len(doc.ents) + len(inner), inner=len(inner))
        DocBin(docs=docs[part], store_user_data=True).to_disk(target / f"{part}.spacy")
        counts[part] = (found["all"], found["inner"])
    return counts


def longest_prefix(ent: Span, names: set[str], label: str) -> list[Span]:
    """Return the longest proper prefix of an entity that is one of the names, or an empty list."""
    ends = range(ent.end - 1, ent.start, -1)
    prefixes = (Span(ent.doc, ent.start, end, label=label) for end in ends)
    return next(([span] for span in prefixes if span.text in names), [])


def train(work: Path, name: str, steps: int, seed: str, corpus: str = "resume") -> Path:
    """Return the path of a trained pipeline. The system is trained if it does not exist."""
    (work / CNN_OVERLAY).write_text(CNN, encoding="utf8")
    overlays = [str(work / overlay) if overlay == CNN_OVERLAY else overlay for overlay in SYSTEMS[name]]
    run = work / "-".join([*(Path(overlay).stem for overlay in SYSTEMS[name]), str(steps), seed])
    best = run / "model-best"
    if (run / "finished").exists():
        return best
    run.mkdir(exist_ok=True)
    config = run / "config.cfg"
    lengths = span_lengths(work / "train.spacy") if SPANCAT in overlays else []
    settings = _report.overrides(f"system.seed={seed}", "training.eval_frequency=100", *lengths, steps=steps)
    _report.tener("config", corpus, *overlays, *settings, "--output", config, "--force")
    paths = [f"--paths.{part}={work / part}.spacy" for part in ("train", "dev")]
    _report.spacy_command("train", config, "--output", run, *paths)
    (run / "finished").touch()
    return best


def span_lengths(path: Path) -> list[str]:
    """Return the settings of the span lengths for the suggester of a `spancat`."""
    docs = DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab)
    lengths = sorted(len(span) for doc in docs for span in doc.spans[KEY])
    sizes = {"min_size": lengths[0], "max_size": lengths[math.ceil(SHARE * len(lengths)) - 1]}
    return [f"components.spancat.suggester.{name}={size}" for name, size in sizes.items()]


def run_pipeline(nlp: Language, texts: list[str]) -> list[Doc]:
    """Return the predictions of a pipeline."""
    return list(nlp.pipe(texts))


def run_probable(nlp: Language, texts: list[str]) -> list[Doc]:
    """Return all spans with a probability of at least `MINIMUM`. Some of them may contradict each other."""
    decodings = list(nlp.get_pipe("tener_ner").decode(map(nlp.make_doc, texts)))
    for decoding in decodings:
        spans = [decoding.doc.char_span(*entity.offsets) for entity in decoding.marginals(MINIMUM).entities]
        decoding.doc.spans[KEY] = spans
    return [decoding.doc for decoding in decodings]


def measure(nlp: Language, path: Path, find: Callable[[Language, list[str]], list[Doc]]) -> tuple[float, ...]:
    """Return the scores of a pipeline in percent, followed by its speed in characters per second."""
    gold = list(DocBin().from_disk(path).get_docs(nlp.vocab))
    texts = [doc.text for doc in gold]
    found: list[Doc] = []
    seconds = _report.median_seconds({0: lambda: found.__setitem__(slice(None), find(nlp, texts))}, 3)[0]
    wanted, predicted = (entities(docs, spans_of) for docs in (gold, found))
    inner = wanted - entities(gold, lambda doc: doc.ents)
    every, outer = PRFScore(), PRFScore()
    every.score_set(predicted, wanted)
    outer.score_set(entities(found, lambda doc: filter_spans(spans_of(doc))), entities(gold, lambda doc: doc.ents))
    within = predicted - entities(found, lambda doc: filter_spans(spans_of(doc)))
    inner_shares = len(within & wanted) / max(len(within), 1), len(inner & predicted) / len(inner)
    shares = (every.precision, every.recall, every.fscore, *inner_shares, outer.fscore)
    return (*(100 * share for share in shares), sum(map(len, texts)) / seconds)


def spans_of(doc: Doc) -> Iterable[Span]:
    """Return the predictions of a `spancat`, or the entities if the pipeline has none."""
    return doc.spans.get(KEY, doc.ents)


def entities(docs: Iterable[Doc], spans: Callable[[Doc], Iterable[Span]]) -> set[Entity]:
    return {(i, span.start_char, span.end_char, span.label_) for i, doc in enumerate(docs) for span in spans(doc)}


if __name__ == "__main__":
    main()
