"""Profile training and prediction on a GPU: time, kernels, copies, utilization and bottlenecks of each system.

Also measures spaCy's `ner` and a plain training loop for a transformer, for comparison.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import _report
import spacy
import torch
from spacy import util
from spacy.cli.init_config import init_config
from spacy.language import Language
from spacy.training import Corpus, Example
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

SYSTEMS = ("ner", "tener", "flat", "flat-atssa", "mect", "char-grn", "transformer-crf", "plain loop")
STEPS = (16, 64, 128)
PREDICTED = 128
EARLIER = """One H100 (80 GB), 16 cores of an Intel Xeon, 2026-11-22. Python 3.12, torch 2.11 (CUDA 13.0), cupy 14.2,
numpy 2.5, spaCy 3.8.18, transformers 4.53. Before the CRF's kernels, calls of whole batches and steps of all modules at
once, on Weibo. In brackets how long the GPU works; beside it one core of the same machine.

| system | step of 16, ms | kernels | step of 128, ms | nlp.pipe, chars/s | core: step of 16, ms | core: chars/s |
| --- | --- | --- | --- | --- | --- | --- |
| ner | 95 to 109 (10.0) | 3,166 | 205 (17.8) | 263,000 | 117 | 39,000 |
| tener | 23 to 30 (0.8) | 247 | 121 (2.7) | 93,000 to 206,000 | 47 | 52,000 |
| flat | 34 (1.3) | 362 | 108 (4.0) | 96,000 | 81 | 35,000 |
| flat-atssa | 41 (1.8) | 471 | 148 (8.8) | 109,000 | | |
| mect | 57 (2.3) | 656 | 194 (7.7) | 121,000 | 134 | 29,000 |
| grn | 39 (2.3) | 448 | 141 (12.9) | 110,000 | | |

A BERT of base size with random weights, same machine and day:

| | step of 16, ms | step of 64, ms | predict, batch 16, chars/s | batch 128 |
| --- | --- | --- | --- | --- |
| plain loop | 190 to 219 | 164 to 219 | 80,000 | 159,000 to 177,000 |
| plain loop without cuDNN's attention | 50 to 56 | 51 to 65 | 53,000 to 83,000 | 122,000 to 162,000 |
| `transformer-crf` as it was | 403 to 430 | 726 to 810 | 20,000 | 31,000 |
| without cuDNN's attention | 134 | 244 | 20,000 | 31,000 |
| and one call for a batch | 62 | 116 | 33,000 | 94,000 |"""
MEASURED = (
    "Medians of {rounds} steps, or passes over 512 texts, after a warm-up, the device synchronized after each, on "
    "Weibo's train part. The GPU works: the sum of all kernels' times. The transformer has {layers} layers of {width} "
    "numbers, with random weights; the plain loop is BertForTokenClassification in bfloat16 by autocast, one padded "
    "batch, fused AdamW and no CRF."
)


@dataclass(frozen=True)
class Cost:
    """The cost of a task on the device.

    kernels, copies: Number of kernels and of copies between host and device.
    time: Wall time in milliseconds.
    works: Total run time of all kernels in milliseconds.
    """

    kernels: int
    copies: int
    time: float
    works: float


@dataclass(frozen=True)
class System:
    """A pipeline, or the plain training loop.

    learn: Function that performs a training step with a given batch size.
    predict: Function that predicts a batch of PREDICTED texts.
    """

    learn: Callable[[int], object]
    predict: Callable[[], object]


def main() -> None:
    args = parse_args()
    spacy.require_gpu(args.gpu_id)
    with tempfile.TemporaryDirectory() as folder:
        rows, profiles = [], []
        for name in tqdm([name for name in SYSTEMS if not args.systems or name in args.systems]):
            system = plain_loop(Path(folder), args) if name == "plain loop" else pipeline(name, Path(folder), args)
            rows += rows_of(name, system, args.rounds)
            profiles.append(f"- {name}: {host(system.learn)}")
    parts = ["## Before", EARLIER, "## Now", MEASURED.format(**vars(args)), *tables(rows)]
    host_title = "## The host, steps of 16: own time of functions, of all"
    _report.write(args.out, "A GPU", *parts, host_title, "\n".join(profiles))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("corpus"), help="with weibo/train.spacy")
    parser.add_argument("--systems", type=lambda text: text.split(","), help="names, with commas between them")
    parser.add_argument("--gpu-id", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--layers", type=int, default=12, help="of the transformer")
    parser.add_argument("--width", type=int, default=768, help="of the transformer")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "gpu.md")
    return parser.parse_args()


def rows_of(name: str, system: System, rounds: int) -> list[tuple[str, str, Cost]]:
    rows = [(name, f"step of {size}", measured(partial(system.learn, size), rounds)) for size in STEPS]
    return [*rows, (name, f"predict {PREDICTED}", measured(system.predict, rounds))]


def tables(rows: Sequence[tuple[str, str, Cost]]) -> Iterator[str]:
    """Yield one table for each task."""
    header = ("system", "ms", "GPU works, ms", "kernels", "copies")
    for work in dict.fromkeys(work for _, work, _ in rows):
        yield f"### {work.capitalize()}"
        costs = [(name, cost) for name, part, cost in rows if part == work]
        yield _report.table(
            header, [[name, f"{c.time:.1f}", f"{c.works:.1f}", f"{c.kernels:,}", f"{c.copies:,}"] for name, c in costs]
        )


def measured(work: Callable[[], object], rounds: int) -> Cost:
    """Return the median time of a task, and the number of kernels in a single profiled run."""

    def once() -> float:
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - start)

    times = [once() for _ in range(rounds + 3)][3:]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        once()
    events = [event for event in profiler.events() or () if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [event for event in events if not event.name.startswith(("Memcpy", "Memset"))]
    copies = [event for event in events if event.name.startswith(("Memcpy HtoD", "Memcpy DtoH"))]
    works = sum(event.time_range.elapsed_us() for event in kernels) / 1000
    return Cost(len(kernels), len(copies), statistics.median(times), works)


def pipeline(name: str, folder: Path, args: argparse.Namespace) -> System:
    """Create an untrained pipeline from the config of a system."""
    if name == "ner":
        config = init_config(lang="zh", pipeline=["ner"], optimize="efficiency", gpu=False)
    else:
        _report.tener("config", "weibo", *([] if name == "tener" else [name]), "--output", folder / f"{name}.cfg")
        config = util.load_config(folder / f"{name}.cfg")
    data = str(args.data / "weibo" / "train.spacy")
    config["paths"].update(train=data, dev=data)
    if name == "transformer-crf":
        config["paths"]["transformer"] = str(bert(folder, args))
    nlp = util.load_model_from_config(config.interpolate(), auto_fill=True)
    examples = list(Corpus(data)(nlp))
    optimizer = nlp.initialize(lambda: examples)
    stream = cycle(examples)
    texts = [example.reference.text for example in islice(cycle(examples), 4 * PREDICTED)]

    def learn(size: int) -> None:
        nlp.update([fresh(nlp, example) for example in islice(stream, size)], sgd=optimizer)

    return System(learn, lambda: [len(doc.ents) for doc in nlp.pipe(texts, batch_size=PREDICTED)])


def fresh(nlp: Language, example: Example) -> Example:
    return Example(nlp.make_doc(example.reference.text), example.reference)


def host(learn: Callable[[int], object]) -> str:
    """Return the functions with the largest share of the CPU time, excluding the functions that they call."""
    with cProfile.Profile() as profile:
        for _ in range(20):
            learn(16)
    stats: Any = pstats.Stats(profile)
    slowest = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:6]
    parts = (
        f"`{Path(path).name}:{name}` {100 * times[2] / stats.total_tt:.0f} %" for (path, _, name), times in slowest
    )
    return ", ".join(parts)


def bert(folder: Path, args: argparse.Namespace) -> Path:
    """Write a randomly initialized BERT with a character vocabulary to a directory, and return its path."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    docs = Corpus(str(args.data / "weibo" / "train.spacy"))(spacy.blank("zh"))
    letters = sorted({letter for example in docs for letter in example.reference.text if not letter.isspace()})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    path = folder / "bert"
    path.mkdir(exist_ok=True)
    (path / "vocab.txt").write_text("\n".join(words), encoding="utf8")
    BertTokenizerFast(vocab_file=str(path / "vocab.txt"), model_max_length=512).save_pretrained(path)
    sizes = {"hidden_size": args.width, "intermediate_size": 4 * args.width, "num_hidden_layers": args.layers}
    heads = max(args.width // 64, 1)
    with torch.device("cpu"):
        BertModel(BertConfig(vocab_size=len(words), num_attention_heads=heads, **sizes)).save_pretrained(path)
    return path


def plain_loop(folder: Path, args: argparse.Namespace) -> System:
    """Create a plain training loop for a BERT that tags subword tokens, as you would write it without this package."""
    from transformers import AutoTokenizer, BertForTokenClassification

    path = bert(folder, args)
    tokenizer, device = AutoTokenizer.from_pretrained(path), torch.device("cuda", args.gpu_id)
    model = BertForTokenClassification.from_pretrained(path, num_labels=33).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    examples = Corpus(str(args.data / "weibo" / "train.spacy"))(spacy.blank("zh"))
    texts = [example.reference.text for example in examples]
    stream = cycle(texts)

    def read(batch: Sequence[str]) -> Any:
        inputs = tokenizer(list(batch), padding=True, truncation=True, return_tensors="pt").to(
            device, non_blocking=True
        )
        with torch.autocast("cuda", torch.bfloat16):
            return model(**inputs, labels=torch.zeros_like(inputs["input_ids"]))

    def learn(size: int) -> None:
        model.train()
        read(list(islice(stream, size))).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.inference_mode()
    def predict() -> None:
        model.eval()
        for _ in range(4):
            read(list(islice(stream, PREDICTED))).logits.argmax(-1).cpu()

    return System(learn, predict)


if __name__ == "__main__":
    main()
