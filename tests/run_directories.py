"""Create directories of training runs with made-up scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# True positives, false positives and false negatives by label.
Counted = Mapping[str, tuple[int, int, int]]


def prf(tp: int, fp: int, fn: int) -> dict[str, float]:
    """Return precision, recall and F1 by their definitions."""
    p = tp / (tp + fp) if tp + fp else 0.0
    r = tp / (tp + fn) if tp + fn else 0.0
    return {"p": p, "r": r, "f": 2 * p * r / (p + r) if p + r else 0.0}


def metrics(counts: Counted, *, speed: float | None = 1000.0, with_counts: bool = True) -> dict[str, Any]:
    """Return the content of metrics.json."""
    overall = prf(*(sum(confusion) for confusion in zip(*counts.values(), strict=True)))
    data: dict[str, Any] = {f"ents_{part}": score for part, score in overall.items()}
    data["ents_per_type"] = {label: prf(*confusion) for label, confusion in counts.items()}
    if with_counts:
        data["ents_counts"] = {
            label: dict(zip(("tp", "fp", "fn"), confusion, strict=True)) for label, confusion in counts.items()
        }
    return data if speed is None else {**data, "speed": speed}


def write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf8")


def make_run(
    root: Path,
    name: str,
    counts: Counted | None = None,
    *,
    f: float | None = None,
    docs: Sequence[tuple[int, int, int]] = (),
    dev_f: float | None = 0.5,
    speed: float | None = 1000.0,
    with_counts: bool = True,
    config: str = "",
    log: Sequence[tuple[int, int, float]] = (),
) -> Path:
    """Create a run CORPUS/SYSTEM/SEED. It is unfinished unless `counts`, `f` or `docs` is given.

    counts: Counts on the test set, by label.
    f: Precision, recall and F1 on the test set, which are all equal.
    docs: Counts on the test set, by document.
    log: Epoch, step and F1 (in percent) of each evaluation.
    """
    run = root / name
    performance = {"ents_p": 0.4, "ents_r": 0.6, "ents_f": dev_f, "ents_per_type": {}, "speed": 5.0}
    write_json(
        run / "model-best" / "meta.json", {"lang": "zh", "performance": performance if dev_f is not None else {}}
    )
    (run / "model-best" / "config.cfg").write_text(config or '[nlp]\nlang = "zh"\n', encoding="utf8")
    if counts is not None:
        write_json(run / "metrics.json", metrics(counts, speed=speed, with_counts=with_counts))
    elif docs:
        right, wrong, missed = map(sum, zip(*docs, strict=True))
        data = metrics({"PER": (right, wrong, missed)}, speed=speed)
        write_json(run / "metrics.json", {**data, "ents_counts_per_doc": docs})
    elif f is not None:
        data = {"ents_p": f, "ents_r": f, "ents_f": f, "ents_per_type": {"PER": {"p": f, "r": f, "f": f}}}
        write_json(run / "metrics.json", data if speed is None else {**data, "speed": speed})
    if log:
        lines = [{"epoch": e, "step": s, "scores": {"ents_f": score}, "score": score / 100} for e, s, score in log]
        (run / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf8")
    return run
