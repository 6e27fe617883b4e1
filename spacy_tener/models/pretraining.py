"""Objective for `spacy pretrain`: masked language modelling with whole-word masking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH, SPACY
from spacy.strings import get_string_id
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import LayerNorm, Maxout, Model, Ops, Softmax, chain
from thinc.types import Floats2d

from ..features.characters import join_texts
from ..features.segmenter import SegmenterSource
from ..types import BoolArray, IntArray

MASK = "\ue000"
"""A private-use code point, which texts do not contain: embedders treat it as an unknown token."""
_AS_IT_IS, _ANOTHER = 0.1, 0.1
"""Shares of the chosen tokens that are kept, and that are replaced by a random token (Devlin et al. 2019, 3.1)."""

Objective = Callable[[Vocab, Model[Any, Any]], Model[list[Doc], Floats2d]]


def build_pretrain_words(
    segmenter: SegmenterSource | None = None, mask: float = 0.15, classes: int = 8192, hidden_size: int = 256
) -> Objective:
    """Predict masked tokens by a softmax over hashed tokens. Whole words are masked, so that no character of a name is
    visible.

    Registered as `spacy_tener.PretrainWords.v1`, for `[pretraining.objective]`.

    segmenter (Optional[Callable[[], Segmenter]]): Segmenter into the words that are masked, such as
        `spacy_tener.JiebaSegmenter.v1` if tokens are characters. Without one each token is a word.
    mask (float): Share of the words that are masked.
    classes (int): Outputs of the softmax. A token's class is its hash, so that rare tokens share classes.
    hidden_size (int): Width of the layer below the softmax.
    """
    if not 0.0 < mask < 1.0 or classes < 2 or hidden_size < 1:
        raise ValueError(
            "spacy_tener.PretrainWords.v1 needs a mask above 0 and below 1, 2 classes or more and a hidden_size of 1 "
            f"or more; got {mask}, {classes} and {hidden_size}."
        )

    def create(vocab: Vocab, tok2vec: Model[Any, Any]) -> Model[list[Doc], Floats2d]:
        output: Model[Floats2d, Floats2d] = chain(
            Maxout(hidden_size, tok2vec.get_dim("nO"), nP=3), LayerNorm(hidden_size), Softmax(classes, hidden_size)
        )
        model: Model[list[Doc], Floats2d] = Model("masked_words", forward, init=init, layers=[tok2vec, output])
        model.attrs.update({"words": words_of(segmenter), "mask": mask, "chosen": np.empty(0, dtype=np.int64)})
        model.attrs["loss"] = lambda ops, docs, guess: masked_loss(ops, docs, guess, model.attrs["chosen"], classes)
        model.set_ref("tok2vec", tok2vec)
        return model

    return create


def init(model: Model[list[Doc], Floats2d], X: list[Doc] | None = None, Y: Any = None) -> None:
    tok2vec, output = model.layers
    tok2vec.initialize(X=X)
    output.initialize()


def forward(
    model: Model[list[Doc], Floats2d], docs: list[Doc], is_train: bool
) -> tuple[Floats2d, Callable[[Floats2d], list[Doc]]]:
    """Predict the masked tokens. *Shape* [n_masked, classes]"""
    tok2vec, output = model.layers
    chosen = choose_tokens(model.attrs["words"](docs), model.attrs["mask"])
    model.attrs["chosen"] = chosen
    if not len(chosen):  # of empty texts, which Thinc's layers cannot backpropagate through
        return model.ops.alloc2f(0, output.get_dim("nO")), lambda d_guesses: docs
    rows, backprop_rows = tok2vec(mask_tokens(docs, chosen), is_train)
    ops, joined = model.ops, model.ops.xp.concatenate(rows)
    guesses, backprop_guesses = output(joined[chosen], is_train)

    def backprop(d_guesses: Floats2d) -> list[Doc]:
        d_joined: Any = ops.alloc2f(*joined.shape)
        d_joined[chosen] = backprop_guesses(d_guesses)
        backprop_rows(ops.unflatten(d_joined, ops.asarray1i([len(part) for part in rows])))
        return docs

    return guesses, backprop


def words_of(segmenter: SegmenterSource | None) -> Callable[[list[Doc]], IntArray]:
    """Return a function from Docs to the index of each token's word. *Shape* [N]"""
    if segmenter is None:
        return lambda docs: np.arange(sum(map(len, docs)))
    divides = segmenter()

    def words(docs: list[Doc]) -> IntArray:
        text = join_texts(docs)
        return np.searchsorted(np.cumsum(divides.divide(docs, text).lengths), text.firsts, side="right")

    return words


def choose_tokens(words: IntArray, share: float) -> IntArray:
    """Draw the tokens of a random share of the words, one word at least. *Shape* [N] to [n_masked]"""
    names, of = np.unique(words, return_inverse=True)
    taken: BoolArray = np.random.random(len(names)) < share
    if not taken.any() and len(names):
        taken[np.random.randint(len(names))] = True
    return np.flatnonzero(taken[of])


def mask_tokens(docs: list[Doc], chosen: IntArray) -> list[Doc]:
    """Copy the Docs with the chosen tokens replaced: most by the mask, some by a random token of the Docs. Some are
    kept."""
    keys = np.concatenate([doc.to_array(ORTH) for doc in docs])
    drawn = np.random.random(len(chosen))
    seen = np.where(drawn < _AS_IT_IS, keys[chosen], np.uint64(get_string_id(MASK)))
    other = (drawn >= _AS_IT_IS) & (drawn < _AS_IT_IS + _ANOTHER)
    seen[other] = np.random.choice(keys, int(other.sum()))
    keys[chosen] = seen
    docs[0].vocab.strings.add(MASK)
    ends = np.cumsum([len(doc) for doc in docs])
    return [_with_tokens(doc, part) for doc, part in zip(docs, np.split(keys, ends[:-1]), strict=True)]


def _with_tokens(doc: Doc, keys: NDArray[np.uint64]) -> Doc:
    strings = doc.vocab.strings
    spaces = doc.to_array(SPACY).astype(bool).tolist()
    return Doc(doc.vocab, words=[strings[key] for key in keys.tolist()], spaces=spaces)


def masked_loss(ops: Ops, docs: list[Doc], guesses: Floats2d, chosen: IntArray, classes: int) -> tuple[float, Floats2d]:
    """Return the mean cross-entropy of the masked tokens, and its gradient before the softmax.

    *Shape* guesses, gradient: [n_masked, classes]
    """
    if not len(chosen):
        return 0.0, guesses
    keys = np.concatenate([doc.to_array(ORTH) for doc in docs])[chosen]
    places = np.arange(len(chosen)), (keys % np.uint64(classes)).astype(np.int64)
    d_guesses: Any = guesses / len(chosen)
    d_guesses[places] -= 1.0 / len(chosen)
    likelihood = ops.to_numpy(cast(Any, guesses)[places])
    return float(-np.log(np.maximum(likelihood, 1e-30)).mean()), d_guesses
