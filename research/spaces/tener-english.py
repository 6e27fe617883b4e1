"""Search space of TENER for English (Yan et al., 2019, Table 8). Use it with the config of an English corpus."""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec.encode"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    heads = trial.suggest_categorical("heads", [8, 10, 12, 14])
    width = heads * trial.suggest_categorical("head_width", [64, 80, 96, 112, 128])
    return {
        f"{MODEL}.layers": trial.suggest_categorical("layers", [1, 2]),
        f"{MODEL}.heads": heads,
        f"{MODEL}.width": width,
        f"{MODEL}.ff_width": 2 * width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.0009, 0.0007, 0.0005]),
    }
