"""Compare Baidu's pretrained LAC with trained pipelines on persons, places and organisations, without any training.

    python research/benchmarks/lac_alone.py "Weibo: TENER=RUNS/weibo/tener/1/model-best" --data corpus

The labels of the corpora are mapped to LAC's labels. Entities with other labels are ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

CORPORA = ("weibo", "resume")
# Labels of the corpora and of spaCy's trained pipelines, by the label to which they are mapped.
LABELS = {
    "PER": ("PER", "PER.NAM", "NAME", "PERSON", "person"),
    "LOC": ("LOC", "LOC.NAM", "GPE.NAM", "GPE", "FAC", "location"),
    "ORG": ("ORG", "ORG.NAM", "corporation", "group"),
}
ALL = "all"
MERGED = {label: merged for merged, labels in LABELS.items() for label in labels}
NOTE = (
    "On the test parts; precision, recall and F1 over spans and labels. LAC: the component `lac` alone, as Baidu "
    "trained it, on texts that are not public: nobody can say whether it has seen these. Its TIME is left out. "
    "Weibo: names (.NAM) of persons, of places and political entities as LOC, and of organisations. Resume: NAME, "
    "LOC and ORG. Trained pipelines: one seed each, read by the same labels."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", metavar="CORPUS:NAME=PATH", help="trained pipelines to set beside it")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/test.spacy")
    args = parser.parse_args()
    trained = _report.named_paths(args.pipelines)
    rows = []
    for corpus in CORPORA:
        paths = {name.partition(":")[2]: path for name, path in trained.items() if name.startswith(corpus)}
        alone = spacy.blank("zh")
        alone.add_pipe("lac")
        for name, nlp in {"LAC": alone, **{name: spacy.load(path) for name, path in paths.items()}}.items():
            gold, found = read(nlp, args.data / corpus / "test.spacy")
            rows += [[corpus, name, label, *scores(gold, found, label)] for label in (*LABELS, ALL)]
    table = _report.table(("corpus", "pipeline", "label", "P", "R", "F1"), rows)
    _report.write(_report.RESULTS / "lac-alone.md", "LAC alone", NOTE, table)


def read(nlp: Language, path: Path) -> tuple[set[_report.Entity], set[_report.Entity]]:
    """Return the gold entities of a file, and the entities that a pipeline predicts for its texts."""
    docs = list(DocBin().from_disk(path).get_docs(nlp.vocab))
    return entities(docs), entities(nlp.pipe(doc.text for doc in docs))


def entities(docs: Iterable[Doc]) -> set[_report.Entity]:
    return {
        (i, ent.start_char, ent.end_char, MERGED[ent.label_])
        for i, doc in enumerate(docs)
        for ent in doc.ents
        if ent.label_ in MERGED
    }


def scores(gold: set[_report.Entity], found: set[_report.Entity], label: str) -> list[str]:
    """Return precision, recall and F1 in percent, for one label or for all labels."""
    wanted, predicted = ({entity for entity in group if label in (ALL, entity[-1])} for group in (gold, found))
    return [f"{value:.1f}" for value in _report.prf(wanted, predicted)]


if __name__ == "__main__":
    main()
