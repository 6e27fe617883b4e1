"""Search space of TENER for Chinese (Yan et al., 2019, Table 8). Use it with the config of a Chinese corpus and sgd.

    python -m research search RUNS --corpus weibo --system tener+sgd --space tener --trials 60

Both dropout rates are fixed in the table, and are set in the configs. As in the released code, the feed-forward layer
is twice as wide as the model.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    heads = trial.suggest_categorical("heads", [4, 6, 8, 10])
    width = heads * trial.suggest_categorical("head_width", [32, 48, 64, 80, 96])
    return {
        f"{MODEL}.layers": trial.suggest_categorical("layers", [1, 2]),
        f"{MODEL}.heads": heads,
        f"{MODEL}.width": width,
        f"{MODEL}.ff_width": 2 * width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.001, 0.0005, 0.0007]),
    }
