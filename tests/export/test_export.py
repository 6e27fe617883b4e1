"""Test the export of pipelines to ONNX files, and errors for pipelines that cannot be exported."""

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
from spacy_tener.errors import MissingPackageError, UserError
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
def architectures(folder: Path) -> dict[str, Any]:
    return small_tok2vecs(folder)


def initialized(tok2vec: dict[str, Any], **settings: Any) -> Language:
    nlp = pipeline(tok2vec, **settings)
    nlp.initialize(lambda: examples_of(nlp))
    return nlp


def nodes_of(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


@pytest.mark.parametrize("system", SYSTEMS)
def test_graph_uses_standard_operators(system: str) -> None:
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


def test_metadata_describes_model_without_local_paths(tmp_path: Path, architectures: dict[str, Any]) -> None:
    encoder = mean_encoder()
    encoder.graph.node[0].doc_string = f"{tmp_path}/model.py"
    encoder.graph.node[1].metadata_props.add(key="stack", value=f"{tmp_path}/model.py")
    source = {"@misc": "spacy_tener.OnnxEncoder.v1", "path": str(save(tmp_path / "encoder", encoder))}
    source |= {"licence": "MIT", "origin": "https://an.example/mean"}
    embed = {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": 8, "encoder": source}
    nlp = initialized({**architectures["TENER"], "embed": embed}, threshold={"PER": 0.5})
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
        "pipeline": {
            "lang": "zh",
            "name": "model",
            "version": "",
            "component": "tener_ner",
            "view": "tokens",
            "probabilities": "uncalibrated",
        },
        "spacy_tener": about["spacy_tener"],
        "license": "CC BY 4.0",
        "author": "A. Uthor",
        "url": "https://an.example",
        "sources": [],
    }
    assert export_model(initialized(architectures["TENER"])).SerializeToString() == (
        export_model(initialized(architectures["TENER"])).SerializeToString()
    )


def test_half_option_reduces_file_size(architectures: dict[str, Any]) -> None:
    nlp = initialized({**architectures["TENER"], "embed": {**architectures["TENER"]["embed"], "width": 300}})
    full, half = (export_model(nlp, half=half).SerializeToString() for half in (False, True))
    assert len(full) - len(half) > 2 * 300 * 40
    compared = compare(nlp, "tener_ner", half, sample_texts(nlp, "tener_ner"))
    assert compared.n_equal > 100
    assert 1e-7 < compared.max_difference < 1e-3


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_untrained_model_handles_white_space_like_pipeline(view: str, architectures: dict[str, Any]) -> None:
    nlp = initialized(architectures["TENER"], view=view)
    texts = [space.join("北京大学在上海") * 9 for space in (" ", "\n", "\t\n", "\u3000 \n", "\t ", "😀", "\u200b")]
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), [*texts, *generate_texts(40, seed=5)])
    assert compared.n_equal > 300
    assert (compared.different_texts, compared.max_difference < 1e-5) == ([], True)


BIGRAMS = ["㐀龥", "㐀<eos>", "京㐀", "かん", "ンか", "한국", "국<eos>", "Ωλ", "𠀀𠀁"]


def load_with_pretrained_bigrams(
    bigrams: list[str], folder: Path, architectures: dict[str, Any], *, pair_characters: bool = True
) -> Language:
    """Initialize a pipeline with pretrained embeddings of character bigrams, save it and load it.

    pair_characters (bool): Whether the characters of the bigrams are saved. Earlier versions did not save them.
    """
    rows = "".join(f"{bigram} {' '.join(['9'] * 8)}\n" for bigram in bigrams)
    (folder / "pairs.vec").write_text(rows, encoding="utf8")
    embed = {**architectures["TENER"]["embed"], "bigram_vectors": str(folder / "pairs.vec")}
    nlp = initialized({**architectures["TENER"], "embed": embed})
    if not pair_characters:
        vocabulary_of(nlp).pair_characters = ""
    return spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())


def vocabulary_of(nlp: Language) -> CharVocabulary:
    [embedder] = [node for node in nlp.get_pipe("tener_ner").model.walk() if node.name == "char_embed"]
    return embedder.attrs["vocabulary"]


def assert_bigrams_are_exported(nlp: Language, bigrams: list[str], texts: list[str]) -> None:
    vocabulary = vocabulary_of(nlp)
    rows = characters.number_strings(vocabulary, nlp)[2].values()
    assert set(bigram_rows(vocabulary, bigrams)) <= set(rows)
    samples = "\n".join(sample_texts(nlp, "tener_ner"))
    assert all(bigram.removesuffix("<eos>") in samples for bigram in bigrams)
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), texts)
    assert (compared.different_texts, compared.n_equal > 0, compared.max_difference < 1e-5) == ([], True, True)


def bigram_rows(vocabulary: CharVocabulary, bigrams: list[str]) -> list[int]:
    rows = vocabulary.tables["bigram"].rows(bigram_key_array(bigrams, vocabulary.normalizer)).tolist()
    assert all(rows)
    return rows


def test_pretrained_bigrams_of_unseen_characters_are_exported(
    tmp_path: Path, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(characters, "_search_characters_of_pairs")
    nlp = load_with_pretrained_bigrams([*BIGRAMS, "three"], tmp_path, architectures)
    texts = ["㐀龥", "北京㐀", "龥㐀龥", "他在北京㐀", "かンかん", "한국", "ΩλΩ", "𠀀𠀁𠀀"]
    assert_bigrams_are_exported(nlp, BIGRAMS, texts)


def test_pretrained_bigrams_of_older_pipeline_are_exported(
    tmp_path: Path, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(characters, "_SEARCHED_CODES", 0x600)  # The search among all characters takes a minute.
    bigrams = ["Ωλ", "λψ", "אב", "λ<eos>"]
    nlp = load_with_pretrained_bigrams(bigrams, tmp_path, architectures, pair_characters=False)
    assert_bigrams_are_exported(nlp, bigrams, ["ΩλψΩλ", "אבא", "京λ"])


def test_white_space_tokens_of_training_data_are_exported(architectures: dict[str, Any]) -> None:
    spaces = [" " * 13, "\u3000" * 12, " \t" * 30, "\n" + " " * 200, "\t" * 12, " " * 2]
    texts = [f"北京{space}上海" for space in spaces]
    nlp = pipeline(architectures["TENER"])
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


def test_line_breaks_end_sentences_like_in_pipeline(architectures: dict[str, Any]) -> None:
    nlp = initialized(architectures["TENER"])
    nlp.get_pipe("tener_ner").cfg.update(text_length=32, text_sentences=1)
    lines = ["北京大学在上海", "王小明去了北京大学", "上海"] * 4
    texts = [between.join(lines) for between in ("\n", "\n\n", "\r\n", "\n\u3000\u3000", "\u3000\u3000", " \n ")]
    compared = compare(nlp, "tener_ner", export_model(nlp).SerializeToString(), texts)
    assert (compared.different_texts, compared.n_equal > 0, compared.max_difference < 1e-5) == ([], True, True)


def unsupported_embedders(folder: Path, architectures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return embedders that cannot be exported, by the name of the layer in the error message."""

    def registered(architecture: str, **settings: Any) -> dict[str, Any]:
        return {"@architectures": f"spacy_tener.{architecture}.v1", **settings}

    radicals = {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(folder / "parts.txt")}
    return {
        "lexicon_embed": architectures["FLAT"]["words"],
        "segment_embed": registered("SegmentEmbed"),
        "radical_embed": registered("RadicalEmbed", source=radicals),
        "char_encoder": registered("CharCNN"),
        "transformer_embed": registered("TransformerEmbed", name=str(save_tiny_transformer(folder / "bert"))),
    }


@pytest.mark.parametrize(
    "layer", ["lexicon_embed", "segment_embed", "radical_embed", "char_encoder", "transformer_embed"]
)
def test_unsupported_embedder_raises_error(layer: str, folder: Path, architectures: dict[str, Any]) -> None:
    first, second = architectures["TENER"]["embed"], unsupported_embedders(folder, architectures)[layer]
    join = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": second}
    nlp = initialized({**architectures["TENER"], "embed": join})
    with pytest.raises(UserError, match=f"The layer '{layer}' cannot be exported.* with the overlay `distilled`"):
        export_model(nlp)


@pytest.mark.parametrize("system", ["FLAT", "FLAT_ATSSA", "MECT"])
def test_lattice_architecture_raises_error(system: str, architectures: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"The layer '{system.lower()}' cannot be exported.*`distilled`"):
        export_model(initialized(architectures[system]))


def without_tagger(nlp: Language) -> None:
    nlp.remove_pipe("tener_ner")


def with_two_taggers(nlp: Language) -> None:
    nlp.add_pipe("tener_ner", source=nlp, name="second")


def with_component_before(name: str) -> Callable[[Language], None]:
    def change(nlp: Language) -> None:
        nlp.add_pipe(name, before="tener_ner")

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_tagger, r"The pipeline has no tener_ner\. Its components are: none\. Use"),
        (with_two_taggers, r"has 2 components to export\. Choose a component with --component: tener_ner, second\."),
        (
            with_component_before("sentencizer"),
            "depends on the sentences of 'sentencizer'.*Remove this component with nlp.remove_pipe",
        ),
        (
            with_component_before("entity_ruler"),
            "depends on the entities of 'entity_ruler'.*Remove this component with nlp.remove_pipe",
        ),
        (lambda nlp: nlp.disable_pipe("tener_ner"), "Enable tener_ner with nlp.enable_pipe, and save the pipeline"),
    ],
)
def test_ambiguous_or_dependent_component_raises_error(
    change: Callable[[Language], None], message: str, architectures: dict[str, Any]
) -> None:
    nlp = initialized(architectures["TENER"])
    change(nlp)
    with pytest.raises(UserError, match=message):
        export_model(nlp)


def test_untrained_or_word_based_pipeline_raises_error(architectures: dict[str, Any]) -> None:
    nlp = pipeline(architectures["TENER"])
    with pytest.raises(UserError, match="'tener_ner' has no labels"):
        export_model(nlp)
    nlp = pipeline(architectures["TENER"], lang="en")
    nlp.get_pipe("tener_ner").add_label("PER")
    with pytest.raises(UserError, match=r"uses words as tokens, and the tokenizer cannot be exported.*`distilled`"):
        export_model(nlp)


def test_only_unnamed_entity_list_is_exported(architectures: dict[str, Any]) -> None:
    nlp = initialized(architectures["TENER"])
    lists: Any = nlp.add_pipe("entity_lists", before="tener_ner")
    without = export_model(nlp).SerializeToString()
    lists.add({"上海": "TOWN"}, name="a")
    lists.block(["北京"], name="b")
    assert export_model(nlp).SerializeToString() == without
    lists.add({"北京大": "TOWN", "去了": "GPE", "Café": "TOWN"})
    with_words = export_model(nlp).SerializeToString()
    reader, old = tener_reader.load(with_words), tener_reader.load(without)
    assert reader.about["labels"] == [*old.about["labels"], "TOWN"]
    assert reader.about["thresholds"] == old.about["thresholds"]
    assert reader.about["digest"] != old.about["digest"]
    found = [(entity["text"], entity["label"], entity["probability"]) for entity in reader.entities("他去了北京大学")]
    assert [entity for entity in found if entity[2] == 1.0] == [("去了", "GPE", 1.0), ("北京大", "TOWN", 1.0)]
    decomposed = "Cafe\u0301"
    (found_cafe,) = [entity["text"] for entity in reader.entities(f"去{decomposed}。") if entity["probability"] == 1.0]
    assert found_cafe == decomposed
    texts = [*sample_texts(nlp, "tener_ner"), f"去{decomposed}。", "去Café。", "去Cafe。"]
    assert any("北京大" in text for text in texts)
    compared = compare(nlp, "tener_ner", with_words, texts)
    assert (compared.different_texts, compared.n_equal > 100, compared.max_difference < 1e-5) == ([], True, True)


def test_self_overlapping_list_word_is_matched_in_long_text(architectures: dict[str, Any]) -> None:
    nlp = initialized(architectures["TENER"])
    lists: Any = nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add({"哈哈哈": "LAUGH"})
    reader = tener_reader.load(export_model(nlp).SerializeToString(), threads=1)
    found = [(entity["start"], entity["end"]) for entity in reader.entities("哈" * 3001) if entity["label"] == "LAUGH"]
    assert found == [(start, start + 3) for start in range(0, 3000, 3)]


@pytest.mark.parametrize(
    ("case", "position", "message"),
    [
        (
            "lac",
            "before",
            "The words in the entity list 'entity_lists' cannot be exported with the LAC component 'lac'. Remove the "
            "words with nlp.get_pipe",
        ),
        (
            "lac",
            "after",
            "The words in the entity list 'entity_lists' cannot be exported with the LAC component 'lac'. Remove the "
            "words with nlp.get_pipe",
        ),
        (
            "tener_ner",
            "after",
            "cannot be exported, because the export supports only one entity list with words, and this list must come "
            "before 'tener_ner' in the pipeline. Move the words to an entity list before 'tener_ner', or remove the "
            "words with nlp.get_pipe",
        ),
        (
            "words",
            "before",
            "can only be exported if the tokenizer splits texts into characters. Remove the words with nlp.get_pipe",
        ),
        (
            "two",
            "before",
            "The words in the entity list 'two' cannot be exported, because the export supports only one entity list "
            "with words, and this list must come before 'tener_ner' in the pipeline. Move the words to the entity list "
            "'entity_lists', or remove the words with nlp.get_pipe",
        ),
    ],
)
def test_unsupported_entity_list_raises_error(
    case: str, position: str, message: str, architectures: dict[str, Any]
) -> None:
    nlp = spacy.blank("zh") if case == "lac" else initialized(architectures["TENER"], view="characters")
    if case == "lac":
        nlp.add_pipe("lac")
    if case == "words":
        nlp.tokenizer = spacy.blank("en").tokenizer
    lists: Any = nlp.add_pipe("entity_lists", **{position: nlp.pipe_names[-1]})
    if case == "two":
        nlp.add_pipe("entity_lists", name="two", before="tener_ner").block(["北京"])  # type: ignore[attr-defined]
    assert export_model(nlp)
    lists.block(["上海"])
    with pytest.raises(UserError, match=re.escape(message)):
        export_model(nlp)


def test_lexicon_of_lac_raises_error() -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac").lexicon.add({"上海": "LOC"})
    with pytest.raises(UserError, match=r"'lac' has a lexicon.*nlp.get_pipe\('lac'\).lexicon.clear\(\)"):
        export_model(nlp)
    nlp.get_pipe("lac").lexicon.clear()
    assert export_model(nlp)


def test_nested_entities_of_graph_equal_pipeline(folder: Path) -> None:
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


def test_nested_entities_around_listed_words_equal_pipeline(folder: Path) -> None:
    trained = make_pipeline(*make_systems(folder)["nested"])
    lists: Any = trained.add_pipe("entity_lists", before="tener_ner")
    texts = [UNSEEN, "他在北京大学读书", *FIXED_TEXTS, *generate_texts(40, seed=4)]
    n_around = 0
    for words, blocked in [
        ({"北京": "GPE", "大学": "ORG", "中国": "PER"}, []),
        ({"北京": "PRODUCT", "京大": "PRODUCT", "银行": "ORG"}, ["中国"]),
        ({"大学": "GPE", "上海": "PER", "国银": "ORG"}, ["北京"]),
    ]:
        lists.clear()
        lists.add(words)
        lists.block(blocked)
        graph = export_model(trained).SerializeToString()
        compared = compare(trained, "tener_ner", graph, texts)
        assert (compared.different_texts, compared.max_difference < 1e-5) == ([], True)
        reader = tener_reader.load(graph)
        assert reader.about["depth"] == 4
        for text, entities in zip(texts, reader.batch(texts), strict=True):
            listed = [entity for entity in entities if entity["text"] in words and entity["probability"] == 1.0]
            n_around += sum(
                other["start"] <= entity["start"] and entity["end"] <= other["end"] and other["text"] != entity["text"]
                for entity in listed
                for other in entities
            )
            assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in entities)
    assert n_around > 20


def test_tok2vec_listener_raises_error(architectures: dict[str, Any]) -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tok2vec", config={"model": architectures["TENER"]["embed"]})
    tagger = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": LISTENER}
    nlp.add_pipe("tener_ner", config={"model": tagger})
    nlp.initialize(lambda: examples_of(nlp))
    with pytest.raises(UserError, match="The layer 'tok2vec-listener' cannot be exported"):
        export_model(nlp)


def test_encoder_with_subword_tokens_raises_error(tmp_path: Path, architectures: dict[str, Any]) -> None:
    path = save(tmp_path, mean_encoder())
    (tmp_path / "vocab.txt").unlink()
    save_tokenizer(tmp_path)
    embed = {
        "@architectures": "spacy_tener.OnnxEmbed.v1",
        "encoder": {"@misc": "spacy_tener.OnnxEncoder.v1", "path": str(path)},
    }
    with pytest.raises(UserError, match=r"it encodes subword tokens instead of characters.*`distilled`"):
        export_model(initialized({**architectures["TENER"], "embed": embed}))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_missing_package_raises_error(
    package: str, architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nlp = initialized(architectures["TENER"])
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None if name == package else onnx.__spec__)
    with pytest.raises(MissingPackageError, match=f"requires the package {package}.*`pip install onnx onnxruntime`"):
        export_model(nlp)


def test_unsupported_onnx_version_raises_error(architectures: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    nlp = initialized(architectures["TENER"])
    monkeypatch.setattr(onnx, "__version__", "2.0.0")
    with pytest.raises(UserError, match=r"onnx 2\.0\.0 is not supported.*'onnx<2'"):
        export_model(nlp)
