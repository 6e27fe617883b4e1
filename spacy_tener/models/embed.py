"""Embedders: from Docs to one row of floats per token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import srsly
import torch
from spacy.attrs import ORTH
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr
from thinc.types import Floats2d

from ..features.normalise import KeyCache, Keys, Normaliser
from ..features.tables import END_MARK, StringTable, bigram_key_array, pair_keys, unigram_key_array
from ..features.vectors import read_vectors
from ..layers.embedding import EmbeddingTables
from .bridge import TorchShim, join, split, token_counts, torch_shim

EmbedModel = Model[list[Doc], list[Floats2d]]

UNIGRAM = "unigram"
BIGRAM = "bigram"
_GROWTH = 8


class Vocabulary:
    """Which strings an embedder knows: one table of keys for tokens, and one for pairs of neighbours.

    names: which tables there are: `unigram`, and `bigram` unless pairs are not used.
    """

    def __init__(self, normaliser: Normaliser, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """How many rows of a table, from the first, came from a vectors file."""
        self._cache = KeyCache(normaliser)
        self._end_key = normaliser.key(END_MARK)

    def keys(self, docs: list[Doc]) -> dict[str, Keys]:
        """The keys of all tokens of the docs joined, for each table. *Shape* [N]"""
        orths = np.concatenate([doc.to_array(ORTH) for doc in docs])
        # Docs need not share a vocab.
        stores = {id(doc.vocab): doc.vocab.strings for doc in docs}
        unigrams = self._cache(orths, list(stores.values()))
        keys = {UNIGRAM: unigrams}
        if BIGRAM in self.tables:
            keys[BIGRAM] = pair_keys(unigrams, np.asarray(token_counts(docs), dtype=np.int64), self._end_key)
        return keys

    def clear(self) -> None:
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained = {}

    def to_bytes(self) -> bytes:
        # "<u8" whatever the machine's own byte order, so that a pipeline moves between machines.
        keys = {name: table.keys.astype("<u8").tobytes() for name, table in self.tables.items()}
        return cast(bytes, srsly.msgpack_dumps(keys))

    def from_bytes(self, data: bytes) -> Vocabulary:
        saved = srsly.msgpack_loads(data)
        if set(saved) != set(self.tables):
            raise ValueError(
                f"The saved embedder has the tables {sorted(saved)}, but the config asks for {sorted(self.tables)}. "
                "Load it with the config that it was trained with."
            )
        self.tables = {
            name: StringTable(np.frombuffer(keys, dtype="<u8").astype(np.uint64)) for name, keys in saved.items()
        }
        self.pretrained = {}
        return self


@serialize_attr.register(Vocabulary)
def _serialize_vocabulary(_: Any, value: Vocabulary, name: str, model: Model[Any, Any]) -> bytes:
    return value.to_bytes()


@deserialize_attr.register(Vocabulary)
def _deserialize_vocabulary(default: Vocabulary, value: bytes, name: str, model: Model[Any, Any]) -> Vocabulary:
    return default.from_bytes(value)


def build_char_embed(
    width: int = 50,
    bigram_width: int = 50,
    digits: bool = True,
    lower: bool = False,
    dropout: float = 0.3,
    word_dropout: float = 0.01,
    bigram_dropout: float = 0.02,
    vectors: str | Path | None = None,
    bigram_vectors: str | Path | None = None,
    normalize_vectors: bool = True,
) -> EmbedModel:
    """Embed each token by its own row and the row of the pair that it makes with the next token.

    Registered as `spacy_tener.CharEmbed.v1`. Its tokens are the characters of a Chinese pipeline, or what a character
    view makes of one; any other tokens work the same way. A string gets a row of its own when it is first seen in
    training; every string that never was shares the unknown row, which word dropout trains.

    width (int): Width of the tokens' rows.
    bigram_width (int): Width of the pairs' rows; 0 leaves pairs out.
    digits (bool): Read every digit as 0.
    lower (bool): Read upper case as lower case.
    dropout (float): Dropout on the joined rows.
    word_dropout (float): Probability that a token is read as unknown in training.
    bigram_dropout (float): The same for a pair.
    vectors (Optional[Union[str, Path]]): Pretrained rows for tokens: a word2vec or GloVe text file (plain, gz, bz2, xz)
        or a directory that `spacy init vectors` made. Read by `initialize` only, fine-tuned, saved with the model.
    bigram_vectors (Optional[Union[str, Path]]): The same for pairs, written as two characters.
    normalize_vectors (bool): Scale pretrained rows to unit length, which random rows have on average.
    """
    if width < 1 or bigram_width < 0:
        raise ValueError(f"CharEmbed needs width >= 1 and bigram_width >= 0, but got {width} and {bigram_width}.")
    if bigram_vectors is not None and bigram_width == 0:
        raise ValueError("CharEmbed was given bigram_vectors but bigram_width = 0. Set a width, or remove the vectors.")
    _check_rates(dropout=dropout, word_dropout=word_dropout, bigram_dropout=bigram_dropout)
    widths = {UNIGRAM: width, BIGRAM: bigram_width} if bigram_width else {UNIGRAM: width}
    normaliser = Normaliser(digits=digits, lower=lower)
    build = partial(
        _build_tables,
        widths=widths,
        word_dropout={UNIGRAM: word_dropout, BIGRAM: bigram_dropout},
        dropout=dropout,
    )
    sources = {UNIGRAM: vectors, BIGRAM: bigram_vectors}
    return Model(
        "char_embed",
        _forward,
        init=partial(
            _init,
            normaliser=normaliser,
            sources={name: path for name, path in sources.items() if path is not None},
            unit_length=normalize_vectors,
        ),
        dims={"nO": sum(widths.values())},
        attrs={"vocabulary": Vocabulary(normaliser, widths), "widths": widths},
        shims=[TorchShim(build)],
    )


def _check_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"CharEmbed needs a {name} of at least 0 and below 1, but got {rate}.")


def _build_tables(
    *, widths: dict[str, int], word_dropout: dict[str, float], dropout: float, **rows: int
) -> EmbeddingTables:
    return EmbeddingTables(rows=rows, widths=widths, word_dropout=word_dropout, dropout=dropout)


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    normaliser: Normaliser,
    sources: dict[str, str | Path],
    unit_length: bool,
) -> None:
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    torch_shim(model).build(**{name: len(table) for name, table in vocabulary.tables.items()})
    for name, path in sources.items():
        _load_vectors(model, name, path, normaliser, unit_length)


def _load_vectors(model: EmbedModel, name: str, path: str | Path, normaliser: Normaliser, unit_length: bool) -> None:
    loaded = read_vectors(path, width=model.attrs["widths"][name], normalise=normaliser)
    to_keys = unigram_key_array if name == UNIGRAM else bigram_key_array
    keys, first = np.unique(to_keys(loaded.strings, normaliser), return_index=True)
    table = loaded.table[first]
    if unit_length:
        table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.tables[name].add(keys)
    vocabulary.pretrained[name] = len(vocabulary.tables[name])
    _fit_height(model, name)
    module: EmbeddingTables = torch_shim(model).module
    module.fill(name, torch.from_numpy(vocabulary.tables[name].rows(keys)), torch.from_numpy(table))


def _fit_height(model: EmbedModel, name: str) -> None:
    """Let the torch table have a row for every key, and some to spare, so that growing stays rare."""
    shim = torch_shim(model)
    needed = len(model.attrs["vocabulary"].tables[name])
    height = shim.sizes[name]
    if needed > height:
        grown = needed + height // _GROWTH
        shim.module.grow(name, grown)
        shim.set_module(shim.module, {**shim.sizes, name: grown})


def observe(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> None:
    """Give a row to every string of the docs, in every embedder inside the model, and say how many of the strings
    have a pretrained vector."""
    nodes = [node for node in model.walk() if "vocabulary" in node.attrs]
    if not nodes:
        return
    used = [
        {name: np.zeros(n_rows, dtype=bool) for name, n_rows in node.attrs["vocabulary"].pretrained.items()}
        for node in nodes
    ]
    for docs in batches:
        for node, rows_used in zip(nodes, used, strict=True):
            keys = node.attrs["vocabulary"].keys(docs)
            _add_keys(node, keys)
            for name, seen in rows_used.items():
                rows = node.attrs["vocabulary"].tables[name].rows(keys[name])
                seen[rows[rows < seen.size]] = True
    for node, rows_used in zip(nodes, used, strict=True):
        for name, seen in rows_used.items():
            found = int(seen.sum())
            wanted = found + len(node.attrs["vocabulary"].tables[name]) - seen.size
            logger.info("Pretrained %s vectors: found %d of %d strings of the training data", name, found, wanted)


def _add_keys(model: EmbedModel, keys: dict[str, Keys]) -> None:
    for name, table in model.attrs["vocabulary"].tables.items():
        if table.add(keys[name]):
            _fit_height(model, name)


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    shim = torch_shim(model)
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    lengths = token_counts(docs)
    keys = vocabulary.keys(docs)
    if not is_train:
        with torch.inference_mode():
            outputs = shim.module(_rows(model, keys))
        return split(model.ops, outputs, lengths), lambda dY: docs
    _add_keys(model, keys)
    with shim.training() as module:
        outputs = module(_rows(model, keys))

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        torch.autograd.backward(outputs, join(model.ops, dY, shim.device))
        return docs

    return split(model.ops, outputs, lengths), backprop


def _rows(model: EmbedModel, keys: dict[str, Keys]) -> list[torch.Tensor]:
    device = torch_shim(model).device
    tables: dict[str, StringTable] = model.attrs["vocabulary"].tables
    return [torch.from_numpy(table.rows(keys[name])).to(device) for name, table in tables.items()]
