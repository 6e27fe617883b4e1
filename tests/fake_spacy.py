"""A replacement for spaCy in the processes of grids and searches: `python -m fake_spacy train` returns immediately.

The F1 score on the development set is a tenth of the number of heads in the config. With six heads, training fails. If
the environment variable FAKE_HOLD is the path of a file, training runs whose output directory contains the content of
this file wait until it is deleted. Meanwhile, the file `pid` contains their process id.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path


def option(name: str) -> Path:
    return Path(sys.argv[sys.argv.index(name) + 1])


def write(path: Path, data: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf8")


def train(config: str, output: Path) -> None:
    found = re.search(r"^heads = (\d+)$", config, re.MULTILINE)
    heads, parent = int(found[1]) if found else 0, os.getppid()
    with (output / "training.jsonl").open("x", encoding="utf8") as log:  # fails if there already is a log
        for step, f in ((0, 0.0), (10, heads / 10)):
            print(f"  0  {step}  {f:.2f}", flush=True)
            row = {"epoch": 0, "step": step, "losses": {}, "scores": {"ents_f": 100 * f}, "score": f}
            log.write(json.dumps(row) + "\n")
            log.flush()
    if heads == 6:
        raise ValueError("[E910] Encountered NaN loss value")
    hold = Path(os.environ.get("FAKE_HOLD", "nothing"))
    if hold.exists() and hold.read_text() in str(output):
        (output / "pid.new").write_text(str(os.getpid()))
        (output / "pid.new").rename(output / "pid")
        while hold.exists():
            if os.getppid() != parent:  # as spaCy's logger does in our training runs
                raise SystemExit(1)
            time.sleep(0.05)
    for model in ("model-best", "model-last"):
        write(output / model / "meta.json", {"performance": {"ents_p": 0.1, "ents_r": 0.2, "ents_f": heads / 10}})


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(Path(sys.argv[2]).read_text(encoding="utf8"), option("--output"))
    else:
        score = {"p": 0.5, "r": 0.5, "f": 0.5}
        scores = {f"ents_{part}": value for part, value in score.items()}
        write(option("--output"), {**scores, "ents_per_type": {"PER": score}, "speed": 1000.0})
