"""Two baselines of TENER's Table 5 in plain torch: an ID-CNN over words and a BiLSTM over the characters of each word.

    python -m research grid RUNS --systems chars-bilstm+encoder-idcnn --code research/baselines.py ...

Both are wrapped with Thinc's `PyTorchWrapper`, which ignores averaged weights, so their overlays disable averaging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from spacy.tokens import Doc
from spacy.util import registry
from thinc.api import Model, PyTorchWrapper, torch2xp, xp2torch
from thinc.types import ArgsKwargs, Floats2d
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

TorchModel = Model[Any, Any]

# All characters from this code point on share one embedding row.
CODE_POINTS = 0x3000


class IDCNN(nn.Module):
    """Iterated dilated convolutions (Strubell et al., 2017): one convolution, followed by a block that is applied
    repeatedly with the same weights.

    As in the released code, each convolution is followed by ReLU, and the block is initialized as the identity. In
    contrast to the released code, the loss is computed on the last output only, and there is no dropout penalty.
    """

    def __init__(self, width: int, window: int, dilations: Sequence[int], iterations: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv1d(width, width, window, padding="same")
        nn.init.xavier_uniform_(self.first.weight)
        block = [nn.Conv1d(width, width, window, padding="same", dilation=dilation) for dilation in dilations]
        for layer in block:
            nn.init.dirac_(layer.weight)
        self.block = nn.ModuleList(block)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.iterations = iterations
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Encode a padded batch of texts.

        x (Tensor): Word embeddings. *Shape:* (texts, words, width)
        mask (Tensor): 1 for words, 0 for padding. *Shape:* (texts, words, 1)
        RETURNS (Tensor): Hidden states. *Shape:* (texts, words, width)
        """
        if not x.size(1):
            return x
        mask = mask.transpose(1, 2)
        x = F.relu(self.first(x.transpose(1, 2))) * mask
        for _ in range(self.iterations):
            x = self.dropout(x)
            for layer in self.block:
                x = F.relu(layer(x)) * mask
        return x.transpose(1, 2)


class CharBiLSTM(nn.Module):
    """A bidirectional LSTM over the characters of each word, followed by ReLU, max pooling and a linear layer."""

    def __init__(self, hidden: int, char_width: int, width: int, dropout: float) -> None:
        super().__init__()
        self.rows = nn.Embedding(CODE_POINTS + 1, char_width)
        self.lstm = nn.LSTM(char_width, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Encode a batch of words.

        characters (Tensor): Padded code points of the words. *Shape:* (words, characters)
        lengths (Tensor): Number of characters in each word, on the CPU. *Shape:* (words,)
        RETURNS (Tensor): Word embeddings. *Shape:* (words, width)
        """
        if not len(characters):
            return self.out.weight.new_zeros(0, self.out.out_features)
        rows = self.dropout(self.rows(characters))
        packed, _ = self.lstm(pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False))
        # Padding is 0, the minimum of ReLU, so it does not change the maximum.
        hidden, _ = pad_packed_sequence(packed, batch_first=True)
        encoded: Tensor = self.dropout(self.out(F.relu(hidden).amax(dim=1)))
        return encoded


def build_idcnn_encoder(
    width: int = 300, window: int = 3, dilations: Sequence[int] = (1, 2, 1), iterations: int = 3, dropout: float = 0.15
) -> Model[list[Floats2d], list[Floats2d]]:
    """Build an ID-CNN whose output width equals its input width. The defaults are taken from the released code."""
    module = IDCNN(width, window, dilations, iterations, dropout)
    model = PyTorchWrapper(module, convert_inputs=pad_texts, convert_outputs=unpad_texts)
    model.set_dim("nO", width)
    return model


def build_char_bilstm(
    hidden: int = 50, char_width: int = 30, width: int = 30, dropout: float = 0.3
) -> Model[list[Doc], list[Floats2d]]:
    """Build a BiLSTM over the characters of each token. The defaults are taken from TENER's paper."""
    module = CharBiLSTM(hidden, char_width, width, dropout)
    model = PyTorchWrapper(module, convert_inputs=spell_docs, convert_outputs=split_docs)
    model.set_dim("nO", width)
    return model


def pad_texts(model: TorchModel, texts: list[Floats2d], is_train: bool) -> tuple[ArgsKwargs, Callable[..., Any]]:
    """Convert the inputs of an ID-CNN: pad the word embeddings, and build the mask."""
    ops: Any = model.ops
    lengths = [len(text) for text in texts]
    mask = ops.pad([ops.alloc2f(length, 1) + 1.0 for length in lengths])
    arguments = (xp2torch(ops.pad(texts), requires_grad=is_train), xp2torch(mask))
    return ArgsKwargs(arguments, {}), lambda gradients: ops.unpad(torch2xp(gradients.args[0]), lengths)


def unpad_texts(
    model: TorchModel, outputs: tuple[list[Floats2d], Tensor], is_train: bool
) -> tuple[list[Floats2d], Callable[..., ArgsKwargs]]:
    """Convert the outputs of an ID-CNN: remove the padding. The returned callback pads the gradients."""
    ops: Any = model.ops
    texts, encoded = outputs

    def pad_gradients(gradients: list[Floats2d]) -> ArgsKwargs:
        return ArgsKwargs(((encoded,),), {"grad_tensors": xp2torch(ops.pad(gradients))})

    return ops.unpad(torch2xp(encoded), [len(text) for text in texts]), pad_gradients


def spell_docs(model: TorchModel, docs: list[Doc], is_train: bool) -> tuple[ArgsKwargs, Callable[..., Any]]:
    """Convert the inputs of a BiLSTM over characters: encode the tokens of all Docs as padded code points."""
    ops: Any = model.ops
    words = [token.text for token in chain.from_iterable(docs)]
    lengths = [len(word) for word in words]
    characters = np.zeros((len(words), max(lengths, default=1)), dtype=np.int64)
    for row, word in zip(characters, words, strict=True):
        row[: len(word)] = [min(ord(character), CODE_POINTS) for character in word]
    return ArgsKwargs((xp2torch(ops.asarray(characters)), torch.tensor(lengths)), {}), lambda gradients: docs


def split_docs(
    model: TorchModel, outputs: tuple[list[Doc], Tensor], is_train: bool
) -> tuple[list[Floats2d], Callable[..., ArgsKwargs]]:
    """Convert the outputs of a BiLSTM over characters: split the embeddings by Doc. The returned callback concatenates
    the gradients."""
    ops: Any = model.ops
    docs, encoded = outputs

    def join_gradients(gradients: list[Floats2d]) -> ArgsKwargs:
        return ArgsKwargs(((encoded,),), {"grad_tensors": xp2torch(ops.xp.concatenate(gradients))})

    return ops.unflatten(torch2xp(encoded), [len(doc) for doc in docs]), join_gradients


registry.architectures.register("research.IDCNNEncoder.v1", func=build_idcnn_encoder)
registry.architectures.register("research.CharBiLSTM.v1", func=build_char_bilstm)
