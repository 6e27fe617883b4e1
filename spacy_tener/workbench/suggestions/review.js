/**
 * The annotation of a text and the decisions about it. A change makes a new state, so that undo is the state before, and
 * the decisions are the difference between the entities as loaded and as they are. Offsets are UTF-16 units.
 */
const annotation = (() => {
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const without = (some, others) => some.filter((one) => !others.some((other) => same(one, other)));
  const overlap = (a, b) => a.start < b.end && b.start < a.end;
  const touches = (entity, others) => others.some((other) => overlap(entity, other));

  /** A question is what the annotation and the model have at one position; it is settled where they agree. */
  function question(gold, found) {
    const all = [...gold, ...without(found, gold)];
    const settled = !without(found, gold).length && !without(gold, found).length;
    return { gold, found, all, settled, start: Math.min(...all.map((one) => one.start)), end: Math.max(...all.map((one) => one.end)) };
  }

  /** The annotation of a text of the page's data. side: the entities to begin with, those of `gold` or those `found`. */
  function load({ doc, record_id, text, tokens, questions }, side) {
    const { unit, character } = parts.places(text);
    const read = ([start, end, label, p = null]) => ({ start: unit(start), end: unit(end), label, p });
    const asked = questions.map((sides) => question(...sides.map((some) => some.map(read))));
    const loaded = asked.flatMap((one) => one[side]), given = { entities: loaded, answered: [], done: false };
    const edges = tokens ? [] : Array.from({ length: [...text].length + 1 }, (_, index) => unit(index));
    return {
      doc, record_id, text, tokens: tokens && tokens.map((token) => token.map(unit)), at: { unit, character, edges },
      questions: asked, side, loaded, given, now: given, past: [],
    };
  }
  const isOpen = (one, index) => !one.now.answered.includes(index) && !(one.side === "gold" && one.questions[index].settled);
  function isDone(one) {
    const asked = one.side === "gold" && one.questions.some((each) => !each.settled);
    return one.now.done || (asked && one.questions.every((_, index) => !isOpen(one, index)));
  }

  /** Take out entities, put in others, for which those that they overlap make room, and answer questions. */
  function change(one, { out = [], put = [], answered = [], done = one.now.done }) {
    const before = one.now.entities, stays = before.filter((own) => !out.includes(own) && !touches(own, put));
    const entities = [...stays, ...put].sort((a, b) => a.start - b.start);
    const changed = [...without(before, entities), ...without(entities, before)];
    const affected = one.questions.flatMap((each, index) => (each.all.some((own) => touches(own, changed)) ? [index] : []));
    one.past.push(one.now);
    one.now = { entities, answered: [...new Set([...one.now.answered, ...answered, ...affected])], done };
  }
  /** Answer a question by the entities of one side, `gold` or `found`. */
  function answer(one, index, side) {
    const { all, [side]: put } = one.questions[index];
    change(one, { out: one.now.entities.filter((own) => touches(own, all)), put, answered: [index] });
  }
  const finish = (one) => change(one, { answered: one.questions.flatMap((_, index) => (isOpen(one, index) ? [index] : [])), done: true });

  const undo = (one) => { one.now = one.past.pop() || one.now; };

  /** An entity with its start or end at the next edge of a token, or of a character, but not in white space, which
   * `convert` would trim to the entity before; null if there is none. */
  function stretched(one, entity, side, direction) {
    const all = one.tokens ? one.tokens.map((token) => token[side === "end" ? 1 : 0]) : one.at.edges;
    const edges = all.filter((edge) => (one.text[side === "end" ? edge - 1 : edge] || "").trim());
    const to = direction > 0 ? edges.find((edge) => edge > entity[side]) : edges.findLast((edge) => edge < entity[side]);
    const own = { ...entity, [side]: to ?? entity[side], p: null };
    return to === undefined || own.start >= own.end ? null : own;
  }

  /** A text as `tener convert` reads it: all of it where it is done, else single decisions; and a review's for `--apply`. */
  function record(one) {
    const { entities, answered } = one.now, questions = answered.map((index) => one.questions[index]);
    const offsets = ({ start, end, label }) => [one.at.character(start), one.at.character(end), label];
    const spans = (some, own = {}) => some.map(offsets).map(([start, end, label]) => ({ start, end, label, ...own }));
    const decided = entities.filter((own) => !one.loaded.some((other) => same(own, other)) || questions.some(({ all }) => touches(own, all)));
    const rejected = without(questions.flatMap(({ all }) => all), entities);
    const done = isDone(one);
    return {
      text: one.text, doc: one.doc, ...(one.record_id === undefined ? {} : { record_id: one.record_id }), answer: "accept", _is_binary: !done,
      spans: done ? spans(entities) : [...spans(decided, { answer: "accept" }), ...spans(rejected, { answer: "reject" })],
      ...(one.side === "gold" ? { decisions: decisions(one, questions).map(({ gold, entities: own }) => ({ gold: gold.map(offsets), entities: own.map(offsets) })) } : {}),
    };
  }
  /** What replaces what, for each group of changes that overlap; and the questions that were answered by what was there. */
  function decisions({ loaded, now }, questions) {
    const out = without(loaded, now.entities), put = without(now.entities, loaded), groups = [];
    for (const own of [...out, ...put].sort((a, b) => a.start - b.start)) {
      if (!groups.length || own.start >= groups.at(-1).end) groups.push({ start: own.start, end: own.end, gold: [], entities: [] });
      const group = groups.at(-1);
      group.end = Math.max(group.end, own.end);
      (out.includes(own) ? group.gold : group.entities).push(own);
    }
    const kept = questions.filter(({ all }) => !all.some((own) => touches(own, [...out, ...put])));
    return [...groups, ...kept.map(({ gold }) => ({ gold, entities: gold }))];
  }

  return { touches, load, isOpen, isDone, change, answer, finish, undo, stretched, record };
})();

(() => {
  const { $, el, data, chip, hue, count, percent, meter, excerpts, marked, listing, searching, kept, download } = parts;
  const { touches, isOpen, isDone } = annotation;
  const KINDS = { label: "another label", edges: "other edges", missing: "not in the annotation", extra: "only in the annotation" };
  const KEPT = `review.${data.digest}`;
  const byGold = data.stands === "gold"; // a review of annotation, or a model's entities to correct
  const asked = byGold ? "doubt" : "suggestion";
  /** at: the entity that is chosen, or the question at whose position there is none. changed: texts by change, with what was chosen. */
  const state = { text: null, at: null, selected: null, changed: [], open: new Set() };

  function kindOf({ gold, found }) {
    if (!gold.length) return "missing";
    if (!found.length) return "extra";
    const edges = (side) => side.map((one) => `${one.start} ${one.end}`).join();
    return edges(gold) === edges(found) ? "label" : "edges";
  }
  const texts = data.texts.map((each, number) => ({ number, ...annotation.load(each, data.stands) }));

  // --- what the browser keeps: the state of each text that someone has touched

  const saved = new Map(Object.entries(kept.get(KEPT) || {}).map(([number, now]) => [Number(number), now]));
  for (const [number, now] of saved) texts[number].now = now;
  function keep(one) {
    if (one.now === one.given) saved.delete(one.number);
    else saved.set(one.number, one.now);
    if (!kept.set(KEPT, Object.fromEntries(saved))) tell("This browser keeps nothing for this page: download the decisions before you close it.");
  }
  function tell(message) {
    $("state").textContent = message;
    $("state").hidden = !message;
  }

  // --- entities of a text, and questions at whose position there is none, one after another

  const isVacant = (one, each) => !one.now.entities.some((own) => touches(own, each.all));
  const stops = (one) => [...one.now.entities, ...one.questions.filter((each) => isVacant(one, each))].sort((a, b) => a.start - b.start);
  /** The index of the question that an entity is about, the open one of several; -1 if there is none. */
  function questionOf(one, at) {
    if (one.questions.includes(at)) return one.questions.indexOf(at);
    const own = one.questions.flatMap((each, index) => (touches(at, each.all) ? [index] : []));
    return own.find((index) => isOpen(one, index)) ?? own[0] ?? -1;
  }
  const isAsked = (one, at) => questionOf(one, at) >= 0 && isOpen(one, questionOf(one, at));
  const entityAt = (at) => (at.all ? at.found[0] || at.gold[0] : at);
  function select(at) {
    Object.assign(state, { at: at || null, selected: null });
    for (const node of document.querySelectorAll("#list .ent")) node.classList.toggle("now", isHere(shownAs.get(node)));
    showPosition();
  }
  const shownAs = new WeakMap(); // elements to what is chosen by a click on them
  const isHere = (at) => at !== null && at === state.at;

  // --- decisions

  function change(one, act, at = state.at) {
    state.changed.push([one, stops(one).indexOf(state.at)]);
    act();
    select(at);
    redraw(one);
  }
  function redraw(one) {
    keep(one);
    list.redraw(one);
    showPosition();
    showProgress();
  }
  function answer(side) {
    const one = list.item, index = one && state.at ? questionOf(one, state.at) : -1;
    if (index < 0) return;
    change(one, () => annotation.answer(one, index, side));
    const each = one.questions[index], rest = stops(one), next = rest.find((at) => isAsked(one, at));
    select(next || rest.find((at) => at === each || (!at.all && touches(at, each.all))));
    if (!next && byGold) goOn();
  }
  function relabel(label) {
    if (!label || !list.item) return;
    if (!data.labels.includes(label)) { data.labels.push(label); showLabels(); }
    const { selected, at } = state, one = selected ? selected.text : list.item;
    if (!selected && !at) return;
    const { start, end } = selected || entityAt(at), own = { start, end, label, p: null };
    if (selected) {
      getSelection().removeAllRanges();
      list.go(list.items.indexOf(one), false);
    }
    change(one, () => annotation.change(one, { out: selected || at.all ? [] : [at], put: [own] }), own);
  }
  function remove() {
    const one = list.item, { at } = state;
    if (!one || !at) return;
    const index = stops(one).indexOf(at);
    change(one, () => annotation.change(one, at.all ? { answered: [questionOf(one, at)] } : { out: [at] }));
    const rest = stops(one);
    select(rest.find((each) => touches(entityAt(at), each.all || [each])) || rest[Math.max(0, index - 1)]);
  }
  function stretch(side, direction) {
    const one = list.item, { at } = state, own = at && !at.all && annotation.stretched(one, at, side, direction);
    if (own) change(one, () => annotation.change(one, { out: [at], put: [own] }), own);
  }
  /** An entity of the next token that is in none. */
  function add() {
    const one = list.item, behind = state.at ? entityAt(state.at).end : 0;
    const tokens = one && (one.tokens || one.at.edges.slice(1).map((edge, index) => [one.at.edges[index], edge]));
    const token = tokens && tokens.find(([start, end]) => start >= behind && one.text.slice(start, end).trim() && !touches({ start, end }, one.now.entities));
    if (!token || !data.labels.length) return;
    state.selected = { text: one, start: token[0], end: token[1] };
    relabel(data.labels[0]);
  }
  function finish() {
    const one = list.item;
    if (!one) return;
    if (!one.now.done) change(one, () => annotation.finish(one));
    goOn();
  }
  function goOn() {
    const next = list.items.findIndex((one, index) => index > list.current && !isDone(one));
    if (next >= 0) list.go(next);
  }
  function undo() {
    const [one, index] = state.changed.pop() || [];
    if (!one) return;
    annotation.undo(one);
    list.go(list.items.indexOf(one));
    if (list.item === one) select(stops(one)[index]);
    redraw(one);
  }
  function step(direction) {
    const one = list.item, all = one ? stops(one) : [], to = all.indexOf(state.at) + direction;
    if (to >= 0 && to < all.length) select(all[to]);
    else if (list.current + direction >= 0 && list.current + direction < list.items.length) {
      list.go(list.current + direction);
      if (direction < 0) select(stops(list.item).at(-1));
    }
  }

  // --- drawing

  const SHORT = 16; // an entity of so many characters stays on one line
  function mark(span, children, kind) {
    const short = span.end - span.start <= SHORT ? " short" : "";
    const node = el("mark", { class: `ent ${span.state}${short}${isHere(span.at) ? " now" : ""}${kind}`, style: { "--h": hue(span.label) } },
      ...children, ...(kind.includes("cut") ? [] : [el("small", {}, span.name)]));
    shownAs.set(node, span.at);
    return node;
  }
  /** What is drawn: the entities; in open doubts what the model found; and what was where there is nothing now. */
  function spansOf(one) {
    const sure = (own) => (own.p === null ? "" : ` ${percent(own.p)}`);
    const spans = one.now.entities.map((own) => (isAsked(one, own)
      ? { ...own, at: own, state: "open", name: byGold ? own.label : own.label + sure(own) }
      : { ...own, at: own, state: "right", name: own.label }));
    one.questions.forEach((each, index) => {
      const at = one.now.entities.find((own) => touches(own, each.all)) || each;
      if (byGold && isOpen(one, index)) spans.push(...each.found.map((own) => ({ ...own, at, state: "spurious", name: `+ ${own.label}${sure(own)}` })));
      else if (at === each) spans.push(...(each.found.length ? each.found : each.gold).map((own) => ({ ...own, at, state: "gone", name: own.label })));
    });
    return spans;
  }
  function draw(one) {
    const spans = spansOf(one), wanted = byGold ? spans.filter((span) => one.questions.some((each) => !each.settled && touches(span, each.all))) : spans;
    const cuts = state.open.has(one) ? [[0, one.text.length]] : excerpts(one.text, wanted);
    const pieces = cuts.flatMap(([from, to]) => [from ? "… " : "", el("span", { "data-from": from }, ...marked(one.text, spans, mark, from, to)), to < one.text.length ? " …" : ""]);
    const whole = el("button", { type: "button", class: "plain" }, `Show all ${one.at.character(one.text.length).toLocaleString("en")} characters`);
    whole.addEventListener("click", () => { state.open.add(one); list.redraw(one); });
    const kinds = byGold ? new Set(one.questions.filter((_, index) => isOpen(one, index)).map((each) => KINDS[kindOf(each)])) : [];
    return [
      el("p", { class: "quiet" }, [isDone(one) ? "✓ done" : "open", `text ${(one.doc + 1).toLocaleString("en")}`, ...kinds].join(" · ")),
      one.text ? el("p", { class: "line", "data-text": one.number }, ...pieces) : el("p", { class: "quiet" }, "This text is empty."),
      ...(cuts.length > 1 || cuts[0][0] > 0 || cuts[0][1] < one.text.length ? [whole] : []),
    ];
  }
  const list = listing({ draw, noun: "text", chosen(one) {
    if (!one || one === state.text) return;
    const all = stops(one);
    state.text = one;
    select(all.find((at) => isAsked(one, at)) || all[0]);
  } });

  function showPosition() {
    const { at, selected } = state, one = selected ? selected.text : list.item, said = [];
    const words = (own) => el("b", {}, one.text.slice(own.start, Math.min(own.end, own.start + 80)));
    const shown = (own) => [words(own), " ", chip(own.label), own.p === null ? " " : ` ${percent(own.p)} `];
    const side = (some) => (some.length ? some.flatMap(shown) : ["nothing "]);
    const index = at && one ? questionOf(one, at) : -1;
    if (selected) said.push(words(selected), " – choose a label");
    else if (byGold && index >= 0) said.push("annotated: ", ...side(one.questions[index].gold), "· model: ", ...side(one.questions[index].found));
    else if (at) said.push(...(at.all ? [words(entityAt(at)), " no entity"] : shown(at)));
    else said.push(one ? "No entity here. Select some text to make one; Enter where it is right." : "");
    $("position").replaceChildren(...said);
    for (const key of ["a", "r"]) document.querySelector(`[data-key="${key}"]`).disabled = index < 0;
  }
  function showProgress() {
    const done = texts.filter(isDone).length, n = (number) => number.toLocaleString("en");
    const asks = texts.flatMap((one) => one.questions.flatMap((each, index) => (byGold && each.settled ? [] : [isOpen(one, index)])));
    const decided = asks.length ? ` · ${n(asks.filter((open) => !open).length)} of ${count(asks.length, asked)} decided` : "";
    $("progress").textContent = `${n(done)} of ${count(texts.length, "text")} done${decided}`;
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
    const found = texts.filter((one) => (!open || isDone(one) === (open === "done"))
      && (!kind || one.questions.some((each) => !each.settled && kindOf(each) === kind))
      && (!wanted || one.text.toLowerCase().includes(wanted)));
    state.text = null;
    list.show(found);
    if (!found.length) select(null);
    $("none").hidden = found.length > 0;
  }
  $("export").addEventListener("click", () => {
    const records = texts.filter((one) => saved.has(one.number)).map((one) => JSON.stringify({ corpus: data.corpus, ...annotation.record(one) }));
    download("decisions.json", `[\n${records.join(",\n")}\n]\n`);
  });

  // --- what a reader does

  /** The position of a point in a text's units, of which labels are no part. */
  function unitOf(node, offset) {
    const piece = (node.nodeType === Node.TEXT_NODE ? node.parentElement : node).closest("[data-from]");
    if (!piece) return null;
    const range = document.createRange();
    range.setStart(piece, 0);
    range.setEnd(node, offset);
    const copy = range.cloneContents();
    for (const label of copy.querySelectorAll("small")) label.remove();
    return { one: texts[Number(piece.parentElement.dataset.text)], unit: Number(piece.dataset.from) + copy.textContent.length };
  }
  let pressing = false; // on a button, which may end the selection that it is about
  function readSelection() {
    const selection = getSelection();
    if (pressing || document.activeElement === $("label") || !selection.rangeCount || (selection.isCollapsed && !state.selected)) return;
    const range = selection.getRangeAt(0), [from, to] = [unitOf(range.startContainer, range.startOffset), unitOf(range.endContainer, range.endOffset)];
    state.selected = null;
    if (from && to && from.one === to.one) {
      let [start, end] = [from.unit, to.unit];
      const { text, tokens } = from.one;
      while (start < end && !text[start].trim()) start++;
      while (end > start && !text[end - 1].trim()) end--;
      if (start < end) {
        if (tokens) [start, end] = [tokens.findLast((token) => token[0] <= start)?.[0] ?? start, tokens.find((token) => token[1] >= end)?.[1] ?? end];
        state.selected = { text: from.one, start, end };
      }
    }
    showPosition();
  }
  document.addEventListener("selectionchange", readSelection);
  $("tools").addEventListener("pointerdown", () => { pressing = true; });
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => pressing && setTimeout(() => { pressing = false; readSelection(); }, 50));

  const ACTIONS = { a: () => answer("found"), r: () => answer("gold"), x: remove, Delete: remove, n: add, u: undo, Enter: finish, ArrowLeft: () => step(-1), ArrowRight: () => step(1), Escape: () => select(null) };
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

  const kinds = new Set(texts.flatMap((one) => one.questions).filter((each) => !each.settled).map(kindOf));
  for (const node of document.querySelectorAll("[data-only]")) node.hidden = node.dataset.only !== data.stands;
  $("kind").replaceChildren(el("option", { value: "" }, "all kinds"), ...Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([kind, name]) => el("option", { value: kind }, name)));
  for (const name of ["open", "kind"]) $(name).addEventListener("change", show);
  searching($("search"), show);
  $("next").textContent = data.next;
  $("tools").hidden = !texts.length;
  if (!texts.length) tell(byGold ? "There is nothing to decide: the model agrees with the annotation everywhere." : "There are no texts to annotate.");
  // Labels that someone typed when the page was open before.
  const used = texts.flatMap((one) => one.now.entities.map((own) => own.label));
  data.labels = [...new Set([...data.labels, ...used])];
  showLabels();
  showProgress();
  show();
  document.documentElement.dataset.ready = "true";
})();
