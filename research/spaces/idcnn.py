"""ID-CNN (Yan et al., 2019), Table 7, English: over the overlay encoder-idcnn, with `--code research/baselines.py`.

The table's number of layers is taken as how often the block of convolutions is applied; the paper does not say. The
kernel's size is fixed, and the overlay has it.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Draw the settings of a trial."""
    width = trial.suggest_categorical("kernels", [200, 400, 600, 800])
    return {
        f"{MODEL}.encode.iterations": trial.suggest_categorical("layers", [2, 3, 4, 5, 6]),
        f"{MODEL}.encode.width": width,
        f"{MODEL}.embed.project_to": width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.002, 0.0015, 0.001, 0.0007]),
    }
