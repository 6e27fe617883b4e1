"""Test the reader of corpora in columns: `char TAG`, CoNLL-2003 and Weibo."""

from __future__ import annotations

from pathlib import Path

import pytest

from spacy_tener.corpora.annotation import CorpusError, EntitySpan, Event, Sentence
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader
from spacy_tener.errors import InputError

WEIBO = "科0\tB-ORG.NAM\n技1\tI-ORG.NAM\n10\tO\n11\tO\n#0\tO\n\n老0\tB-PER.NOM\n师1\tI-PER.NOM\n😂0\tO\n０0\tO\n\n"
CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""


def sentences(path: Path, text: str, **options: str) -> list[Sentence]:
    path = path / "corpus.txt"
    path.write_text(text, encoding="utf-8", newline="")
    return list(CorpusReader(path, CorpusOptions(**options)))


def tokens(found: list[Sentence]) -> list[str]:
    return ["|".join(sentence.tokens) for sentence in found]


def test_sentences_have_line_numbers_and_end_at_docstart(tmp_path: Path) -> None:
    first, second, third = sentences(tmp_path, CONLL)
    assert first == Sentence(("EU", "rejects", "German"), first.spans, (), 3)
    assert second == Sentence(("Peter", "Blackburn"), (EntitySpan(0, 2, "PER"),), (), 7)
    assert third.tokens == ("BRUSSELS",)
    found = sentences(tmp_path, "a O\n-DOCSTART- O\nb O\n-DOCSTART-\n-DOCSTART-\n\nc O")
    assert tokens(found) == ["a", "b", "c"]


def test_weibo_positions_are_removed_from_tokens(tmp_path: Path) -> None:
    assert tokens(sentences(tmp_path, WEIBO)) == ["科|技|1|1|#", "老|师|😂|０"]
    text = "".join(f"{digit}{position}\tO\n" for position, digit in enumerate("201112345678")) + "\ufffd\ufffd0\tO\n"
    (found,) = sentences(tmp_path, text)
    assert "".join(found.tokens[:-1]) == "201112345678"
    assert found.tokens[-1] == "\ufffd\ufffd"


@pytest.mark.parametrize("text", ["B2 O\nB5 O\nC7 O\n", "10 O\n20 O\n35 O\n", "A0 O\nB O\n", "9" * 5000 + " O\n"])
def test_digits_that_are_not_positions_stay_in_tokens(tmp_path: Path, text: str) -> None:
    (found,) = sentences(tmp_path, text)
    assert list(found.tokens) == [line.split()[0] for line in text.splitlines()]


def test_explicit_columns_format_keeps_positions_in_tokens(tmp_path: Path) -> None:
    assert sentences(tmp_path, WEIBO, format="columns")[0].tokens == ("科0", "技1", "10", "11", "#0")


@pytest.mark.parametrize("blank", ["", " ", "\t", " \t ", "\u3000"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_whitespace_lines_end_a_sentence(tmp_path: Path, blank: str, end: str) -> None:
    found = sentences(tmp_path, end.join([blank, "a O", blank, blank, "b O", "c O", blank]))
    assert tokens(found) == ["a", "b|c"]


@pytest.mark.parametrize("opening", ["{", "[", '"', "[["])
@pytest.mark.parametrize("format", ["auto", "columns"])
def test_brackets_and_quotes_are_tokens(tmp_path: Path, opening: str, format: str) -> None:
    assert tokens(sentences(tmp_path, f"{opening} O\n] O\n", format=format)) == [f"{opening}|]"]


def test_columns_can_be_aligned_with_spaces(tmp_path: Path) -> None:
    found = sentences(tmp_path, "EU      NNP  B-ORG\nrejects VBZ  O   \n")
    assert found[0].tokens == ("EU", "rejects")
    assert found[0].spans == (EntitySpan(0, 1, "ORG"),)


def test_reader_reports_tag_scheme_and_repaired_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a B-X\nb I-X\n\nc O\nd I-X\n\ne I-Y\n\nf B-X\n", encoding="utf-8")
    reader = CorpusReader(path)
    assert len(list(reader)) == 4
    assert (reader.format, reader.scheme) == ("columns", "IOB2")
    assert reader.notes.counts == {Event.REPAIRED: 2}
    assert reader.notes.examples[Event.REPAIRED][0] == "line 5: I-X after O begins an entity"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a O\nb\n", 2, "the line has one column"),
        ("a\n", 1, "the line has one column"),
        ("上,O\n海,O\n", 1, "the line has one column"),
        ("a O\nNew York B-LOC\n", 2, "the line has 3 columns, but the lines before it have 2"),
        ("a NN O\n\nb O\n", 3, "the line has 2 columns, but the lines before it have 3"),
        ("a O\n O\n", 2, "the token in the first column is empty"),
        ("a\tO\n\tO\n", 2, "the token in the first column is empty"),
        ("a NN O\n  b NN O\n", 2, "the line has 4 columns, but the lines before it have 3"),
        ("a O\n\nb O\nc B\n", 4, "'B' is not a tag"),
        ("a B-X\nb L-X\nc E-X\n", 3, "tag 'E-X' does not belong to the scheme BILOU"),
    ],
)
def test_invalid_line_error_names_the_line(tmp_path: Path, text: str, line: int, reason: str) -> None:
    with pytest.raises(CorpusError) as caught:
        sentences(tmp_path, text)
    assert caught.value.line == line
    assert caught.value.reason.startswith(reason)
    assert caught.value.fix
    assert str(caught.value).startswith(f"{tmp_path / 'corpus.txt'}:{line}: {reason}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "Unknown corpus format 'csv'.*columns, weibo, jsonl, labelstudio, cluener"),
        ({"scheme": "BIX"}, "Unknown tag scheme 'BIX'.*BIOES"),
        ({"overlap": "first"}, r"Unknown value 'first' of overlap\. Use one of: error, longest, spans"),
        *(({"encoding": name}, f"Unknown encoding '{name}'") for name in ("gbx", "hex", "rot13", "undefined")),
    ],
)
def test_unknown_option_value_error_lists_valid_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorpusOptions(**options)


@pytest.mark.parametrize("text", ["Jane \tB-PER\nDoe\t I-PER \n", " Jane\tB-PER\n  Doe \tI-PER\n"])
def test_spaces_around_tabs_are_stripped(tmp_path: Path, text: str) -> None:
    (found,) = sentences(tmp_path, text)
    assert (found.tokens, found.spans) == (("Jane", "Doe"), (EntitySpan(0, 2, "PER"),))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # Lines that begin with a hash, tabs before spaces, Unicode whitespace, and numbers that are not token indices.
        ("# O\n#topic O\n\n# O\n", ["#|#topic", "#"]),
        ("New York\tB-LOC\n\u3000\tO\n \tO\nend\tO\t\n", ["New York|\u3000| |end"]),
        ("\u3000 O\n\xa0 O\na\u2028b O\n\x85 O\n  O\n", ["\u3000|\xa0|a\u2028b|\x85| "]),
        ("1 CD O\n2 CD O\n\n7 CD O\n", ["1|2", "7"]),
        ("1 O\n2 O\n", ["1|2"]),
        ("1 CD O\n\n1 CD O\n", ["1", "1"]),
        # A first column of token indices is skipped, also if one of them is damaged.
        ("0 Jane NNP B-PER\n1 sang VBD O\n\n0 1 CD O", ["Jane|sang", "1"]),
        ("1 Jane NNP B-PER\n2 sang VBD O\n\n1 1 CD O", ["Jane|sang", "1"]),
        ("".join(f"{'x' if n == 20 else n}\t字\tO\n" for n in range(40)), ["|".join("字" * 40)]),
    ],
)
def test_ambiguous_lines_are_parsed_as_tokens(tmp_path: Path, text: str, found: list[str]) -> None:
    assert tokens(sentences(tmp_path, text)) == found


def test_token_and_tag_columns_can_be_specified(tmp_path: Path) -> None:
    text = "x1 B-PER Jane NNP\nx2 O sang VBD\n"
    (found,) = list(read_columns(tmp_path, text, token_column=3, tag_column=2))
    assert (found.tokens, found.spans) == (("Jane", "sang"), (EntitySpan(0, 1, "PER"),))
    assert read_columns(tmp_path, text, token_column=-2, tag_column=-3) == [found]
    with pytest.raises(
        CorpusError, match=r"the tag column doesn.t exist, because the line has only 4 columns.*--tag-column"
    ):
        read_columns(tmp_path, text, token_column=3, tag_column=5)
    with pytest.raises(ValueError, match="no column 0"):
        CorpusOptions(token_column=0)


def read_columns(path: Path, text: str, **options: int) -> list[Sentence]:
    (path / "corpus.txt").write_text(text, encoding="utf-8")
    return list(CorpusReader(path / "corpus.txt", CorpusOptions(format="columns", **options)))


def test_comment_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text("# sent_id = 1\n# text = # sang\n1\t#\tB-X\n2\tsang\tO\n\n# id 7\n1\ta\tO\n", encoding="utf-8")
    reader = CorpusReader(path)
    assert [sentence.tokens for sentence in reader] == [("#", "sang"), ("a",)]
    assert reader.notes.counts == {Event.COMMENT: 2}


def test_multiword_tokens_of_conllu_replace_their_words(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    text = (
        "# text = im Haus vom Louvre\n1-2\tim\t_\t_\n1\tin\t_\tO\n2\tdem\t_\tO\n3\tHaus\t_\tO\n"
        "4-5\tvom\t_\t_\n4\tvon\t_\tO\n5\tdem\t_\tB-LOC\n5.1\tgroßen\t_\tO\n6\tLouvre\t_\tI-LOC\n\n"
    )
    path.write_text(text, encoding="utf-8")
    (found,) = list(CorpusReader(path))
    assert found.tokens == ("im", "Haus", "vom", "Louvre")
    assert found.spaces == (True, True, True, False)
    assert found.spans == (EntitySpan(2, 4, "LOC"),)


def test_error_summarizes_all_invalid_lines(tmp_path: Path) -> None:
    text = "a O\n\nb PER\n\nc O\nd\n\n" + "e ORG\n\n" * 1000
    with pytest.raises(CorpusError) as caught:
        sentences(tmp_path, text)
    assert (caught.value.line, caught.value.reason) == (3, "'PER' is not a tag")
    assert "1001 more records cannot be parsed: line 6: the line has one column; line 8: 'ORG' is not a tag" in str(
        caught.value
    )
    assert len(str(caught.value)) < 1000


def test_damaged_token_does_not_prevent_weibo_detection(tmp_path: Path) -> None:
    lines = [f"字{index}\tO" for index in range(40)]
    lines[20] = "字\tO"
    with pytest.raises(CorpusError, match=r"corpus\.txt:21: '字' does not end with its position"):
        sentences(tmp_path, "\n".join(lines))


def test_decoding_error_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a O\n+2AA- B-X\n")
    with pytest.raises(InputError, match=r"a\.txt:2: .* is not UTF-7"):
        list(CorpusReader(tmp_path / "a.txt", CorpusOptions(encoding="utf-7")))


WITH_TEXT_COMMENT = """# newdoc id = a
# sent_id = a-1
# text = 他在 北京。 “Hi”  O
1\t他\tO
2\t在\tO
3\t北京\tB-LOC
4\t。\tO
5\t“\tO
6\tHi\tB-PER
7\t”\tO
8\tO\tB-PER

"""


def test_text_comment_defines_whitespace_between_tokens(tmp_path: Path) -> None:
    (found,) = sentences(tmp_path, WITH_TEXT_COMMENT)
    assert found.tokens == ("他", "在", "北京", "。", "“", "Hi", "”", " ", "O")
    assert found.spaces == (False, True, False, True, False, False, True, False, False)
    assert found.spans == (EntitySpan(2, 3, "LOC"), EntitySpan(5, 6, "PER"), EntitySpan(8, 9, "PER"))


def test_text_comment_applies_only_to_next_sentence(tmp_path: Path) -> None:
    first, second = sentences(tmp_path, "# text = a b\na O\nb O\n\na O\nb O\n")
    assert (first.spaces, second.spaces) == ((True, False), ())


def test_whitespace_tokens_do_not_shift_annotation(tmp_path: Path) -> None:
    (found,) = sentences(tmp_path, "# text = a   b\u3000c\na -\nb B-X\nc I-X\n")
    assert found.tokens == ("a", "  ", "b", "\u3000", "c")
    assert (found.missing, found.spans) == ((0,), (EntitySpan(2, 5, "X"),))
    (found,) = sentences(tmp_path, "# text = a  b  c  d\na -\nb -\nc O\nd -\n")
    assert found.tokens == ("a", " ", "b", " ", "c", " ", "d")
    assert found.missing == (0, 1, 2, 6)


@pytest.mark.parametrize(("text", "token"), [("他在北京", "北京"), ("他在上海是", "是"), ("他 上海", "上海")])
def test_text_comment_without_the_tokens_raises_error(tmp_path: Path, text: str, token: str) -> None:
    with pytest.raises(CorpusError, match=f'"{token}"') as error:
        sentences(tmp_path, f"# id = 1\n# text = {text}\n他 O\n在 O\n上海 B-LOC\n")
    assert f"{tmp_path / 'corpus.txt'}:2" in str(error.value)
    assert error.value.fix.startswith("Correct the line")
