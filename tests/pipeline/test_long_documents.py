"""Long documents: overlapping windows, limited batch sizes, and entities that are neither split nor duplicated."""

import numpy as np
import pytest
from spacy.tokens import Doc

from spacy_tener.nn.compose import Chain
from spacy_tener.pipeline.units import view_of
from spacy_tener.pipeline.windows import WindowBatcher

SENTENCE = "王小明去了上海。"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]
SMALL = {"window": 20, "overlap": 6, "max_units": 50}


def repeated(times):
    """Return the entities of a text that repeats the sentence."""
    return [(start + 8 * i, end + 8 * i, label) for i in range(times) for start, end, label in FOUND]


@pytest.fixture(scope="module")
def cache():
    return {}


@pytest.fixture
def overfitted(cache, learn, make_examples, blank):
    """Return a function that creates a pipeline with given settings, overfitted to repetitions of the sentence."""

    def make(**config):
        if "bytes" not in cache:
            nlp = blank()
            data = [(SENTENCE * n, repeated(n)) for n in (1, 2, 3)] + [(SENTENCE[3:], [(2, 4, "GPE")])]
            learn(nlp, make_examples(nlp, data), steps=80)
            cache["bytes"] = nlp.to_bytes()
        nlp = blank(**config).from_bytes(cache["bytes"])
        nlp.get_pipe("tener_ner").cfg.update(config)
        return nlp

    return make


@pytest.fixture
def record_batches(monkeypatch):
    """Return a function that records the lengths of windows in all batches of a model."""

    def record(model):
        batches = []
        compute = Chain.compute

        def record_lengths(chain, docs, backend):
            if chain is model:
                batches.append(list(backend.lengths))
            return compute(chain, docs, backend)

        monkeypatch.setattr(Chain, "compute", record_lengths)
        return batches

    return record


def test_entities_of_long_document_are_found_once(overfitted, entities_of):
    nlp = overfitted(**SMALL)
    assert entities_of(nlp(SENTENCE * 40)) == repeated(40)


def test_window_boundaries_do_not_split_or_duplicate_entities(overfitted, entities_of):
    """Without sentence ends, window boundaries are at any position, also inside entities."""
    small, large = overfitted(window=21, overlap=8, max_units=21), overfitted()
    boundaries = set()
    for shift in range(8):
        text = "去" * shift + SENTENCE[:-1] * 12
        assert entities_of(small(text)) == entities_of(large(text))
        view = view_of(small.make_doc(text), "tokens")
        pipe = small.get_pipe("tener_ner")
        [split] = WindowBatcher.of(pipe.model, pipe.settings).split([view])
        boundaries |= {(window.keep_end - shift) % 7 for window in split.windows[:-1]}
    # There are boundaries before, inside and after both entities.
    assert boundaries == set(range(7))


def test_emissions_come_from_kept_part_of_window(learned):
    nlp = learned(**SMALL)
    pipe = nlp.get_pipe("tener_ner")
    doc = nlp.make_doc("今天天气很好" * 15)
    views = [view_of(doc, "tokens")]
    batcher = WindowBatcher.of(pipe.model, pipe.settings)
    docs = batcher.split(views)
    scores = batcher.emissions(pipe.model, docs)
    for batch in batcher.batches(docs):
        for window in (part.window for part in batch):
            [alone] = pipe.model.predict([nlp.make_doc(doc[window.start : window.end].text)])
            expected = alone[window.kept_slice]
            np.testing.assert_allclose(scores[window.keep_start : window.keep_end], expected, rtol=1e-4, atol=1e-4)


def test_window_and_batch_sizes_respect_settings(learned, record_batches):
    nlp = learned(**SMALL)
    batches = record_batches(nlp.get_pipe("tener_ner").model)
    texts = [SENTENCE * 30, "", "京", SENTENCE * 3, *["王小明"] * 40]
    assert len(list(nlp.pipe(texts))) == len(texts)
    assert max(length for batch in batches for length in batch) <= 20
    assert max(map(sum, batches)) <= 50
    # Batches are filled, even if a batch of short texts contains a long text.
    assert np.mean([sum(batch) for batch in batches]) > 25


def test_short_docs_form_single_batch(learned, record_batches):
    nlp = learned()
    batches = record_batches(nlp.get_pipe("tener_ner").model)
    list(nlp.pipe([SENTENCE] * 30))
    assert batches == [[8] * 30]


def test_training_and_rehearsal_use_windows(learned, record_batches, make_examples):
    nlp = learned(**SMALL)
    batches = record_batches(nlp.get_pipe("tener_ner").model)
    examples = make_examples(nlp, [(SENTENCE * 30, repeated(30)), (SENTENCE, FOUND)])
    losses = nlp.update(examples, sgd=nlp.create_optimizer(), losses={})
    assert np.isfinite(losses["tener_ner"])
    assert max(length for batch in batches for length in batch) <= 20
    assert max(map(sum, batches)) <= 50
    nlp.resume_training()
    del batches[:]
    nlp.rehearse(examples)
    assert max(map(sum, batches)) <= 50


def test_initialization_uses_windows(blank, make_examples, monkeypatch):
    nlp, sample = blank(**SMALL), []
    model = nlp.get_pipe("tener_ner").model
    initialize = type(model).initialize

    def initialized(self, X=None, Y=None):
        sample.extend(map(len, X or []) if self is model else [])
        return initialize(self, X, Y)

    monkeypatch.setattr(type(model), "initialize", initialized)
    nlp.initialize(lambda: make_examples(nlp, [(SENTENCE * 30, repeated(30))] * 3))
    assert 20 <= sum(sample) <= 50
    assert max(sample) <= 20


def test_long_document_is_learned(blank, learn, make_examples, entities_of):
    nlp = blank(**SMALL)
    learn(nlp, make_examples(nlp, [(SENTENCE * 12, repeated(12))]), steps=25)
    assert entities_of(nlp(SENTENCE * 12)) == repeated(12)


def test_long_token_is_split_into_character_windows(learned, record_batches, char_entities_of):
    nlp = learned(view="characters", **SMALL)
    pipe = nlp.get_pipe("tener_ner")
    batches = record_batches(pipe.model)
    doc = Doc(nlp.vocab, words=[SENTENCE * 20, "好"], spaces=[False, False])
    pipe(doc)
    assert max(map(sum, batches)) <= 50
    assert char_entities_of(doc)


def test_computation_is_linear_in_document_length(learned, record_batches):
    nlp = learned(window=128, overlap=16, max_units=1024)
    pipe = nlp.get_pipe("tener_ner")
    batches = record_batches(pipe.model)
    doc = nlp(SENTENCE * 2500)
    assert len(doc) == 20_000
    assert max(map(sum, batches)) <= 1024
    # All units are processed once, and additionally up to twice as context.
    assert sum(map(sum, batches)) < 1.6 * len(doc)
    assert doc.has_annotation("ENT_IOB", require_complete=True)


def test_prediction_window_follows_training_text_lengths(blank, learn, make_examples):
    """Training windows are longer than the texts. Long Docs are split into windows of at least 32 units."""
    nlp = blank()
    learn(nlp, make_examples(nlp, [(SENTENCE * n, repeated(n)) for n in (1, 2, 3, 4, 5, 6, 9)]), steps=2)
    pipe = nlp.get_pipe("tener_ner")
    assert (pipe.settings.training_window, pipe.settings.prediction_window) == (200, 57)
    view = view_of(nlp.make_doc(SENTENCE * 30), "tokens")
    [split] = WindowBatcher.of(pipe.model, pipe.settings).split([view])
    assert list(map(len, split.windows)) == [56] * 4 + [16]
    assert pipe.settings.prediction_sentences == 7
    # If the training texts are single sentences, long Docs are split into single sentences.
    pipe.cfg["text_sentences"] = 1
    [split] = WindowBatcher.of(pipe.model, pipe.settings).split([view])
    assert list(map(len, split.windows)) == [8] * 30
    copy = blank().from_bytes(nlp.to_bytes()).get_pipe("tener_ner")
    assert copy.settings == pipe.settings
    # With more context, windows are longer, so that some of their predictions are kept.
    for overlap, window in ((8, 57), (20, 80), (40, 160), (99, 200)):
        copy.cfg["overlap"] = overlap
        assert copy.settings.prediction_window == window > 2 * overlap
    # An explicit window size applies to prediction and training.
    copy.cfg.update(window=20, overlap=6)
    assert (copy.settings.training_window, copy.settings.prediction_window, copy.settings.context) == (20, 20, 6)
    assert copy.settings.prediction_sentences is None
