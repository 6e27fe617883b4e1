/**
 * The annotation of a text and the decisions about it. Each change creates a new state, and undo restores the previous
 * state. The decisions are the difference between the loaded and the present entities. Offsets are UTF-16 code units.
 * A question is a position where the annotation and the model may differ. In a text with nested entities, entities may
 * overlap, and an entity belongs to the first question that it answered.
 */
const annotation = (() => {
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const subtract = (entities, removed) => entities.filter((entity) => !removed.some((other) => same(entity, other)));
  const inOrder = (a, b) => a.start - b.start || b.end - a.end;
  const overlap = (a, b) => a.start < b.end && b.start < a.end;
  /** Whether an entity excludes one of the others: it overlaps, or, among nested entities, is equal or answers the same question. */
  const touches = ({ nested }, entity, entities) => entities.some((other) => (nested ? same(entity, other) || (entity.asked >= 0 && entity.asked === other.asked) : overlap(entity, other)));
  /** Groups of spans that overlap, directly or through other spans. */
  function joinOverlaps(spans) {
    const groups = [];
    for (const span of [...spans].sort(inOrder)) {
      if (!groups.length || span.start >= groups.at(-1).end) groups.push({ start: span.start, end: span.end, spans: [] });
      groups.at(-1).end = Math.max(groups.at(-1).end, span.end);
      groups.at(-1).spans.push(span);
    }
    return groups;
  }

  /** A question has the gold entities and the found entities at one position. It is settled if they are equal. */
  function makeQuestion(gold, found) {
    const all = [...gold, ...subtract(found, gold)];
    const settled = !subtract(found, gold).length && !subtract(gold, found).length;
    return { gold, found, all, settled, start: Math.min(...all.map(({ start }) => start)), end: Math.max(...all.map(({ end }) => end)) };
  }

  /** Load a text of the page's data. side: the initial entities, `gold` or `found`. */
  function load({ doc, record_id, text, tokens, questions, first = null, nested = false }, side) {
    const { unit, character } = parts.offsetsOf(text);
    const toEntity = ([start, end, label, probability = null], index) => ({ start: unit(start), end: unit(end), label, probability, ...(nested && { asked: index }) });
    const asked = questions.map((sides, index) => makeQuestion(...sides.map((entities) => entities.map((entity) => toEntity(entity, index)))));
    const loaded = asked.flatMap((question) => question[side]), initial = { entities: loaded, answered: [], done: false };
    const edges = tokens ? [] : Array.from({ length: [...text].length + 1 }, (_, index) => unit(index));
    return {
      doc, record_id, text, nested, tokens: tokens && tokens.map((token) => token.map(unit)), offsets: { unit, character, edges },
      questions: asked, first, side, loaded, initial, now: initial, past: [],
    };
  }
  const isOpen = (entry, index) => !entry.now.answered.includes(index) && !(entry.side === "gold" && entry.questions[index].settled);
  function isDone(entry) {
    const asked = entry.side === "gold" && entry.questions.some((question) => !question.settled);
    return entry.now.done || (asked && entry.questions.every((_, index) => !isOpen(entry, index)));
  }

  /** Remove the entities in `out` and all that `put` excludes, add the entities in `put`, and mark questions as answered. */
  function change(entry, { out = [], put = [], answered = [], done = entry.now.done }) {
    const before = entry.now.entities, remaining = before.filter((entity) => !out.includes(entity) && !touches(entry, entity, put));
    const entities = [...remaining, ...put].sort(inOrder);
    const changed = [...subtract(before, entities), ...subtract(entities, before)];
    const affected = entry.questions.flatMap((question, index) => (question.all.some((entity) => touches(entry, entity, changed)) ? [index] : []));
    entry.past.push(entry.now);
    entry.now = { entities, answered: [...new Set([...entry.now.answered, ...answered, ...affected])], done };
  }
  /** Answer a question with the entities of one side, `gold` or `found`. */
  function answer(entry, index, side) {
    const { all, [side]: put } = entry.questions[index];
    change(entry, { out: entry.now.entities.filter((entity) => touches(entry, entity, all)), put, answered: [index] });
  }
  const finish = (entry) => change(entry, { answered: entry.questions.flatMap((_, index) => (isOpen(entry, index) ? [index] : [])), done: true });

  const undo = (entry) => { entry.now = entry.past.pop() || entry.now; };

  /** Move the start or end of an entity to the next token or character boundary. Return null if there is none.
   * White space is skipped, because `convert` would trim it. So is a boundary that makes two nested entities equal. */
  function moveEdge(entry, entity, side, direction) {
    const all = entry.tokens ? entry.tokens.map((token) => token[side === "end" ? 1 : 0]) : entry.offsets.edges;
    const isFree = (edge) => !entry.now.entities.some((other) => same(other, { ...entity, [side]: edge }));
    const edges = all.filter((edge) => (entry.text[side === "end" ? edge - 1 : edge] || "").trim() && isFree(edge));
    const to = direction > 0 ? edges.find((edge) => edge > entity[side]) : edges.findLast((edge) => edge < entity[side]);
    const changed = { ...entity, [side]: to ?? entity[side], probability: null };
    return to === undefined || changed.start >= changed.end ? null : changed;
  }

  /** The record of a text for `tener convert`, with all entities if the text is done, otherwise with single decisions.
   * The record of a review also contains the decisions for `review --apply`. */
  function record(entry) {
    const { entities, answered } = entry.now, questions = answered.map((index) => entry.questions[index]);
    const toOffsets = ({ start, end, label }) => [entry.offsets.character(start), entry.offsets.character(end), label];
    const spans = (entities, fields = {}) => entities.map(toOffsets).map(([start, end, label]) => ({ start, end, label, ...fields }));
    const isDecided = (entity) => !entry.loaded.some((other) => same(entity, other)) || questions.some(({ all }) => touches(entry, entity, all));
    const decided = entities.filter(entry.nested ? (entity) => isGroupDecided(entry, entity, isDecided) : isDecided);
    const rejected = subtract(questions.flatMap(({ all }) => all), entities);
    const done = isDone(entry);
    return {
      text: entry.text, doc: entry.doc, ...(entry.record_id === undefined ? {} : { record_id: entry.record_id }), answer: "accept", _is_binary: !done,
      ...(entry.nested && { nested: true }),
      spans: done ? spans(entities) : [...spans(decided, { answer: "accept" }), ...spans(rejected, { answer: "reject" })],
      ...(entry.side === "gold" ? { decisions: decisions(entry, questions).map((decision) => ({ gold: decision.gold.map(toOffsets), entities: decision.entities.map(toOffsets) })) } : {}),
    };
  }
  /** Whether everything that overlaps with an entity is decided. For `convert`, an accepted entity also determines the
   * annotation of the text around and inside the entity. */
  function isGroupDecided(entry, entity, isDecided) {
    const open = entry.questions.flatMap(({ all }, index) => (isOpen(entry, index) ? all : []));
    const { spans } = joinOverlaps([...entry.now.entities, ...open]).find((group) => group.spans.includes(entity));
    return spans.some(isDecided) && !spans.some((span) => open.some((other) => same(span, other)));
  }
  /** The old and new entities of each group of overlapping changes, and the questions whose answer changed nothing. */
  function decisions(entry, questions) {
    const { loaded, now } = entry, out = subtract(loaded, now.entities), put = subtract(now.entities, loaded);
    const groups = joinOverlaps([...out, ...put]).map(({ spans }) => ({ gold: spans.filter((span) => out.includes(span)), entities: spans.filter((span) => put.includes(span)) }));
    const unchanged = questions.filter(({ all }) => !all.some((entity) => touches(entry, entity, [...out, ...put])));
    return [...groups, ...unchanged.map(({ gold }) => ({ gold, entities: gold }))];
  }

  return { inOrder, overlap, touches, load, isOpen, isDone, change, answer, finish, undo, moveEdge, record };
})();

(() => {
  const { $, el, data, say, gap, chip, digits, hue, count, percent, meter, isShort, direction, excerpts, marked, listing, searching, stored, download } = parts;
  const { inOrder, overlap, touches, isOpen, isDone } = annotation;
  const KINDS = { label: "other label", edges: "other boundaries", missing: "missing", extra: "extra" };
  const STORAGE_KEY = `review.${data.digest}`;
  const byGold = data.stands === "gold"; // whether the page is a review of annotation, or has texts to annotate
  const noun = byGold ? "suspected error" : "suggestion";
  /** at: the selected entity, or the question at a position without entities. changed: the changed text of each change, and the selection before. */
  const state = { text: null, at: null, selected: null, changed: [], open: new Set() };

  function kindOf({ gold, found }) {
    if (!gold.length) return "missing";
    if (!found.length) return "extra";
    const edges = (side) => side.map(({ start, end }) => `${start} ${end}`).join();
    return edges(gold) === edges(found) ? "label" : "edges";
  }
  const texts = data.texts.map((text, number) => ({ number, ...annotation.load(text, data.stands) }));

  // --- the local storage, with the state of each text that was changed

  const saved = new Map(Object.entries(stored.get(STORAGE_KEY) || {}).map(([number, now]) => [Number(number), now]));
  for (const [number, now] of saved) texts[number].now = now;
  function keep(entry) {
    if (entry.now === entry.initial) saved.delete(entry.number);
    else saved.set(entry.number, entry.now);
    if (!stored.set(STORAGE_KEY, Object.fromEntries(saved))) showState(say("This browser cannot save your decisions: download them before you close this page."));
  }
  function showState(message) {
    $("state").textContent = message;
    $("state").hidden = !message;
  }

  // --- the stops of a text: its entities, and the questions at positions without entities

  const isVacant = (entry, question) => !entry.now.entities.some((entity) => touches(entry, entity, question.all));
  const stops = (entry) => [...entry.now.entities, ...entry.questions.filter((question) => isVacant(entry, question))].sort(inOrder);
  /** The index of the question that an entity belongs to, preferably of an open question. -1 if there is none. */
  function questionOf(entry, at) {
    if (entry.questions.includes(at)) return entry.questions.indexOf(at);
    const indices = entry.questions.flatMap((question, index) => (touches(entry, at, question.all) ? [index] : []));
    return indices.find((index) => isOpen(entry, index)) ?? indices[0] ?? -1;
  }
  const isAsked = (entry, at) => questionOf(entry, at) >= 0 && isOpen(entry, questionOf(entry, at));
  const entityAt = (at) => (at.all ? at.found[0] || at.gold[0] : at);
  function select(at) {
    Object.assign(state, { at: at || null, selected: null });
    for (const node of document.querySelectorAll("#list .ent")) node.classList.toggle("now", isHere(shownAs.get(node)));
    showPosition();
  }
  const shownAs = new WeakMap(); // the entity or question that a click on an element selects
  const isHere = (at) => at !== null && at === state.at;

  // --- decisions

  function change(entry, act, at = state.at) {
    state.changed.push([entry, stops(entry).indexOf(state.at)]);
    act();
    select(at);
    redraw(entry);
  }
  function redraw(entry) {
    keep(entry);
    list.redraw(entry);
    showPosition();
    showProgress();
  }
  function answer(side) {
    const entry = list.item, index = entry && state.at ? questionOf(entry, state.at) : -1;
    if (index < 0) return;
    change(entry, () => annotation.answer(entry, index, side));
    const question = entry.questions[index], rest = stops(entry), next = rest.find((at) => isAsked(entry, at));
    select(next || rest.find((at) => at === question || (!at.all && touches(entry, at, question.all))));
    if (!next) goOn();
  }
  function relabel(label) {
    if (!label || !list.item) return;
    if (!data.labels.includes(label)) { data.labels.push(label); showLabels(); }
    const { selected, at } = state, entry = selected ? selected.text : list.item;
    if (!selected && !at) return;
    const { start, end, asked } = selected || entityAt(at), entity = { start, end, label, probability: null, asked };
    if (selected) {
      getSelection().removeAllRanges();
      list.go(list.items.indexOf(entry), false);
    }
    change(entry, () => annotation.change(entry, { out: selected || at.all ? [] : [at], put: [entity] }), entity);
  }
  function remove() {
    const entry = list.item, { at } = state;
    if (!entry || !at) return;
    const asked = isAsked(entry, at), index = stops(entry).indexOf(at);
    if (at.all && !asked) return;
    change(entry, () => annotation.change(entry, at.all ? { answered: [questionOf(entry, at)] } : { out: [at] }));
    const rest = stops(entry);
    // After an answer to a question, go on like `answer`.
    const next = asked && rest.find((stop) => isAsked(entry, stop));
    select(next || rest.find((stop) => touches(entry, entityAt(at), stop.all || [stop])) || rest[Math.max(0, index - 1)]);
    if (asked && !next) goOn();
  }
  function stretch(side, direction) {
    const entry = list.item, { at } = state, entity = at && !at.all && annotation.moveEdge(entry, at, side, direction);
    if (entity) change(entry, () => annotation.change(entry, { out: [at], put: [entity] }), entity);
  }
  /** Add an entity: the next token that is not in an entity, or the first token within the selected entity that is not an entity. */
  function add(within = false) {
    const entry = list.item, { start: first, end: last } = state.at ? entityAt(state.at) : { end: 0 };
    if (within && !(entry?.nested && first >= 0)) return;
    const tokens = entry && (entry.tokens || entry.offsets.edges.slice(1).map((edge, index) => [entry.offsets.edges[index], edge]));
    const isFree = (start, end) => (within ? start >= first && end <= last && !entry.now.entities.some((entity) => entity.start === start && entity.end === end)
      : start >= last && !entry.now.entities.some((entity) => overlap(entity, { start, end })));
    const token = tokens && tokens.find(([start, end]) => isFree(start, end) && entry.text.slice(start, end).trim());
    if (!token || !data.labels.length) return;
    state.selected = { text: entry, start: token[0], end: token[1] };
    relabel(data.labels[0]);
  }
  function finish() {
    const entry = list.item;
    if (!entry) return;
    if (!entry.now.done) change(entry, () => annotation.finish(entry));
    goOn();
  }
  function goOn() {
    const next = list.items.findIndex((entry, index) => index > list.current && !isDone(entry));
    if (next >= 0) list.go(next);
  }
  function undo() {
    const [entry, index] = state.changed.pop() || [];
    if (!entry) return;
    annotation.undo(entry);
    list.go(list.items.indexOf(entry));
    if (list.item === entry) select(stops(entry)[index]);
    redraw(entry);
  }
  function step(direction) {
    const entry = list.item, all = entry ? stops(entry) : [], to = all.indexOf(state.at) + direction;
    if (to >= 0 && to < all.length) select(all[to]);
    else if (list.current + direction >= 0 && list.current + direction < list.items.length) {
      list.go(list.current + direction);
      if (direction < 0) select(stops(list.item).at(-1));
    }
  }

  // --- drawing

  function mark(span, children, kind) {
    const short = isShort(children, span.name) ? " short" : "";
    const node = el("mark", { class: `ent ${span.state}${short}${isHere(span.at) ? " now" : ""}${kind}`, style: { "--h": hue(span.label) } },
      ...children, ...(kind.includes("cut") ? [] : [el("small", {}, span.name)]));
    shownAs.set(node, span.at);
    return node;
  }
  /** The spans to draw: the entities, the found entities of open questions, and the removed entities. */
  function spansOf(entry) {
    const probability = (entity) => (entity.probability === null ? "" : ` ${percent(entity.probability)}`);
    const spans = entry.now.entities.map((entity) => (isAsked(entry, entity)
      ? { ...entity, at: entity, state: "open", name: byGold ? entity.label : entity.label + probability(entity) }
      : { ...entity, at: entity, state: "right", name: entity.label }));
    entry.questions.forEach((question, index) => {
      const at = entry.now.entities.find((entity) => touches(entry, entity, question.all)) || question;
      if (byGold && isOpen(entry, index)) spans.push(...question.found.map((entity) => ({ ...entity, at, state: "spurious", name: `+ ${entity.label}${probability(entity)}` })));
      else if (at === question) spans.push(...(question.found.length ? question.found : question.gold).map((entity) => ({ ...entity, at, state: "gone", name: entity.label })));
    });
    return spans;
  }
  function draw(entry) {
    const spans = spansOf(entry), wanted = byGold ? spans.filter((span) => entry.questions.some((question) => !question.settled && touches(entry, span, question.all))) : spans;
    const cuts = state.open.has(entry) ? [[0, entry.text.length]] : excerpts(entry.text, wanted);
    const pieces = cuts.flatMap(([from, to]) => [from ? "… " : "", el("span", { "data-from": from }, ...marked(entry.text, spans, mark, from, to)), to < entry.text.length ? " …" : ""]);
    const showAll = el("button", { type: "button", class: "plain" }, say("Show all {n} characters", { n: digits(entry.offsets.character(entry.text.length)) }));
    showAll.addEventListener("click", () => { state.open.add(entry); list.redraw(entry); });
    const kinds = byGold ? new Set(entry.questions.filter((_, index) => isOpen(entry, index)).map((question) => say(KINDS[kindOf(question)]))) : [];
    return [
      el("p", { class: "quiet" }, [say(isDone(entry) ? "✓ done" : "open"), say("Text {number}", { number: digits(entry.doc + 1) }), ...kinds].join(" · ")),
      entry.text ? el("p", { class: "line", dir: direction(entry.text), "data-text": entry.number }, ...pieces) : el("p", { class: "quiet" }, say("This text is empty.")),
      ...(cuts.length > 1 || cuts[0][0] > 0 || cuts[0][1] < entry.text.length ? [showAll] : []),
    ];
  }
  const list = listing({ draw, noun: "text", chosen(entry) {
    if (!entry || entry === state.text) return;
    const all = stops(entry);
    state.text = entry;
    // Select the suspected error that determined the rank of the text.
    select(all.find((at) => entry.first !== null && isAsked(entry, at) && questionOf(entry, at) === entry.first) || all.find((at) => isAsked(entry, at)) || all[0]);
  } });

  function showPosition() {
    const { at, selected } = state, entry = selected ? selected.text : list.item, nodes = [];
    const words = (entity) => el("b", {}, entry.text.slice(entity.start, Math.min(entity.end, entity.start + 80)));
    const describe = (entity) => [words(entity), " ", chip(entity.label), entity.probability === null ? " " : ` ${percent(entity.probability)} `];
    const side = (entities) => (entities.length ? entities.flatMap(describe) : [say("nothing"), " "]);
    const index = at && entry ? questionOf(entry, at) : -1;
    if (selected) nodes.push(words(selected), ` – ${say("choose a label")}`);
    else if (byGold && index >= 0) nodes.push(say("annotated:"), gap, ...side(entry.questions[index].gold), "· ", say("model:"), gap, ...side(entry.questions[index].found));
    else if (at) nodes.push(...(at.all ? [words(entityAt(at)), ` ${say("no entity")}`] : describe(at)));
    else nodes.push(entry ? say("There is no entity here. Select some text to add one, or press Enter if the text is right.") : "");
    $("position").replaceChildren(...nodes);
    for (const key of ["a", "r"]) document.querySelector(`[data-key="${key}"]`).disabled = index < 0;
  }
  function showProgress() {
    const done = texts.filter(isDone).length;
    const asks = texts.flatMap((entry) => entry.questions.flatMap((question, index) => (byGold && question.settled ? [] : [isOpen(entry, index)])));
    const answered = digits(asks.filter((open) => !open).length);
    const decided = asks.length ? ` · ${say("{n} of {total} decided", { n: answered, total: count(asks.length, noun) })}` : "";
    $("progress").textContent = say("{n} of {total} done", { n: digits(done), total: count(texts.length, "text") }) + decided;
    $("share").replaceChildren(meter(texts.length ? done / texts.length : 0, "for"));
    $("export").disabled = !saved.size;
  }
  function showLabels() {
    $("labels").replaceChildren(...data.labels.map((label, index) => {
      const button = el("button", { type: "button", class: "plain" }, chip(label), ...(index < 9 ? [" ", el("kbd", {}, index + 1)] : []));
      button.addEventListener("click", () => relabel(label));
      return button;
    }));
  }
  function show() {
    const wanted = $("search").value.trim().toLowerCase(), open = $("open").value, kind = $("kind").value;
    const found = texts.filter((entry) => (!open || isDone(entry) === (open === "done"))
      && (!kind || entry.questions.some((question) => !question.settled && kindOf(question) === kind))
      && (!wanted || entry.text.toLowerCase().includes(wanted)));
    state.text = null;
    list.show(found);
    if (!found.length) select(null);
    $("none").hidden = found.length > 0;
  }
  $("export").addEventListener("click", () => {
    const records = texts.filter((entry) => saved.has(entry.number)).map((entry) => JSON.stringify({ corpus: data.corpus, ...annotation.record(entry) }));
    download("decisions.json", `[\n${records.join(",\n")}\n]\n`);
  });

  // --- actions

  /** The offset of a point in its text, without the labels that the page inserts. */
  function unitOf(node, offset) {
    const piece = (node.nodeType === Node.TEXT_NODE ? node.parentElement : node).closest("[data-from]");
    if (!piece) return null;
    const range = document.createRange();
    range.setStart(piece, 0);
    range.setEnd(node, offset);
    const copy = range.cloneContents();
    for (const label of copy.querySelectorAll("small")) label.remove();
    return { entry: texts[Number(piece.parentElement.dataset.text)], unit: Number(piece.dataset.from) + copy.textContent.length };
  }
  let pressing = false; // whether a button is pressed, which may clear the selection
  function readSelection() {
    const selection = getSelection();
    if (pressing || document.activeElement === $("label") || !selection.rangeCount || (selection.isCollapsed && !state.selected)) return;
    const range = selection.getRangeAt(0), [from, to] = [unitOf(range.startContainer, range.startOffset), unitOf(range.endContainer, range.endOffset)];
    state.selected = null;
    if (from && to && from.entry === to.entry) {
      let [start, end] = [from.unit, to.unit];
      const { text, tokens } = from.entry;
      while (start < end && !text[start].trim()) start++;
      while (end > start && !text[end - 1].trim()) end--;
      if (start < end) {
        if (tokens) [start, end] = [tokens.findLast((token) => token[0] <= start)?.[0] ?? start, tokens.find((token) => token[1] >= end)?.[1] ?? end];
        state.selected = { text: from.entry, start, end };
      }
    }
    showPosition();
  }
  document.addEventListener("selectionchange", readSelection);
  $("tools").addEventListener("pointerdown", () => { pressing = true; });
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => pressing && setTimeout(() => { pressing = false; readSelection(); }, 50));

  const ACTIONS = { a: () => answer("found"), r: () => answer("gold"), x: remove, Delete: remove, n: () => add(), i: () => add(true), u: undo, Enter: finish, ArrowLeft: () => step(-1), ArrowRight: () => step(1), Escape: () => select(null) };
  const EDGES = { ArrowRight: ["end", 1], ArrowLeft: ["end", -1], ArrowDown: ["start", 1], ArrowUp: ["start", -1] };
  for (const button of document.querySelectorAll("[data-key]"))
    button.addEventListener("click", () => (EDGES[button.dataset.key] ? stretch(...EDGES[button.dataset.key]) : ACTIONS[button.dataset.key]()));
  document.addEventListener("keydown", (event) => {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, summary")) return;
    if (event.target.closest("button, a") && (key === "Enter" || key === " ")) return;
    const act = event.shiftKey && EDGES[key] ? () => stretch(...EDGES[key]) : /^[1-9]$/.test(key) ? () => relabel(data.labels[key - 1]) : ACTIONS[key];
    if (!act || event.defaultPrevented) {
      if (!event.defaultPrevented && (key === "ArrowDown" || key === "ArrowUp")) { event.preventDefault(); list.go(list.current + (key === "ArrowDown" ? 1 : -1)); }
      return;
    }
    event.preventDefault();
    act();
  });
  $("label").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !$("label").value.trim()) return;
    relabel($("label").value.trim());
    $("label").value = "";
  });
  $("list").addEventListener("click", (event) => {
    const at = shownAs.get(event.target.closest(".ent"));
    if (!at || !getSelection().isCollapsed) return;
    list.go(Number(event.target.closest("[data-index]").dataset.index));
    select(at);
  });

  const kinds = new Set(texts.flatMap((entry) => entry.questions).filter((question) => !question.settled).map(kindOf));
  $("within").hidden = !texts.some((entry) => entry.nested);
  for (const node of document.querySelectorAll("[data-only]")) node.hidden = node.dataset.only !== data.stands;
  $("kind").replaceChildren(el("option", { value: "" }, say("all kinds")), ...Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([kind, name]) => el("option", { value: kind }, say(name))));
  for (const name of ["open", "kind"]) $(name).addEventListener("change", show);
  searching($("search"), show);
  $("next").textContent = data.next;
  const FRAMES = byGold ? [["open", "annotated, open"], ["spurious", "+ found by the model, missing or different in the annotation"], ["right", "decided, or undisputed"], ["gone", "removed"]]
    : [["open", "found by the model, open"], ["right", "accepted, or added by you"], ["gone", "removed"]];
  $("legend").replaceChildren(...FRAMES.flatMap(([kind, meaning]) => [el("mark", { class: `ent ${kind}`, style: { "--h": 210 } }, say(meaning)), " "]));
  $("tools").hidden = !texts.length;
  if (!texts.length) showState(say(byGold ? "There is nothing to decide: the model agrees with the annotation everywhere." : "There are no texts to annotate."));
  // Labels that were added in an earlier session.
  const used = texts.flatMap((entry) => entry.now.entities.map((entity) => entity.label));
  data.labels = [...new Set([...data.labels, ...used])];
  showLabels();
  showProgress();
  show();
  document.documentElement.dataset.ready = "true";
})();
