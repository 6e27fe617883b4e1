"""All that a person can do on a page with two neighbouring entities, in any order: the corpus is what the page shows.

The page's own functions are driven, in a browser, through all sequences of up to four actions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy
from browser import Browser
from conversion import convert
from spacy.tokens import Doc

from spacy_tener.pipeline.entities import FoundEntity, offsets_of
from spacy_tener.workbench.corpus.convert import DocOptions
from spacy_tener.workbench.corpus.docs import INCORRECT, read_docs
from spacy_tener.workbench.suggestions.review import JudgedDoc, disagreements, rank_doubts
from spacy_tener.workbench.suggestions.review_page import annotation_page, apply_decisions, review_page
from spacy_tener.workbench.suggestions.tasks import Task

CHARACTERS = list("😀王小明北京大学😀")
A, B = (1, 4, "PER"), (4, 8, "ORG")
WORDS = ["😀", "saw", "Tim", "Cook", "Apple", "Inc", "😀"]
C, D = (6, 14, "PER"), (15, 24, "ORG")  # with a space between them
DEPTH = 4
# Sequences that lead to one state are followed on once. Undo leads to a state that was there before.
SCRIPT = """
const actions = {
  finish: annotation.finish,
  add(text) { // over the end of the first and the start of the second
    const { tokens, offsets } = text;
    const [start, end] = tokens ? [tokens[3][0], tokens[4][1]] : [offsets.edges[2], offsets.edges[5]];
    annotation.change(text, { put: [{ start, end, label: "PER", probability: null }] });
  },
  addAgain: (text) => annotation.change(text, { put: text.loaded.slice(-1).map((last) => ({ ...last })) }),
};
for (const which of [0, 1]) {
  const own = (text) => text.now.entities.at(-which);
  const replace = (text, made) => made && annotation.change(text, { out: [own(text)], put: [made] });
  actions[`remove${which}`] = (text) => own(text) && annotation.change(text, { out: [own(text)] });
  actions[`relabel${which}`] = (text) => own(text) && replace(text, { ...own(text), label: "GPE", probability: null });
  const index = (text) => text.questions.indexOf(text.questions.at(-which));
  for (const side of ["gold", "found"])
    actions[`${side}${which}`] = (text) => index(text) >= 0 && annotation.answer(text, index(text), side);
  for (const [side, direction] of [["start", -1], ["start", 1], ["end", -1], ["end", 1]])
    actions[`${side}${which}${direction}`] = (text) =>
      own(text) && replace(text, annotation.moveEdge(text, own(text), side, direction));
}
const text = annotation.load(parts.data.texts[0], parts.data.stands), found = new Map();
let states = [text.now];
for (let step = 0; step <= arguments[0]; step++) {
  const next = new Map();
  for (const now of states) {
    Object.assign(text, { now, past: [] });
    const at = text.offsets.character, offsets = (entities) =>
      entities.map(({ start, end, label }) => [at(start), at(end), label]);
    const questions = text.questions.filter((_, index) => annotation.isOpen(text, index));
    const open = questions.flatMap((question) => question[text.side]);
    const [record, done] = [annotation.record(text), annotation.isDone(text)];
    found.set(JSON.stringify(now), { record, done, entities: offsets(now.entities), open: offsets(open) });
    for (const act of Object.values(actions)) {
      Object.assign(text, { now, past: [] });
      act(text);
      next.set(JSON.stringify(text.now), text.now);
      annotation.undo(text);
      if (text.now !== now) throw new Error(`${act} is not undone`);
    }
  }
  states = [...next].filter(([key]) => !found.has(key)).map(([, now]) => now);
}
return [...found.values()];
"""

Entities = list[tuple[int, int, str]]


def gold(entities: Entities, words: list[str]) -> Doc:
    doc = Doc(spacy.blank("zh").vocab, words=words, spaces=[words is WORDS] * len(words))
    doc.set_ents([doc.char_span(start, end, label) for start, end, label in entities], default="outside")
    return doc


def states(browser: Browser, folder: Path, page: str) -> list[dict[str, Any]]:
    """What a page writes and shows in each state that is reached."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf8")
    browser.open(path.as_uri())
    found: list[dict[str, Any]] = browser.run(SCRIPT, DEPTH)
    assert len(found) > 200
    return found


def converted(folder: Path, found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Doc]]:
    """The states that say anything, with what `convert` makes of what the page writes then."""
    saying = [entity for entity in found if entity["done"] or entity["record"]["spans"]]
    path = folder / "decisions.json"
    path.write_text(json.dumps([state["record"] for state in saying]), encoding="utf8")
    lang = "en" if "Tim" in found[0]["record"]["text"] else "zh"
    convert([path], folder / "out.spacy", making=DocOptions(lang=lang))
    return zip(saying, read_docs(folder / "out.spacy"), strict=True)


def check_converted(folder: Path, found: list[dict[str, Any]], settled: Entities) -> None:
    for state, doc in converted(folder, found):
        shown = {tuple(entity) for entity in state["entities"]}
        entities = {offsets_of(ent) for ent in doc.ents}
        rejected = {offsets_of(span) for span in doc.spans.get(INCORRECT, ())}
        assert not rejected & shown, state
        if state["done"]:
            assert (entities, rejected) == (shown, set()), state
            assert all(token.ent_iob_ for token in doc)
        else:
            assert entities <= shown, state
            assert all(token.ent_iob_ in "BI" for token in doc), state
        # What is shown and not written is what nobody has decided on, or has a question about.
        assert shown - entities <= {tuple(entity) for entity in state["open"]} | set(settled), state


@pytest.mark.parametrize(
    ("annotated", "found"),
    [
        ([A, B], [(1, 3, "PER"), B]),
        ([A, B], [(1, 8, "ORG")]),
        ([A], [(1, 4, "ORG"), B]),
        ([], [A, B]),
        ([A, B], []),
        ([C, D], [(6, 14, "ORG")]),
    ],
)
def test_a_corpus_is_what_the_page_of_its_review_shows(
    browser: Browser, tmp_path: Path, annotated: Entities, found: Entities
) -> None:
    doc = gold(annotated, CHARACTERS if A in (*annotated, *found) else WORDS)
    sides = [[FoundEntity(*entity, 0.5) for entity in side] for side in (annotated, found)]
    judged = JudgedDoc(0, doc, 0.5, tuple(disagreements(0, *sides)), 0)
    all_states = states(browser, tmp_path, review_page(rank_doubts([judged]), {0: judged}, corpus="a"))
    for state in all_states:
        mended = doc.copy()
        applied = apply_decisions([mended], [state["record"]])
        assert applied.misfits == [], state
        assert [offsets_of(ent) for ent in mended.ents] == [tuple(entity) for entity in state["entities"]], state
    check_converted(tmp_path, all_states, [entity for entity in annotated if entity in found])


@pytest.mark.parametrize(("words", "entities"), [(CHARACTERS, [A, B]), (WORDS, [C, D])])
def test_what_is_converted_is_what_the_page_of_suggestions_shows(
    browser: Browser, tmp_path: Path, words: list[str], entities: Entities
) -> None:
    task = Task(gold([], words), [FoundEntity(*entity, 0.9) for entity in entities], 0.7, 0.5)
    check_converted(
        tmp_path, states(browser, tmp_path, annotation_page([task], ["PER", "ORG"], model="", inputs="")), []
    )
