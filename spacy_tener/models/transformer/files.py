"""Pretrained transformers: read by name, taken apart into what a pipeline saves, and put together again."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from torch import nn


def load_pretrained(name: str | Path | None) -> tuple[Any, Any]:
    """A transformer and its tokenizer, from a directory or by the name that the Hugging Face Hub has them under."""
    if not name:
        raise ValueError(
            "TransformerEmbed has no transformer: its name is null. Give a directory or a name on the Hugging Face "
            "Hub, as in `--paths.transformer bert-base-chinese`."
        )
    library = _library()
    try:
        transformer = library.AutoModel.from_pretrained(str(name)).float()
        tokenizer = library.AutoTokenizer.from_pretrained(str(name))
    except Exception as error:  # There is hardly a kind of error that the library does not raise for a wrong name.
        raise ValueError(
            f"TransformerEmbed cannot load the transformer {str(name)!r}: it is neither a directory with a model and "
            "its tokenizer, nor a name that the Hugging Face Hub or the local cache of it has. Check the name, or the "
            "connection; without one, give the directory of a downloaded model. The library transformers says: "
            f"{str(error).strip().splitlines()[0]}"
        ) from error
    _check(transformer, tokenizer, str(name))
    return transformer, tokenizer


def take_apart(transformer: Any, tokenizer: Any) -> dict[str, Any]:
    """All but the weights, for `put_together`: plain data, which msgpack can hold."""
    with TemporaryDirectory() as directory:
        tokenizer.save_pretrained(directory)
        files = {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}
    return {"config": transformer.config.to_json_string(use_diff=False), "tokenizer": files}


def put_together(config: str, tokenizer: dict[str, bytes]) -> tuple[Any, Any]:
    """A transformer with random weights, and its tokenizer."""
    library = _library()
    settings = json.loads(config)
    transformer = library.AutoModel.from_config(library.AutoConfig.for_model(settings.pop("model_type"), **settings))
    transformer.float()
    with TemporaryDirectory() as directory:
        for name, content in tokenizer.items():
            # A pipeline may come from anywhere: nothing in it may name a place outside.
            if Path(name).name != name or name == "..":
                raise ValueError(f"The saved tokenizer has a file {name!r}, which is no plain name. Do not use it.")
            (Path(directory) / name).write_bytes(content)
        return transformer, library.AutoTokenizer.from_pretrained(directory)


def longest_window(transformer: nn.Module, tokenizer: Any) -> int:
    """How many pieces, with the special ones, a transformer can read at once."""
    tables = [
        table
        for name, table in transformer.named_modules()
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding)
    ]
    # RoBERTa and its kin begin to count behind the row that stands for padding.
    positions = (table.num_embeddings - (-1 if (i := table.padding_idx) is None else i) - 1 for table in tables)
    return min([int(tokenizer.model_max_length), *positions])


def _library() -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            "TransformerEmbed needs the library transformers, which is not installed. Run: "
            'pip install "spacy_tener[transformers]"'
        ) from error
    return transformers


def _check(transformer: Any, tokenizer: Any, name: str) -> None:
    if transformer.config.is_encoder_decoder:
        raise ValueError(
            f"TransformerEmbed cannot read with {name!r}: it is an encoder with a decoder. Use an encoder, as BERT."
        )
    if not tokenizer.is_fast:
        raise ValueError(
            f"TransformerEmbed cannot read with {name!r}: its tokenizer does not say where in a text its pieces are. "
            "Use a transformer with a fast tokenizer, one that has a tokenizer.json."
        )
