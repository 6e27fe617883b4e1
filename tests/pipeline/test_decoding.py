"""The best tag sequence and alternative entities, compared with brute force over all sequences and spans."""

import numpy as np
import pytest
import torch
from crf_brute_force import predictor_of
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.crf.crf_torch import CRF
from spacy_tener.crf.marginals import EntitySpans
from spacy_tener.pipeline.batch_decoding import BatchDecoding
from spacy_tener.pipeline.decoding import Decoding
from spacy_tener.pipeline.masks import join_masks
from spacy_tener.pipeline.units import view_of

N_LABELS = 2
LENGTHS = [7, 0, 5, 1]


@pytest.fixture
def crf():
    model = CRF(N_LABELS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_()
    return model


def decoding_of(crf, lengths=LENGTHS, *, masks=None, temperature=1.0, seed=0):
    rng = np.random.default_rng(seed)
    scores = [rng.normal(size=(n, crf.layout.n_tags), scale=2.0).astype(np.float32) for n in lengths]
    allowed = join_masks(masks or [None] * len(lengths), lengths, crf.layout.n_tags)
    emissions, allowed = np.concatenate(scores)[None], allowed if allowed is None else allowed[None]
    return BatchDecoding(predictor_of(crf), emissions, list(lengths), allowed, temperature), scores


def decodings_of(batch):
    """Return a `Decoding` for each text. Tokens are single characters."""
    docs = [Doc(Vocab(), words=["x"] * length, spaces=[False] * length) for length in batch.lengths]
    labels = tuple(map(str, range(N_LABELS)))
    return [Decoding(view_of(doc, "tokens"), labels, batch, i) for i, doc in enumerate(docs)]


def rows(spans):
    return list(zip(*(column.tolist() for column in spans), strict=True))


def make_all_spans(lengths):
    spans = [
        (text, start, end, label)
        for text, length in enumerate(lengths)
        for start in range(length)
        for end in range(start + 1, length + 1)
        for label in range(N_LABELS)
    ]
    return EntitySpans(*np.array(spans).T)


@pytest.mark.parametrize("masked", [False, True])
def test_best_entities_equal_first_of_k_best(crf, masked):
    """The reference is list Viterbi, which other tests compare with brute force."""
    masks = None
    if masked:
        masks = [np.random.default_rng(3).random((n, crf.layout.n_tags)) < 0.5 for n in LENGTHS]
        for mask in masks:
            mask[:, crf.layout.outside] = True
        masks[2] = None
    decoding, scores = decoding_of(crf, masks=masks)
    before = [part.copy() for part in scores]
    best = decoding.best
    assert rows(best) == [row for sets in decoding.k_best(1) for row in rows(sets[0].spans)]
    assert {text for text, *_ in rows(best)} > {0}
    parts = [rows(EntitySpans(*(column[part] for column in best))) for part in decoding.slices(best)]
    assert parts == [[row for row in rows(best) if row[0] == text] for text in range(len(LENGTHS))]
    for part, old in zip(scores, before, strict=True):
        np.testing.assert_array_equal(part, old)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("minimum", [0.001, 0.1])
def test_alternatives_equal_brute_force_over_all_spans(crf, temperature, minimum):
    decoding, _ = decoding_of(crf, temperature=temperature)
    best, all_spans = decoding.best, make_all_spans(LENGTHS)
    probability = decoding.probabilities(all_spans)
    found = [alternatives for text in decodings_of(decoding) for alternatives in text.alternatives(3, minimum)]
    for (text, start, end, label), alternatives in zip(rows(best), found, strict=True):
        wanted = [
            (*row, p)
            for row, p in zip(rows(all_spans), probability.tolist(), strict=True)
            if row[0] == text and row[1] < end and row[2] > start and row != (text, start, end, label) and p >= minimum
        ]
        wanted = sorted(wanted, key=lambda alternative: -alternative[-1])[:3]
        assert [(text, alternative.start, alternative.end, int(alternative.label)) for alternative in alternatives] == [
            row[:-1] for row in wanted
        ]
        assert [alternative.probability for alternative in alternatives] == pytest.approx([row[-1] for row in wanted])
    assert sum(map(len, found)) > 3


@pytest.mark.parametrize("temperature", [1.0, 20.0])
def test_alternatives_of_long_text_use_few_candidate_spans(crf, temperature):
    """A text of 2,000 units has four million labelled spans, all of which are possible at a high temperature."""
    decoding, _ = decoding_of(crf, [2000], temperature=temperature)
    (text,) = decodings_of(decoding)
    assert text.alternatives(0) == [[] for _ in text.entities]
    with pytest.raises(ValueError, match="must be at least 0, got -1"):
        text.alternatives(-1)
    alternatives = text.alternatives(3, 0.01)
    assert len(alternatives) > 300
    assert {len(row) for row in alternatives} <= {0, 1, 2, 3}
    assert decoding.candidates(0.01)[0][1].size < 2000 * 100
    assert min(alternative.probability for row in alternatives for alternative in row) >= 0.01


def test_k_best_entity_sets_of_two_depths_are_unique(crf):
    """At both depths, the entity of the first unit is the best choice, so that the depths can yield the same set."""
    layout = crf.layout
    emissions = np.zeros((2, 3, layout.n_tags), np.float32)
    emissions[:, 0, layout.single.start] = emissions[:, 1:, layout.outside] = 20.0
    emissions[:, 0, layout.outside] = 19.9
    batch = BatchDecoding(predictor_of(crf), emissions, [3], None)
    for k in (1, 2, 5, 20):
        sets = [rows(ranked.spans) for ranked in batch.k_best(k)[0]]
        assert len({tuple(spans) for spans in sets}) == len(sets) == k
        assert sets[0] == rows(batch.best)
    probabilities = [np.exp(ranked.log_probability) for ranked in batch.k_best(20)[0]]
    assert sum(probabilities) <= 1.0 + 1e-9
    # All sequences with the best set were enumerated, so that their sum is the marginal probability of the entity.
    assert probabilities[0] == pytest.approx(batch.best_probabilities[0], abs=1e-3)
