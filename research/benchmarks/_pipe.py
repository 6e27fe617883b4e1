"""A simple script that annotates JSONL with `nlp.pipe`, the baseline of `annotate.py`. Malformed lines are skipped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import spacy


def texts(path: Path, first: int) -> Iterator[tuple[str, object]]:
    with path.open(encoding="utf8") as file:
        for line in islice(file, first):
            try:
                row = json.loads(line)
                row["text"].encode()
            except (ValueError, KeyError):
                continue
            yield row["text"], row["key"]


def main() -> None:
    model, source, output, processes, first = sys.argv[1:]
    nlp = spacy.load(model)
    with Path(output).open("w", encoding="utf8") as file:
        for doc, key in nlp.pipe(texts(Path(source), int(first)), as_tuples=True, n_process=int(processes)):
            entities = [[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents]
            line = {"key": key, "text": doc.text, "entities": entities}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
