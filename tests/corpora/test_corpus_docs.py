"""Test the conversion of sentences and texts to Docs: tokens, spaces, entities and missing annotation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import spacy
from small_corpora import save_docs
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.corpora.annotation import AnnotatedText, EntitySpan, Event, Notes, Sentence
from spacy_tener.corpora.docs import read_docs, sentence_to_doc, text_to_doc

ZH = spacy.blank("zh")
EN = spacy.blank("en")


def sentence(words: str, *spans: tuple[int, int, str], missing: tuple[int, ...] = ()) -> Sentence:
    return Sentence(tuple(words.split("|")), tuple(EntitySpan(*span) for span in spans), missing, 10)


def doc_of(sentence: Sentence, spaces: bool = False, notes: Notes | None = None) -> Doc:
    return sentence_to_doc(ZH.vocab, sentence, spaces=spaces, note=(notes or Notes()).add)


def text_doc(
    text: str,
    *spans: tuple[int, int, str],
    nlp: spacy.language.Language = EN,
    notes: Notes | None = None,
    missing: tuple[tuple[int, int], ...] = (),
) -> Doc:
    annotated = AnnotatedText(text, tuple(EntitySpan(*span) for span in spans), missing, 5)
    return text_to_doc(nlp.tokenizer, annotated, note=(notes or Notes()).add)


def ents(doc: Doc) -> list[tuple[str, str]]:
    return [(entity.text, entity.label_) for entity in doc.ents]


def iob(doc: Doc) -> str:
    return "".join("?IOB"[token.ent_iob] for token in doc)


def test_sentence_doc_keeps_corpus_tokens() -> None:
    doc = doc_of(sentence("高|勇|\ufffd\ufffd|😂", (0, 2, "NAME")))
    assert [token.text for token in doc] == ["高", "勇", "\ufffd\ufffd", "😂"]
    assert doc.text == "高勇\ufffd\ufffd😂"
    assert (ents(doc), iob(doc)) == ([("高勇", "NAME")], "BIOO")


def test_punctuation_is_split_off_at_entity_boundaries() -> None:
    notes = Notes()
    text = AnnotatedText("Klasse B. (C1), Nr. 5., C++-Kurs", ())
    words = Vocab()
    doc = Doc(words, ["Klasse", "B.", "(C1),", "Nr.", "5.,", "C++-Kurs"], [True, True, True, True, True, False])
    spans = ((0, 8), (11, 13), (16, 22), (24, 27))
    annotated = replace(text, spans=tuple(EntitySpan(start, end, "X") for start, end in spans), line=3)
    split = text_to_doc(lambda _: doc, annotated, note=notes.add)
    assert [token.text for token in split] == ["Klasse", "B", ".", "(", "C1", "),", "Nr.", "5.", ",", "C++-Kurs"]
    assert split.text == text.text
    assert ents(split) == [("Klasse B", "X"), ("C1", "X"), ("Nr. 5.", "X")]
    assert notes.counts == {Event.SPLIT: 3, Event.MISALIGNED: 1}
    assert notes.examples[Event.SPLIT][0] == "line 3: 'B.' as 'B .'"


def test_adjacent_entities_with_same_label_stay_separate() -> None:
    doc = doc_of(sentence("c|d|e|f", (0, 1, "Y"), (1, 3, "Y"), missing=(3,)))
    assert [sent.text for sent in doc.sents] == ["cdef"]
    assert (ents(doc), iob(doc)) == ([("c", "Y"), ("de", "Y")], "BBI?")


def test_whitespace_tokens_at_entity_boundaries_are_removed() -> None:
    notes = Notes()
    doc = doc_of(sentence(" |a|\u3000|b|\t|c| ", (0, 5, "X"), (5, 6, "Y"), (6, 7, "X")), notes=notes)
    assert ents(doc) == [("a\u3000b", "X"), ("c", "Y")]
    assert notes.counts == {Event.TRIMMED: 1, Event.BLANK: 1}
    assert notes.examples == {
        Event.TRIMMED: ["line 10: X ' a\\u3000b\\t'"],
        Event.BLANK: ["line 10: X ' '"],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "北京 \u3000上海\n\n",
        "\r\n a  b\t",
        "👨‍👩‍👧 𠮷田さん",
        "０，：～！（）",
        "don't (re-)tokenise",
        "a\u2028b\xa0c",
    ],
)
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_text_doc_keeps_characters_and_tokenization(text: str, lang: str) -> None:
    nlp = {"zh": ZH, "en": EN}[lang]
    doc = text_doc(text, nlp=nlp)
    assert doc.text == text
    assert [token.text for token in doc] == [token.text for token in nlp.make_doc(text)]


def test_misaligned_entity_gets_missing_annotation() -> None:
    notes = Notes()
    doc = text_doc("the unbelievable York", (6, 13, "X"), (17, 21, "LOC"), notes=notes)
    assert (ents(doc), iob(doc)) == ([("York", "LOC")], "O?B")
    assert notes.counts == {Event.MISALIGNED: 1}
    assert notes.examples[Event.MISALIGNED] == ["line 5: X 'believa'"]


@pytest.mark.parametrize(
    ("text", "spans", "missing", "tags"),
    [
        ("one two three four", [(5, 10, "X")], (), "O??O"),
        ("a newyorkcity b", [(2, 5, "X"), (5, 9, "Y")], (), "O?O"),
        ("(Parisian)", [(1, 4, "X")], (), "O?O"),
        ("(Parisian)", [(4, 9, "X")], (), "O?O"),
        ("one two three four", [(4, 13, "X")], ((0, 7), (8, 9), (13, 14)), "?BIO"),
    ],
)
def test_misaligned_entities_affect_only_overlapping_tokens(
    text: str, spans: list[tuple[int, int, str]], missing: tuple[tuple[int, int], ...], tags: str
) -> None:
    assert iob(text_doc(text, *spans, missing=missing)) == tags


def test_merged_notes_keep_first_examples() -> None:
    notes, more_notes = Notes(), Notes()
    for line in range(5):
        notes.add(Event.BLANK, "a", line)
        more_notes.add(Event.BLANK, "b", line)
    notes.update(more_notes)
    assert (notes.counts[Event.BLANK], notes.examples[Event.BLANK]) == (10, ["line 0: a", "line 1: a", "line 2: a"])


def test_read_docs_uses_given_vocab(tmp_path: Path) -> None:
    path, vocab = save_docs(tmp_path / "a.spacy", Doc(Vocab(), words=["王小明", "去了"])), Vocab()
    assert len(vocab) == 0
    (doc,) = read_docs(path, vocab)
    assert doc.vocab is vocab
    assert [doc.text for doc in read_docs(path)] == [doc.text]
