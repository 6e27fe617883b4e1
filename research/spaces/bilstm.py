"""BiLSTM (Yan et al., 2019), Table 6, English: over the overlay encoder-bilstm, with `sgd` for the paper's optimizer.

The table's hidden size is that of each direction.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Draw the settings of a trial."""
    width = 2 * trial.suggest_categorical("hidden", [200, 400, 600, 800, 1200])
    return {
        f"{MODEL}.encode.depth": trial.suggest_categorical("layers", [1, 2]),
        f"{MODEL}.encode.width": width,
        f"{MODEL}.embed.project_to": width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.01, 0.007, 0.005]),
    }
