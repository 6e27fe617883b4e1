"""The character tokenizer, which gives the same Docs as spaCy's tokenizer for Chinese, and the multilingual tokenizer,
which splits some scripts into characters."""

import pickle
import sys

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.attrs import ORTH, SPACY
from spacy.lang.zh import ChineseTokenizer

from spacy_tener.errors import UserError
from spacy_tener.pipeline.tokenizer import CharTokenizer, characters_and_spaces

NLP = spacy.blank("zh")
CHARACTERS, CHINESE = CharTokenizer(NLP.vocab), ChineseTokenizer(NLP.vocab)
CONFIG = {"nlp": {"lang": "zh", "tokenizer": {"@tokenizers": "spacy_tener.CharTokenizer.v1"}}}
TEXTS = ["", " ", "  ", "王 小明", " 王", "王 ", "王  小\n明 \n", "\n 王", "王\u3000 明", "a b\tc", "𠮷 👩‍👩‍👧", "\r\n"]


def check(text):
    doc, expected = CHARACTERS(text), CHINESE(text)
    assert doc.text == text
    assert doc.to_bytes() == expected.to_bytes()
    assert doc.to_array([ORTH, SPACY]).tolist() == expected.to_array([ORTH, SPACY]).tolist()


@given(st.text(st.sampled_from("王明a1 \n\t\u3000\xa0")) | st.text(st.characters(exclude_categories=["Cs"])))
def test_char_tokenizer_equals_spacy_tokenizer(text):
    check(text)


@pytest.mark.parametrize("text", TEXTS)
def test_char_tokenizer_equals_spacy_tokenizer_for_white_space(text):
    check(text)


def test_char_tokenizer_supports_all_white_space_characters():
    for space in filter(str.isspace, map(chr, range(sys.maxunicode + 1))):
        text = f"王{space}明 {space}"
        check(text)
    assert characters_and_spaces("".join(c for c in map(chr, range(0x3000)) if not c.isspace()))[1].count(True) == 0


def test_char_tokenizer_is_saved_like_spacy_tokenizer(tmp_path):
    nlp, chinese = spacy.util.load_model_from_config(CONFIG, auto_fill=True), spacy.blank("zh")
    assert isinstance(nlp.tokenizer, CharTokenizer)
    nlp.to_disk(tmp_path / "characters")
    chinese.to_disk(tmp_path / "chinese")
    assert nlp.tokenizer.to_bytes() == chinese.tokenizer.to_bytes()
    loaded = spacy.load(tmp_path / "characters")
    assert isinstance(loaded.tokenizer, CharTokenizer)
    assert [token.text for token in loaded("王 明")] == ["王", "明"]
    nlp.tokenizer.from_disk(tmp_path / "chinese" / "tokenizer")
    assert [token.text for token in nlp("王 明")] == ["王", "明"]


def test_vocab_contains_strings_after_memory_zone():
    """Docs are created from cached hashes. Strings that are not in the vocabulary, or no longer, have to be added."""
    check("龘X")  # spaCy has a symbol X, which has an ID instead of a hash
    nlp = spacy.util.load_model_from_config(CONFIG, auto_fill=True)
    with nlp.memory_zone():
        assert nlp("龘X").text == "龘X"
    for _ in range(2):
        assert [(token.text, token.is_alpha) for token in nlp("龘X")] == [("龘", True), ("X", True)]


def multilingual(**settings):
    tokenizer = {"@tokenizers": "spacy_tener.MultilingualTokenizer.v1", **settings}
    return spacy.util.load_model_from_config({"nlp": {"lang": "xx", "tokenizer": tokenizer}}, auto_fill=True)


XX = multilingual()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (
            "他在iPhone 13上，说：“Hello (world)!”。是吗 ？",
            "他|在|iPhone|13|上|，|说|：|“|Hello|(|world|)|!|”|。|是|吗|？",
        ),
        ("東京 Tokyo  タワー\nｶﾞﾗｽ", "東|京|Tokyo| |タ|ワ|ー|\n|ｶ|ﾞ|ﾗ|ｽ"),
        ("𠮷野家々が\u3099葛\U000e0100城", "𠮷|野|家|々|が\u3099|葛\U000e0100|城"),
        ("Don't, Ana-Marija! 20.5%", "Don't|,|Ana|-|Marija|!|20.5|%"),
        ("서울에서 王", "서울에서|王"),
        ("हिन्दी में", "हिन्दी|में"),
    ],
)
def test_han_and_kana_are_split_into_characters(text, tokens):
    doc = XX(text)
    assert doc.text == text
    assert [token.text for token in doc] == tokens.split("|")


@given(st.text(st.sampled_from("王がa1. (-\n\t\u3000\xa0 。")) | st.text(st.characters(exclude_categories=["Cs"])))
def test_multilingual_tokenizer_preserves_text(text):
    assert XX.tokenizer(text).text == text


PLAIN = spacy.blank("xx")


@given(st.text(st.sampled_from("ab1. ,(-\n\t\xa0éж")))
def test_other_scripts_are_tokenized_like_spacy(text):
    found, expected = XX.tokenizer(text), PLAIN.tokenizer(text)
    assert found.to_array([ORTH, SPACY]).tolist() == expected.to_array([ORTH, SPACY]).tolist()


def test_norms_of_special_cases_are_kept():
    nlp = spacy.blank("en", config={"nlp": {"tokenizer": {"@tokenizers": "spacy_tener.MultilingualTokenizer.v1"}}})
    nlp.tokenizer.add_special_case("gonna", [{"ORTH": "gon", "NORM": "going"}, {"ORTH": "na", "NORM": "to"}])
    doc = nlp.make_doc("王 I don't, gonna 中")
    assert [token.norm_ for token in doc] == ["王", "i", "do", "not", ",", "going", "to", "中"]


@given(st.text(st.sampled_from("王がB1,( 。")))
def test_explained_tokens_equal_tokens_of_text(text):
    tokens = [token.text for token in XX.tokenizer(text) if not token.is_space]
    assert [token for _, token in XX.tokenizer.explain(text)] == tokens


def test_explanation_names_rule_of_each_token():
    rules = [("CHARACTER", "東"), ("CHARACTER", "、"), ("PREFIX", "("), ("TOKEN", "Tokyo"), ("SUFFIX", ")")]
    assert XX.tokenizer.explain("東、 (Tokyo)") == rules


def test_special_case_with_characters_that_are_split_raises_error():
    tokenizer = multilingual().tokenizer
    with pytest.raises(UserError, match=r"'A股' can never match, .* always splits '股'\. .*nlp\.tokenizer\.scripts"):
        tokenizer.add_special_case("A股", [{"ORTH": "A股"}])
    assert "A股" not in tokenizer.rules
    tokenizer.add_special_case("Nº1", [{"ORTH": "Nº"}, {"ORTH": "1"}])
    assert [token.text for token in tokenizer("股Nº1")] == ["股", "Nº", "1"]
    hangul = multilingual(scripts=["hangul"]).tokenizer
    hangul.add_special_case("A股", [{"ORTH": "A股"}])
    assert [token.text for token in pickle.loads(pickle.dumps(hangul))("A股 서울")] == ["A股", "서", "울"]


def test_scripts_setting_selects_scripts_to_split(tmp_path):
    nlp = multilingual(scripts=["hangul", "thai"])
    nlp.to_disk(tmp_path)
    for tokenizer in (nlp.tokenizer, spacy.load(tmp_path).tokenizer, pickle.loads(pickle.dumps(nlp.tokenizer))):
        assert [token.text for token in tokenizer("서울 ไทย2 王明")] == ["서", "울", "ไ", "ท", "ย", "2", "王明"]


def test_unknown_script_raises_error():
    with pytest.raises(Exception, match=r"MultilingualTokenizer.*latin|scripts"):
        multilingual(scripts=["latin"])
