"""After any sequence of actions on a page with two neighbouring entities, the corpus equals the display of the page.

The tests call the functions of the page in a browser, with all sequences of up to three actions, or four in slow tests.
Sequences with nested entities are shorter by one action.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from spacy.tokens import Doc
from spacy.util import filter_spans
from test_review_page import annotated, converted, entities_of, found, review_of

from spacy_tener.corpora.docs import INCORRECT
from spacy_tener.pipeline.entities import offsets_of
from spacy_tener.review.annotation_tools import Task
from spacy_tener.review.page import annotation_page, apply_decisions

pytestmark = pytest.mark.integration

CHARACTERS = list("😀王小明北京大学😀")
A, B = (1, 4, "PER"), (4, 8, "ORG")
OUTER = (1, 8, "ORG")
WORDS = ["😀", "saw", "Tim", "Cook", "Apple", "Inc", "😀"]
C, D = (6, 14, "PER"), (15, 24, "ORG")  # with a space between the entities
DEPTHS = [3, pytest.param(4, marks=pytest.mark.slow)]
# Sequences that lead to the same state are continued only once. Undo leads to an earlier state.
SCRIPT = """
const actions = {
  finish: annotation.finish,
  add(text) { // across the end of the first and the start of the second entity
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
    const open = questions.flatMap(({ all }) => all);
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


def gold(entities: Entities, words: list[str], nested: bool = False) -> Doc:
    return annotated((" " * (words is WORDS)).join([*words, ""]), entities, words, nested=nested)


def states(browser: Browser, folder: Path, page: str, nested: bool, depth: int) -> list[dict[str, Any]]:
    """Return the exported records and displayed entities of a page in all reachable states."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf8")
    browser.open(path.as_uri())
    found: list[dict[str, Any]] = browser.run(SCRIPT, depth - nested)
    assert len(found) > (200 if depth == 4 else 40)
    return found


def check_converted(folder: Path, found: list[dict[str, Any]], agreed: Entities, nested: bool = False) -> None:
    """Compare the corpus that `convert` creates from records with the display, in all states with decisions."""
    states_with_decisions = [state for state in found if state["done"] or state["record"]["spans"]]
    lang = "en" if "Tim" in found[0]["record"]["text"] else "zh"
    # Many states have the same record.
    records = {json.dumps(state["record"]): state["record"] for state in states_with_decisions}
    docs = dict(zip(records, converted([*records.values()], folder, lang, nested), strict=True))
    for state in states_with_decisions:
        doc = docs[json.dumps(state["record"])]
        shown, undecided = ({tuple(entity) for entity in state[name]} for name in ("entities", "open"))
        entities = set(entities_of(doc))
        rejected = {offsets_of(span) for span in doc.spans.get(INCORRECT, ())}
        assert not rejected & shown, state
        if state["done"]:
            assert (entities, rejected) == (shown, set()), state
            assert nested or all(token.ent_iob_ for token in doc)
        else:
            assert entities <= shown, state
            assert all(token.ent_iob_ in "BI" for token in doc), state
            # Accepted entities exclude undecided entities that overlap with them.
            assert not any(a[0] < b[1] and b[0] < a[1] for a in entities for b in undecided), state
        # Displayed entities that are not in the corpus are undecided, or both sides agreed on them.
        assert shown - entities <= undecided | set(agreed) or (nested and undecided), state


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("entities", "found", "nested"),
    [
        ([A, B], [(1, 3, "PER"), B], False),
        ([A, B], [(1, 8, "ORG")], False),
        ([A], [(1, 4, "ORG"), B], False),
        ([], [A, B], False),
        ([A, B], [], False),
        ([C, D], [(6, 14, "ORG")], False),
        ([OUTER, B], [OUTER, (1, 4, "ORG")], True),
        ([OUTER], [(1, 7, "ORG"), B, (4, 8, "GPE")], True),
        ([A, (3, 6, "ORG")], [A, (1, 4, "ORG")], True),
    ],
)
def test_corpus_equals_review_page_after_all_actions(
    browser: Browser, tmp_path: Path, entities: Entities, found: Entities, nested: bool, depth: int
) -> None:
    doc = gold(entities, WORDS if C in entities else CHARACTERS, nested)
    all_states = states(browser, tmp_path, review_of([doc], [found]), nested, depth)
    for state in all_states:
        corrected = doc.copy()
        applied = apply_decisions([corrected], [state["record"]])
        assert applied.rejected == [], state
        assert entities_of(corrected) == sorted(map(tuple, state["entities"])), state
        longest = filter_spans(list(corrected.spans.get("sc", corrected.ents)))
        assert sum(map(len, corrected.ents)) == sum(map(len, longest)), state
    check_converted(tmp_path, all_states, [entity for entity in entities if entity in found], nested)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    ("words", "entities", "nested"),
    [(CHARACTERS, [A, B], False), (WORDS, [C, D], False), (CHARACTERS, [OUTER, B], True)],
)
def test_converted_corpus_equals_annotation_page_after_all_actions(
    browser: Browser, tmp_path: Path, words: list[str], entities: Entities, nested: bool, depth: int
) -> None:
    task = Task(gold([], words), found(entities, 0.9), 0.7, 0.5)
    page = annotation_page([task], ["PER", "ORG"], model="", inputs="", overlapping=nested)
    check_converted(tmp_path, states(browser, tmp_path, page, nested, depth), [], nested)
