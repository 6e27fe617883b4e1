"""Word lists on top of a lexicon: search compared with brute force, selection by Docs, serialization, and threads."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.features.word_lists import (
    ATTRIBUTE,
    LOCK,
    WordList,
    WordListEntry,
    WordLists,
    find_layered,
    list_names,
)

VOCAB = Vocab()
Found = list[tuple[int, int, int, str]]


def doc_of(text: str, names: object = None) -> Doc:
    doc = Doc(VOCAB, words=list(text), spaces=[False] * len(text))
    if names is not None:
        setattr(doc._, ATTRIBUTE, names)
    return doc


def make_word_list(*words: str, hidden: Sequence[str] = ()) -> WordList:
    return WordList({**dict.fromkeys(words, WordListEntry()), **dict.fromkeys(hidden, WordListEntry(hidden=True))})


def expected(lexicon: Lexicon, doc: Doc, lists: list[WordList], max_words: int | None) -> Found:
    """Return head, tail, layer and text of all matches by brute force. The highest layer takes precedence."""
    found: Found = []
    for head in range(len(doc)):
        spans_of_head: Found = []
        for tail in range(head, len(doc)):
            text = doc.text[head : tail + 1]
            layers = [
                layer for layer, words in enumerate([lexicon, *lists]) if text in getattr(words, "entries", words)
            ]
            if layers and not (layers[-1] and lists[layers[-1] - 1].entries[text].hidden):
                spans_of_head.append((head, tail, layers[-1], text))
        found += spans_of_head if max_words is None else spans_of_head[max(len(spans_of_head) - max_words, 0) :]
    return found


words = st.lists(st.text("甲乙", min_size=2, max_size=5), max_size=8)


@given(
    words,
    st.lists(st.tuples(words, words, st.sets(st.integers(0, 2))), max_size=3),
    st.lists(st.text("甲乙丙", max_size=7), min_size=3, max_size=3),
    st.none() | st.integers(0, 3),
)
def test_layered_search_equals_brute_force(words_of_lexicon, layers, texts, max_words) -> None:
    lexicon, docs = Lexicon(words_of_lexicon), [doc_of(text) for text in texts]
    lists = [
        (make_word_list(*shown, hidden=hidden), np.array(sorted(indices), dtype=int))
        for shown, hidden, indices in layers
    ]
    found = find_layered(lexicon, TokenBatch.of(docs), lists, max_words)
    lexicons = [lexicon, *(words.lexicon for words, _ in lists)]
    columns = (found.match.heads, found.match.tails, found.layers, found.match.words)
    rows = iter(zip(*(column.tolist() for column in columns), strict=True))
    for index, doc in enumerate(docs):
        rows_of_doc = itertools.islice(rows, int(found.match.counts[index]))
        spans = [(head, tail, layer, lexicons[layer].words[word]) for head, tail, layer, word in rows_of_doc]
        # A list that does not apply to this Doc is treated as empty.
        lists_of_doc = [words if index in indices else WordList() for words, indices in lists]
        assert spans == expected(lexicon, doc, lists_of_doc, max_words)


def test_listed_words_are_deduplicated_per_list() -> None:
    lexicon = Lexicon(["甲乙"])
    lists = [make_word_list("乙丙", "丙丁"), make_word_list("乙丙")]
    docs = [doc_of("甲乙丙丁"), doc_of("乙丙乙丙"), doc_of("")]
    found = find_layered(lexicon, TokenBatch.of(docs), [(lists[0], np.array([0, 1])), (lists[1], np.array([1]))], None)
    distinct, entry_indices = found.listed(lists)
    assert distinct == [("乙丙", WordListEntry()), ("丙丁", WordListEntry()), ("乙丙", WordListEntry())]
    assert entry_indices.tolist() == [0, 1, 2, 2]
    assert found.layers.tolist() == [0, 1, 1, 2, 2]


def test_docs_select_lists_by_name_in_order() -> None:
    lists = WordLists()
    a, b, common = make_word_list("甲乙"), make_word_list("丙丁"), make_word_list("戊己")
    docs = [doc_of("甲"), doc_of("甲", "a"), doc_of("甲", ["b", "a"]), doc_of("甲", ("a", "b")), doc_of("甲", [])]
    assert lists.active(docs[:1]) == []
    for name, words in (("", common), ("a", a), ("b", b), ("empty", WordList())):
        lists.put(name, words)
    found = [(words, doc_indices.tolist()) for words, doc_indices in lists.active([*docs, doc_of("甲", "empty")])]
    assert found == [(common, [0, 1, 2, 3, 4, 5]), (a, [1, 3]), (b, [2]), (a, [2]), (b, [3])]
    lists.put("", None)
    lists.put("a", None)
    with pytest.warns(
        UserWarning, match=r"unknown names of word lists, which are ignored: 'a'\. Known lists: 'b', 'empty'"
    ):
        assert [(words, doc_indices.tolist()) for words, doc_indices in lists.active(docs)] == [(b, [2]), (b, [3])]


@pytest.mark.parametrize("names", [17, b"a", ["a", None], [{"甲乙": "A"}, 3]])
def test_invalid_list_names_raise_error(names: object) -> None:
    with pytest.raises(
        ValueError,
        match=f"{ATTRIBUTE} must be the name of a word list, a dictionary of words and labels, or a list of these; got",
    ):
        list_names(doc_of("甲", names))


def test_unsaved_lists_are_excluded_from_serialization() -> None:
    lists = WordLists()
    lists.put("", WordList())
    lists.put("domain", WordList({"甲乙": WordListEntry("ns"), "乙丙": WordListEntry(hidden=True)}))
    lists.put("bare", WordList())
    lists.put("passing", WordList({"甲乙": WordListEntry()}, saved=False))
    message = lists.to_message()
    assert list(message) == ["domain", "bare"]
    loaded = WordLists()
    loaded.put("old", make_word_list("丁戊"))
    loaded.put("unsaved", WordList({"丁戊": WordListEntry()}, saved=False))
    loaded.from_message(message)
    assert list(loaded.lists) == ["unsaved", "domain", "bare"]
    assert loaded.lists["domain"].entries == lists.lists["domain"].entries


def test_unpickling_registers_doc_extension(without_torch: None) -> None:
    lists = WordLists()
    lists.put("a", make_word_list("甲乙"))
    code = f"import pickle; from spacy.tokens import Doc; print(*pickle.loads({pickle.dumps(lists)!r}).lists)"
    code += f"; assert Doc.has_extension({ATTRIBUTE!r})"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["a"]


@pytest.mark.filterwarnings("ignore:.*contains unknown names of word lists")
def test_lists_can_change_while_threads_search() -> None:
    lists, lexicon, failures = WordLists(), Lexicon(["甲乙"]), []
    docs = [doc_of("甲乙丙", names) for names in ("a", None, ["b", "a"])]

    def read() -> None:
        try:
            while not done.is_set():
                active = [(words, doc_indices) for words, doc_indices in lists.active(docs) if len(words.entries)]
                find_layered(lexicon, TokenBatch.of(docs), active, 2)
        except Exception as error:
            failures.append(error)

    done = threading.Event()
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        lists.put("ab"[number % 2], make_word_list("乙丙", hidden=["甲乙"]) if number % 4 < 2 else None)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_during_list_update_does_not_deadlock() -> None:
    lists, changing = WordLists(), threading.Event()

    def change() -> None:
        with LOCK:
            changing.set()
            time.sleep(0.2)

    thread = threading.Thread(target=change)
    thread.start()
    changing.wait()
    if not (child := os.fork()):
        signal.alarm(5)
        lists.put("", WordList())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    lists.put("", WordList())
