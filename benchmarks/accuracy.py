"""Systems x corpora x seeds: train with `spacy train`, choose on dev, score on test, write one table.

A run that is finished is kept in `WORK/runs.jsonl`, so a second invocation continues where the first was stopped. Every
child process computes on one thread; all seeds of a system use the same config, named by its digest in the cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import _report
from spacy.cli.init_config import init_config
from thinc.api import Config

from spacy_tener.training.compose import compose

HERE = Path(__file__).parent
CONFIGS = HERE.parent / "configs"
LOGGER = "spacy_tener_benchmarks.TimedLogger.v1"
HEADER = ("corpus", "system", "seeds", "dev F1", "test P", "test R", "test F1", "test F1 per seed")
HEADER_COST = ("training s", "words/s in training, dev included", "MB on disk")
NOTE = (
    "Mean ± standard deviation over seeds; precision, recall and F1 over entity spans and labels; the checkpoint is "
    "the best on dev. Chinese is read by characters, English by spaCy's own tokens. Malformed tags of the corpora are "
    "read as conlleval reads them. "
    "All systems see the same .spacy files and start from random embeddings. Rows in brackets are not from this run: "
    "the papers' released code on the same sentences, one seed, best dev epoch."
)
LANGUAGES = {"wnut17": "en"}
# The released TENER code without pretrained vectors: (dev F1, test F1, training characters/s).
RELEASED = {"weibo": ("57.7", "51.2", "16800"), "resume": ("92.3", "93.0", "6900")}


@dataclass(frozen=True)
class Run:
    """One system trained on one corpus with one seed."""

    corpus: str
    system: str
    seed: int
    config: str
    dev_f: float
    test_p: float
    test_r: float
    test_f: float
    seconds: float
    words: int
    steps: int
    megabytes: float
    date: str


def main() -> None:
    args = parse_args()
    _report.pin(args.cpu)
    cache = args.work / "runs.jsonl"
    wanted = [(c, s) for c in args.corpus for s in args.systems]
    digests = {pair: digest(base_config(*reversed(pair))) for pair in wanted}
    for corpus, system in wanted:
        for seed in args.seeds:
            key = (corpus, name_of(system), seed, digests[corpus, system])
            if key in cached(cache):
                print(f"Already finished: {corpus} {name_of(system)} seed {seed}", flush=True)
                continue
            run = train_and_score(args, corpus, system, seed, key[-1])
            with cache.open("a", encoding="utf8") as lines:
                lines.write(json.dumps(asdict(run)) + "\n")
            print(f"Finished: {run}", flush=True)
            write_table(args, digests)
    write_table(args, digests)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=names, default=["weibo", "resume"], help="directories under --data")
    systems = "ner, tener, NAME=CONFIG.cfg, or NAME=OVERLAY+OVERLAY of configs/models"
    parser.add_argument("--systems", type=names, default=["ner", "tener"], help=systems)
    parser.add_argument("--seeds", type=lambda text: [int(s) for s in names(text)], default=[1, 2, 3])
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--work", type=Path, required=True, help="models, logs and the cache of finished runs")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "accuracy.md")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    return parser.parse_args()


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def name_of(system: str) -> str:
    return system.partition("=")[0]


def base_config(system: str, corpus: str) -> Config:
    """The config that a user would train with, before seeds and paths."""
    if system == "ner":
        return init_config(lang=LANGUAGES.get(corpus, "zh"), pipeline=["ner"], optimize="efficiency", gpu=False)
    if system.endswith(".cfg"):
        return Config().from_disk(Path(system.partition("=")[2]), interpolate=False)
    overlays = [CONFIGS / "models" / f"{name}.cfg" for name in system.partition("=")[2].split("+") if name]
    return compose(CONFIGS / f"{corpus}.cfg", overlays).config


def digest(config: Config) -> str:
    return hashlib.sha256(config.to_str(interpolate=False).encode("utf8")).hexdigest()[:12]


def cached(cache: Path) -> dict[tuple[str, str, int, str], Run]:
    """The finished runs, by corpus, system, seed and config."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    lines = cache.read_text(encoding="utf8").splitlines() if cache.exists() else []
    runs = [Run(**json.loads(line)) for line in lines]
    return {(run.corpus, run.system, run.seed, run.config): run for run in runs}


def train_and_score(args: argparse.Namespace, corpus: str, system: str, seed: int, config: str) -> Run:
    folder = args.work / f"{corpus}-{name_of(system)}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"Training {folder.name}", flush=True)
    train(base_config(system, corpus), folder, args.data / corpus, seed)
    shutil.rmtree(folder / "model-last")
    model = folder / "model-best"
    last = json.loads((folder / "training.jsonl").read_text(encoding="utf8").splitlines()[-1])
    dev_f = json.loads((model / "meta.json").read_text(encoding="utf8"))["performance"]["ents_f"]
    test_p, test_r, test_f = evaluate(model, args.data / corpus / "test.spacy", folder / "test.json")
    return Run(
        corpus=corpus,
        system=name_of(system),
        seed=seed,
        config=config,
        dev_f=100 * dev_f,
        test_p=100 * test_p,
        test_r=100 * test_r,
        test_f=100 * test_f,
        seconds=last["seconds"],
        words=last["words"],
        steps=last["step"],
        megabytes=sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6,
        date=_report.today(),
    )


def train(config: Config, folder: Path, data: Path, seed: int) -> None:
    config["training"]["logger"] = {"@loggers": LOGGER, "path": str(folder / "training.jsonl")}
    config.to_disk(folder / "config.cfg", interpolate=False)
    overrides = {
        "--output": folder,
        "--code": HERE / "_training_log.py",
        "--paths.train": data / "train.spacy",
        "--paths.dev": data / "dev.spacy",
        "--system.seed": seed,
        "--training.seed": seed,
    }
    spacy_command("train", folder / "config.cfg", *(part for pair in overrides.items() for part in pair))


def evaluate(model: Path, test: Path, output: Path) -> tuple[float, float, float]:
    spacy_command("evaluate", model, test, "--output", output)
    scores = json.loads(output.read_text(encoding="utf8"))
    return scores["ents_p"], scores["ents_r"], scores["ents_f"]


def spacy_command(*parts: object) -> None:
    subprocess.run([sys.executable, "-m", "spacy", *map(str, parts)], env=_report.one_thread(), check=True)


def write_table(args: argparse.Namespace, digests: dict[tuple[str, str], str]) -> None:
    finished = cached(args.work / "runs.jsonl")
    rows: list[list[str]] = []
    for (corpus, system), config in digests.items():
        keys = [(corpus, name_of(system), seed, config) for seed in args.seeds]
        runs = [finished[key] for key in keys if key in finished]
        if runs:
            rows.append(row(runs))
    rows += [released_row(corpus) for corpus in args.corpus if corpus in RELEASED]
    rows.sort(key=lambda cells: args.corpus.index(cells[0]))
    _report.write(args.out, "Accuracy", NOTE, _report.table([*HEADER, *HEADER_COST], rows))


def row(runs: Sequence[Run]) -> list[str]:
    scores = [[getattr(run, name) for run in runs] for name in ("dev_f", "test_p", "test_r", "test_f")]
    each = ", ".join(f"{run.test_f:.1f}" for run in runs)
    cost = [[run.seconds for run in runs], [run.words / run.seconds for run in runs]]
    costs = [_report.mean_sd(values, 0) for values in cost]
    size = f"{runs[0].megabytes:.1f}"
    return [runs[0].corpus, runs[0].system, str(len(runs)), *map(_report.mean_sd, scores), each, *costs, size]


def released_row(corpus: str) -> list[str]:
    dev_f, test_f, speed = RELEASED[corpus]
    return [corpus, "(released TENER code)", "1", dev_f, "", "", test_f, "", "", f"({speed})", ""]


if __name__ == "__main__":
    main()
