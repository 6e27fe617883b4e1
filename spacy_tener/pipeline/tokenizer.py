"""Tokenizers for text without spaces between words: one that makes all characters tokens, and one that does so for the
characters of some scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field
from spacy.lang.zh import ChineseTokenizer, Segmenter
from spacy.language import Language
from spacy.strings import get_string_id
from spacy.tokenizer import Tokenizer
from spacy.tokens import Doc
from spacy.util import compile_infix_regex, compile_prefix_regex, compile_suffix_regex
from spacy.vocab import Vocab

from ..validation import validated

_SPACE = re.compile(r"\s+")

Script = Literal["han", "kana", "hangul", "thai", "lao", "khmer", "myanmar", "tibetan"]
# Characters of each script, as ranges of a regular expression. Digits are left out, so that numbers are single tokens.
_SCRIPTS: dict[Script, str] = {
    "han": r"\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003fffd",
    "kana": r"\u3041-\u3096\u309b-\u309f\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f",
    "hangul": r"\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\uffa1-\uffdc",
    "thai": r"\u0e01-\u0e4e",
    "lao": r"\u0e81-\u0ecd\u0edc-\u0edf",
    "khmer": r"\u1780-\u17dd",
    "myanmar": r"\u1000-\u103f\u1050-\u109f\ua9e0-\ua9fe\uaa60-\uaa7f",
    "tibetan": r"\u0f00-\u0f1f\u0f2a-\u0fbc",
}
# East Asian punctuation. These characters are always separate tokens, even without spaces around them.
_PUNCTUATION = r"\u3001-\u3003\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# Voiced sound marks and variation selectors, which belong to the character before them.
_COMBINING = r"\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"


def make_char_tokenizer() -> Callable[[Language], CharTokenizer]:
    """Create a tokenizer that makes every character a token, a faster `spacy.zh.ChineseTokenizer` with the segmenter
    `char`.

    Registered as `spacy_tener.CharTokenizer.v1`. Its Docs and its saved files are identical to spaCy's.
    """
    return lambda nlp: CharTokenizer(nlp.vocab)


class CharTokenizer(ChineseTokenizer):
    """A tokenizer of characters. A space belongs to the token before it, and any other white space is a token."""

    def __call__(self, text: str) -> Doc:
        if self.segmenter != Segmenter.char:
            # The settings of a saved pipeline may specify another segmenter.
            return super().__call__(text)
        return doc_of_characters(self.vocab, *characters_and_spaces(text))


class _Hashes(dict[str, int]):
    """A cache of spaCy's hashes. It stores single characters only, so that its size is limited."""

    def __missing__(self, word: str) -> int:
        hashed: int = get_string_id(word)
        if len(word) == 1:
            self[word] = hashed
        return hashed


_HASHES = _Hashes()


def doc_of_characters(vocab: Vocab, words: list[str], spaces: list[bool]) -> Doc:
    """Create a Doc from words, most of which are characters.

    If the vocabulary contains all words, the Doc is created from their hashes, which takes a third of the time.
    """
    hashes: list[Any] = [_HASHES[word] for word in words]
    try:
        return Doc(vocab, words=hashes, spaces=spaces)
    except KeyError:
        return Doc(vocab, words=words, spaces=spaces)


class MultilingualTokenizer(Tokenizer):  # type: ignore[misc]
    """A tokenizer that makes the characters of some scripts tokens, and splits the text between them with spaCy's
    rules.

    scripts (tuple[Script, ...]): The scripts whose characters are tokens.
    """

    scripts: tuple[Script, ...] = ("han", "kana")

    def __call__(self, text: str) -> Doc:
        pattern = _split_pattern(self.scripts)
        if pattern.search(text) is None:
            whole: Doc = super().__call__(text)
            return whole
        words: list[str] = []
        spaces: list[bool] = []
        norms: dict[int, str] = {}
        # The pattern has a group, so every second segment is a matched character.
        for index, segment in enumerate(pattern.split(text)):
            if index % 2:
                words.append(segment)
                spaces.append(False)
                continue
            if words and segment.startswith(" "):
                spaces[-1], segment = True, segment[1:]
            if segment:
                for token in super().__call__(segment):
                    # Tokenizer exceptions have their own norms, for example "not" for "n't".
                    if token.norm != token.lex.norm:
                        norms[len(words)] = token.norm_
                    words.append(token.text)
                    spaces.append(bool(token.whitespace_))
        doc = doc_of_characters(self.vocab, words, spaces)
        for index, norm in norms.items():
            doc[index].norm_ = norm
        return doc

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, *_ = super().__reduce__()
        return rebuild, arguments, {"scripts": self.scripts}


@validated("spacy_tener.MultilingualTokenizer.v1")
def make_multilingual_tokenizer(
    scripts: Annotated[list[Script], Field(min_length=1)] = ["han", "kana"],  # noqa: B006 - a copy is made
) -> Callable[[Language], MultilingualTokenizer]:
    """Create a tokenizer that makes every character of some scripts a token, and splits other text into words with
    spaCy's rules.

    Registered as `spacy_tener.MultilingualTokenizer.v1`. It works with every language of spaCy, including `xx`, and
    needs no other package. The tokens preserve the text exactly.

    scripts (List[str]): The scripts whose characters are tokens: "han", "kana", "hangul", "thai", "lao", "khmer",
        "myanmar" and "tibetan". List the scripts in which entities do not begin and end at word boundaries.
    """

    def make(nlp: Language) -> MultilingualTokenizer:
        rules = nlp.Defaults
        tokenizer = MultilingualTokenizer(
            nlp.vocab,
            rules=rules.tokenizer_exceptions,
            prefix_search=compile_prefix_regex(rules.prefixes).search if rules.prefixes else None,
            suffix_search=compile_suffix_regex(rules.suffixes).search if rules.suffixes else None,
            infix_finditer=compile_infix_regex(rules.infixes).finditer if rules.infixes else None,
            token_match=rules.token_match,
            url_match=rules.url_match,
        )
        tokenizer.scripts = tuple(scripts)
        return tokenizer

    return make


@cache
def _split_pattern(scripts: tuple[Script, ...]) -> re.Pattern[str]:
    """Return a pattern that matches a single token: a character of the scripts with its combining characters."""
    characters = "".join(_SCRIPTS[script] for script in scripts)
    return re.compile(f"([{characters}{_PUNCTUATION}][{_COMBINING}]*)")


def characters_and_spaces(text: str) -> tuple[list[str], list[bool]]:
    """Return the characters of a text as words, and whether a space follows each word, as spaCy's
    `get_words_and_spaces` does."""
    words: list[str] = []
    spaces: list[bool] = []
    end = 0
    for found in _SPACE.finditer(text):
        start, gap = found.start(), found[0]
        words += text[end:start]
        spaces += [False] * (start - end)
        if words and gap.startswith(" "):
            spaces[-1], gap = True, gap[1:]
        if gap:
            words.append(gap)
            spaces.append(False)
        end = found.end()
    words += text[end:]
    spaces += [False] * (len(text) - end)
    return words, spaces
