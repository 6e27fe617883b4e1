"""TENER (Yan et al., 2019), Table 8, Chinese: over the config of a Chinese corpus, with `sgd` as the paper.

    python -m research search RUNS --corpus weibo --system tener+sgd --space tener --trials 60

Both dropouts are fixed in the table, and the configs have them. The feed-forward is twice as wide as the model, as in
the released code.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Draw the settings of a trial."""
    heads = trial.suggest_categorical("heads", [4, 6, 8, 10])
    width = heads * trial.suggest_categorical("head_width", [32, 48, 64, 80, 96])
    return {
        f"{MODEL}.layers": trial.suggest_categorical("layers", [1, 2]),
        f"{MODEL}.heads": heads,
        f"{MODEL}.width": width,
        f"{MODEL}.ff_width": 2 * width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.001, 0.0005, 0.0007]),
    }
