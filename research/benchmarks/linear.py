"""The linear layer alone: torch's own against `spacy_tener.layers.dense.Linear`, A B A B in one run, one thread."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import _report
import torch
from torch import Tensor, nn

from spacy_tener.layers.dense import Linear

ROWS = (16, 32, 64, 512, 2048)
SIZES = ((100, 128), (128, 256), (256, 512), (512, 256))
NOTE = "One thread. Medians over {rounds} rounds in which the two take turns; GFLOP/s, and how many times as fast."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "linear.md")
    args = parser.parse_args()
    _report.single_thread(args.cpu)
    torch.set_num_threads(1)
    rows = [compare(n, *size, args.rounds) for size in SIZES for n in ROWS]
    header = ["rows", "in", "out", "nn.Linear", "Linear", "ratio", "nn.Linear, with gradients", "Linear", "ratio"]
    _report.write(args.out, "Linear layers", NOTE.format(rounds=args.rounds), _report.table(header, rows))


def compare(n: int, width: int, out: int, rounds: int) -> list[str]:
    """One line of the table."""
    torch.manual_seed(0)
    layers = {"torch's": nn.Linear(width, out), "ours": Linear(width, out)}
    x = torch.randn(n, width)
    cells = [str(n), str(width), str(out)]
    for work, products in ((forward, 1), (forward_backward, 3)):
        tasks = {name: partial(work, layer, x) for name, layer in layers.items()}
        theirs, ours = _report.median_seconds(tasks, rounds, warm_up=5, clock=time.perf_counter).values()
        flops = 2 * n * width * out * products
        cells += [f"{flops / theirs / 1e9:.0f}", f"{flops / ours / 1e9:.0f}", f"{theirs / ours:.2f}"]
    return cells


def forward(layer: nn.Module, x: Tensor) -> None:
    with torch.inference_mode():
        layer(x)


def forward_backward(layer: nn.Module, x: Tensor) -> None:
    y = layer(x.clone().requires_grad_(True))
    y.backward(torch.ones_like(y))


if __name__ == "__main__":
    main()
