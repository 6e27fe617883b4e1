"""Train a small pipeline of every kind, and save them with their predictions to tests/data/promised-VERSION.zip.

    python tests/make_promised.py

Run this once before the release of each minor version. The archives are kept. `tests/test_promised.py` checks that
later versions with the same major version load them and predict the same entities.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import torch
from small_systems import TEXTS, learn, pipeline, small_tok2vecs
from spacy.language import Language
from spacy.training import Example
from tiny_transformer import save_tiny_transformer

from spacy_tener import __version__
from spacy_tener.export import trimming
from spacy_tener.features.tokens import TokenBatch

DATA = Path(__file__).resolve().parent / "data"
EXPECTED = "expected.json"
UNSEEN = ["吴小明在上海银行工作。王重阳去了中国", "𠮷野家 in 北京，ABC 2026"]
ENGLISH = [
    ("Jane Smith works for Northern Rail in York.", [(0, 10, "PER"), (21, 34, "ORG"), (38, 42, "GPE")]),
    ("York is large", [(0, 4, "GPE")]),
    ("Nothing happened today", []),
    ("John Brown went to Leeds", [(0, 10, "PER"), (19, 24, "GPE")]),
]
ENGLISH_UNSEEN = ["John Smith works in Leeds.", "Nobody of Northern Brown ate 42 Smørrebrød"]

Trained = tuple[Language, list[str]]


def make_pipelines() -> dict[str, Trained]:
    """Return a trained pipeline of each kind, with texts for predictions. Source files are written to the current
    directory."""
    systems = {name: {**tok2vec, "width": 8} for name, tok2vec in small_tok2vecs(Path()).items()}
    systems["MECT"] |= {"random_attention": 30, "radicals": {**systems["MECT"]["radicals"], "radical_width": 8}}
    characters = {**systems["TENER"]["embed"], "width": 8, "bigram_width": 4}
    segments = {"@architectures": "spacy_tener.SegmentEmbed.v1", "width": 6}
    transformer = {
        "@architectures": "spacy_tener.TransformerEmbed.v1",
        "name": str(save_tiny_transformer(Path("bert"))),
    }
    adapted = {"@architectures": "spacy_tener.TransformerEncoder.v1", "heads": 2, "dropout": 0.0}
    vanilla = {**adapted, "adapted": False}
    pipelines = {name.lower(): train(pipeline(tok2vec)) for name, tok2vec in systems.items() if name != "FLAT"}
    pipelines |= {
        "flat": train(pipeline(systems["FLAT"]), after=add_words),
        "characters": train(pipeline(tener(characters), view="characters", window=60, overlap=10)),
        "segment": train(with_tokenizer(pipeline(tener(join(characters, segments))))),
        "multilingual": train(with_tokenizer(pipeline(tener(characters), lang="xx"), "MultilingualTokenizer")),
        "transformer": train(pipeline(transformer)),
        "half": train(pipeline(tener(characters)), after=halve),
        "calibrated": train(pipeline(tener(characters), spans_key="probable", threshold=0.3), after=calibrate),
        "shared": train(shared(tener(characters))),
        "adapted": train(pipeline(encoded(characters, {**adapted, "width": 12}))),
    }
    english = {
        "cnn": (
            char_embed("CharCNN", filters=4),
            {"@architectures": "spacy_tener.GatedRelationEncoder.v1", "width": 10},
        ),
        "attention": (char_embed("CharTransformer", ff_width=8, heads=2, char_width=8), {**vanilla, "width": 10}),
    }
    for name, (embed, encoder) in english.items():
        tok2vec = encoded(embed, {"dropout": 0.0, **encoder})
        pipelines[name] = train(pipeline(tok2vec, lang="xx"), ENGLISH, ENGLISH_UNSEEN)
    return pipelines


def tener(embed: dict[str, Any]) -> dict[str, Any]:
    return {"@architectures": "spacy_tener.TENER.v1", "embed": embed, "width": 8, "heads": 2, "dropout": 0.0}


def join(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {"@architectures": "spacy_tener.JoinEmbed.v1", "first": first, "second": second}


def encoded(embed: dict[str, Any], encode: dict[str, Any]) -> dict[str, Any]:
    return {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}


def char_embed(encoder: str, **settings: Any) -> dict[str, Any]:
    chars = {"@architectures": f"spacy_tener.{encoder}.v1", "char_width": 6, "width": 6, "dropout": 0.0, **settings}
    embed = {"@architectures": "spacy_tener.WordCharEmbed.v1", "width": 10, "project_to": 10, "dropout": 0.0}
    return {**embed, "chars": chars}


def shared(tok2vec: dict[str, Any]) -> Language:
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 8, "upstream": "*"}
    nlp = pipeline(listener)
    nlp.add_pipe("tok2vec", config={"model": tok2vec}, first=True)
    return nlp


def with_tokenizer(nlp: Language, tokenizer: str = "CharTokenizer") -> Language:
    config = nlp.config.copy()
    config["nlp"]["tokenizer"] = {"@tokenizers": f"spacy_tener.{tokenizer}.v1"}
    return type(nlp).from_config(config)


def halve(nlp: Language) -> None:
    model = nlp.get_pipe("tener_ner").model
    trimming.FEW = 0  # by default, tables as small as these are not trimmed
    counts = trimming.count_rows(model, [TokenBatch.of([nlp.make_doc(text) for text, _ in TEXTS])])
    trimming.trim_tables(model, counts, min_count=1, half=True)


def calibrate(nlp: Language) -> None:
    nlp.get_pipe("tener_ner").cfg["temperature"] = 1.5


def add_words(nlp: Language) -> None:
    nlp.get_pipe("tener_ner").lexicon.add(["上海银行", "王重阳"])


def train(
    nlp: Language,
    texts: list[tuple[str, list[tuple[int, int, str]]]] = TEXTS,
    unseen: list[str] = UNSEEN,
    after: Callable[[Language], None] = lambda nlp: None,
) -> Trained:
    """Return a pipeline that was overfitted to its training texts, and these texts with some unseen ones."""
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in texts]
    learn(nlp, examples, steps=200, enough=0.05)
    # Remove the paths of word lists and vectors, which only exist on this machine.
    nlp.config["initialize"] = {}
    after(nlp)
    return nlp, [*(text for text, _ in texts), *unseen]


def predictions(nlp: Language, texts: list[str]) -> dict[str, Any]:
    """Return the entities of Docs, and all entities that the component decodes, with their probabilities."""
    pipe: Any = nlp.get_pipe("tener_ner")
    ents = [[[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents] for doc in nlp.pipe(texts)]
    with nlp.select_pipes(disable=["tener_ner"]):
        found = [decoding.entities for decoding in pipe.decode(nlp.pipe(texts))]
    return {
        "ents": ents,
        "scored": [[[entity.start, entity.end, entity.label] for entity in entities] for entities in found],
        "probabilities": [entity.probability for entities in found for entity in entities],
    }


def main() -> None:
    path = DATA / f"promised-{'.'.join(__version__.split('.')[:2])}.zip"
    torch.manual_seed(0)
    expected = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        chdir(folder),
    ):
        for name, (nlp, texts) in make_pipelines().items():
            nlp.to_disk(name)
            expected[name] = {"texts": texts, **predictions(nlp, texts)}
            for file in sorted(Path(name).rglob("*")):
                if file.is_file():
                    archive.write(file)
        archive.writestr(EXPECTED, json.dumps(expected, ensure_ascii=False))
    print(f"{path.name}: {len(expected)} pipelines, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
