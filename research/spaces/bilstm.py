"""Search space of a BiLSTM for English (Yan et al., 2019, Table 6). Use it with the overlays encoder-bilstm and sgd.

`hidden` is the size of each direction, as in the table.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    width = 2 * trial.suggest_categorical("hidden", [200, 400, 600, 800, 1200])
    return {
        f"{MODEL}.encode.depth": trial.suggest_categorical("layers", [1, 2]),
        f"{MODEL}.encode.width": width,
        f"{MODEL}.embed.project_to": width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.01, 0.007, 0.005]),
    }
