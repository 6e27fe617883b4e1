"""Compare GRN's relation layer with the naive implementation of the paper, and GRN with CNN-BiLSTM-CRF, on one thread.

The first table measures the layer alone, the second a whole `tener_ner` with either encoder and the same embedder and
CRF.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _report
import spacy
import torch
from memory import resident_kb
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from spacy.util import import_file
from thinc.api import Adam
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from spacy_tener.architectures.grn.grn_torch import Relation

HERE = Path(__file__).parent
LENGTHS = (15, 30, 100, 300)
WIDTH, SENTENCES = 400, 10
NOTE_LAYER = (
    "## The relation layer alone\n\n"
    "{sentences} sentences of one length, {width} channels, one thread. The paper's form makes the pairs of one "
    "sentence at a time, and multiplies each with the weights. Medians over {rounds} rounds ({few} for the paper's "
    "form from 100 tokens on) in which the two take turns, of the process's CPU time. Memory: the highest resident "
    "size during one call, over that before it, in a process of its own."
)
HEADER_LAYER = (
    "tokens",
    "work",
    "paper's form, ms",
    "streaming, ms",
    "times as fast",
    "paper's form, MB",
    "streaming, MB",
)
NOTE_MODEL = (
    "## GRN against CNN-BiLSTM-CRF\n\n"
    "`tener_ner` over `spacy_tener.WordCharEmbed.v1` with its defaults, and the same CRF. CNN-BiLSTM-CRF has "
    "`spacy.TorchBiLSTMEncoder.v1` of width {width}, and a linear layer before it, since it gives as many columns as "
    "it takes. Corpus: {corpus}. Training: `nlp.update` on {n} sentences; prediction: `nlp.pipe` over {n} tokenized "
    "texts. The paper's batches have 10 sentences. Tokens per second of CPU time, one thread; medians over {rounds} "
    "rounds in which all take turns. Ratios are to the first row: above 1 is faster."
)
BILSTM = {
    "@architectures": "spacy.Tok2Vec.v2",
    "embed": {"@architectures": "spacy_tener.WordCharEmbed.v1", "project_to": WIDTH},
    "encode": {"@architectures": "spacy.TorchBiLSTMEncoder.v1", "width": WIDTH, "depth": 1, "dropout": 0.0},
}
import_file("variants", Path(__file__).parents[1] / "variants.py")  # registers DFN
GRN = {"@architectures": "spacy_tener.GRN.v1", "width": WIDTH}
MODELS = {
    "CNN-BiLSTM-CRF": BILSTM,
    "GRN": GRN,
    "DFN": {**GRN, "relation": {"@misc": "research.DFN.v1"}},
    "GRN without relation": {**GRN, "relation": None},
}
TRAIN_BATCHES = (10, 32)
PIPE_BATCHES = (10, 128)

Task = Callable[[], object]


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    torch.set_num_threads(1)
    if args.child is not None:
        print(peak_megabytes(*args.child.split(":")))
        return
    layers = [row for length in tqdm(LENGTHS, desc="Lengths") for row in layer_rows(length, args)]
    few = min(args.rounds, 3)
    note = NOTE_LAYER.format(sentences=SENTENCES, width=WIDTH, rounds=args.rounds, few=few)
    _report.write(args.out, "The gated relation network", note, _report.table(HEADER_LAYER, layers), *whole(args))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="holds CORPUS/{train,test}.spacy; without it, the layer alone")
    parser.add_argument("--corpus", default="wnut17", help="directory under --data")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sentences", type=int, default=300, help="trained on in each round, and recognised")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "relation.md")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def layer_rows(length: int, args: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the first table for sentences of one length."""
    for work in ("forward", "forward + backward"):
        tasks = {form: partial(run_layer, form, length, work) for form in ("paper", "streaming")}
        rounds = {"paper": args.rounds if length < 100 else min(args.rounds, 3), "streaming": args.rounds}
        seconds = _report.median_seconds(tasks, rounds)
        megabytes = [in_a_process_of_its_own(form, length, work, args.cpu) for form in tasks]
        yield [
            str(length),
            work,
            *(f"{1000 * seconds[form]:,.1f}" for form in tasks),
            f"{seconds['paper'] / seconds['streaming']:.1f}",
            *(f"{size:,.1f}" for size in megabytes),
        ]


def run_layer(form: str, length: int, work: str) -> Tensor:
    torch.manual_seed(0)
    layer, lengths = Relation(width=WIDTH), [length] * SENTENCES
    x = torch.tanh(torch.randn(sum(lengths), WIDTH))
    compute = layer if form == "streaming" else partial(paper_form, layer)
    if work == "forward":
        with torch.inference_mode():
            return compute(x, lengths)
    related = compute(x.requires_grad_(), lengths)
    related.backward(torch.ones_like(related))
    return related


def paper_form(layer: Relation, x: Tensor, lengths: list[int]) -> Tensor:
    """Compute equations 4, 6 and 8 as in the paper, for all pairs of tokens in a sentence at once. *Shape:* (units,
    width)"""
    weight = torch.cat((layer.left.weight, layer.right.weight), dim=1)
    fused = []
    for rows in x.split(lengths):
        shape = (len(rows), len(rows), -1)
        pairs = torch.cat((rows[:, None].expand(shape), rows[None].expand(shape)), dim=-1)
        gates = torch.sigmoid(torch.nn.functional.linear(pairs, weight, layer.left.bias))  # equation 4
        fused.append(torch.tanh((gates * rows).mean(1)))  # equations 6 and 8
    return torch.cat(fused)


def in_a_process_of_its_own(form: str, length: int, work: str, cpu: int) -> float:
    command = [sys.executable, str(HERE / "relation.py"), "--child", f"{form}:{length}:{work}", "--cpu", str(cpu)]
    child = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf8", env=_report.one_thread(), check=True)
    return float(json.loads(child.stdout.splitlines()[-1]))


def peak_megabytes(form: str, length: str, work: str) -> float:
    """Return the peak memory of a call in megabytes. A smaller call loads torch's libraries first."""
    run_layer(form, 2, work)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_kb("VmRSS")
    run_layer(form, int(length), work)
    return (resident_kb("VmHWM") - before) / 1024


def whole(args: argparse.Namespace) -> list[str]:
    """Return the second part of the page, which compares whole pipelines."""
    if args.data is None:
        return []
    folder = args.data / args.corpus
    pipelines = {name: Pipeline(tok2vec, folder, args.sentences) for name, tok2vec in MODELS.items()}
    first = next(iter(pipelines.values()))
    columns, rounds = [], dict.fromkeys(MODELS, args.rounds)
    for size in TRAIN_BATCHES:
        tasks = {name: partial(pipeline.train, size) for name, pipeline in pipelines.items()}
        columns.append(
            cells(
                _report.median_seconds(tasks, rounds),
                sum(len(example.reference) for example in first.examples),
            )
        )
    for size in PIPE_BATCHES:
        tasks = {name: partial(pipeline.recognise, size) for name, pipeline in pipelines.items()}
        columns.append(cells(_report.median_seconds(tasks, rounds), sum(map(len, first.words))))
    rows = [[name, *(cell for column in columns for cell in column[name])] for name in MODELS]
    titles = [f"training, batches of {size}" for size in TRAIN_BATCHES]
    titles += [f"nlp.pipe, batches of {size}" for size in PIPE_BATCHES]
    header = ["model", *(cell for title in titles for cell in (f"{title}, tokens/s", "ratio"))]
    note = NOTE_MODEL.format(width=WIDTH, corpus=args.corpus, n=args.sentences, rounds=args.rounds)
    return [note, _report.table(header, rows)]


def cells(seconds: Mapping[str, float], n_tokens: int) -> dict[str, list[str]]:
    """Return the speed of each model, and its ratio to the first model."""
    first = next(iter(seconds.values()))
    return {name: [f"{n_tokens / duration:,.0f}", f"{first / duration:.2f}"] for name, duration in seconds.items()}


class Pipeline:
    """A `tener_ner` that is trained on the first sentences of a training set, and predicts the first sentences of the
    test set."""

    def __init__(self, tok2vec: Mapping[str, Any], folder: Path, n_sentences: int) -> None:
        self.nlp = spacy.blank("en")
        model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
        self.nlp.add_pipe("tener_ner", config={"model": model})
        self.examples, test = (read(self.nlp, folder / f"{part}.spacy", n_sentences) for part in ("train", "test"))
        self.nlp.initialize(lambda: self.examples)
        self.optimizer = Adam(0.001)
        self.words = [[token.text for token in example.reference] for example in test]

    def train(self, batch_size: int) -> None:
        for start in range(0, len(self.examples), batch_size):
            self.nlp.update(self.examples[start : start + batch_size], sgd=self.optimizer)

    def recognise(self, batch_size: int) -> None:
        docs = [Doc(self.nlp.vocab, words=words) for words in self.words]
        for _ in self.nlp.pipe(docs, batch_size=batch_size):
            pass


def read(nlp: Language, path: Path, limit: int) -> Sequence[Example]:
    """Return the first examples of a corpus with gold tokenization."""
    return list(Corpus(path, gold_preproc=True, limit=limit)(nlp))


if __name__ == "__main__":
    main()
