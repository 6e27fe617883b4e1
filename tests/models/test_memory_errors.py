"""A GPU whose memory is too small: predictions go on in smaller batches, training says what to lower."""

from __future__ import annotations

import pytest
import torch
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs

from spacy_tener.errors import RemedyError
from spacy_tener.layers.crf import CRFHead
from spacy_tener.models.batches import in_halves
from spacy_tener.models.run import COMPUTE


def of_at_most(room: int, calls: list[int]):
    """A computation that holds so many items at once."""

    def compute(items: list[int]) -> list[int]:
        calls.append(len(items))
        if len(items) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return [10 * item for item in items]

    return compute


@pytest.mark.parametrize(
    ("room", "expected"), [(7, [7]), (6, [7, 3, 4]), (3, [7, 3, 4, 2, 2]), (1, [7, 3, 1, 2, 1, 1, 4, 2, 1, 1, 2, 1, 1])]
)
def test_a_batch_is_halved_until_it_fits(room: int, expected: list[int]) -> None:
    calls: list[int] = []
    parts = in_halves(of_at_most(room, calls), list(range(7)))
    assert [item for part in parts for item in part] == [10 * item for item in range(7)]
    assert calls == expected


def test_a_text_that_does_not_fit_alone_is_told_with_the_setting_to_lower() -> None:
    with pytest.raises(RemedyError, match=r"too small to read one text. Lower `window`"):
        in_halves(of_at_most(0, []), [1, 2])


def test_other_errors_pass() -> None:
    def fail(items: list[int]) -> list[int]:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        in_halves(fail, [1, 2])


@pytest.fixture
def nlp(tmp_path):
    """A trained pipeline, and a module that has memory for a few tokens."""
    nlp = pipeline(small_tok2vecs(tmp_path)["TENER"])
    nlp.initialize(lambda: examples_of(nlp))
    nlp.update(examples_of(nlp), sgd=nlp.create_optimizer())
    return nlp


def test_training_names_the_batch_and_the_settings(nlp, monkeypatch) -> None:
    def fail(self, tokens, lengths):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(CRFHead, "forward", fail)
    with pytest.raises(RemedyError, match=r"train on 8 texts at once \(83 tokens, the longest text 26\).*batcher"):
        nlp.update(examples_of(nlp))


def test_a_pipe_goes_on_with_smaller_batches(nlp, monkeypatch) -> None:
    texts = [text for text, _ in TEXTS]
    expected = [doc.to_json() for doc in nlp.pipe(texts)]
    model, sizes = nlp.get_pipe("tener_ner").model, []

    def compute(model, run, docs):
        sizes.append(len(docs))
        if len(docs) > 3:
            raise torch.OutOfMemoryError
        return compute_whole(model, run, docs)

    compute_whole = model.attrs[COMPUTE]
    monkeypatch.setitem(model.attrs, COMPUTE, compute)
    assert [doc.to_json() for doc in nlp.pipe(texts)] == expected
    assert sizes == [8, 4, 2, 2, 4, 2, 2]
