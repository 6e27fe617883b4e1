"""Mix corpora with weights and repetitions, for example gold-standard and silver-standard data."""

import pytest
import spacy
from spacy.tokens import DocBin
from spacy.training import Example
from spacy.util import registry
from thinc.api import Config

from spacy_tener.errors import InputError
from spacy_tener.pipeline.learning.callbacks import mixed_corpus
from spacy_tener.pipeline.learning.targets import WEIGHT

CONFIG = """
[corpus]
@readers = "spacy_tener.MixedCorpus.v1"
weights = {{"silver": 0.25}}
repeat = {{"gold": 2}}

[corpus.readers]

[corpus.readers.gold]
@readers = "spacy.Corpus.v1"
path = "{gold}"
gold_preproc = false

[corpus.readers.silver]
@readers = "spacy.Corpus.v1"
path = "{silver}"
gold_preproc = false
"""


def test_gold_is_repeated_and_silver_is_weighted(tmp_path):
    nlp = spacy.blank("zh")
    for name, text in (("gold", "王小明"), ("silver", "上海")):
        DocBin(docs=[nlp(text)]).to_disk(tmp_path / f"{name}.spacy")
    config = CONFIG.format(gold=tmp_path / "gold.spacy", silver=tmp_path / "silver.spacy")
    read = registry.resolve(Config().from_str(config))["corpus"]
    found = [(example.text, example.reference.user_data.get(WEIGHT, 1.0)) for example in read(nlp)]
    assert found == [("王小明", 1.0), ("王小明", 1.0), ("上海", 0.25)]


def test_repeated_reading_multiplies_weight_once():
    nlp = spacy.blank("zh")
    examples = [Example(nlp("上海"), nlp("上海")), Example(nlp("北京"), nlp("北京"))]
    examples[0].reference.user_data[WEIGHT] = 0.5
    read = mixed_corpus({"silver": lambda nlp: examples}, {"silver": 0.2}, {"silver": 3})
    assert [example.reference.user_data[WEIGHT] for example in [*read(nlp), *read(nlp)]] == [0.1, 0.2] * 6


@pytest.mark.parametrize(("inner", "outer"), [(0.2, 0.5), (1.0, 0.5), (0.2, 1.0)])
def test_nested_mixed_corpora_multiply_weights(inner, outer):
    nlp = spacy.blank("zh")
    examples = [Example(nlp("上海"), nlp("上海"))]
    nested = mixed_corpus({"silver": lambda nlp: examples}, {"silver": inner})
    read = mixed_corpus({"nested": nested}, {"nested": outer}, {"nested": 2})
    for _ in range(2):
        assert [example.reference.user_data[WEIGHT] for example in read(nlp)] == [inner * outer] * 2


def test_readers_with_shared_examples_have_separate_weights():
    nlp = spacy.blank("zh")
    examples = [Example(nlp("上海"), nlp("上海"))]
    read = mixed_corpus({"silver": lambda nlp: examples, "gold": lambda nlp: examples}, {"silver": 0.2})
    for _ in range(2):
        assert [example.reference.user_data[WEIGHT] for example in read(nlp)] == [0.2, 1.0]


def test_reader_without_examples_raises_error():
    with pytest.raises(InputError, match=r"the reader 'silver' has no examples\. Check its path"):
        list(mixed_corpus({"silver": lambda nlp: iter(())})(spacy.blank("zh")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"sliver": 0.5}}, "no reader is named 'sliver'. The readers are: gold."),
        ({"weights": {"gold": -1.0}}, "the weight of 'gold' is -1.0"),
        ({"repeat": {"gold": -1}}, "'gold' is repeated -1 times"),
    ],
)
def test_invalid_weights_and_repeats_raise_errors(settings, message):
    with pytest.raises(InputError, match=message):
        mixed_corpus({"gold": lambda nlp: iter(())}, **settings)
