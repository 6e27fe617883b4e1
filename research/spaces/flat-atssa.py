r"""Search space of FLAT-ATSSA (Hu et al., 2022, Table 2). Use it with the overlays flat-atssa and sgd.

    python -m research search RUNS --corpus weibo --system flat-atssa+sgd --space flat-atssa --trials 60 \
        --set training.batcher.size=8

In the paper, the learning rate is warmed up for 1, 5 or 10 epochs. We express these as fractions of the 100 epochs of
the overlay sgd, since the paper does not mention the number of epochs. The learning rate decay of 0.05 is not used:
`spacy_tener.triangular.v1` decreases to 0.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model.tok2vec"
RATE = "training.optimizer.learn_rate"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    heads = trial.suggest_categorical("heads", [4, 8, 12])
    width = heads * trial.suggest_categorical("head_width", [8, 10, 12])
    return {
        f"{MODEL}.heads": heads,
        f"{MODEL}.width": width,
        f"{MODEL}.ff_width": width * trial.suggest_categorical("ff_times", [4, 6, 8]),
        f"{RATE}.max_rate": trial.suggest_categorical("rate", [0.001, 0.0008, 0.0006]),
        f"{RATE}.warmup": trial.suggest_categorical("warmup_epochs", [1, 5, 10]) / 100,
    }
