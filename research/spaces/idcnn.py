"""Search space of an ID-CNN for English (Yan et al., 2019, Table 7). Use it with the overlay encoder-idcnn.

Needs `--code research/baselines.py`. The paper does not define the number of layers; here it is the number of
iterations of the convolution block. The kernel size is fixed, and is set in the overlay.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    width = trial.suggest_categorical("kernels", [200, 400, 600, 800])
    return {
        f"{MODEL}.encode.iterations": trial.suggest_categorical("layers", [2, 3, 4, 5, 6]),
        f"{MODEL}.encode.width": width,
        f"{MODEL}.embed.project_to": width,
        "training.optimizer.learn_rate.max_rate": trial.suggest_categorical("rate", [0.002, 0.0015, 0.001, 0.0007]),
    }
