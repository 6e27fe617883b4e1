"""Out-of-memory errors of a GPU: prediction continues with smaller batches, training names the settings to lower."""

from __future__ import annotations

import pytest
import torch
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.crf.crf_torch import CRFHead
from spacy_tener.errors import UserError
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.backends import Layer
from spacy_tener.nn.compose import Chain
from spacy_tener.nn.run import forward, predict


class LengthLayer(Layer):
    """A layer that returns the length of each text, and runs out of memory if a batch exceeds `limit` texts."""

    def compute(self, inputs, backend):
        self.attrs["calls"].append(len(inputs))
        if len(inputs) > self.attrs["limit"]:
            raise self.attrs["error"]
        return inputs.lengths[:, None]


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")


def length_layer(limit: int, error=OUT_OF_MEMORY):
    return LengthLayer("length", forward, attrs={"calls": [], "limit": limit, "error": error})


def texts_of_lengths(*lengths: int):
    return TokenBatch.of([Doc(Vocab(), words=["x"] * length) for length in lengths])


@pytest.mark.parametrize(
    ("limit", "calls"), [(7, [7]), (6, [7, 3, 4]), (3, [7, 3, 4, 2, 2]), (1, [7, 3, 1, 2, 1, 1, 4, 2, 1, 1, 2, 1, 1])]
)
def test_batch_is_halved_until_it_fits_into_memory(limit: int, calls: list[int]) -> None:
    layer = length_layer(limit)
    rows = predict(layer, texts_of_lengths(*range(7)))
    assert rows[:, 0].tolist() == list(range(7))
    assert layer.attrs["calls"] == calls


def test_single_text_too_large_for_memory_raises_error() -> None:
    with pytest.raises(UserError, match=r"ran out of memory when processing a single text\. Lower `window`"):
        predict(length_layer(0), texts_of_lengths(1, 2))


def test_other_errors_are_not_caught() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        predict(length_layer(0, RuntimeError("something else")), texts_of_lengths(1, 2))


@pytest.fixture
def nlp(tmp_path):
    """A trained pipeline."""
    nlp = pipeline(small_tok2vecs(tmp_path)["TENER"])
    nlp.initialize(lambda: examples_of(nlp))
    nlp.update(examples_of(nlp), sgd=nlp.create_optimizer())
    return nlp


def test_training_error_names_batch_and_settings(nlp, monkeypatch) -> None:
    def fail(self, tokens, lengths):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(CRFHead, "forward", fail)
    with pytest.raises(
        UserError, match=r"training on a batch of 8 texts \(83 tokens in total, 26 in the longest text\).*batcher"
    ):
        nlp.update(examples_of(nlp))


def test_pipe_continues_with_smaller_batches(nlp, monkeypatch) -> None:
    texts = [text for text, _ in TEXTS]
    expected = [doc.to_json() for doc in nlp.pipe(texts)]
    model, sizes = nlp.get_pipe("tener_ner").model, []

    def compute_few(chain, docs, backend):
        if chain is model:
            sizes.append(len(docs))
        if len(docs) > 3:
            raise torch.OutOfMemoryError
        return compute(chain, docs, backend)

    compute = Chain.compute
    monkeypatch.setattr(Chain, "compute", compute_few)
    assert [doc.to_json() for doc in nlp.pipe(texts)] == expected
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
