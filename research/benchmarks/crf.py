"""Compare the speed of the CRF with pytorch-crf: the loss with its gradient, and decoding, on a single thread.

Both CRFs use the same emissions, the same annotation and the same number of tags (4 for each label, and O). All
sequences of a batch have the same length, so that pytorch-crf does not spend time on padding.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import _report
import torch
import torchcrf
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from spacy_tener.crf.crf_numpy import CRFPredictor
from spacy_tener.crf.crf_torch import CRF

NOTE = (
    "One thread; the two take turns within each round. Medians over {rounds} rounds of the process's CPU time, in "
    "milliseconds: on an idle machine that is the time on the clock, and on a busy one it leaves out the waiting. "
    "pytorch-crf is {peer}, with a learned score for every pair of tags; ours has scores for those pairs only that "
    "BIOES allows. Loss: negative log-likelihood of a full annotation, forward and backward, with the gradients of "
    "emissions and weights. Partial: ours with half of the tokens annotated, which pytorch-crf does not offer."
)
HEADER = (
    "entity types (tags)",
    "batch",
    "loss, pytorch-crf",
    "loss, ours",
    "times as fast",
    "partial loss, ours",
    "decode, pytorch-crf",
    "decode, ours",
    "times as fast",
)


@dataclass(frozen=True)
class Size:
    """The size of a batch: number of labels, number of sequences, and their length."""

    n_labels: int
    n_sequences: int
    length: int

    def cells(self) -> list[str]:
        return [f"{self.n_labels} ({4 * self.n_labels + 1})", f"{self.n_sequences} x {self.length}"]


SIZES = [Size(types, *shape) for types in (8, 18) for shape in ((1, 54), (16, 54), (64, 54), (16, 200))]


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    torch.set_num_threads(1)
    rows = [row(size, args.rounds) for size in tqdm(SIZES, desc="Sizes")]
    note = NOTE.format(rounds=args.rounds, peer=version("pytorch-crf"))
    _report.write(args.out, "The CRF alone", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "crf.md")
    return parser.parse_args()


def row(size: Size, n_rounds: int) -> list[str]:
    seconds = _report.median_seconds(tasks(size), n_rounds, warm_up=2)
    times = {name: 1000 * median for name, median in seconds.items()}
    return [
        *size.cells(),
        f"{times['peer loss']:.2f}",
        f"{times['loss']:.2f}",
        f"{times['peer loss'] / times['loss']:.1f}",
        f"{times['partial']:.2f}",
        f"{times['peer decode']:.2f}",
        f"{times['decode']:.2f}",
        f"{times['peer decode'] / times['decode']:.1f}",
    ]


def tasks(size: Size) -> dict[str, Callable[[], object]]:
    """Return the functions to measure, by name. "peer" is pytorch-crf."""
    torch.manual_seed(0)
    crf, lengths = CRF(size.n_labels), [size.length] * size.n_sequences
    n_tags = crf.layout.n_tags
    peer = torchcrf.CRF(n_tags, batch_first=True)
    for weight in crf.parameters():
        torch.nn.init.uniform_(weight, -0.1, 0.1)
    start, end, outside, inside = (weight.detach().numpy() for weight in crf.weights)
    predictor = CRFPredictor((start, end, outside, inside))
    emissions = torch.randn(sum(lengths), n_tags)
    tags = torch.from_numpy(predictor.decode(torch.randn(emissions.shape).numpy(), lengths))
    half = torch.nn.functional.one_hot(tags, n_tags).bool()
    half[::2] = True
    shape = (size.n_sequences, size.length)
    padded, padded_tags, mask = emissions.view(*shape, n_tags), tags.view(shape), torch.ones(shape, dtype=torch.bool)
    return {
        "peer loss": lambda: with_gradient(lambda x: -peer(x, padded_tags, mask, reduction="sum"), peer, padded),
        "loss": lambda: with_gradient(lambda x: crf.loss(x, lengths, tags=tags).sum(), crf, emissions),
        "partial": lambda: with_gradient(lambda x: crf.loss(x, lengths, allowed=half).sum(), crf, emissions),
        "peer decode": lambda: peer.decode(padded, mask),
        "decode": lambda: predictor.decode(emissions.numpy(), lengths),
    }


def with_gradient(loss: Callable[[torch.Tensor], torch.Tensor], crf: torch.nn.Module, emissions: torch.Tensor) -> None:
    crf.zero_grad()
    loss(emissions.detach().requires_grad_()).backward()


if __name__ == "__main__":
    main()
