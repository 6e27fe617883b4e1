"""Tests of the rows of a score table, with manually computed sums and published rows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from run_directories import Counted, make_run

from research.comparing import Summary, welch_p
from research.rows import Row, ScoreTable, all_printed, make_table, printed_scores
from research.runs import find_runs
from spacy_tener.errors import UserError

# Two seeds of Weibo. GPE.NOM shows why counts are necessary: both seeds have an F1 of 0, but only the second one has
# false positives.
FIRST: Counted = {"PER.NAM": (6, 2, 4), "ORG.NAM": (1, 0, 9), "PER.NOM": (5, 5, 5), "GPE.NOM": (0, 0, 2)}
SECOND: Counted = {"PER.NAM": (8, 2, 2), "ORG.NAM": (1, 3, 9), "PER.NOM": (5, 5, 5), "GPE.NOM": (0, 5, 2)}


def report(root: Path, **options: object) -> ScoreTable:
    return make_table(find_runs([root]), **options)  # type: ignore[arg-type]


def ours(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not row.source]


@pytest.fixture
def weibo(tmp_path: Path) -> Path:
    make_run(tmp_path, "weibo/mine/1", FIRST, dev_f=0.5, speed=1000.0)
    make_run(tmp_path, "weibo/mine/2", SECOND, dev_f=0.7, speed=3000.0)
    return tmp_path


def test_scores_are_means_over_seeds_in_percent(weibo: Path) -> None:
    (row,) = report(weibo).overall
    # First seed: 12 true positives, 7 false positives, 20 false negatives. Second seed: 14, 15 and 18.
    p, r, f = (12 / 19, 14 / 29), (12 / 32, 14 / 32), (24 / 51, 28 / 61)
    for summary, (first, second) in ((row.p, p), (row.r, r), (row.f, f)):
        assert summary is not None
        assert summary.mean == pytest.approx(50 * (first + second))
        assert summary.sd == pytest.approx(100 * abs(first - second) / math.sqrt(2))
        assert summary.n == 2
    assert row.key == ("weibo", "mine")
    assert (row.seeds, row.gold) == ((1, 2), 32)
    assert row.dev_f == Summary(mean=pytest.approx(60.0), sd=pytest.approx(10 * math.sqrt(2)), n=2)
    assert row.speed == Summary(mean=2000.0, sd=pytest.approx(1000 * math.sqrt(2)), n=2)
    assert row.versus is None


def test_each_label_has_a_row(weibo: Path) -> None:
    rows = {row.label: row for row in report(weibo, per_label=True).labels}
    assert list(rows) == ["GPE.NOM", "ORG.NAM", "PER.NAM", "PER.NOM"]
    per = rows["PER.NAM"]
    # Precision 6/8 and 8/10, recall 6/10 and 8/10.
    assert per.p is not None
    assert per.p.mean == pytest.approx(77.5)
    assert per.r is not None
    assert per.r.mean == pytest.approx(70.0)
    assert per.f.mean == pytest.approx(50 * (12 / 18 + 16 / 20))
    assert (per.seeds, per.gold) == ((1, 2), 10)
    assert rows["GPE.NOM"].f == Summary(0.0, 0.0, 2)


def test_a_label_that_one_seed_never_saw_is_a_mean_over_the_other(weibo: Path) -> None:
    make_run(weibo, "weibo/other/1", {"A": (1, 0, 0)})
    make_run(weibo, "weibo/other/2", {"A": (1, 0, 0), "B": (0, 3, 0)})
    rows = {row.label: row for row in report(weibo, per_label=True).labels if row.key[1] == "other"}
    assert rows["A"].seeds == (1, 2)
    assert (rows["B"].seeds, rows["B"].f.mean, rows["B"].f.sd) == ((2,), 0.0, None)


def test_named_and_nominal_entities_are_micro_averaged_from_counts(weibo: Path) -> None:
    named, nominal = report(weibo, named_nominal=True).mentions
    assert (named.label, nominal.label) == ("named", "nominal")
    # Named: 7 true positives, 2 false positives, 13 false negatives; and 9, 5 and 11.
    assert named.f.mean == pytest.approx(50 * (14 / 29 + 18 / 34))
    assert named.p is not None
    assert named.p.mean == pytest.approx(50 * (7 / 9 + 9 / 14))
    assert named.gold == 20
    # Nominal: 5 true positives, 5 false positives, 7 false negatives; and 5, 10 and 7. The scores by label are the same
    # in both seeds.
    assert nominal.f.mean == pytest.approx(50 * (10 / 22 + 10 / 27))
    assert nominal.f.sd == pytest.approx(100 * (10 / 22 - 10 / 27) / math.sqrt(2))
    assert nominal.gold == 12


def test_named_and_nominal_need_counts(weibo: Path) -> None:
    folder = make_run(weibo, "weibo/mine/3", FIRST, with_counts=False)
    with pytest.raises(UserError, match=r"has no counts.*spacy tener evaluate") as error:
        report(weibo, named_nominal=True)
    assert str(folder) in str(error.value)


def test_named_and_nominal_are_asked_of_corpora_that_have_them(weibo: Path) -> None:
    make_run(weibo, "resume/mine/1", {"PER": (1, 1, 1)}, with_counts=False)
    assert {row.key[0] for row in report(weibo, named_nominal=True).mentions} == {"weibo"}
    found = find_runs([weibo]).only(corpora=["resume"])
    with pytest.raises(UserError, match=r"No run has labels that end in \.NAM"):
        make_table(found, named_nominal=True)


def test_without_counts_per_document_a_baseline_is_compared_by_welchs_t_test(weibo: Path) -> None:
    for seed, (ner_f, tener_f) in enumerate([(0.50, 0.52), (0.53, 0.54), (0.53, 0.56)], start=1):
        make_run(weibo, f"resume/ner/{seed}", f=ner_f)
        make_run(weibo, f"resume/tener/{seed}", f=tener_f)
    make_run(weibo, "resume/tener/4", f=0.56)
    versus = {row.key: row.versus for row in report(weibo, baseline="ner", printed=False).overall}
    test = versus["resume", "tener"]
    assert test is not None
    assert (test.test, test.difference) == ("welch", pytest.approx(2.5))
    assert test.p == pytest.approx(welch_p([50.0, 53.0, 53.0], [52.0, 54.0, 56.0, 56.0]))
    assert versus["resume", "ner"] is None
    assert versus["weibo", "mine"] is None, "there is no ner on Weibo"


def test_with_counts_per_document_a_baseline_is_compared_by_a_bootstrap(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path, f"weibo/ner/{seed}", docs=[(1, 0, 1), (0, 1, 1)] * 20)
        make_run(tmp_path, f"weibo/tener/{seed}", docs=[(2, 0, 0), (1, 1, 0)] * 20)
    (test,) = [row.versus for row in report(tmp_path, baseline="ner").overall if row.versus]
    assert (test.test, test.p) == ("bootstrap", pytest.approx(1 / 10_001))
    assert test.difference == pytest.approx(100 * (60 / 70 - 20 / 50))


def test_runs_on_other_documents_are_not_compared_by_documents(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path, f"weibo/ner/{seed}", docs=[(seed, 0, 3 - seed), (0, 1, seed)])
        make_run(tmp_path, f"weibo/tener/{seed}", docs=[(seed, 0, 3 - seed), (1, 1, 0)])
    (test,) = [row.versus for row in report(tmp_path, baseline="ner").overall if row.versus]
    assert test.test == "welch"


def test_runs_of_unlike_configs_are_not_averaged(tmp_path: Path) -> None:
    config = '[paths]\ntrain = "{}"\n\n[system]\nseed = {}\n\n[training]\nseed = ${{system.seed}}\nmax_steps = {}\n'
    for seed, steps in ((1, 20), (2, 20)):
        make_run(tmp_path, f"weibo/tener/{seed}", f=0.5, config=config.format(f"{seed}.spacy", seed, steps))
    assert report(tmp_path).overall[0].seeds == (1, 2)
    make_run(tmp_path, "weibo/tener/3", f=0.9, config=config.format("a.spacy", 3, 300))
    with pytest.raises(UserError, match=r"have different configs: training\.max_steps is 20 and 300"):
        report(tmp_path)
    assert [row.seeds for row in report(tmp_path, by=("corpus", "system", "max_steps")).overall] == [(1, 2), (3,)]


def test_a_baseline_that_is_not_there_is_an_error(weibo: Path) -> None:
    make_run(weibo, "weibo/slow/1")
    with pytest.raises(UserError, match=r"ner is not one of these systems\. Finished: mine"):
        report(weibo, baseline="ner")
    with pytest.raises(UserError, match="slow has no finished run"):
        report(weibo, baseline="slow")
    with pytest.raises(UserError, match="not grouped by system"):
        report(weibo, baseline="mine", by=("corpus",))


def test_printed_rows_have_their_deviation_precision_recall_and_dev(tmp_path: Path) -> None:
    make_run(tmp_path, "conll2003/grn/1", f=0.9)
    make_run(tmp_path, "weibo/tener/1", f=0.5)
    rows = {row.source: row for row in report(tmp_path).overall}
    grn = rows["GRN, Chen et al. 2019, table 2, pretrained vectors"]
    assert (grn.p, grn.r, grn.f) == (Summary(91.31), Summary(91.57), Summary(91.44, 0.16))
    released = rows["TENER, released code, random embeddings, one seed"]
    assert (released.f, released.dev_f) == (Summary(51.2), Summary(57.7))


@pytest.mark.parametrize("options", [{"printed": False}, {"by": ("system",)}, {"by": ("corpus", "system", "seed")}])
def test_printed_rows_stand_where_runs_are_of_a_corpus_and_a_system(tmp_path: Path, options: dict[str, object]) -> None:
    make_run(tmp_path, "weibo/mect/1", FIRST)
    assert ours(report(tmp_path, **options).overall) == list(report(tmp_path, **options).overall)


def test_runs_scored_on_other_data_are_warned_of(weibo: Path) -> None:
    assert report(weibo).warnings == []
    make_run(weibo, "weibo/other/1", {"PER.NAM": (1, 0, 2)})
    (warning,) = report(weibo).warnings
    assert warning == "weibo/other/1 was scored on 3 entities, weibo/mine/1 on 32: not the same test data"


VECTORS, BERT, RANDOM = "pretrained vectors", "pretrained vectors and BERT", "random embeddings, one seed"
RELEASED = "released code"
ROWS = all_printed()


def scores(corpus: str, system: str, condition: str = VECTORS) -> list[float]:
    return [row.f for row in printed_scores(corpus, system) if row.condition == condition]


@pytest.mark.parametrize(
    ("corpus", "system", "f"),
    [
        ("resume", "tener", 95.00),
        ("msra", "flat", 94.12),
        ("ontonotes4", "mect", 76.92),
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
    # FLAT-ATSSA was published with BERT only. Its rows are shown next to our systems with and without BERT.
    assert scores("weibo", "flat-atssa", BERT) == scores("weibo", "flat-atssa+bert", BERT) == [72.53]
    assert scores("weibo", "flat-atssa") == []


@pytest.mark.parametrize(
    ("corpus", "first", "second"),
    [
        ("weibo", "FLAT_ATSSA", "flat-atssa"),
        ("Weibo", "Flat Atssa", "flat-atssa"),
        ("conll2003", "chars-cnn+encoder-idcnn", "encoder-idcnn+chars-cnn"),
        # Overlays that all configs include are ignored.
        ("conll2003", "tener", "chars-adapted+encoder-adapted"),
        ("conll2003", "tener", "paper-size"),
        ("conll2003", "chars-cnn", "chars-cnn+encoder-adapted"),
        ("conll2003", "encoder-bilstm", "chars-adapted+encoder-bilstm"),
        # The base overlay of an ablation is ignored.
        ("weibo", "mect+mect-no-random-attention", "mect-no-random-attention"),
        ("weibo", "flat-atssa+flat-atssa-no-top-k", "flat-atssa-no-top-k"),
    ],
)
def test_names_of_one_system_have_the_same_rows(corpus: str, first: str, second: str) -> None:
    assert printed_scores(corpus, first) == printed_scores(corpus, second) != []


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
