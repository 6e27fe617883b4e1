"""Compare techniques that may improve accuracy on a small corpus with the unchanged config.

    python research/benchmarks/trials.py --data corpus --work trials --posts zh-weibo-posts.txt.xz --laws zh-laws.txt.xz

All systems use the package's config for Weibo (TENER with randomly initialized embeddings), with one change each.
Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import _report
import numpy as np
import spacy
from spacy.tokens import Doc, DocBin
from spacy.training import Example

from spacy_tener.nn.shim import torch_shim
from spacy_tener.pipeline.finding import find_crf_pipe
from spacy_tener.training.config_files import BASES

HERE = Path(__file__).parent
CODE = HERE / "_trials.py"
CORPUS, BASE, SEEDS = "weibo", "tener", (1, 2, 3)
RAW = 12_000
STEPS = 4_000
OVERLAYS = {
    "mention-replacement": """
[corpora.train.augmenter]
@augmenters = "trials.MentionReplacement.v1"
path = ${paths.train}
share = 0.5
""",
    "r-drop": """
[initialize.after_init]
@callbacks = "trials.RDrop.v1"
share = 0.5
""",
    "no-averages": """
[training.optimizer]
use_averages = false
""",
}
SILVER = {"silver-posts": "posts", "silver-laws": "laws"}
NOTE = (
    "TENER on Weibo as its config has it, with one thing changed; F1 chosen on dev, seeds 1, 2 and 3. "
    "`mention-replacement`: beside half of the sentences, one with other entities of the same labels. `r-drop`: each "
    "batch is read twice with other dropout; half of the loss is how far the one reading is from the other. "
    "`no-averages`: the weights of the last step, where the config averages those of all steps. `silver-posts`: the "
    f"three models of `{BASE}` annotate {RAW:,} posts together (`tener silver`), and new ones learn that beside three "
    f"times the gold annotation, in {STEPS:,} steps: an ensemble distilled. `silver-laws`: the same with paragraphs of "
    "laws, text of another domain. p: paired bootstrap against `tener`."
)


def main() -> None:
    args = parse_args()
    runs = args.work / "runs"
    configs = write_configs(args.work / "configs")
    grid(args, configs, BASE)
    for name, raw in SILVER.items():
        output = args.work / name
        models = ",".join(str(runs / CORPUS / BASE / str(seed) / "model-best") for seed in SEEDS)
        sure = ("--entity-threshold", 0.9, "--outside-threshold", 0.9)
        _report.tener("silver", models, getattr(args, raw), "--output", output, "--limit", RAW, *sure)
        grid(args, as_overlay(configs, "silver", name), f"{BASE}+{name}", f"paths.silver={output}", steps=STEPS)
    for name in OVERLAYS:
        grid(args, configs, f"{BASE}+{name}")
    _report.write(args.out, "What did not help", NOTE, *_report.scores([runs], BASE), ensemble(args, runs))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help=f"holds {CORPUS}/{{train,dev,test}}.spacy")
    parser.add_argument("--work", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--posts", type=Path, required=True, help="raw text like the corpus")
    parser.add_argument("--laws", type=Path, required=True, help="raw text unlike the corpus")
    parser.add_argument("--jobs", type=int, default=1, help="how many are trained at once")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "trials-weibo.md")
    return parser.parse_args()


def write_configs(folder: Path) -> Path:
    """Write the configs of the package, and the overlays of the techniques."""
    shutil.copytree(BASES, folder, dirs_exist_ok=True)
    for name, overlay in OVERLAYS.items():
        (folder / "models" / f"{name}.cfg").write_text(overlay, encoding="utf8")
    return folder


def as_overlay(configs: Path, overlay: str, name: str) -> Path:
    """Copy an overlay to another name, since a grid has one run for each name. Returns the directory of configs."""
    if overlay != name:
        shutil.copy(configs / "models" / f"{overlay}.cfg", configs / "models" / f"{name}.cfg")
    return configs


def grid(args: argparse.Namespace, configs: Path, system: str, *settings: str, steps: int | None = None) -> None:
    where = ("--corpora", CORPUS, "--systems", system, "--seeds", ",".join(map(str, SEEDS)), "--data", args.data)
    options = [*_report.overrides(*settings, steps=steps), f"--jobs={args.jobs}"]
    code = ("--code", CODE) if system.partition("+")[2] in OVERLAYS else ()
    _report.research("grid", args.work / "runs", *where, "--configs", configs, *code, *options)


def ensemble(args: argparse.Namespace, runs: Path) -> str:
    """Evaluate an ensemble of the three models, with averaged emissions and averaged CRF weights."""
    pipeline, *pipelines = [spacy.load(runs / CORPUS / BASE / str(seed) / "model-best") for seed in (1, *SEEDS)]
    model, *models = [find_crf_pipe(nlp).model for nlp in (pipeline, *pipelines)]
    layer, *layers = [torch_shim(model.get_ref("output_layer")) for model in (model, *models)]
    layer.load_arrays(
        {name: np.mean([model.weights[name] for model in layers], axis=0) for name in layer.weights}, layer.sizes
    )

    def together(model: object, docs: list[Doc], is_train: bool) -> tuple[list[np.ndarray], None]:
        return [np.mean(rows, axis=0) for rows in zip(*(model.predict(docs) for model in models), strict=True)], None

    model._func = together
    rows = []
    for part in ("dev", "test"):
        docs = DocBin().from_disk(args.data / CORPUS / f"{part}.spacy").get_docs(pipeline.vocab)
        scores = pipeline.evaluate([Example(pipeline.make_doc(doc.text), doc) for doc in docs])
        alone = [json.loads((runs / CORPUS / BASE / str(seed) / name(part)).read_text())["ents_f"] for seed in SEEDS]
        rows.append([part, *(f"{100 * score:.2f}" for score in (*alone, np.mean(alone), scores["ents_f"]))])
    header = ("", *(f"seed {seed}" for seed in SEEDS), "mean", "together")
    return "## Seeds together\n\nF1 of the emissions and CRFs of the three, averaged.\n\n" + _report.table(header, rows)


def name(part: str) -> str:
    return "metrics.json" if part == "test" else "metrics-dev.json"


if __name__ == "__main__":
    main()
