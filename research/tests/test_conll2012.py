"""Tests of the conversion of OntoNotes in the format of CoNLL-2012."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.conll2012 import read_columns, write_columns
from spacy_tener.errors import InputError

# The format of the real files: aligned with spaces, a variable number of predicate columns, and coreference at the end.
NEWS = """#begin document (nw/xyz/24/xyz_2401); part 000
nw/xyz/24/xyz_2401   0   0     Ann    NNP  (TOP(S(NP*    -    -   -   -  (PERSON*   (ARG0*  (7
nw/xyz/24/xyz_2401   0   1     Lee    NNP          *)    -    -   -   -         *)        *)  7)
nw/xyz/24/xyz_2401   0   2    left    VBD       (VP*  leave   01   1   -         *      (V*)   -
nw/xyz/24/xyz_2401   0   3   Paris    NNP     (NP*)))    -    -   -   -     (GPE)   (ARG1*)   -

nw/xyz/24/xyz_2401   0   0     Two     CD  (TOP(NP*)    -    -   -   -  (CARDINAL)   -
nw/xyz/24/xyz_2401   0   1       .      .         *)    -    -   -   -           *   -

#end document
#begin document (nw/xyz/24/xyz_2401); part 001
nw/xyz/24/xyz_2401   1   0    Rain     NN  (TOP(NP*))   -    -   -   -   *   -

#end document
"""
TESTAMENT = """#begin document (pt/nt/40/nt_4001); part 000
pt/nt/40/nt_4001   0   0   Abraham   NNP   (TOP(NP*))   -   -   -   -   *   -

#end document
"""
SENTENCES = ["Ann/B-PERSON Lee/I-PERSON left/O Paris/B-GPE", "Two/B-CARDINAL ./O", "Rain/O"]


def row(number: int, word: str, names: str = "*") -> str:
    return f"wb/a/00/a_0000 0 {number} {word} NN * - - - - {names} -"


def document(*names: str, words: tuple[str, ...] = ()) -> str:
    """Return a document with one sentence."""
    words = words or ("w",) * len(names)
    rows = [row(index, word, cell) for index, (word, cell) in enumerate(zip(words, names, strict=True))]
    return "\n".join(["#begin document (wb/a/00/a_0000); part 000", *rows, "", "#end document", ""])


def read(folder: Path, text: str) -> str:
    path = folder / "x.v4_gold_conll"
    path.write_text(text, encoding="utf-8", newline="")
    return "\n".join(read_columns(path))


def sentences(columns: str) -> list[str]:
    """Return the sentences as "word/tag", without document start markers."""
    blocks = [block.strip("\n") for block in columns.split("\n\n")]
    return [" ".join(block.replace("\t", "/").split("\n")) for block in blocks if block and "DOCSTART" not in block]


def test_words_names_sentences_and_parts_are_read(tmp_path: Path) -> None:
    columns = read(tmp_path, NEWS)
    assert sentences(columns) == SENTENCES
    assert columns.count("-DOCSTART-\tO\n\n") == 2


@pytest.mark.parametrize(
    "change",
    [("\n", "\r\n"), ("   ", "\t"), ("#end document\n", "#end document\n\n\n"), ("\n\n#end", "\n#end")],
    ids=["returns", "tabs", "blank lines", "no blank line"],
)
def test_line_ends_tabs_and_blank_lines_make_no_difference(tmp_path: Path, change: tuple[str, str]) -> None:
    assert sentences(read(tmp_path, NEWS.replace(*change))) == SENTENCES


@pytest.mark.parametrize(
    ("cells", "tags"),
    [
        ("(ORG* * *)", "B-ORG I-ORG I-ORG"),
        ("(ORG) (ORG) *", "B-ORG B-ORG O"),
        ("(ORG*) * (ORG)", "B-ORG O B-ORG"),
        ("* (WORK_OF_ART* *)", "O B-WORK_OF_ART I-WORK_OF_ART"),
        ("(ORG* *) (ORG)", "B-ORG I-ORG B-ORG"),
        ("(ORG(GPE) * (DATE*)) (GPE)", "B-ORG I-ORG I-ORG B-GPE"),
    ],
)
def test_brackets_become_tags_of_the_outermost_name(tmp_path: Path, cells: str, tags: str) -> None:
    (found,) = sentences(read(tmp_path, document(*cells.split())))
    assert found == " ".join(f"w/{tag}" for tag in tags.split())


@pytest.mark.parametrize(
    ("word", "text"),
    [
        *zip(("-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"), "()[]{}", strict=True),
        *((f"/{mark}", mark) for mark in ".?,-"),
        ("1\\/2", "1/2"),
        ("\\*", "*"),
        *((word, word) for word in ("/", "//", "and/or", "/.x", "-LRB", "--", "%um", "http://a.b/c", "#1", "（")),
        ("a\u3000b", "a\u3000b"),
        ("c\xa0d", "c\xa0d"),
    ],
)
def test_words_are_read_as_the_text_had_them(tmp_path: Path, word: str, text: str) -> None:
    assert f"\n{text}\tO\n" in read(tmp_path, document("*", "(ORG)", words=(word, "x")))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (document("(ORG*", "*"), 3, "the name '(ORG' does not end in its sentence"),
        (document("*", "(ORG*", "(GPE)"), 4, "the name '(ORG' does not end in its sentence"),
        (document("*", "*)"), 3, "'*)' in column 11 ends a name that has not begun"),
        (document("(ORG*", "*))"), 3, "'*))' in column 11 ends a name that has not begun"),
        (document("(ORG)", "B-ORG"), 3, "'B-ORG' in column 11 is not a name in brackets"),
        (document("*", "-"), 3, "'-' in column 11 is not a name in brackets"),
        (document("(*", "*)"), 2, "'(*' in column 11 is not a name in brackets"),
        (document("*)(ORG*"), 2, "'*)(ORG*' in column 11 is not a name in brackets"),
        (document("*", words=("[WORD]",)), 2, "the file is a skeleton, with [WORD] for each word"),
        (document("*", "* *").replace("- * * -", "- *"), 3, "the line has 11 columns, fewer than 12"),
        (NEWS.removesuffix("#end document\n"), 13, "there is no end of the document (nw/xyz/24/xyz_2401); part 001"),
        (NEWS.replace("#end document\n", "", 1), 10, "there is no end of the document (nw/xyz/24/xyz_2401); part 000"),
        (NEWS + row(0, "x"), 15, "the line is outside a document"),
    ],
)
def test_a_bad_line_is_named_with_a_fix(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert (caught.value.line, caught.value.reason) == (line, reason)
    assert caught.value.source == str(tmp_path / "x.v4_gold_conll")
    assert caught.value.fix.endswith((".", "`."))


def test_a_tree_of_files_joins_into_one_without_the_new_testament(tmp_path: Path) -> None:
    for name, text in {"nw/a": NEWS, "pt/b": TESTAMENT, "wb/c": document("*")}.items():
        path = tmp_path / "in" / f"{name}.v4_gold_conll"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        path.with_suffix(".v4_gold_skel").write_text("no corpus", encoding="utf-8")
    write_columns(tmp_path / "in", tmp_path / "train.txt")
    assert sentences((tmp_path / "train.txt").read_text(encoding="utf-8")) == [*SENTENCES, "w/O"]
