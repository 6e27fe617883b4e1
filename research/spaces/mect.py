r"""Search space of MECT (Wu et al., 2021, Table 9). Use it with the overlays mect and sgd.

    python -m research search RUNS --corpus weibo --system mect+sgd --space mect --trials 60 \
        --set training.batcher.size=10

Where the table lists two values of a learning rate or the momentum, they are the limits of a range. The number of heads
is always 8, so the width of the heads determines the width of the model. The paper used SMAC instead of random search.
"""

from typing import Any

from optuna import Trial

MODEL = "components.tener_ner.model"
OPTIMIZER = "training.optimizer"


def settings(trial: Trial) -> dict[str, Any]:
    """Sample the settings of a trial."""
    lattice = trial.suggest_categorical("lattice_dropout", [0.1, 0.2, 0.3])
    rate = trial.suggest_float("rate", 0.001, 0.0025, log=True)
    return {
        f"{MODEL}.dropout": trial.suggest_categorical("output_dropout", [0.1, 0.2, 0.3]),
        f"{MODEL}.tok2vec.width": 8 * trial.suggest_categorical("head_width", [16, 20]),
        f"{MODEL}.tok2vec.embed.dropout": lattice,
        f"{MODEL}.tok2vec.words.dropout": lattice,
        f"{MODEL}.tok2vec.radicals.dropout": trial.suggest_categorical("radical_dropout", [0.1, 0.2, 0.3, 0.4]),
        f"{OPTIMIZER}.momentum": trial.suggest_float("momentum", 0.85, 0.97),
        f"{OPTIMIZER}.rates": {"radicals.*": trial.suggest_float("radical_rate", 0.0006, 0.0025, log=True) / rate},
        f"{OPTIMIZER}.learn_rate.max_rate": rate,
        f"{OPTIMIZER}.learn_rate.warmup": trial.suggest_categorical("warmup", [0.1, 0.2, 0.3]),
    }
