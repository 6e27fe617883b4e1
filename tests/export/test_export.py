"""What an exported file is made of, and which pipelines are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import spacy
import tener_reader
from exported import FIXED_TEXTS, SYSTEMS, exported, generate_texts, make_pipeline, make_systems
from small_encoders import mean_encoder, save, save_tokenizer
from small_systems import UNSEEN, examples_of, pipeline, small_tok2vecs
from spacy.language import Language
from tiny_transformer import save_tiny_transformer

from spacy_tener.embedders.char_embed import CharVocabulary
from spacy_tener.errors import MissingPackageError, RemedyError
from spacy_tener.export import code_points as characters
from spacy_tener.export.check import compare, sample_texts
from spacy_tener.export.onnx_model import export_model
from spacy_tener.features.keys import bigram_key_array

pytestmark = pytest.mark.integration

NEWEST = 21
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 20, "upstream": "*"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sources")


@pytest.fixture(scope="module")
def parts(folder: Path) -> dict[str, Any]:
    return small_tok2vecs(folder)


def initialized(tok2vec: dict[str, Any], **settings: Any) -> Language:
    nlp = pipeline(tok2vec, **settings)
    nlp.initialize(lambda: examples_of(nlp))
    return nlp


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of the bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


@pytest.mark.parametrize("system", SYSTEMS)
def test_all_operators_are_standard_ones(system: str) -> None:
    model = onnx.load(exported(system))
    onnx.checker.check_model(model, full_check=True)
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    assert set(opsets) == {"", "ai.onnx.ml"}
    assert 17 <= opsets[""] <= NEWEST
    for node in nodes_of(model.graph):
        assert not onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain).deprecated
        assert not node.doc_string
    assert [(value.name, value.type.tensor_type.elem_type) for value in model.graph.input] == [
        ("codes", onnx.TensorProto.INT32),
        ("lengths", onnx.TensorProto.INT32),
    ]
    assert {value.name for value in model.graph.output} == {"tags", "probabilities", "about"}


def test_a_file_says_what_it_is_and_names_no_path(tmp_path: Path, parts: dict[str, Any]) -> None:
    encoder = mean_encoder()
    encoder.graph.node[0].doc_string = f"{tmp_path}/model.py"
    encoder.graph.node[1].metadata_props.add(key="stack", value=f"{tmp_path}/model.py")
    source = {"@misc": "spacy_tener.OnnxEncoder.v1", "path": str(save(tmp_path / "encoder", encoder))}
    source |= {"licence": "MIT", "origin": "https://an.example/mean"}
    embed = {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": 8, "encoder": source}
    nlp = initialized({**parts["TENER"], "embed": embed}, threshold={"PER": 0.5})
    nlp.meta.update(license="CC BY 4.0", author="A. Uthor", url="https://an.example")
    nlp.to_disk(tmp_path / "model")
    model = export_model(spacy.load(tmp_path / "model"))
    assert str(tmp_path).encode() not in model.SerializeToString()
    [about] = [json.loads(entry.value) for entry in model.metadata_props if entry.key == "tener"]
    digest, (encoder_about,) = about.pop("digest"), about.pop("encoders")
    assert digest.startswith("sha256:")
    assert len(encoder_about.pop("digest")) == 64
    assert encoder_about == {"name": "encoder", "licence": "MIT", "origin": "https://an.example/mean"}
    assert about == {
        "format": 1,
        "labels": ["GPE", "ORG", "PER"],
        "tags": [*("B-GPE", "B-ORG", "B-PER", "O", "S-GPE", "S-ORG", "S-PER"), *about["tags"][7:]],
        "thresholds": {"GPE": 0.0, "ORG": 0.0, "PER": 0.5},
        "probabilities": True,
        "depth": 1,
        "pipeline": {"lang": "zh", "name": "model", "version": "", "component": "tener_ner", "view": "tokens"},
        "spacy_tener": about["spacy_tener"],
        "license": "CC BY 4.0",
        "author": "A. Uthor",
        "url": "https://an.example",
        "sources": [],
    }
    assert export_model(initialized(parts["TENER"])).SerializeToString() == (
        export_model(initialized(parts["TENER"])).SerializeToString()
    )


def test_rows_of_half_the_size(parts: dict[str, Any]) -> None:
    nlp = initialized({**parts["TENER"], "embed": {**parts["TENER"]["embed"], "width": 300}})
    whole, half = (export_model(nlp, half=half).SerializeToString() for half in (False, True))
    assert len(whole) - len(half) > 2 * 300 * 40
    compared = compare(nlp, "tener_ner", half, sample_texts(nlp, "tener_ner"))
    assert compared.n_equal > 100
    assert 1e-7 < compared.max_difference < 1e-3


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_a_model_that_sees_entities_everywhere_keeps_to_white_space_and_line_breaks(
    view: str, parts: dict[str, Any]
) -> None:
    nlp = initialized(parts["TENER"], view=view)
    texts = [space.join("北京大学在上海") * 9 for space in (" ", "\n", "\t\n", "\u3000 \n", "\t ", "😀", "\u200b")]
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), [*texts, *generate_texts(40, seed=5)])
    assert compared.n_equal > 300
    assert (compared.different_texts, compared.max_difference < 1e-5) == ([], True)


PAIRS = ["㐀龥", "㐀<eos>", "京㐀", "かん", "ンか", "한국", "국<eos>", "Ωλ", "𠀀𠀁"]


def load_with_pretrained_pairs(
    pairs: list[str], folder: Path, parts: dict[str, Any], *, pair_characters: bool = True
) -> Language:
    """Initialize a pipeline with pretrained embeddings for pairs, and return it as saved and loaded.

    pair_characters (bool): Whether the characters of the pairs are saved. Earlier versions did not save them.
    """
    rows = "".join(f"{pair} {' '.join(['9'] * 8)}\n" for pair in pairs)
    (folder / "pairs.vec").write_text(rows, encoding="utf8")
    embed = {**parts["TENER"]["embed"], "bigram_vectors": str(folder / "pairs.vec")}
    nlp = initialized({**parts["TENER"], "embed": embed})
    if not pair_characters:
        vocabulary_of(nlp).pair_characters = ""
    return spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())


def vocabulary_of(nlp: Language) -> CharVocabulary:
    [embedder] = [node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "char_embed"]
    return embedder.attrs["vocabulary"]


def assert_all_pairs_are_exported(nlp: Language, pairs: list[str], texts: list[str]) -> None:
    vocabulary = vocabulary_of(nlp)
    rows = characters.number_strings(vocabulary, nlp)[2].values()
    assert set(bigram_rows(vocabulary, pairs)) <= set(rows)
    samples = "\n".join(sample_texts(nlp, "tener_ner"))
    assert all(pair.removesuffix("<eos>") in samples for pair in pairs)
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), texts)
    assert (compared.different_texts, compared.n_equal > 0, compared.max_difference < 1e-5) == ([], True, True)


def bigram_rows(vocabulary: CharVocabulary, pairs: list[str]) -> list[int]:
    rows = vocabulary.tables["bigram"].rows(bigram_key_array(pairs, vocabulary.normaliser)).tolist()
    assert all(rows)
    return rows


def test_pretrained_pairs_of_characters_without_training_texts_are_exported(
    tmp_path: Path, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(characters, "_search_characters_of_pairs")
    nlp = load_with_pretrained_pairs([*PAIRS, "three"], tmp_path, parts)
    texts = ["㐀龥", "北京㐀", "龥㐀龥", "他在北京㐀", "かンかん", "한국", "ΩλΩ", "𠀀𠀁𠀀"]
    assert_all_pairs_are_exported(nlp, PAIRS, texts)


def test_pretrained_pairs_of_a_pipeline_that_was_saved_without_their_characters_are_exported(
    tmp_path: Path, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(characters, "_SEARCHED_CODES", 0x600)  # The search among all characters takes a minute.
    pairs = ["Ωλ", "λψ", "אב", "λ<eos>"]
    nlp = load_with_pretrained_pairs(pairs, tmp_path, parts, pair_characters=False)
    assert_all_pairs_are_exported(nlp, pairs, ["ΩλψΩλ", "אבא", "京λ"])


def test_white_space_of_any_length_that_training_had_has_its_row(parts: dict[str, Any]) -> None:
    spaces = [" " * 13, "\u3000" * 12, " \t" * 30, "\n" + " " * 200, "\t" * 12, " " * 2]
    texts = [f"北京{space}上海" for space in spaces]
    nlp = pipeline(parts["TENER"])
    nlp.initialize(lambda: examples_of(nlp, [(text, [(0, 2, "GPE")]) for text in texts]))
    graph = export_model(nlp).SerializeToString()
    samples = "\n".join(sample_texts(nlp, "tener_ner"))
    assert all(space.lstrip(" ") in samples for space in spaces)
    others = [
        text.replace(space, space[::-1] + more)
        for text, space in zip(texts, spaces, strict=True)
        for more in ("", "\t")
    ]
    compared = compare(nlp, "tener_ner", graph, [*texts, *others])
    assert (compared.different_texts, compared.n_equal > 0, compared.max_difference < 1e-5) == ([], True, True)


def test_lines_end_sentences_of_long_texts_as_in_the_pipeline(parts: dict[str, Any]) -> None:
    nlp = initialized(parts["TENER"])
    nlp.get_pipe("tener_ner").cfg.update(text_length=32, text_sentences=1)
    lines = ["北京大学在上海", "王小明去了北京大学", "上海"] * 4
    texts = [between.join(lines) for between in ("\n", "\n\n", "\r\n", "\n\u3000\u3000", "\u3000\u3000", " \n ")]
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), texts)
    assert (compared.different_texts, compared.n_equal > 0, compared.max_difference < 1e-5) == ([], True, True)


def embeds(folder: Path, parts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return embedders that cannot be exported, by the layer that the message names."""

    def registered(architecture: str, **settings: Any) -> dict[str, Any]:
        return {"@architectures": f"spacy_tener.{architecture}.v1", **settings}

    radicals = {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(folder / "parts.txt")}
    return {
        "lexicon_embed": parts["FLAT"]["words"],
        "segment_embed": registered("SegmentEmbed"),
        "radical_embed": registered("RadicalEmbed", source=radicals),
        "char_encoder": registered("CharCNN"),
        "transformer_embed": registered("TransformerEmbed", name=str(save_tiny_transformer(folder / "bert"))),
    }


@pytest.mark.parametrize(
    "layer", ["lexicon_embed", "segment_embed", "radical_embed", "char_encoder", "transformer_embed"]
)
def test_what_reads_more_than_characters_is_refused_with_a_way_out(
    layer: str, folder: Path, parts: dict[str, Any]
) -> None:
    first, second = parts["TENER"]["embed"], embeds(folder, parts)[layer]
    join = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": second}
    nlp = initialized({**parts["TENER"], "embed": join})
    with pytest.raises(RemedyError, match=f"The layer '{layer}' cannot be exported.* by the overlay `distilled`"):
        export_model(nlp)


@pytest.mark.parametrize("system", ["FLAT", "FLAT_ATSSA", "MECT"])
def test_lattices_are_refused(system: str, parts: dict[str, Any]) -> None:
    with pytest.raises(RemedyError, match=f"The layer '{system.lower()}' cannot be exported.*`distilled`"):
        export_model(initialized(parts[system]))


def without_tagger(nlp: Language) -> None:
    nlp.remove_pipe("tener_ner")


def with_two(nlp: Language) -> None:
    nlp.add_pipe("tener_ner", source=nlp, name="second")


def after(name: str) -> Callable[[Language], None]:
    def change(nlp: Language) -> None:
        nlp.add_pipe(name, before="tener_ner")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_tagger, r"The pipeline has no tener_ner\. Its components are: none\. Use"),
        (with_two, r"has 2 components to export\. Choose one by --component: tener_ner, second\."),
        (after("sentencizer"), "depends on the sentences of 'sentencizer'.*Remove this component with nlp.remove_pipe"),
        (
            after("entity_ruler"),
            "depends on the entities of 'entity_ruler'.*Remove this component with nlp.remove_pipe",
        ),
        (lambda nlp: nlp.disable_pipe("tener_ner"), "Enable tener_ner, which is disabled"),
    ],
)
def test_the_component_to_export_must_be_clear(
    change: Callable[[Language], None], message: str, parts: dict[str, Any]
) -> None:
    nlp = initialized(parts["TENER"])
    change(nlp)
    with pytest.raises(RemedyError, match=message):
        export_model(nlp)


def test_what_is_not_trained_or_reads_words_is_refused(parts: dict[str, Any]) -> None:
    nlp = pipeline(parts["TENER"])
    with pytest.raises(RemedyError, match="'tener_ner' has no labels"):
        export_model(nlp)
    nlp = pipeline(parts["TENER"], lang="en")
    nlp.get_pipe("tener_ner").add_label("PER")
    with pytest.raises(RemedyError, match=r"are words, whose tokenizer cannot be exported.*`distilled`"):
        export_model(nlp)


def test_a_file_has_the_words_that_all_texts_have(parts: dict[str, Any]) -> None:
    nlp = initialized(parts["TENER"])
    lists: Any = nlp.add_pipe("entity_lists", before="tener_ner")
    without = export_model(nlp).SerializeToString()
    lists.add({"上海": "TOWN"}, name="a")
    lists.block(["北京"], name="b")
    assert export_model(nlp).SerializeToString() == without
    lists.add({"北京大": "TOWN", "去了": "GPE"})
    with_words = export_model(nlp).SerializeToString()
    reader, old = tener_reader.load(with_words), tener_reader.load(without)
    assert reader.about["labels"] == [*old.about["labels"], "TOWN"]
    assert reader.about["thresholds"] == old.about["thresholds"]
    assert reader.about["digest"] != old.about["digest"]
    found = [(entity["text"], entity["label"], entity["probability"]) for entity in reader.entities("他去了北京大学")]
    assert [entity for entity in found if entity[2] == 1.0] == [("去了", "GPE", 1.0), ("北京大", "TOWN", 1.0)]
    texts = sample_texts(nlp, "tener_ner")
    assert any("北京大" in text for text in texts)
    compared = compare(nlp, "tener_ner", with_words, texts)
    assert (compared.different_texts, compared.n_equal > 100, compared.max_difference < 1e-5) == ([], True, True)


def test_a_long_text_in_which_a_word_overlaps_with_itself_is_read(parts: dict[str, Any]) -> None:
    nlp = initialized(parts["TENER"])
    lists: Any = nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add({"哈哈哈": "LAUGH"})
    reader = tener_reader.load(export_model(nlp).SerializeToString(), threads=1)
    found = [(entity["start"], entity["end"]) for entity in reader.entities("哈" * 3001) if entity["label"] == "LAUGH"]
    assert found == [(start, start + 3) for start in range(0, 3000, 3)]


@pytest.mark.parametrize(
    ("finder", "place", "message"),
    [
        (
            "lac",
            "before",
            "'entity_lists' has words, which cannot be exported with 'lac'. Empty the list with nlp.get_pipe",
        ),
        (
            "lac",
            "after",
            "'entity_lists' has words, which cannot be exported with 'lac'. Empty the list with nlp.get_pipe",
        ),
        (
            "tener_ner",
            "after",
            "only be exported from one list before 'tener_ner'. Move the words there, or empty the list",
        ),
        ("words", "before", "can only be exported if each character is a token. Empty the list with nlp.get_pipe"),
        (
            "two",
            "before",
            "'two' has words, which can only be exported from one list before 'tener_ner'. Move the words there",
        ),
    ],
)
def test_words_that_a_file_cannot_hold_are_refused(
    finder: str, place: str, message: str, parts: dict[str, Any]
) -> None:
    nlp = spacy.blank("zh") if finder == "lac" else initialized(parts["TENER"], view="characters")
    if finder == "lac":
        nlp.add_pipe("lac")
    if finder == "words":
        nlp.tokenizer = spacy.blank("en").tokenizer
    lists: Any = nlp.add_pipe("entity_lists", **{place: nlp.pipe_names[-1]})
    if finder == "two":
        nlp.add_pipe("entity_lists", name="two", before="tener_ner").block(["北京"])  # type: ignore[attr-defined]
    assert export_model(nlp)
    lists.block(["上海"])
    with pytest.raises(RemedyError, match=re.escape(message)):
        export_model(nlp)


def test_listed_words_of_lac_are_refused() -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac").lexicon.add({"上海": "LOC"})
    with pytest.raises(RemedyError, match=r"'lac' has a lexicon.*nlp.get_pipe\('lac'\).lexicon.clear\(\)"):
        export_model(nlp)
    nlp.get_pipe("lac").lexicon.clear()
    assert export_model(nlp)


def test_a_nested_tagger_finds_entities_within_others_and_the_longest_are_those_of_the_doc(folder: Path) -> None:
    nlp = make_pipeline(*make_systems(folder)["nested"])
    graph = export_model(nlp).SerializeToString()
    texts = [UNSEEN, *FIXED_TEXTS, *generate_texts(60, seed=3)]
    compared = compare(nlp, "tener_ner", graph, texts)
    assert (compared.different_texts, compared.max_difference < 1e-5) == ([], True)
    reader = tener_reader.load(graph)
    assert reader.about["depth"] == 3
    n_inner = 0
    for doc, entities in zip(nlp.pipe(texts), reader.batch(texts), strict=True):
        longest: list[dict[str, Any]] = []
        for entity in sorted(entities, key=lambda entity: entity["start"] - entity["end"]):
            if all(entity["end"] <= other["start"] or other["end"] <= entity["start"] for other in longest):
                longest.append(entity)
        ents = {(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents}
        assert {(entity["start"], entity["end"], entity["label"]) for entity in longest} == ents
        n_inner += len(entities) - len(longest)
    assert n_inner > 50


def test_a_component_on_shared_vectors_is_refused(parts: dict[str, Any]) -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": parts["TENER"]["embed"]})
    tagger = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": LISTENER}
    nlp.add_pipe("tener_ner", config={"model": tagger})
    nlp.initialize(lambda: examples_of(nlp))
    with pytest.raises(RemedyError, match="The layer 'tok2vec-listener' cannot be exported"):
        export_model(nlp)


def test_an_encoder_of_word_pieces_is_refused(tmp_path: Path, parts: dict[str, Any]) -> None:
    path = save(tmp_path, mean_encoder())
    (tmp_path / "vocab.txt").unlink()
    save_tokenizer(tmp_path)
    embed = {
        "@architectures": "spacy_tener.OnnxEmbed.v1",
        "encoder": {"@misc": "spacy_tener.OnnxEncoder.v1", "path": str(path)},
    }
    with pytest.raises(RemedyError, match=r"needs subword tokens.*`distilled`"):
        export_model(initialized({**parts["TENER"], "embed": embed}))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = initialized(parts["TENER"])
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None if name == package else onnx.__spec__)
    with pytest.raises(MissingPackageError, match=f"takes the package {package}.*`pip install onnx onnxruntime`"):
        export_model(nlp)


def test_a_newer_onnx_is_refused(parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = initialized(parts["TENER"])
    monkeypatch.setattr(onnx, "__version__", "2.0.0")
    with pytest.raises(RemedyError, match=r"onnx 2\.0\.0 is not supported.*'onnx<2'"):
        export_model(nlp)
