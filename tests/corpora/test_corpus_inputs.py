"""Test which files `convert` reads for the paths of a user, and the paths of its output."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from spacy_tener.corpora.convert import output_name, plan_jobs
from spacy_tener.errors import InputError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def plan(folder: Path, *inputs: str, output: str = "out") -> list[tuple[str, str]]:
    jobs, _ = plan_jobs([name if name == "-" else folder / name for name in inputs], folder / output)
    return [(job.source.removeprefix(f"{folder}/"), str(job.output.relative_to(folder))) for job in jobs]


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("train.txt", "train.spacy"),
        ("train", "train.spacy"),
        ("train.char.bmes", "train.spacy"),
        ("train.bio.xz", "train.spacy"),
        ("weiboNER_2nd_conll.train", "weiboNER_2nd_conll.train.spacy"),
        ("weiboNER_2nd_conll.dev", "weiboNER_2nd_conll.dev.spacy"),
        ("emerging.test.annotated", "emerging.test.annotated.spacy"),
        ("eng.testa", "eng.testa.spacy"),
        ("v1.2.jsonl", "v1.2.spacy"),
        (".txt", ".txt.spacy"),
        ("sub/dir.txt/a.json", "sub/dir.txt/a.spacy"),
    ],
)
def test_output_name_removes_only_format_extensions(name: str, output: str) -> None:
    assert output_name(PurePath(name)) == PurePath(output)


def test_directory_is_traversed_in_order_with_same_structure(tmp_path: Path) -> None:
    touch(tmp_path, "in/b.txt", "in/a.bmes.gz", "in/sub/deep/a.jsonl", "in/x.train", "in/.hidden.txt", "in/.git/c.txt")
    touch(tmp_path, "in/README.md", "in/old.spacy", "in/sub/LICENSE", "in/images.gz")
    jobs, left_out = plan_jobs([tmp_path / "in"], tmp_path / "out")
    assert [str(job.output.relative_to(tmp_path / "out")) for job in jobs] == [
        "a.spacy",
        "b.spacy",
        "sub/deep/a.spacy",
        "x.train.spacy",
    ]
    assert [Path(path).name for path in left_out] == ["README.md", "images.gz", "old.spacy", "LICENSE"]


def test_standard_input_gets_output_name(tmp_path: Path) -> None:
    assert plan(tmp_path, "-") == [("-", "out/stdin.spacy")]
    assert plan(tmp_path, "-", output="dev.spacy") == [("-", "dev.spacy")]


def test_output_file_is_allowed_for_single_input(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "b.txt", "in/c.txt")
    assert plan(tmp_path, "a.txt", output="new/train.spacy") == [("a.txt", "new/train.spacy")]
    assert plan(tmp_path, "in", output="train.spacy") == [("in/c.txt", "train.spacy")]
    with pytest.raises(InputError, match=r"train\.spacy: a single output file for 2 input files"):
        plan(tmp_path, "a.txt", "b.txt", output="train.spacy")


def test_inputs_with_same_output_raise_error(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "a.jsonl", "sub/a.txt")
    for pair in (("a.txt", "a.jsonl"), ("a.txt", "sub/a.txt"), ("a.txt", "sub"), ("a.txt", "a.txt"), ("-", "-")):
        with pytest.raises(InputError, match=r"both .* and .* would be written to .*Convert each file separately"):
            plan(tmp_path, *pair)


def test_directory_without_corpora_raises_error(tmp_path: Path) -> None:
    touch(tmp_path, "in/README.md", "in/a.py")
    with pytest.raises(
        InputError, match=r"contains no corpus file, only 2 other files.*Pass the paths of the corpus files"
    ):
        plan(tmp_path, "in")


def test_output_directory_that_is_a_file_raises_error(tmp_path: Path) -> None:
    touch(tmp_path, "a.txt", "out")
    with pytest.raises(InputError, match="out: not a directory"):
        plan(tmp_path, "a.txt")
