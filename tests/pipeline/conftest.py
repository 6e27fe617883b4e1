"""Small pipelines with spaCy's `ner` or `tener_ner`, untrained or overfitted to a few sentences."""

import pytest
import small_systems
import spacy
from spacy.lang.zh import Chinese
from spacy.tokens import Doc, Span
from spacy_parts import spacy_s_cnn, spacy_s_ner

from spacy_tener.nn.shim import TorchShim

TINY_HASH_EMBED = spacy_s_cnn()
TINY_NER = spacy_s_ner(TINY_HASH_EMBED)
# Trained pipelines by factory, as bytes. They are trained once, and each test gets a copy.
LEARNED: dict[str, bytes] = {}


@pytest.fixture
def tiny_hash_embed():
    return TINY_HASH_EMBED


@pytest.fixture
def tiny_ner():
    return TINY_NER


@pytest.fixture(params=["ner", "tener_ner"])
def factory(request):
    """Runs a test twice with the same input, for spaCy's component and for ours."""
    return request.param


@pytest.fixture
def blank(tiny_model):
    """Create an untrained pipeline with one component."""

    def make(factory="tener_ner", *, lang="zh", **config):
        nlp = spacy.blank(lang)
        nlp.add_pipe(factory, config={"model": TINY_NER if factory == "ner" else tiny_model, **config})
        return nlp

    return make


@pytest.fixture
def learn():
    return small_systems.learn


@pytest.fixture
def learned(blank, learn, make_examples):
    """Create a pipeline with one component that was overfitted to the sentences."""

    def make(factory="tener_ner", **config):
        if factory not in LEARNED:
            nlp = blank(factory)
            learn(nlp, make_examples(nlp))
            LEARNED[factory] = nlp.to_bytes()
        nlp = blank(factory, **config).from_bytes(LEARNED[factory])
        nlp.get_pipe(factory).cfg.update(config)
        return nlp

    return make


@pytest.fixture
def char_entities_of():
    """Return the character offsets of entities in a span group, which are exact with `view = "characters"`."""

    def entities(doc, key="tener_ner_chars"):
        group = doc.spans[key]
        return [(*place, span.label_) for span, place in zip(group, group.attrs["char_offsets"], strict=True)]

    return entities


@pytest.fixture
def annotated():
    """Create an annotated Doc of single characters."""

    def make(nlp, text, entities=(), *, sentence_starts=(0,), **set_ents):
        starts = [i in sentence_starts for i in range(len(text))] if tuple(sentence_starts) != (0,) else None
        doc = Doc(nlp.vocab, words=list(text), spaces=[False] * len(text), sent_starts=starts)
        spans = [Span(doc, start, end, label=label) for start, end, label in entities]
        spans_by_kind = {key: [doc[start:end] for start, end in value] for key, value in set_ents.items()}
        doc.set_ents(spans, default="missing", **spans_by_kind)
        return doc

    return make


@pytest.fixture
def jieba_nlp():
    """Create a pipeline whose tokens are words."""

    def make():
        return Chinese.from_config({"nlp": {"tokenizer": {"segmenter": "jieba"}}})

    return make


@pytest.fixture
def torch_parameters():
    """Return the torch parameters of a component, with unique names."""

    def parameters(pipe):
        shims = [shim for node in pipe.model.walk() for shim in node.shims if isinstance(shim, TorchShim)]
        return {f"{i}.{name}": value for i, shim in enumerate(shims) for name, value in shim.module.named_parameters()}

    return parameters


@pytest.fixture
def gradients(torch_parameters):
    """Return the dense gradients of a component by parameter name."""

    def dense_gradients(pipe):
        grads = {name: value.grad for name, value in torch_parameters(pipe).items() if value.grad is not None}
        return {name: (grad.to_dense() if grad.is_sparse else grad).clone() for name, grad in grads.items()}

    return dense_gradients
