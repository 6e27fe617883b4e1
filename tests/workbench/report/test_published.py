"""The rows that the papers printed."""

from __future__ import annotations

import pytest

from spacy_tener.workbench.report.rows import PrintedScores, all_printed, printed_scores

VECTORS, BERT, RANDOM = "pretrained vectors", "pretrained vectors and BERT", "random embeddings, one seed"
RELEASED = "released code"
ROWS = all_printed()


def scores(corpus: str, system: str, condition: str = VECTORS) -> list[float]:
    return [row.f for row in printed_scores(corpus, system) if row.condition == condition]


@pytest.mark.parametrize(
    ("corpus", "system", "f"),
    [
        ("weibo", "tener", 58.17),
        ("resume", "tener", 95.00),
        ("ontonotes4", "tener", 72.43),
        ("msra", "tener", 92.74),
        ("conll2003", "tener", 91.33),
        ("ontonotes5", "tener", 88.43),
        ("weibo", "flat", 60.32),
        ("msra", "flat", 94.12),
        ("weibo", "mect", 63.30),
        ("ontonotes4", "mect", 76.92),
        ("conll2003", "grn", 91.44),
        ("ontonotes5", "grn", 87.67),
        ("ontonotes5", "grn-gattn", 79.83),
        ("conll2003", "cnn-bilstm-crf", 91.17),
        ("weibo", "encoder-transformer", 46.38),
    ],
)
def test_rows_of_the_papers_are_found(corpus: str, system: str, f: float) -> None:
    assert f in scores(corpus, system)


def test_what_was_printed_with_bert_says_so() -> None:
    assert scores("weibo", "flat+bert", BERT) == [68.55]
    assert scores("weibo", "mect+bert", BERT) == [70.43]
    # FLAT-ATSSA was printed with BERT only; its rows stand beside ours with and without.
    assert scores("weibo", "flat-atssa", BERT) == scores("weibo", "flat-atssa+bert", BERT) == [72.53]
    assert scores("weibo", "flat-atssa") == []


@pytest.mark.parametrize("name", ["flat-atssa", "FLAT_ATSSA", "Flat Atssa"])
def test_spelling_is_of_no_matter(name: str) -> None:
    assert scores("Weibo", name, BERT) == [72.53]


@pytest.mark.parametrize("name", ["chars-cnn+encoder-idcnn", "encoder-idcnn+chars-cnn"])
def test_overlays_may_come_in_any_order(name: str) -> None:
    assert scores("conll2003", name) == [90.17]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("tener", "chars-adapted+encoder-adapted"),
        ("chars-cnn", "chars-cnn+encoder-adapted"),
        ("encoder-bilstm", "chars-adapted+encoder-bilstm"),
    ],
)
def test_what_the_configs_start_from_needs_no_name(short: str, long: str) -> None:
    assert printed_scores("conll2003", short) == printed_scores("conll2003", long) != []


def test_there_is_nothing_for_other_systems_and_corpora() -> None:
    assert (
        printed_scores("weibo", "ner")
        == printed_scores("sample-zh", "tener")
        == printed_scores("weibo", "tener+mine")
        == []
    )


def test_the_cells_of_teners_table_5_are_all_there() -> None:
    cells = [row for row in ROWS if row.source.endswith("table 5") and row.source.startswith("Yan")]
    # 5 character encoders x 3 word encoders x 2 corpora, less TENER itself.
    assert len(cells) == 28
    assert len({(row.corpus, row.system) for row in cells}) == 28
    assert (
        PrintedScores(
            "conll2003",
            "chars-none+encoder-idcnn",
            "none characters, idcnn words",
            cells[0].source,
            VECTORS,
            87.30,
            0.15,
        )
        in cells
    )


@pytest.mark.parametrize(
    ("stack", "overlay"),
    [
        ("mect+mect-no-cross", "mect-no-cross"),
        ("flat-atssa+flat-atssa-no-top-k", "flat-atssa-no-top-k"),
    ],
)
def test_an_ablation_is_known_with_and_without_what_it_is_laid_on(stack: str, overlay: str) -> None:
    assert printed_scores("weibo", stack) == printed_scores("weibo", overlay) != []
    assert printed_scores("weibo", stack) != printed_scores("weibo", stack.partition("+")[0])


def test_precision_and_recall_give_the_printed_f1() -> None:
    complete = [row for row in ROWS if row.p is not None and row.r is not None]
    assert len(complete) >= 6
    for row in complete:
        assert row.p is not None
        assert row.r is not None
        assert row.f == pytest.approx(2 * row.p * row.r / (row.p + row.r), abs=0.06)


def test_every_row_is_plausible_and_names_its_source() -> None:
    for row in ROWS:
        assert 40 < row.f < 100
        assert row.sd is None or 0 < row.sd < 1
        assert row.source == RELEASED or "table" in row.source
        assert row.corpus in {"weibo", "resume", "msra", "ontonotes4", "conll2003", "ontonotes5"}


def test_no_row_stands_there_twice() -> None:
    assert len(set(ROWS)) == len(ROWS)


def test_the_released_code_is_told_from_what_was_printed() -> None:
    kinds = {row.kind for row in printed_scores("weibo", "tener")}
    assert kinds == {f"printed: {VECTORS}", f"released code: {RANDOM}"}
