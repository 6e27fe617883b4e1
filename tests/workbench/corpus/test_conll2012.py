"""OntoNotes in the columns of CoNLL-2012."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from conversion import convert
from spacy.tokens import Doc, DocBin

from spacy_tener.errors import InputError
from spacy_tener.workbench.corpus.convert import DocOptions
from spacy_tener.workbench.corpus.options import CorpusOptions
from spacy_tener.workbench.corpus.reader import CorpusReader
from spacy_tener.workbench.corpus.records import CorpusError, EntitySpan, Event, Sentence

# The shape of the real files: aligned by spaces, columns of predicates that come and go, coreference last.
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


def row(number: int, word: str, names: str = "*", document: str = "wb/a/00/a_0000") -> str:
    return f"{document} 0 {number} {word} NN * - - - - {names} -"


def document(*names: str, words: tuple[str, ...] = (), name: str = "wb/a/00/a_0000") -> str:
    """One document of one sentence."""
    words = words or tuple("w" * (index + 1) for index in range(len(names)))
    rows = [row(index, word, cell, name) for index, (word, cell) in enumerate(zip(words, names, strict=True))]
    return "\n".join([f"#begin document ({name}); part 000", *rows, "", "#end document", ""])


def sentences(path: Path, text: str, **options: bool | str) -> list[Sentence]:
    path = path / "x.v4_gold_conll"
    path.write_text(text, encoding="utf-8", newline="")
    return list(CorpusReader(path, CorpusOptions(**options)))


def written_to(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("en").vocab))


def test_words_names_sentences_and_parts_are_read(tmp_path: Path) -> None:
    first, second, third = sentences(tmp_path, NEWS)
    assert first == Sentence(
        ("Ann", "Lee", "left", "Paris"), (EntitySpan(0, 2, "PERSON"), EntitySpan(3, 4, "GPE")), (), 2, True
    )
    assert second == Sentence(("Two", "."), (EntitySpan(0, 1, "CARDINAL"),), (), 7, False)
    assert third == Sentence(("Rain",), (), (), 12, True)


def test_the_format_is_told_by_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "x.conll"
    path.write_text("\n" + NEWS, encoding="utf-8")
    reader = CorpusReader(path)
    assert len(list(reader)) == 3
    assert (reader.format, reader.scheme) == ("conll2012", None)


@pytest.mark.parametrize("change", [("\n", "\r\n"), ("   ", "\t"), ("#end document\n", "#end document\n\n\n")])
def test_line_ends_tabs_and_blank_lines_make_no_difference(tmp_path: Path, change: tuple[str, str]) -> None:
    plain, changed = sentences(tmp_path, NEWS), sentences(tmp_path, NEWS.replace(*change))
    assert [(each.tokens, each.spans) for each in changed] == [(each.tokens, each.spans) for each in plain]


def test_the_end_of_a_document_ends_a_sentence(tmp_path: Path) -> None:
    text = NEWS.replace("\n\n#end", "\n#end")
    assert [len(each.tokens) for each in sentences(tmp_path, text)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("cells", "spans"),
    [
        (["(ORG*", "*", "*)"], [(0, 3)]),
        (["(ORG)", "(ORG)", "*"], [(0, 1), (1, 2)]),
        (["(ORG*)", "*", "(ORG)"], [(0, 1), (2, 3)]),
        (["*", "(WORK_OF_ART*", "*)"], [(1, 3)]),
        (["(ORG*", "*)", "(ORG)"], [(0, 2), (2, 3)]),
    ],
)
def test_brackets_are_read(tmp_path: Path, cells: list[str], spans: list[tuple[int, int]]) -> None:
    (found,) = sentences(tmp_path, document(*cells))
    assert [(span.start, span.end) for span in found.spans] == spans


def test_a_name_within_a_name_is_left_out_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(document("(ORG(GPE)", "*", "(DATE*))", "(GPE)"), encoding="utf-8")
    reader = CorpusReader(path)
    (found,) = reader
    assert found.spans == (EntitySpan(0, 3, "ORG"), EntitySpan(3, 4, "GPE"))
    assert reader.notes.counts[Event.OVERLAP] == 2
    assert reader.notes.examples[Event.OVERLAP][1] == "line 4: DATE"


@pytest.mark.parametrize(
    ("word", "text"),
    [
        *zip(("-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"), "()[]{}", strict=True),
        *((f"/{mark}", mark) for mark in ".?,-"),
        ("1\\/2", "1/2"),
        ("\\*", "*"),
        *((word, word) for word in ("/", "//", "and/or", "/.x", "-LRB", "--", "%um", "http://a.b/c", "#1", "（")),
    ],
)
def test_words_are_read_as_the_text_had_them(tmp_path: Path, word: str, text: str) -> None:
    (found,) = sentences(tmp_path, document("*", "(ORG)", words=(word, "x")))
    assert found.tokens == (text, "x")


def test_wide_spaces_stay_in_words(tmp_path: Path) -> None:
    (found,) = sentences(tmp_path, document("*", "(ORG)", words=("a\u3000b", "c\xa0d")))
    assert found.tokens == ("a\u3000b", "c\xa0d")


def test_the_new_testament_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "all.v4_gold_conll"
    path.write_text(TESTAMENT + NEWS + TESTAMENT, encoding="utf-8")
    reader = CorpusReader(path)
    assert [len(each.tokens) for each in reader] == [4, 2, 1]
    assert reader.notes.counts == {Event.NEW_TESTAMENT: 2}
    assert reader.notes.examples[Event.NEW_TESTAMENT][0] == "line 2: pt/nt/40/nt_4001"


def test_documents_without_a_name_are_kept_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "x"
    text = NEWS + document("*", "*", name="wb/b/00/b_0000") + document("(GPE)")
    path.write_text(text, encoding="utf-8")
    reader = CorpusReader(path)
    assert [len(each.tokens) for each in reader] == [4, 2, 1, 2, 1]
    # A part without names, of a document with some, is nothing to remark on.
    assert reader.notes.counts == {Event.NAMELESS: 1}
    assert reader.notes.examples[Event.NAMELESS] == ["line 16: wb/b/00/b_0000"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (document("(ORG*", "*"), 2, "the name '(ORG' does not end in its sentence"),
        (document("*", "(ORG*", "(GPE)"), 3, "the name '(ORG' does not end in its sentence"),
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
def test_a_bad_line_is_named_with_a_remedy(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(CorpusError) as caught:
        sentences(tmp_path, text)
    assert (caught.value.line, caught.value.reason) == (line, reason)
    assert caught.value.source == str(tmp_path / "x.v4_gold_conll")
    assert caught.value.remedy.endswith((".", "`."))


def test_a_file_becomes_docs_with_spaces_and_sentences(tmp_path: Path) -> None:
    (tmp_path / "xyz_2401.v4_gold_conll").write_text(NEWS, encoding="utf-8")
    (report,) = convert([tmp_path / "xyz_2401.v4_gold_conll"], tmp_path, making=DocOptions(lang="en", n_sents=0))
    first, second = written_to(tmp_path / "xyz_2401.spacy")
    assert first.text == "Ann Lee left Paris Two . "
    assert [(ent.text, ent.label_) for ent in first.ents] == [
        ("Ann Lee", "PERSON"),
        ("Paris", "GPE"),
        ("Two", "CARDINAL"),
    ]
    assert [len(sentence) for sentence in first.sents] == [4, 2]
    assert (second.text, report.documents, report.sentences, report.format) == ("Rain ", 2, 3, "conll2012")


def test_a_tree_of_files_joins_into_one(tmp_path: Path) -> None:
    for name, text in {"nw/a": NEWS, "pt/b": TESTAMENT, "wb/c": document("*")}.items():
        path = tmp_path / "in" / f"{name}.v4_gold_conll"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        path.with_suffix(".v4_gold_skel").write_text("no corpus", encoding="utf-8")
    (report,) = convert([tmp_path / "in"], tmp_path / "train.spacy", making=DocOptions(lang="en"), join=True)
    assert [doc.text for doc in written_to(tmp_path / "train.spacy")] == [
        "Ann Lee left Paris ",
        "Two . ",
        "Rain ",
        "w ",
    ]
    assert (report.documents, report.sentences, report.format, report.scheme) == (3, 4, "conll2012", None)
    assert report.source == f"{tmp_path / 'in' / 'nw' / 'a.v4_gold_conll'} and 2 more"
    nameless = f"{tmp_path / 'in' / 'wb' / 'c.v4_gold_conll'}, line 2: wb/a/00/a_0000"
    assert report.notes.examples[Event.NAMELESS] == [nameless]
    assert report.notes.counts[Event.NEW_TESTAMENT] == 1


def test_files_of_several_formats_join(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ann B-PER\n", encoding="utf-8")
    (tmp_path / "b.gold_conll").write_text(document("(GPE)"), encoding="utf-8")
    inputs = [tmp_path / "b.gold_conll", tmp_path / "a.txt", tmp_path / "b.gold_conll"]
    (report,) = convert(inputs, tmp_path / "all.spacy", making=DocOptions(lang="en"), join=True)
    assert [doc.ents[0].label_ for doc in written_to(tmp_path / "all.spacy")] == ["GPE", "PER", "GPE"]
    assert (report.format, report.scheme) == ("columns, conll2012", "IOB2")


def test_joined_inputs_need_a_file_to_go_to(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ann B-PER\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"joined inputs make one file. Name a file that ends in \.spacy"):
        convert([tmp_path / "a.txt"], tmp_path / "out", join=True)


def test_a_file_of_the_new_testament_alone_makes_no_output_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "nt.gold_conll").write_text(TESTAMENT, encoding="utf-8")
    (report,) = convert([tmp_path / "nt.gold_conll"], tmp_path / "out", making=DocOptions(lang="en"))
    assert (report.docs, report.notes.counts[Event.NEW_TESTAMENT]) == (0, 1)
    assert not (tmp_path / "out").exists()
