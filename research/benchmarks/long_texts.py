"""Measure F1 and time on long texts: single sentences, and sentences joined to Docs of 5, 20 and 100 sentences.

Sentences are joined with line breaks, and without any separator.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

SIZES = (1, 5, 20, 100)
NOTE = (
    "The sentences of the {part} part one by one, and joined to Docs of so many. The model reads long Docs in windows "
    "of whole sentences, about as long as most training texts. F1 is strict: mean ± standard deviation over the "
    "pipelines. Time per character is that of `nlp.pipe` in CPU time on one thread, in turns, as a multiple of that "
    "of the sentences one by one: the median of {repeats} rounds and all pipelines."
)
HEADER = ("corpus", "between sentences", "sentences in a Doc", "F1", "time per character")
Entities = set[tuple[int, int, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipelines", nargs="+", help="CORPUS=DIRECTORY of a trained pipeline, once for each seed")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/PART.spacy")
    parser.add_argument("--part", default="test")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "long-texts.md")
    args = parser.parse_args()
    _report.single_thread(args.cpu)
    scores: dict[tuple[str, str, int], list[float]] = {}
    times: dict[tuple[str, str, int], list[float]] = {}
    for named in args.pipelines:
        corpus, _, path = named.partition("=")
        nlp = spacy.load(path)
        docs = list(DocBin().from_disk(args.data / corpus / f"{args.part}.spacy").get_docs(nlp.vocab))
        space = "" if nlp.lang == "zh" else " "
        for name, separator in (("nothing" if not space else "a space", space), ("a line break", "\n")):
            texts = {size: join(docs, size, separator) for size in SIZES}
            for size in SIZES:
                scores.setdefault((corpus, name, size), []).append(score(nlp, texts[size]))
            for _ in range(args.repeats):
                seconds = {size: seconds_per_character(nlp, [text for text, _ in texts[size]]) for size in SIZES}
                for size in SIZES:
                    times.setdefault((corpus, name, size), []).append(seconds[size] / seconds[1])
    rows = [
        [*map(str, key), _report.mean_sd(values), f"{statistics.median(times[key]):.2f}"]
        for key, values in scores.items()
    ]
    note = NOTE.format(part=args.part, repeats=args.repeats)
    _report.write(args.out, "Long texts", note, _report.table(HEADER, rows))


def join(docs: Sequence[Doc], size: int, separator: str) -> list[tuple[str, Entities]]:
    """Join each `size` sentences to a text, and return the texts with the offsets of their entities."""
    texts = []
    for first in range(0, len(docs), size):
        text, entities = "", set()
        for doc in docs[first : first + size]:
            text += separator * bool(text)
            entities |= {(len(text) + ent.start_char, len(text) + ent.end_char, ent.label_) for ent in doc.ents}
            text += doc.text
        texts.append((text, entities))
    return texts


def score(nlp: Language, texts: Sequence[tuple[str, Entities]]) -> float:
    """Return F1 of the predicted entities, in percent."""
    n_right = n_found = n_annotated = 0
    docs = nlp.pipe([text for text, _ in texts])
    for doc, (_, annotated) in zip(docs, texts, strict=True):
        found = {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}
        n_right += len(found & annotated)
        n_found += len(found)
        n_annotated += len(annotated)
    return 200.0 * n_right / max(n_found + n_annotated, 1)


def seconds_per_character(nlp: Language, texts: Sequence[str]) -> float:
    begin = time.process_time()
    for _ in nlp.pipe(texts):
        pass
    return (time.process_time() - begin) / sum(map(len, texts))


if __name__ == "__main__":
    main()
