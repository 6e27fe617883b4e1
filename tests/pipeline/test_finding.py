"""Find the `tener_ner` components of a pipeline. If there are none, errors list the other components."""

import pytest
import spacy

from spacy_tener.errors import UserError
from spacy_tener.pipeline.finding import check_finders, crf_pipes, find_crf_pipe


@pytest.fixture(scope="module")
def nlp():
    nlp = spacy.blank("zh")
    for name, factory in (("sentencizer", "sentencizer"), ("first", "tener_ner"), ("second", "tener_ner")):
        nlp.add_pipe(factory, name=name)
    return nlp


def test_crf_pipes_are_returned_in_pipeline_order(nlp):
    assert list(crf_pipes(nlp)) == ["first", "second"]
    assert find_crf_pipe(nlp).name == "first"
    assert find_crf_pipe(nlp, "second") is nlp.get_pipe("second")


def test_missing_component_error_lists_pipe_names(nlp):
    with pytest.raises(
        UserError,
        match=r"no tener_ner named 'ner'\. Its components are: .*second\. Use the name of a tener_ner: first or second",
    ):
        find_crf_pipe(nlp, "ner")
    with pytest.raises(UserError, match=r"^X has no tener_ner\. Its components are: none\. Use a pipeline"):
        find_crf_pipe(spacy.blank("zh"), pipeline_name="X")


@pytest.mark.parametrize("find", [find_crf_pipe, check_finders])
def test_disabled_component_error_names_component(nlp, find):
    with nlp.select_pipes(disable=["first", "second"]), pytest.raises(UserError, match="Enable first or second"):
        find(nlp)
