"""Compare transformer pipelines with the ONNX versions of `tener trim --onnx`: speed, scores, start-up time and memory.

`--base` adds a randomly initialized model with the size of BERT base, whose scores are meaningless.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import _report
import spacy
from spacy.tokens import DocBin
from spacy.training import Example
from speed import pipe_all
from start import start

BASE = "BERT base, random weights"
NOTE = (
    "One thread, one core. `nlp.pipe` from raw text, {texts} texts of the test part, {chars} characters: the pipelines "
    "of a kind take turns within each round, medians of CPU time over {rounds} rounds. Start: seconds from the start "
    "of Python to a first text's entities, and resident memory after it, in fresh processes, medians of three; the "
    "converted ones where torch cannot be imported; by the clock, so that other work on the machine lengthens it. "
    "Scores on the whole parts."
)
HEADER = ("pipeline", "", "characters/s", "ratio", "dev F1", "test F1", "MB on disk", "start, s", "memory, MB")


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    texts = [doc.text for doc in read(args.data / "test.spacy")][: args.texts]
    rows = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        sample = folder / "texts.txt"
        sample.write_text("\n".join(" ".join(text.split()) for text in texts), encoding="utf8")
        trained = _report.named_paths(args.pipelines)
        if args.base:
            trained[BASE] = random_base(folder / "base", next(iter(trained.values())))
        for title, path in trained.items():
            kinds = {"torch": path}
            for precision in ("float32", "int8"):
                kinds[precision] = folder / f"{path.parent.name}-{precision}"
                _report.tener("trim", path, sample, "--onnx", precision, "--output", kinds[precision])
            rows += measured(title, kinds, texts, args)
    note = NOTE.format(texts=len(texts), chars=sum(map(len, texts)), rounds=args.rounds)
    _report.write(args.out, "Transformers without torch", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline with a transformer")
    parser.add_argument("--data", type=Path, required=True, help="directory with dev.spacy and test.spacy")
    parser.add_argument("--texts", type=int, default=320, help="how many of the test part are read for speed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base", action="store_true", help="also random weights of BERT base's sizes")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "without-torch-wnut17.md")
    return parser.parse_args()


def measured(title: str, kinds: dict[str, Path], texts: list[str], args: argparse.Namespace) -> list[list[str]]:
    loaded = {kind: spacy.load(path) for kind, path in kinds.items()}
    seconds = _report.median_seconds(
        {kind: partial(pipe_all, nlp, texts, 128) for kind, nlp in loaded.items()}, args.rounds
    )
    rows = []
    for kind, nlp in loaded.items():
        scores = ["-", "-"] if title == BASE else [score(nlp, args.data / f"{part}.spacy") for part in ("dev", "test")]
        size = sum(path.stat().st_size for path in kinds[kind].rglob("*") if path.is_file()) / 1e6
        starts = [start(kinds[kind], "installed" if kind == "torch" else "without") for _ in range(3)]
        begin, memory = map(statistics.median, zip(*starts, strict=True))
        speed, ratio = sum(map(len, texts)) / seconds[kind], seconds["torch"] / seconds[kind]
        rows.append(
            [title, kind, f"{speed:,.0f}", f"{ratio:.2f}", *scores, f"{size:.0f}", f"{begin:.1f}", f"{memory:.0f}"]
        )
    return rows


def score(nlp: spacy.Language, path: Path) -> str:
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in read(path)]
    return f"{100 * nlp.evaluate(examples)['ents_f']:.2f}"


def read(path: Path) -> list[spacy.tokens.Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))


def random_base(folder: Path, like: Path) -> Path:
    """Write a pipeline with a randomly initialized transformer of the size of BERT base, and the tokenizer of another
    pipeline."""
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from spacy_tener.nn.shim import torch_shim

    nodes = spacy.load(like).get_pipe("tener_ner").model.walk()
    sizes = next(torch_shim(node).sizes for node in nodes if node.name == "transformer_embed")
    pieces = Tokenizer.from_buffer(sizes["tokenizer"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, model_max_length=sizes["longest"])
    tokenizer.save_pretrained(folder / "bert")
    BertModel(BertConfig(vocab_size=len(tokenizer))).save_pretrained(folder / "bert")
    nlp = spacy.blank("en")
    tok2vec = {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": str(folder / "bert")}
    nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}})
    entities = {"entities": [(0, 4, "person")]}
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc("John slept."), entities)])
    nlp.to_disk(folder / "model")
    return folder / "model"


if __name__ == "__main__":
    main()
