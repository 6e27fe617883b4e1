"""Rows that the papers printed, for the same corpora, and what the papers' released code reached on one CPU core.

Scores are in percent, as printed. A system is named by the overlays of configs/models that make it, joined by `+`.
What a paper calls its baseline, or takes over from another paper, stands under what it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

VECTORS = "pretrained vectors"
BERT = "pretrained vectors and BERT"
ELMO = "pretrained vectors and ELMo"
RANDOM = "random embeddings, one seed"
LAW_VECTORS = "vectors from law texts, one seed"

TENER = "Yan et al. 2019"
GRN = "Chen et al. 2019"
MECT = "Wu et al. 2021"
ATSSA = "Hu et al. 2022"
RELEASED = "released code"

# What every English config starts from, so that naming it changes nothing.
_DEFAULTS = frozenset({"chars-adapted", "encoder-adapted"})


@dataclass(frozen=True)
class Printed:
    """One row of one table for one corpus.

    model: What the paper calls it.
    condition: With what the model started.
    named, nominal: The F1 of Weibo's names and nominal mentions taken by themselves.
    """

    corpus: str
    system: str
    model: str
    source: str
    condition: str
    f: float
    sd: float | None = None
    p: float | None = None
    r: float | None = None
    dev_f: float | None = None
    named: float | None = None
    nominal: float | None = None

    @property
    def kind(self) -> str:
        """Who measured it, and with what the model started."""
        return f"{'released code' if self.source == RELEASED else 'printed'}: {self.condition}"


def published(corpus: str, system: str) -> list[Printed]:
    """The rows for a corpus and a system by the names that their runs have."""
    wanted = (_plain(corpus), _canonical(system))
    return [row for row in ROWS if (row.corpus, _canonical(row.system)) == wanted]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")


def _canonical(system: str) -> frozenset[str]:
    """The overlays of a system. Their order is of no matter, and those that change nothing do not count; nor does
    `mect` beside its own ablation `mect-no-cross`."""
    parts = frozenset(_plain(system).split("+"))
    extended = {part for part in parts if any(other.startswith(f"{part}-") for other in parts)}
    return (parts - extended - _DEFAULTS) or frozenset({"tener"})


# A column of corpora under each number of a row, as the tables have them.
_ZH = ("weibo", "resume", "ontonotes4", "msra")
_EN = ("conll2003", "ontonotes5")
Cell = float | tuple[float, float] | None


def _row(
    system: str, model: str, source: str, corpora: tuple[str, ...], *cells: Cell, condition: str = VECTORS
) -> Iterator[Printed]:
    """One row of a table with a corpus in each column: F1, or F1 and its deviation, or nothing."""
    for corpus, cell in zip(corpora, cells, strict=True):
        if cell is not None:
            f, sd = cell if isinstance(cell, tuple) else (cell, None)
            yield Printed(corpus, system, model, source, condition, f, sd)


def _tener() -> Iterator[Printed]:
    table = f"{TENER}, table 2"
    yield from _row("encoder-bilstm", "BiLSTM", table, _ZH, 56.75, 94.41, 71.81, 91.87)
    yield from _row("encoder-idcnn", "ID-CNN", table, _ZH, None, 93.75, 62.25, None)
    transformer: tuple[Cell, ...] = ((46.38, 0.78), (93.43, 0.26), (66.49, 0.30), (88.35, 0.60))
    yield from _row("encoder-transformer", "Transformer", table, _ZH, *transformer)
    yield from _row("tener", "TENER", table, _ZH, (58.17, 0.22), (95.00, 0.25), (72.43, 0.39), (92.74, 0.27))
    scaled: tuple[Cell, ...] = ((57.40, 0.3), (94.00, 0.51), (71.72, 0.08), (91.67, 0.23))
    yield from _row("tener-scaled", "TENER w/ scale", table, _ZH, *scaled)
    table = f"{TENER}, table 3"
    yield from _row("encoder-transformer", "Transformer", table, _EN, (89.57, 0.12), (86.73, 0.07))
    yield from _row("tener", "TENER", table, _EN, (91.33, 0.05), (88.43, 0.12))
    yield from _row("tener-scaled", "TENER w/ scale", table, _EN, (91.06, 0.09), (87.94, 0.1))
    table = f"{TENER}, table 4"
    yield from _row("encoder-bilstm+elmo", "BiLSTM", table, _EN, (92.55, 0.10), (88.88, 0.16), condition=ELMO)
    yield from _row("tener+elmo", "TENER", table, _EN, (92.62, 0.09), (89.78, 0.15), condition=ELMO)


# TENER's table 5: the character encoder, then for each word encoder F1 and its deviation.
_WORDS = ("encoder-bilstm", "encoder-idcnn", "encoder-adapted")
_CELLS = {
    ("conll2003", "chars-none"): ((88.34, 0.32), (87.30, 0.15), (88.37, 0.27)),
    ("conll2003", "chars-bilstm"): ((91.32, 0.13), (89.99, 0.14), (91.29, 0.12)),
    ("conll2003", "chars-cnn"): ((91.22, 0.10), (90.17, 0.02), (91.45, 0.07)),
    ("conll2003", "chars-transformer"): ((91.12, 0.10), (90.05, 0.13), (91.23, 0.06)),
    ("conll2003", "chars-adapted"): ((91.38, 0.15), (89.99, 0.05), (91.33, 0.05)),
    ("ontonotes5", "chars-none"): ((85.20, 0.23), (84.26, 0.07), (85.80, 0.10)),
    ("ontonotes5", "chars-bilstm"): ((87.85, 0.09), (87.38, 0.17), (88.12, 0.16)),
    ("ontonotes5", "chars-cnn"): ((87.79, 0.14), (87.10, 0.06), (88.25, 0.11)),
    ("ontonotes5", "chars-transformer"): ((88.01, 0.06), (87.31, 0.10), (88.20, 0.07)),
    ("ontonotes5", "chars-adapted"): ((88.12, 0.17), (87.51, 0.11), (88.43, 0.12)),
}


def _encoders() -> Iterator[Printed]:
    for (corpus, chars), cells in _CELLS.items():
        for words, (f, sd) in zip(_WORDS, cells, strict=True):
            if {chars, words} != _DEFAULTS:  # that one is TENER itself, in table 3
                system = f"{chars}+{words}"
                model = system.replace("chars-", "").replace("encoder-", "").replace("+", " characters, ") + " words"
                yield Printed(corpus, system, model, f"{TENER}, table 5", VECTORS, f, sd)


def _grn() -> Iterator[Printed]:
    conll, onto = f"{GRN}, table 2", f"{GRN}, table 3"
    yield Printed("conll2003", "grn", "GRN", conll, VECTORS, 91.44, 0.16, p=91.31, r=91.57)
    yield Printed("ontonotes5", "grn", "GRN", onto, VECTORS, 87.67, 0.17, p=87.79, r=87.56)
    yield Printed("conll2003", "grn+elmo", "GRN", conll, ELMO, 92.34, 0.10, p=92.04, r=92.65)
    yield Printed("conll2003", "cnn-bilstm-crf", "CNN-BiLSTM-CRF", conll, VECTORS, 91.17, 0.18)
    yield Printed("conll2003", "cnn-bilstm-att-crf", "CNN-BiLSTM-Att-CRF", conll, VECTORS, 90.24, 0.15)
    yield Printed("ontonotes5", "cnn-bilstm-att-crf", "CNN-BiLSTM-Att-CRF", onto, VECTORS, 87.25, 0.17)
    table = f"{GRN}, tables 4 and 5"
    yield from _row("grn-no-context", "GRN w/o context", table, _EN, (88.36, 0.21), (82.21, 0.23))
    yield from _row("grn-branch3", "GRN w/ branch 3", table, _EN, (90.88, 0.22), (86.66, 0.21))
    yield from _row("grn-no-relation", "GRN w/o relation", table, _EN, (90.13, 0.28), (85.87, 0.16))
    yield from _row("grn-dfn", "DFN", table, _EN, (90.72, 0.06), (85.81, 0.14))
    yield from _row("grn-gattn", "GAttN", table, _EN, (87.11, 0.25), (79.83, 0.37))


def _mect() -> Iterator[Printed]:
    tables = f"{MECT}, tables 4 to 7"
    yield from _row("flat", "FLAT", tables, _ZH, 60.32, 95.45, 76.45, 94.12)
    yield Printed("weibo", "mect", "MECT", f"{MECT}, table 4", VECTORS, 63.30, named=61.91, nominal=62.51)
    yield Printed("resume", "mect", "MECT", f"{MECT}, table 5", VECTORS, 95.89, p=96.40, r=95.39)
    yield Printed("ontonotes4", "mect", "MECT", f"{MECT}, table 6", VECTORS, 76.92, p=77.57, r=76.27)
    yield Printed("msra", "mect", "MECT", f"{MECT}, table 7", VECTORS, 94.32, p=94.55, r=94.09)
    yield from _row("mect+bert", "BERT + MECT", tables, _ZH, 70.43, 95.98, 82.57, 96.24, condition=BERT)
    table = f"{MECT}, table 8"
    yield Printed("weibo", "mect", "MECT", table, VECTORS, 62.69)
    yield from _row("mect-single-stream", "experiment A", table, _ZH, 60.77, 95.42, 76.43, 94.20)
    yield from _row("mect-no-cross", "experiment B", table, _ZH, 61.0, 95.54, 76.78, 94.18)
    yield from _row("mect-no-random-attention", "MECT - RA", table, _ZH, 61.53, 95.31, 76.64, 94.25)


def _atssa() -> Iterator[Printed]:
    table = f"{ATSSA}, table 3"
    yield from _row("tener", "TENER", table, _ZH, 58.39, 95.25, 72.82, 93.01)
    yield from _row("flat+bert", "FLAT", table, _ZH, 68.55, 95.86, 81.82, 96.09, condition=BERT)
    # It printed no row without BERT, so these stand beside ours without BERT too, and say so.
    whole: tuple[Cell, ...] = (72.53, 96.73, 83.31, 96.45)
    ablations: dict[str, tuple[str, str, tuple[Cell, ...]]] = {
        "flat-atssa": ("FLAT + ATSSA", table, whole),
        "flat-atssa-no-selection": ("- selective self-attention", f"{ATSSA}, table 4", (70.02, 95.52, 82.13, 96.02)),
        "flat-atssa-no-top-k": ("- top-k", f"{ATSSA}, table 4", (68.47, 96.19, 82.60, 95.37)),
        "flat-atssa-no-amplification": ("- AF", f"{ATSSA}, table 4", (68.67, 95.89, 82.65, 95.51)),
        "flat-atssa-fixed-threshold": ("- DT", f"{ATSSA}, table 4", (68.53, 95.70, 82.63, 95.68)),
    }
    for system, (model, source, cells) in ablations.items():
        yield from _row(system, model, source, _ZH, *cells, condition=BERT)
        yield from _row(f"{system}+bert", model, source, _ZH, *cells, condition=BERT)


def _released() -> Iterator[Printed]:
    """On the files that the converters read, at the best epoch on dev; see the condition for what they started from."""
    yield Printed("weibo", "tener", "TENER", RELEASED, RANDOM, 51.2, dev_f=57.7)
    yield Printed("resume", "tener", "TENER", RELEASED, RANDOM, 93.0, dev_f=92.3)
    yield Printed("weibo", "flat", "FLAT", RELEASED, RANDOM, 46.1, dev_f=55.1)
    yield Printed("resume", "flat", "FLAT", RELEASED, RANDOM, 92.4, dev_f=93.1)
    yield Printed("resume", "mect", "MECT", RELEASED, RANDOM, 91.1, dev_f=90.3)
    yield Printed("weibo", "tener+vectors", "TENER", RELEASED, LAW_VECTORS, 56.0, dev_f=59.2)
    yield Printed("resume", "tener+vectors", "TENER", RELEASED, LAW_VECTORS, 93.8, dev_f=93.1)
    yield Printed("weibo", "flat+vectors", "FLAT", RELEASED, LAW_VECTORS, 52.4, dev_f=61.6)
    yield Printed("resume", "flat+vectors", "FLAT", RELEASED, LAW_VECTORS, 94.4, dev_f=94.6)


ROWS = (*_tener(), *_encoders(), *_grn(), *_mect(), *_atssa(), *_released())
