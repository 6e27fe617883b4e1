"""Tokenizers for languages without spaces between words.

`CharTokenizer` splits all text into characters. `MultilingualTokenizer` splits only text in selected scripts into
characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
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

from ..errors import UserError
from ..validation import validated

_SPACE = re.compile(r"\s+")

Script = Literal["han", "kana", "hangul", "thai", "lao", "khmer", "myanmar", "tibetan"]
# Characters of each script, as ranges for a regular expression. Digits are excluded, so that each number is a single
# token.
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
# East Asian punctuation. Each character is a separate token, even without spaces around it.
_PUNCTUATION = r"\u3001-\u3003\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
# Voiced sound marks and variation selectors. They belong to the previous character.
_COMBINING = r"\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"


def make_char_tokenizer() -> Callable[[Language], CharTokenizer]:
    """Create a tokenizer that splits text into characters.

    Registered as `spacy_tener.CharTokenizer.v1`. It is a faster version of `spacy.zh.ChineseTokenizer` with the
    segmenter `char`. Docs and saved files are identical.
    """
    return lambda nlp: CharTokenizer(nlp.vocab)


class CharTokenizer(ChineseTokenizer):
    """A tokenizer that splits text into characters. A space belongs to the previous token. Other white space is a
    separate token."""

    def __call__(self, text: str) -> Doc:
        if self.segmenter != Segmenter.char:
            # Loading a pipeline can change the segmenter.
            return super().__call__(text)
        return doc_of_characters(self.vocab, *characters_and_spaces(text))


class _Hashes(dict[str, int]):
    """A cache for spaCy's string hashes. Only single characters are cached, which limits the size."""

    def __missing__(self, word: str) -> int:
        hashed: int = get_string_id(word)
        if len(word) == 1:
            self[word] = hashed
        return hashed


_HASHES = _Hashes()


def doc_of_characters(vocab: Vocab, words: list[str], spaces: list[bool]) -> Doc:
    """Create a Doc from words that are mostly single characters.

    Creating the Doc from hashes is three times as fast as from strings, but is only possible if the vocabulary contains
    all words.
    """
    hashes: list[Any] = [_HASHES[word] for word in words]
    try:
        return Doc(vocab, words=hashes, spaces=spaces)
    except KeyError:
        return Doc(vocab, words=words, spaces=spaces)


class MultilingualTokenizer(Tokenizer):  # type: ignore[misc]
    """A tokenizer that splits text in some scripts into characters, and other text into words.

    scripts (tuple[Script, ...]): The scripts that are split into characters.
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
        # The pattern contains a group, so `split` returns the matched characters at odd indices.
        for index, segment in enumerate(pattern.split(text)):
            if index % 2:
                words.append(segment)
                spaces.append(False)
                continue
            if words and segment.startswith(" "):
                spaces[-1], segment = True, segment[1:]
            if segment:
                for token in super().__call__(segment):
                    # Keep the norms of tokenizer exceptions, for example "not" for "n't".
                    if token.norm != token.lex.norm:
                        norms[len(words)] = token.norm_
                    words.append(token.text)
                    spaces.append(bool(token.whitespace_))
        doc = doc_of_characters(self.vocab, words, spaces)
        for index, norm in norms.items():
            doc[index].norm_ = norm
        return doc

    def explain(self, text: str) -> list[tuple[str, str]]:
        """Return the tokens of a text except whitespace, each with the rule that it results from.

        The rule "CHARACTER" stands for a character of the selected scripts or an East Asian punctuation mark. The other
        rules are those of spaCy.

        text (str): The text.
        RETURNS (List[Tuple[str, str]]): Pairs of a rule and a token.
        """
        tokens: list[tuple[str, str]] = []
        for index, segment in enumerate(_split_pattern(self.scripts).split(text)):
            tokens += [("CHARACTER", segment)] if index % 2 else super().explain(segment)
        return tokens

    def add_special_case(self, string: str, substrings: Iterable[dict[Any, Any]]) -> None:
        """Add a special-case tokenization rule.

        Raise a UserError if the string contains characters that the tokenizer splits: they are split before special
        cases are matched.

        string (str): The string to tokenize.
        substrings (Iterable[Dict[Union[int, str], Union[int, str]]]): The attributes of each token, as in spaCy.
        """
        character = _split_pattern(self.scripts).search(string)
        if character:
            reason = f"MultilingualTokenizer always splits {character[0]!r}"
            raise UserError(
                f"The special case {string!r} can never match, since {reason}",
                "Use a special case without this character. If words of its script should not be split, remove the "
                "script from nlp.tokenizer.scripts. East Asian punctuation is always split.",
            )
        super().add_special_case(string, substrings)

    def _load_special_cases(self, special_cases: dict[str, Any] | None) -> None:
        # spaCy calls this method for the exceptions of a language. Some of these are emoticons that contain Kana, and
        # they must not raise an error, although they never match.
        for string, substrings in sorted((special_cases or {}).items()):
            super().add_special_case(string, substrings)

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, arguments, *_ = super().__reduce__()
        return rebuild, arguments, {"scripts": self.scripts}


@validated("spacy_tener.MultilingualTokenizer.v1")
def make_multilingual_tokenizer(
    scripts: Annotated[list[Script], Field(min_length=1)] = ["han", "kana"],  # noqa: B006 - a copy is made
) -> Callable[[Language], MultilingualTokenizer]:
    """Create a tokenizer that splits text in some scripts into characters. Other text is split by spaCy's rules.

    Registered as `spacy_tener.MultilingualTokenizer.v1`. The tokenizer supports every spaCy language, including `xx`,
    and requires no other package. Tokenization is non-destructive.

    scripts (List[str]): The scripts that are split into characters: "han", "kana", "hangul", "thai", "lao", "khmer",
        "myanmar" and "tibetan". Select the scripts in which entities may begin or end inside a word.
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
    """Return a regular expression for characters that become separate tokens, including their combining characters."""
    characters = "".join(_SCRIPTS[script] for script in scripts)
    return re.compile(f"([{characters}{_PUNCTUATION}][{_COMBINING}]*)")


def characters_and_spaces(text: str) -> tuple[list[str], list[bool]]:
    """Split a text into characters. Return the characters, and whether each character is followed by a space.

    The result is the same as with spaCy's `get_words_and_spaces`. White space other than single spaces is not split.
    """
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
