"""Many texts through `nlp.pipe` of one process: whether speed and memory stay as they are at the start."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import _report
import spacy
from memory import resident_kb
from spacy.language import Language
from spacy.tokens import DocBin

HERE = Path(__file__).parent
NOTE = (
    "`nlp.pipe` over {texts:,} texts in one process on one thread, after {warm_up:,} others. Each text is the "
    "beginning of one of the corpus' {documents:,} documents and the end of another, cut at random places. Seconds "
    "are of CPU time; memory is the highest resident size of the process, looked at after every hundredth of the texts."
)
IN_ZONES = " In spaCy's memory zones of {zone:,} texts each."
HEADER = ("tenth", "texts/s", "characters/s", "resident MB")
TENTHS, LOOKS, WARM_UP = 10, 10, 200


@dataclass(frozen=True)
class Tenth:
    """What a tenth of the texts took."""

    texts: int
    characters: int
    seconds: float
    megabytes: float


class Texts:
    """Texts made of the documents of a corpus, the same for the same seed."""

    def __init__(self, documents: Sequence[str], seed: int) -> None:
        self._documents = documents
        self._random = random.Random(seed)
        self.characters = 0

    def take(self, count: int) -> list[str]:
        texts = [self._make() for _ in range(count)]
        self.characters += sum(map(len, texts))
        return texts

    def _make(self) -> str:
        first, second = self._random.choices(self._documents, k=2)
        return first[: self._random.randint(1, len(first))] + second[self._random.randrange(len(second)) :]


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    nlp = spacy.load(args.pipeline)
    documents = documents_of(args.data)
    texts = Texts(documents, args.seed)
    run(nlp, texts.take(WARM_UP), args)
    tenths = []
    for tenth in soak(nlp, texts, args):
        tenths.append(tenth)
        print(" | ".join(row(str(len(tenths)), tenth)), flush=True)
    note = NOTE.format(texts=args.texts, warm_up=WARM_UP, documents=len(documents))
    note += IN_ZONES.format(zone=args.zone) if args.zone else ""
    rows = [row(str(number), tenth) for number, tenth in enumerate(tenths, start=1)]
    table = _report.table(HEADER, rows)
    _report.write(args.out, f"Soak: {args.texts:,} texts in one process", note, table, verdict(tenths[0], tenths[-1]))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path, help="directory of a trained pipeline")
    parser.add_argument("data", type=Path, nargs="+", help=".spacy files, or directories of them")
    parser.add_argument("--texts", type=int, default=1_000_000, help="how many")
    parser.add_argument("--zone", type=int, default=0, help="texts in each memory zone of spaCy's; 0 for no zones")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "soak.md")
    args = parser.parse_args()
    if args.texts < TENTHS * LOOKS:
        parser.error(f"--texts must be at least {TENTHS * LOOKS}")
    return args


def documents_of(paths: Sequence[Path]) -> list[str]:
    vocab = spacy.blank("xx").vocab
    files = [file for path in paths for file in (sorted(path.rglob("*.spacy")) if path.is_dir() else [path])]
    docs = (doc for file in files for doc in DocBin().from_disk(file).get_docs(vocab))
    texts = [doc.text for doc in docs if len(doc.text) > 1]
    if not texts:
        raise SystemExit(f"No documents in {', '.join(map(str, paths))}: convert a corpus first.")
    return texts


def soak(nlp: Language, texts: Texts, args: argparse.Namespace) -> Iterator[Tenth]:
    count = args.texts // (TENTHS * LOOKS)
    for _ in range(TENTHS):
        characters, seconds, megabytes = texts.characters, 0.0, 0.0
        for _ in range(LOOKS):
            made = texts.take(count)
            start = time.process_time()
            run(nlp, made, args)
            seconds += time.process_time() - start
            megabytes = max(megabytes, resident_kb("VmRSS") / 1024)
        yield Tenth(LOOKS * count, texts.characters - characters, seconds, megabytes)


def run(nlp: Language, texts: Sequence[str], args: argparse.Namespace) -> None:
    left = iter(texts)
    while part := list(islice(left, args.zone or len(texts))):
        with nlp.memory_zone() if args.zone else nullcontext():
            for _ in nlp.pipe(part, batch_size=args.batch_size):
                pass


def row(name: str, tenth: Tenth) -> list[str]:
    speeds = (f"{amount / tenth.seconds:,.0f}" for amount in (tenth.texts, tenth.characters))
    return [name, *speeds, f"{tenth.megabytes:.1f}"]


def verdict(first: Tenth, last: Tenth) -> str:
    # By the character, since the texts of one tenth are a little longer than those of another.
    speed = (last.characters / last.seconds) / (first.characters / first.seconds) - 1
    memory = last.megabytes / first.megabytes - 1
    return f"The last tenth against the first: {speed:+.1%} characters per second, {memory:+.1%} memory."


if __name__ == "__main__":
    main()
