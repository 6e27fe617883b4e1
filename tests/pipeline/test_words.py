"""Words that are added to a trained pipeline: for all Docs or some Docs, saving, files, and limits."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
import spacy
from small_systems import examples_of, learn, pipeline
from spacy.tokens import Doc
from spacy.training import Example

from spacy_tener.embedders.tables import table_embedders
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.run import predict
from spacy_tener.pipeline import words as module

PLACES = ["北京", "上海", "天津", "广州", "南京", "武汉"]
THINGS = ["苹果", "天气", "电影", "手机", "汽车", "音乐"]
FRAMES = ["{}很好。", "我看{}了", "说到{}就笑"]
DATA = [
    (frame.format(word), [(frame.index("{"), frame.index("{") + 2, "GPE")] if word in PLACES else [])
    for word in (*PLACES, *THINGS)
    for frame in FRAMES
]
EMBED = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 4, "bigram_width": 0, "dropout": 0.0}
SEGMENT = {"@architectures": "spacy_tener.SegmentEmbed.v1", "width": 16, "dropout": 0.0, "word_dropout": 0.0}


def learn_words(tok2vec):
    nlp = pipeline(tok2vec)
    learn(nlp, examples_of(nlp, DATA), steps=50)
    return nlp


def flat(path, tag_width):
    words = {
        "@architectures": "spacy_tener.LexiconEmbed.v1",
        "width": 12,
        "tag_width": tag_width,
        "dropout": 0.0,
        "word_dropout": 0.02,
        "lexicon": {"@misc": "spacy_tener.WordList.v1", "path": str(path)},
    }
    return {
        "@architectures": "spacy_tener.FLAT.v1",
        "width": 32,
        "heads": 4,
        "dropout": 0.0,
        "embed": EMBED,
        "words": words,
    }


@pytest.fixture(scope="module")
def word_lists(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    for name, words in {"place": [*PLACES, "赤水"], "thing": [*THINGS, "水果"]}.items():
        (folder / f"{name}.txt").write_text("\n".join(words), encoding="utf8")
    return folder


@pytest.fixture(scope="module")
def saved(word_lists):
    """Trained pipelines by system."""
    embed = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": EMBED, "second": SEGMENT}
    tener = {"@architectures": "spacy_tener.TENER.v1", "width": 32, "heads": 4, "dropout": 0.0, "embed": embed}
    tok2vecs = {"words": flat(word_lists, 0), "tags": flat(word_lists, 8), "segmenter": tener}
    return {name: learn_words(tok2vec) for name, tok2vec in tok2vecs.items()}


@pytest.fixture(params=["words", "tags", "segmenter"])
def system(request):
    return request.param


@pytest.fixture
def place(system):
    return "ns" if system == "segmenter" else "place"


@pytest.fixture
def nlp(saved, system):
    return pickle.loads(pickle.dumps(saved[system]))


def words_of(nlp):
    return nlp.get_pipe("tener_ner").lexicon


def vocabulary_of(nlp):
    """Return the vocabulary of the embedder that uses the lexicon."""
    return table_embedders(nlp.get_pipe("tener_ner").model)[-1].vocabulary


def found(nlp, text, **attributes):
    doc = nlp.make_doc(text)
    for name, value in attributes.items():
        setattr(doc._, name, value)
    return [ent.text for ent in nlp(doc).ents]


NEW = "花园"
TEXT = "说到花园就笑"


def test_adding_and_removing_word_changes_predictions(nlp, place):
    assert found(nlp, "说到北京就笑") == ["北京"]
    assert found(nlp, TEXT) == []
    words_of(nlp).add([NEW], place)
    assert words_of(nlp).words() == {NEW: place}
    assert found(nlp, TEXT) == [NEW]
    assert found(nlp, "说到电影就笑") == []
    words_of(nlp).remove([NEW])
    assert found(nlp, TEXT) == []


def test_traditional_and_simplified_words_are_equivalent(nlp, place):
    words = words_of(nlp)
    words.add(["花園"], place)
    assert found(nlp, TEXT) == [NEW]
    assert found(nlp, "说到花園就笑") == ["花園"]
    words.add([NEW], place)
    assert words.words() == {NEW: place}
    words.remove(["花園"])
    assert words.words() == {}
    assert found(nlp, "说到花園就笑") == []


def test_word_with_other_tag_is_no_entity(nlp, system):
    words_of(nlp).add({NEW: "n" if system == "segmenter" else "thing"})
    assert found(nlp, TEXT) == []


def test_unused_word_does_not_change_emissions(nlp, place):
    docs = [nlp.make_doc(text) for text, _ in DATA[:6]]
    model = nlp.get_pipe("tener_ner").model
    before = model.predict(docs)
    words_of(nlp).add([NEW], place)
    for emissions, expected in zip(model.predict(docs), before, strict=True):
        np.testing.assert_allclose(emissions, expected, atol=1e-5)


def test_named_list_applies_only_to_selected_docs(nlp, place):
    words_of(nlp).add([NEW], place, name="a")
    words_of(nlp).add(["和田"], place, name="b")
    assert words_of(nlp).names == ["a", "b"]
    docs = []
    for names in ("a", None, "b", ["b", "a"], "a"):
        docs.append(nlp.make_doc(TEXT))
        docs[-1]._.tener_words = names
    assert [len(doc.ents) for doc in nlp.pipe(docs, batch_size=5)] == [1, 0, 0, 1, 1]
    assert found(nlp, "说到和田就笑", tener_words="b") == ["和田"]
    with pytest.warns(
        UserWarning, match=r"unknown names of word lists, which are ignored: 'c'\. Known lists: 'a', 'b'"
    ):
        assert found(nlp, TEXT, tener_words=["a", "c"]) == [NEW]
    for wrong in (17, b"a", ["a", None]):
        with pytest.raises(
            ValueError,
            match="tener_words must be the name of a word list, a dictionary of words and labels, or a list of "
            "these; got",
        ):
            found(nlp, TEXT, tener_words=wrong)


@pytest.mark.parametrize("system", ["words", "segmenter"], indirect=True)
def test_named_list_applies_to_characters_and_windows(nlp, place):
    pipe = nlp.get_pipe("tener_ner")
    pipe.cfg.update(view="characters", window=12, overlap=3)
    words_of(nlp).add([NEW], place, name="a")
    doc = Doc(nlp.vocab, words=["说到", "花园", "就笑。"] * 5, spaces=[False] * 15)
    doc._.tener_words = "a"
    assert [ent.text for ent in pipe(doc).ents] == [NEW] * 5


def test_words_are_saved_unless_saved_is_false(nlp, place, tmp_path):
    words_of(nlp).add([f" {NEW}\n"], place)  # with white space, as in a line of a file
    words_of(nlp).add(["和田"], place, name="a", saved=False)
    words_of(nlp).add([], name="empty")
    nlp.to_disk(tmp_path / "pipeline")
    for loaded in (spacy.load(tmp_path / "pipeline"), spacy.blank("zh")):
        if not loaded.pipe_names:
            loaded = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
        assert words_of(loaded).words() == {NEW: place}
        assert words_of(loaded).names == ["empty"]
        assert found(loaded, TEXT, tener_words="empty") == [NEW]
    # Copies, for example in worker processes, contain all lists.
    assert words_of(pickle.loads(pickle.dumps(nlp))).names == ["a", "empty"]


@pytest.mark.parametrize("system", ["words"], indirect=True)
def test_remove_hides_word_of_model_lexicon(nlp):
    pipe = nlp.get_pipe("tener_ner")
    vocabulary = vocabulary_of(nlp)
    docs = [nlp.make_doc("说到北京就笑")]

    def heads():
        words = next(node for node in pipe.model.walk() if node.name == "lexicon_embed")
        return predict(words, TokenBatch.of(docs)).lattice.heads.tolist()

    assert heads() == [2]
    words_of(nlp).remove(["北京"])
    assert heads() == []
    words_of(nlp).add(["北京"])
    assert heads() == [2]
    assert "北京" in vocabulary.lexicon


def test_reading_file_replaces_list(nlp, place, tmp_path):
    words, path = words_of(nlp), tmp_path / "names.txt"
    words.add(["旧词"], place, name="people")
    path.write_text("和田\t3\n", encoding="utf8")
    words.read(path, place, name="people")
    assert words.words("people") == {"和田": place}
    assert found(nlp, TEXT, tener_words="people") == []
    path.write_text(f"和田\t3\n{NEW}\t{place}\n少见\t1\t{place}\n", encoding="utf8")
    assert found(nlp, TEXT, tener_words="people") == []
    words.read(path, name="people", min_frequency=2)
    assert words.words("people") == {"和田": "", NEW: place}
    assert found(nlp, TEXT, tener_words="people") == [NEW]
    words.add(["再来"], place, name="people")
    assert words.words("people") == {"和田": "", NEW: place, "再来": place}


def test_words_from_file_are_saved_unless_saved_is_false(nlp, place, tmp_path):
    words, path = words_of(nlp), tmp_path / "names.txt"
    path.write_text(NEW, encoding="utf8")
    words.read(path, place, name="kept")
    words.read(path, place, name="left", saved=False)
    words.read(path, place, name="left")
    assert words_of(spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())).names == ["kept"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"\n{NEW}".encode("gb18030"), r"names.txt:2: character 1 of the line is not UTF-8"),
        (b"a\n\nb\tc\td", "names.txt:3: expected `word`"),
        (
            "\n".join(f"和{i}" for i in range(10)).encode(),
            r"'people' would have more than 9 words\. Nothing was changed",
        ),
        ("云海\n和田\t3\tunknown\n".encode(), r"names.txt:2: Unknown word tag 'unknown'\. Use a tag that the model"),
        (None, "names.txt: cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("system", ["words", "segmenter"], indirect=True)
def test_invalid_file_raises_error_and_list_is_unchanged(nlp, place, tmp_path, content, reason, monkeypatch):
    words, path = words_of(nlp), tmp_path / "names.txt"
    monkeypatch.setattr(module, "MAX_WORDS", 9)
    words.add([NEW], place, name="people")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        words.read(path, name="people")
    assert words.words("people") == {NEW: place}
    path.write_text("\n".join(f"和{i}" for i in range(9)), encoding="utf8")
    words.read(path, name="people")
    assert len(words.words("people")) == 9


@pytest.mark.parametrize("system", ["words", "segmenter"], indirect=True)
def test_last_list_of_doc_takes_precedence(nlp, system, place):
    words_of(nlp).add([NEW], place, name="a")
    words_of(nlp).add([NEW], "n" if system == "segmenter" else "thing", name="b")
    docs = []
    for names in ("b", ["b", "a"], "a", ["a", "b"], ["b", "a"]):
        docs.append(nlp.make_doc(TEXT))
        docs[-1]._.tener_words = names
    assert [len(doc.ents) for doc in nlp.pipe(docs, batch_size=5)] == [0, 1, 1, 0, 1]


@pytest.mark.parametrize("system", ["words"], indirect=True)
def test_invalid_arguments_raise_errors(nlp):
    words = words_of(nlp)
    with pytest.raises(ValueError, match="must be strings, but got 1 with"):
        words.add([1])
    with pytest.raises(ValueError, match=f"must be strings, but got '{NEW}' with the tag None"):
        words.add({NEW: None})
    with pytest.raises(ValueError, match=r"not the string '和田'\. Use \['和田'\]"):
        words.remove("和田")
    for name in (17, None, ("a", "b"), "\ud800"):
        for change in (words.add, words.remove):
            with pytest.raises(ValueError, match="name of a word list must be a string"):
                change([NEW], name=name)
    assert words.words() == {}
    assert words.names == []


@pytest.mark.parametrize("system", ["words"], indirect=True)
def test_word_list_limits_raise_errors_or_warnings(nlp, place, monkeypatch):
    words = words_of(nlp)
    for name, limit in (("MAX_WORDS", 100), ("MAX_WORD_LENGTH", 10), ("MAX_LISTS", 2)):
        monkeypatch.setattr(module, name, limit)

    def generate_words():
        while True:
            yield "和田"

    with pytest.raises(ValueError, match=r"more than 100 words\. Nothing was changed"):
        words.add(generate_words(), place)
    assert words.words() == {}
    with pytest.warns(UserWarning, match=r"4 of the words .* left out"):
        words.add(["", " \t", "田", "a\0b", "甲" * 11, NEW, NEW], place)
    assert words.words() == {NEW: place}
    with pytest.raises(ValueError, match=r"Unknown word tag 'no'\. Use a tag that .*: place, thing"):
        words.add(["和田"], "no")
    with pytest.raises(ValueError, match=r"not the string '和田'\. Use \['和田'\]"):
        words.add("和田")
    words.add([], name="a")
    words.add([], name="b")
    with pytest.raises(ValueError, match="There are already 2 word lists"):
        words.add([], name="c")
    words.clear("b")
    words.clear()
    words.add([], name="b")
    with pytest.raises(ValueError, match="There are already 2 word lists"):
        words.add([], name="c")


@pytest.mark.parametrize("system", ["tags"], indirect=True)
def test_number_of_nested_words_is_limited(nlp):
    words_of(nlp).add(["甲" * n for n in range(2, 30)], "thing")
    words = next(node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "lexicon_embed")
    doc = nlp.make_doc("甲" * 60)
    assert predict(words, TokenBatch.of([doc])).lattice.counts.tolist() == [60 * 5 - 4 - 3 - 2 - 1 - 5]


@pytest.mark.parametrize("system", ["words", "segmenter"], indirect=True)
def test_lists_can_change_while_threads_predict(nlp, place, tmp_path):
    failures, path = [], tmp_path / "names.txt"
    path.write_text(NEW, encoding="utf8")

    def read():
        for _ in range(20):
            try:
                result = found(nlp, TEXT)
                assert result in ([], [NEW])
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        words_of(nlp).add([NEW], place)
        words_of(nlp).remove([NEW])
        words_of(nlp).read(path, place)
        words_of(nlp).clear()
    for thread in threads:
        thread.join()
    assert failures == []


def test_training_continues_with_listed_words(nlp, place):
    words_of(nlp).add([NEW], place)
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": [(2, 4, "GPE")]})
    optimizer = nlp.resume_training()
    losses = [nlp.update([example], sgd=optimizer)["tener_ner"] for _ in range(5)]
    assert losses[-1] < losses[0]


def test_model_without_lexicon_raises_error(train):
    nlp = train(steps=1)
    with pytest.raises(ValueError, match=r"does not use words as features\. Train a model with one of the overlays"):
        words_of(nlp).add([NEW])


@pytest.mark.parametrize("system", ["segmenter"], indirect=True)
def test_listed_words_override_segmentation(nlp):
    vocabulary = vocabulary_of(nlp)
    text = "北京大学生前来应聘MAILAI"

    def segment_keys():
        docs = [Doc(nlp.vocab, words=list(text), spaces=[False] * len(text)), nlp.make_doc("北京大学")]
        return vocabulary.to_input(TokenBatch.of(docs)).keys["segment"].tolist()

    before = segment_keys()
    words_of(nlp).add(["京大学", "AI"], "ns")
    after = segment_keys()
    single, (begin, inside, end) = after[0], after[1:4]
    assert single != before[0]
    assert len({begin, inside, end}) == 3
    assert after[4] != before[4]
    # 'AI' is part of a longer Latin word in both positions.
    assert after[9:15] == before[9:15]


@pytest.mark.parametrize("system", ["segmenter"], indirect=True)
def test_word_inside_latin_word_does_not_hide_other_words(nlp):
    vocabulary = vocabulary_of(nlp)

    def segment_keys(text, *words):
        words_of(nlp).clear()
        words_of(nlp).add(words, "ns")
        return vocabulary.to_input(TokenBatch.of([nlp.make_doc(text)])).keys["segment"].tolist()

    assert segment_keys("玩大数据AIR吧", "大数据AI", "大数据") == segment_keys("玩大数据AIR吧", "大数据")
    assert segment_keys("看了MAI芯片工厂", "AI芯片", "芯片工厂") == segment_keys("看了MAI芯片工厂", "芯片工厂")
    assert segment_keys("大数据AI芯片", "大数据AI", "AI芯片", "数据") == segment_keys("大数据AI芯片", "大数据AI")


@pytest.mark.parametrize("system", ["segmenter"], indirect=True)
def test_tag_unseen_at_position_is_ignored(nlp):
    vocabulary = vocabulary_of(nlp)
    tokens = TokenBatch.of([nlp.make_doc("说到北京就笑")])
    before = vocabulary.to_input(tokens).keys["segment"]
    words_of(nlp).add(["北京"], "v")  # 看, a verb of one character
    np.testing.assert_array_equal(vocabulary.to_input(tokens).keys["segment"], before)
    words_of(nlp).add(["北京"], "n")
    assert (vocabulary.to_input(tokens).keys["segment"] != before).tolist() == [False, False, True, True, False, False]


def test_failed_change_leaves_all_embedders_unchanged(word_lists, monkeypatch):
    tok2vec = flat(word_lists, 0)
    tok2vec["embed"] = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": EMBED, "second": SEGMENT}
    nlp = learn_words(tok2vec)
    words = words_of(nlp)
    words.add([NEW, "和田"], "place")
    words.remove(["北京"])
    monkeypatch.setattr(module, "MAX_WORDS", 3)
    with pytest.raises(ValueError, match=r"more than 3 words\. Nothing was changed"):
        words.remove([NEW, "上海", "天津"])
    embedders = table_embedders(nlp.get_pipe("tener_ner").model)
    lists = [embedder.vocabulary.lists for embedder in embedders if hasattr(embedder.vocabulary, "lists")]
    assert len(lists) == 2
    assert all(words.lists[""].entries.keys() >= {NEW, "和田"} for words in lists)


@pytest.mark.parametrize("system", ["words"], indirect=True)
def test_embedding_of_listed_word_does_not_depend_on_batch(nlp, place):
    words_of(nlp).add(["甲甲", NEW], place)
    embed = next(node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "lexicon_embed")
    doc, long = nlp.make_doc(TEXT), nlp.make_doc("甲" * 400)
    alone, together = (predict(embed, TokenBatch.of(docs)).floats for docs in ([doc], [long, doc]))
    np.testing.assert_array_equal(together[-len(alone) :], alone)
