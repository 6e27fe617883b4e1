"""The page of a service whose model predicts nested entities, in both languages."""

from __future__ import annotations

import pytest
from small_systems import learn, pipeline, small_tok2vecs
from spacy.training import Example

pytestmark = pytest.mark.integration

TEXT, NESTED = "李华去了北京大学", [(0, 2, "PER"), (4, 8, "ORG"), (4, 6, "GPE")]
# Returns the displayed text without labels, which contains no duplicates, and the number of marked entities.
DISPLAYED = """
    const copy = document.querySelector("#text").cloneNode(true);
    for (const label of copy.querySelectorAll("small")) label.remove();
    return [copy.textContent, document.querySelectorAll("#text .ent").length];
"""


@pytest.mark.parametrize(("language", "title"), [("en", "Find entities"), ("zh", "实体识别")])
def test_page_and_explanation_display_nested_entities(browser, start, tmp_path, language, title):
    nlp = pipeline(small_tok2vecs(tmp_path)["TENER"], depth=2, spans_key="sc")
    doc = nlp.make_doc(TEXT)
    doc.spans["sc"] = [doc.char_span(*entity) for entity in NESTED]
    doc.set_ents([doc.char_span(*entity) for entity in NESTED[:2]], default="outside")
    learn(nlp, [Example(nlp.make_doc(TEXT), doc)], steps=200, enough=0.05)
    try:
        with start({"nested": nlp}) as service, browser.with_language(language):
            browser.open(service.url + "/")
            assert browser.driver.title == title
            browser.run(
                "const input = document.getElementById('input'); input.value = arguments[0];"
                "input.dispatchEvent(new Event('input', { bubbles: true }))",
                TEXT,
            )
            browser.wait(lambda: browser.run(DISPLAYED) == [TEXT, len(NESTED)])
            browser.wait(lambda: browser.driver.find_element("id", "explain").is_enabled())
            browser.run("document.getElementById('explain').click()")
            browser.wait(lambda: browser.driver.find_element("id", "frame").is_displayed())
            browser.driver.switch_to.frame("frame")
            browser.wait(lambda: browser.run(DISPLAYED) == [TEXT, len(NESTED)])
            assert browser.run("return document.documentElement.lang") == language
            browser.driver.switch_to.default_content()
            assert browser.console_messages() == []
    finally:
        browser.driver.switch_to.default_content()
        browser.run("localStorage.clear()")
