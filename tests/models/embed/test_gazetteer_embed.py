"""A gazetteer as evidence: what its words were in training, elsewhere, and never what the place itself is."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import spacy
from spacy.training import Example

from spacy_tener.features.entity_counts import ALWAYS, NEVER, OFTEN, SELDOM, UNSEEN, EntityCounts
from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.word_lists import ListedWord, WordList
from spacy_tener.models.embed.gazetteer import Annotation, GazetteerVocabulary

GOOD = ["北京", "上海", "天津", "广州", "南京", "武汉", "花园"]
WRONG = ["苹果", "天气", "电影", "手机", "汽车", "音乐", "水果"]
FRAMES = ["{}很好。", "我看{}了", "说到{}就笑"]
EMBED = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 4, "bigram_width": 0, "dropout": 0.0}


def keys(*numbers):
    return np.array(numbers, dtype=np.uint64)


def test_words_are_judged_by_the_share_of_their_most_frequent_label():
    words = np.repeat(keys(1, 2, 3, 4), [4, 4, 4, 20])
    columns = np.array([0] * 4 + [0, 0, 0, 2] + [1, 1, 2, 1] + [2] * 20)
    counts = EntityCounts.of(words, np.arange(100, 132).astype(np.uint64), columns, 2)
    level, label = counts.judge(keys(1, 2, 3, 4, 5), keys(1, 2, 3, 4, 5))
    assert level.tolist() == [NEVER, SELDOM, OFTEN, ALWAYS, UNSEEN]
    assert label.tolist() == [0, 2, 1, 2, 0]


def test_a_place_does_not_count_for_itself():
    counts = EntityCounts.of(keys(1, 1, 2), keys(10, 11, 20), np.array([1, 0, 1]), 1)
    level, label = counts.judge(keys(1, 1, 1, 2, 2), keys(10, 11, 12, 20, 21))
    assert level.tolist() == [NEVER, ALWAYS, SELDOM, UNSEEN, ALWAYS]
    assert label.tolist() == [0, 1, 1, 0, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gazetteer")
    (folder / "good.txt").write_text("\n".join(GOOD), encoding="utf8")
    (folder / "wrong.txt").write_text("\n".join(WRONG), encoding="utf8")
    return folder


def data():
    """Training has all words of the lists but for the last of each, half of them once; only those of one list are
    entities."""
    for number, word in enumerate((*GOOD[:-1], *WRONG[:-1])):
        for frame in FRAMES if number % 2 else [FRAMES[number % 3]]:
            start = frame.index("{")
            yield frame.format(word), [(start, start + 2, "GPE")] if word in GOOD else []


def pipeline(folder):
    embed = {
        "@architectures": "spacy_tener.GazetteerEmbed.v1",
        "width": 16,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "lexicon": {"@misc": "spacy_tener.WordList.v1", "path": str(folder)},
    }
    joined = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": EMBED, "second": embed}
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "width": 32, "heads": 4, "dropout": 0.0, "embed": joined}
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": tok2vec}
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner", config={"model": model})
    return nlp


@pytest.fixture(scope="module")
def nlp(folder):
    spacy.util.fix_random_seed(0)
    nlp = pipeline(folder)
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in data()]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(60):
        nlp.update(examples, sgd=optimizer)
    return nlp


def vocabulary_of(nlp):
    nodes = nlp.get_pipe("tener_ner").model.walk()
    return next(each for node in nodes if isinstance(each := node.attrs.get("vocabulary"), GazetteerVocabulary))


def found(nlp, text):
    return [ent.text for ent in nlp(text).ents]


def test_unknown_words_of_a_good_list_are_found_and_those_of_a_wrong_one_are_not(nlp):
    assert found(nlp, "说到花园就笑") == ["花园"]
    assert found(nlp, "说到水果就笑") == []
    assert found(nlp, "说到苹果就笑") == []
    assert found(nlp, "说到石头就笑") == []


def test_entities_are_counted_by_their_labels(nlp):
    vocabulary = vocabulary_of(nlp)
    words = vocabulary.lexicon.index(["北京", "苹果"]).astype(np.uint64)
    level, label = vocabulary.counts.judge(words, keys(0, 0))
    assert level.tolist() == [ALWAYS, NEVER]
    assert label.tolist() == [1, 0]


def test_a_training_text_is_judged_without_itself_whether_it_stands_alone_or_in_a_batch(folder):
    nlp = pipeline(folder)
    text, entities = "我看北京了", [(2, 4, "GPE")]
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities})]
    nlp.initialize(lambda: examples)
    vocabulary = vocabulary_of(nlp)
    alone = vocabulary.read([nlp.make_doc(text)]).keys["match"]
    batch = vocabulary.read([nlp.make_doc("去"), nlp.make_doc(text), nlp.make_doc("看上海")]).keys["match"]
    assert batch[1:6].tolist() == alone.tolist()
    # As if training had not shown it: as the place that it has not shown.
    assert batch[-2:].tolist() == alone[2:4].tolist()
    assert vocabulary.read([nlp.make_doc("我去北京吗")]).keys["match"][2:4].tolist() != alone[2:4].tolist()


def test_what_is_not_annotated_is_not_counted(folder):
    nlp = pipeline(folder)
    doc = nlp.make_doc("北京上海")
    reference = nlp.make_doc("北京上海")
    reference.set_ents([reference.char_span(0, 2, "GPE")], missing=[reference[2:4]], default="outside")
    nlp.initialize(lambda: [Example(doc, reference)])
    assert vocabulary_of(nlp).counts.words.size == 1


def test_it_is_saved_with_what_it_counted(nlp, folder):
    loaded = pipeline(folder).from_bytes(nlp.to_bytes())
    for other in (loaded, pickle.loads(pickle.dumps(nlp))):
        assert found(other, "说到花园就笑") == ["花园"]
        docs = [nlp.make_doc(text) for text, _ in data()]
        expected = vocabulary_of(nlp).read(docs).keys["match"]
        np.testing.assert_array_equal(vocabulary_of(other).read(docs).keys["match"], expected)


def test_a_word_that_training_counted_keeps_its_counts_when_it_is_given_again(nlp, folder):
    words = nlp.get_pipe("tener_ner").lexicon
    docs = [nlp.make_doc(text) for text, _ in data()]
    before = vocabulary_of(nlp).read(docs).keys["match"]
    words.read(folder / "good.txt", "good")
    words.add(WRONG, name="untold")
    words.add(GOOD, "wrong", name="other")
    for asked, same in ((None, True), ("untold", True), ("other", False)):
        for doc in docs:
            doc._.tener_words = asked
        assert (vocabulary_of(nlp).read(docs).keys["match"] == before).all() == same
    for name in ("", "untold", "other"):
        words.clear(name)


def test_a_word_of_what_training_has_no_list_of_is_none_here(nlp):
    words = nlp.get_pipe("tener_ner").lexicon
    texts = [nlp.make_doc("说到石头就笑"), nlp.make_doc("说到北京就笑")]
    before = vocabulary_of(nlp).read(texts).keys["match"]
    words.add(["石头"])
    lists = vocabulary_of(nlp).lists
    lists.put("", WordList({"北京": ListedWord("ns")}))  # a tag of another embedder's
    np.testing.assert_array_equal(vocabulary_of(nlp).read(texts).keys["match"], before)
    words.clear()


def test_an_empty_list_is_told(tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    nlp = pipeline(tmp_path)
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in data()]
    with pytest.warns(UserWarning, match=r"lexicon of spacy_tener.GazetteerEmbed.v1 is empty"):
        nlp.initialize(lambda: examples)
    assert len(vocabulary_of(nlp).lexicon) == 0


def test_words_given_after_training_are_worth_what_their_list_is(nlp):
    words = nlp.get_pipe("tener_ner").lexicon
    words.add({"石头": "good", "木头": "wrong"})
    assert found(nlp, "说到石头就笑") == ["石头"]
    assert found(nlp, "说到木头就笑") == []
    words.clear()
    assert found(nlp, "说到石头就笑") == []


def gazetteer(*words, max_words=5):
    """A vocabulary of words without tags, which has counted nothing."""
    vocabulary = GazetteerVocabulary(max_words)
    vocabulary.take(Lexicon(words), "spacy_tener.GazetteerEmbed.v1")
    return vocabulary


def keys_of(vocabulary, text):
    return vocabulary.read([spacy.blank("zh").make_doc(text)]).keys["match"].tolist()


def test_each_place_in_a_word_has_a_row_of_its_own_and_so_have_tokens_under_no_word():
    vocabulary = gazetteer("北京大学", "天津")
    begin, inside, also_inside, end, none = keys_of(vocabulary, "北京大学在")
    assert inside == also_inside
    assert len({begin, inside, end, none}) == 4
    assert none == 0
    assert keys_of(vocabulary, "天津") == [begin, end]


def test_of_words_over_a_token_the_longest_counts():
    longer = keys_of(gazetteer("北京大学"), "在北京大学")
    assert keys_of(gazetteer("北京", "京大", "大学", "北京大学"), "在北京大学") == longer


@pytest.mark.parametrize("unknown", range(4))
def test_only_words_over_annotated_tokens_are_counted(unknown):
    """在 and the word 北京, then another token; a word with an unknown token at its beginning or end says nothing."""
    vocabulary, doc = gazetteer("北京"), spacy.blank("zh").make_doc("在北京了")
    known = np.arange(4) != unknown
    one = np.array([1]), np.array([3]), np.array([0])
    vocabulary.count([[(doc, Annotation(*one, known=known))]], n_labels=1)
    assert vocabulary.counts.words.tolist() == ([] if unknown in (1, 2) else [0])
    assert vocabulary.counts.counts.tolist() == ([] if unknown in (1, 2) else [[0, 1]])


def test_entities_of_several_texts_are_counted_in_their_own():
    vocabulary, nlp = gazetteer("北京", "上海"), spacy.blank("zh")
    nothing = np.zeros(0, dtype=np.int64)
    batch = [
        (nlp.make_doc("北京在"), Annotation(nothing, nothing, nothing, known=np.ones(3, dtype=bool))),
        (nlp.make_doc("在上海"), Annotation(np.array([1]), np.array([3]), np.array([1]), known=np.ones(3, dtype=bool))),
    ]
    vocabulary.count([batch, batch[:1]], n_labels=2)
    level, label = vocabulary.counts.judge(vocabulary.lexicon.index(["北京", "上海"]).astype(np.uint64), keys(0, 0))
    assert level.tolist() == [NEVER, ALWAYS]
    assert label.tolist() == [0, 2]
    assert vocabulary.counts.counts[vocabulary.counts.words == 0].tolist() == [[2, 0, 0]]
