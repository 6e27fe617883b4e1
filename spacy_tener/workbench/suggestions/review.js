(() => {
  const { $, el, data, chip, hue, count, percent, meter, places, excerpts, marked, listing, searching, kept, download } = parts;
  const KINDS = { label: "another label", edges: "other edges", missing: "not in the annotation", extra: "only in the annotation" };
  const KEPT = `review.${data.digest}`;
  const byGold = data.stands === "gold"; // what stands in a place until someone has decided: the annotation, or the model's
  const state = { text: null, place: null, at: 0, selected: null, undo: [], open: new Set() };

  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const alike = (some, others) => some.length === others.length && some.every((one) => others.some((other) => same(one, other)));
  const overlap = (a, b) => a.start < b.end && b.start < a.end;
  const isOpen = (place) => !place.answer && !(byGold && alike(place.gold, place.found));
  const isDone = (one) => one.done || (byGold && one.places.some((place) => place.answer) && !one.places.some(isOpen));

  function kindOf({ gold, found }) {
    if (!gold.length) return "missing";
    if (!found.length) return "extra";
    const edges = (side) => new Set(side.map((one) => `${one.start} ${one.end}`));
    const [ours, theirs] = [edges(gold), edges(found)];
    return ours.size === theirs.size && [...ours].every((one) => theirs.has(one)) ? "label" : "edges";
  }

  /** A place: the annotation in it, what the model found, what stands now, and the answer: accept, reject, or change. */
  const placeOf = (gold, found, added = false) => ({ gold, found, now: [...(byGold ? gold : found)], answer: null, added });
  const texts = data.texts.map((each, number) => {
    const at = places(each.text);
    const read = ([start, end, label, p = null]) => ({ start: at.unit(start), end: at.unit(end), label, p });
    const tokens = each.tokens && each.tokens.map(([start, end]) => [at.unit(start), at.unit(end)]);
    return { ...each, number, at, tokens, done: false, places: each.places.map(([gold, found]) => placeOf(gold.map(read), found.map(read))) };
  });

  // --- what is kept: for each text that someone has touched, whether it is done, and the answers with what stands

  const saved = (one) => [one.done, one.places.map(({ answer, now, added }) => [answer, answer ? now : null, added])];
  function restore(one, [done, answers]) {
    const given = one.places.filter((place) => !place.added);
    one.done = done;
    one.places = answers.map(([answer, now, added], index) => {
      const place = added ? placeOf([], [], true) : placeOf(given[index].gold, given[index].found);
      return answer ? { ...place, answer, now } : place;
    });
  }
  const before = kept.get(KEPT) || {};
  const touched = new Map(Object.entries(before).map(([number, own]) => [Number(number), own]));
  for (const [number, own] of touched) restore(texts[number], own);
  function keep(one) {
    touched.set(one.number, saved(one));
    if (!kept.set(KEPT, Object.fromEntries(touched))) tell("This browser keeps nothing for this page: download the decisions before you close it.");
  }
  function tell(message) {
    $("state").textContent = message;
    $("state").hidden = !message;
  }

  // --- places of a text, one after another

  const entityAt = ({ place, at }) => place.now[at] || place.found[0] || place.gold[0];
  const stops = (one) => one.places.filter((place) => !place.added || place.now.length)
    .flatMap((place) => (place.now.length ? place.now : [null]).map((_, at) => ({ place, at })))
    .sort((a, b) => entityAt(a).start - entityAt(b).start);
  const here = (one) => stops(one).findIndex((stop) => stop.place === state.place && stop.at === state.at);
  function select(stop) {
    Object.assign(state, { place: stop ? stop.place : null, at: stop ? stop.at : 0, selected: null });
    for (const node of document.querySelectorAll("#list .ent")) node.classList.toggle("now", isHere(spanOf.get(node)));
    showPlace();
  }
  const spanOf = new WeakMap(); // of the elements of entities
  const isHere = (span) => span.place === state.place && span.at === state.at;

  // --- decisions

  /** Change a text by a function of it; what is undone is the text as it was. */
  function change(one, act) {
    const old = JSON.stringify(saved(one)), index = here(one);
    act();
    const place = state.place;
    if (place) for (const other of one.places) {
      // Entities never overlap: the last decision holds.
      const rest = other === place ? other.now : other.now.filter((own) => !place.now.some((mine) => overlap(own, mine)));
      if (rest.length < other.now.length) Object.assign(other, { now: rest, answer: "change" });
    }
    state.undo.push([one, old, index]);
    keep(one);
    list.redraw(one);
    showPlace();
    showProgress();
  }
  function answer(kind) {
    const one = list.item, place = state.place;
    if (!place || place.added) return;
    change(one, () => Object.assign(place, { answer: kind, now: [...(kind === "accept" ? place.found : place.gold)] }));
    const next = stops(one).find((stop) => isOpen(stop.place));
    if (next) select(next);
    else if (byGold) goOn();
    else select({ place, at: 0 });
  }
  function relabel(label) {
    const one = list.item;
    if (!label || !one) return;
    if (!data.labels.includes(label)) { data.labels.push(label); showLabels(); }
    if (state.selected) {
      const { text, start, end } = state.selected;
      const place = placeOf([], [], true);
      change(text, () => {
        text.places.push(place);
        Object.assign(place, { answer: "change", now: [{ start, end, label, p: null }] });
        getSelection().removeAllRanges();
        select({ place, at: 0 });
      });
    } else if (state.place) {
      const { place } = state, own = { ...entityAt(state), label, p: null };
      change(one, () => Object.assign(place, { answer: "change", now: place.now.length ? place.now.with(state.at, own) : [own] }));
    }
  }
  function remove() {
    const { place } = state, one = list.item;
    if (!place) return;
    const index = here(one);
    change(one, () => { Object.assign(place, { answer: "change", now: place.now.toSpliced(state.at, 1) }); state.at = 0; });
    if (here(one) < 0) select(stops(one)[Math.max(0, index - 1)]);
  }

  /** The next edge of a token, or of a character, in a direction: 1 or -1. */
  function edge(one, place, side, direction) {
    if (!one.tokens) {
      const next = one.at.unit(one.at.character(place) + direction);
      return next >= 0 && next <= one.text.length ? next : place;
    }
    const edges = one.tokens.map((token) => token[side]);
    return (direction > 0 ? edges.find((own) => own > place) : edges.findLast((own) => own < place)) ?? place;
  }
  function move(side, direction) {
    const one = list.item, { place } = state;
    if (!place || !place.now.length) return;
    const own = { ...place.now[state.at], p: null };
    if (side) own.end = edge(one, own.end, 1, direction);
    else own.start = edge(one, own.start, 0, direction);
    if (own.start >= own.end) return;
    change(one, () => {
      const others = place.now.filter((other, index) => index !== state.at && !overlap(other, own));
      Object.assign(place, { answer: "change", now: [...others, own] });
      state.at = others.length;
    });
  }
  function add() {
    const one = list.item, behind = state.place ? entityAt(state).end : 0;
    const token = one && (one.tokens || [...one.text].map((char, i) => [one.at.unit(i), one.at.unit(i + 1)]))
      .find(([start, end]) => start >= behind && one.text.slice(start, end).trim());
    if (!token || !data.labels.length) return;
    state.selected = { text: one, start: token[0], end: token[1] };
    relabel(data.labels[0]);
  }
  function finish() {
    const one = list.item;
    if (!one) return;
    if (!one.done) change(one, () => {
      for (const place of one.places) if (isOpen(place)) place.answer = byGold ? "reject" : "accept";
      one.done = true;
    });
    goOn();
  }
  function goOn() {
    const next = list.items.findIndex((one, index) => index > list.current && !isDone(one));
    if (next >= 0) list.go(next);
  }
  function undo() {
    const [one, old, index] = state.undo.pop() || [];
    if (!one) return;
    restore(one, JSON.parse(old));
    keep(one);
    list.redraw(one);
    list.go(list.items.indexOf(one));
    select(stops(one)[index]);
    showProgress();
  }
  function step(direction) {
    const one = list.item, all = one ? stops(one) : [], to = here(one) + direction;
    if (to >= 0 && to < all.length) select(all[to]);
    else if (list.current + direction >= 0 && list.current + direction < list.items.length) {
      list.go(list.current + direction);
      if (direction < 0) select(stops(list.item).at(-1));
    }
  }

  // --- drawing

  function mark(span, children, kind) {
    const node = el("mark", { class: `ent ${span.state}${isHere(span) ? " now" : ""}${kind}`, style: { "--h": hue(span.label) } },
      ...children, ...(kind.includes("cut") ? [] : [el("small", {}, span.name)]));
    spanOf.set(node, span);
    return node;
  }
  function spansOf(place) {
    const open = isOpen(place), sure = (own) => (own.p === null ? "" : ` ${percent(own.p)}`);
    const spans = place.now.map((own, at) => ({ ...own, place, at, state: open ? "open" : "right", name: open && !byGold ? `${own.label}${sure(own)}` : own.label }));
    if (open && byGold) spans.push(...place.found.map((own) => ({ ...own, place, at: 0, state: "spurious", name: `+ ${own.label}${sure(own)}` })));
    const was = place.found.length ? place.found : place.gold;
    return spans.length || place.added ? spans : was.map((own) => ({ ...own, place, at: 0, state: "gone", name: own.label }));
  }
  function draw(one) {
    const spans = one.places.flatMap(spansOf), wanted = one.places.filter((place) => !alike(place.gold, place.found)).flatMap(spansOf);
    const cuts = state.open.has(one) ? [[0, one.text.length]] : excerpts(one.text, wanted);
    const pieces = cuts.flatMap(([from, to]) => [from ? "… " : "", el("span", { "data-from": from }, ...marked(one.text, spans, mark, from, to)), to < one.text.length ? " …" : ""]);
    const whole = el("button", { type: "button", class: "plain" }, `Show all ${one.at.character(one.text.length).toLocaleString("en")} characters`);
    whole.addEventListener("click", () => { state.open.add(one); list.redraw(one); });
    const facts = [isDone(one) ? "✓ done" : "open", `text ${(one.doc + 1).toLocaleString("en")}`, ...(byGold ? new Set(one.places.filter(isOpen).map((place) => KINDS[kindOf(place)])) : [])];
    return [
      el("p", { class: "quiet" }, facts.join(" · ")),
      one.text ? el("p", { class: "line", "data-text": one.number }, ...pieces) : el("p", { class: "quiet" }, "This text is empty."),
      ...(cuts.length > 1 || cuts[0][0] > 0 || cuts[0][1] < one.text.length ? [whole] : []),
    ];
  }
  const list = listing({ draw, noun: "text", chosen(one) {
    if (!one || one === state.text) return;
    const all = stops(one);
    state.text = one;
    select(all.find((stop) => isOpen(stop.place)) || all[0]);
  } });

  function showPlace() {
    const { place, selected } = state;
    const own = selected ? selected : place && entityAt(state);
    const text = selected ? selected.text.text : list.item ? list.item.text : "";
    const words = (each) => el("b", {}, text.slice(each.start, Math.min(each.end, each.start + 80)));
    const shown = (each) => [words(each), " ", chip(each.label), each.p === null ? " " : ` ${percent(each.p)} `];
    const side = (some) => (some.length ? some.flatMap(shown) : ["nothing "]);
    const said = [];
    if (selected) said.push(words(own), " – choose a label");
    else if (place && byGold && !place.added) said.push("annotated: ", ...side(place.gold), "· model: ", ...side(place.found));
    else if (own) said.push(...(place.now.length ? shown(own) : [words(own), " no entity"]));
    else said.push(list.item ? "No entity here. Select some text to make one; Enter where it is right." : "");
    $("place").replaceChildren(...said);
  }
  function showProgress() {
    const done = texts.filter(isDone).length;
    const all = texts.flatMap((one) => one.places).filter((place) => !place.added && !(byGold && alike(place.gold, place.found)));
    $("progress").textContent = `${done.toLocaleString("en")} of ${count(texts.length, "text")} done · ${all.filter((place) => place.answer).length.toLocaleString("en")} of ${count(all.length, "place")} decided`;
    $("share").replaceChildren(meter(texts.length ? done / texts.length : 0, "for"));
    $("export").disabled = !touched.size;
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
      && (!kind || one.places.some((place) => !place.added && !alike(place.gold, place.found) && kindOf(place) === kind))
      && (!wanted || one.text.toLowerCase().includes(wanted)));
    state.text = null;
    list.show(found);
    if (!found.length) select(null);
    $("none").hidden = found.length > 0;
  }

  // --- the file

  /** A text as `tener convert` reads it: all of it where it is done, else the single decisions; and these for `--apply`. */
  function record(one) {
    const written = ({ start, end, label }) => [one.at.character(start), one.at.character(end), label];
    const spans = (some, own) => some.map(written).map(([start, end, label]) => ({ start, end, label, ...(own ? { answer: own } : {}) }));
    const decided = one.places.filter((place) => place.answer && (!place.added || place.now.length));
    const rejected = (place) => place.found.filter((own) => !place.now.some((other) => same(own, other)));
    const done = isDone(one);
    return {
      text: one.text, doc: one.doc, corpus: data.corpus, answer: "accept", _is_binary: !done,
      spans: done ? one.places.flatMap((place) => spans(place.now)) : decided.flatMap((place) => [...spans(place.now, "accept"), ...spans(rejected(place), "reject")]),
      decisions: decided.map((place) => ({ answer: place.answer, gold: place.gold.map(written), entities: place.now.map(written) })),
    };
  }
  $("export").addEventListener("click", () => {
    const records = texts.filter((one) => touched.has(one.number)).map((one) => JSON.stringify(record(one)));
    download("decisions.json", `[\n${records.join(",\n")}\n]\n`);
  });

  // --- what a reader does

  /** The place of a point in a text's units, of which labels are no part. */
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
    showPlace();
  }
  document.addEventListener("selectionchange", readSelection);
  $("tools").addEventListener("pointerdown", () => { pressing = true; });
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => pressing && setTimeout(() => { pressing = false; readSelection(); }, 50));

  const ACTIONS = { a: () => answer("accept"), r: () => answer("reject"), x: remove, Delete: remove, n: add, u: undo, Enter: finish, ArrowLeft: () => step(-1), ArrowRight: () => step(1), Escape: () => select(null) };
  const EDGES = { ArrowRight: [1, 1], ArrowLeft: [1, -1], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  for (const button of document.querySelectorAll("[data-key]"))
    button.addEventListener("click", () => (EDGES[button.dataset.key] ? move(...EDGES[button.dataset.key]) : ACTIONS[button.dataset.key]()));
  document.addEventListener("keydown", (event) => {
    const { key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, summary")) return;
    if (event.target.closest("button, a") && (key === "Enter" || key === " ")) return;
    const act = event.shiftKey && EDGES[key] ? () => move(...EDGES[key]) : /^[1-9]$/.test(key) ? () => relabel(data.labels[key - 1]) : ACTIONS[key];
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
    const span = spanOf.get(event.target.closest(".ent"));
    if (!span || !getSelection().isCollapsed) return;
    list.go(Number(event.target.closest("[data-index]").dataset.index));
    select(span);
  });

  const kinds = new Set(texts.flatMap((one) => one.places).filter((place) => !alike(place.gold, place.found)).map(kindOf));
  $("kinds").hidden = !byGold;
  $("kind").replaceChildren(el("option", { value: "" }, "all kinds"), ...Object.entries(KINDS).filter(([kind]) => kinds.has(kind)).map(([kind, name]) => el("option", { value: kind }, name)));
  for (const name of ["open", "kind"]) $(name).addEventListener("change", show);
  searching($("search"), show);
  $("next").textContent = data.next;
  $("tools").hidden = !texts.length;
  if (!texts.length) tell(byGold ? "There is nothing to decide: the model agrees with the annotation everywhere." : "There are no texts to annotate.");
  // Labels that someone typed when the page was open before.
  const used = texts.flatMap((one) => one.places.flatMap((place) => place.now.map((own) => own.label)));
  data.labels = [...new Set([...data.labels, ...used])];
  showLabels();
  showProgress();
  show();
  document.documentElement.dataset.ready = "true";
})();
