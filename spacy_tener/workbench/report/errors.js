(() => {
  const { $, el, data, chip, hue, count, percent, meter, places, excerpts, listing, searching } = parts;
  const KINDS = {
    errors: "all errors", label: "other label", edges: "other edges", both: "other label and edges", missed: "missed",
    spurious: "spurious", right: "right", unjudged: "not annotated", texts: "all texts",
  };
  /** chosen: The number whose texts are shown: a key, a test of pairs, and what it counts as nodes. */
  const state = { chosen: null, open: new Set() };
  const isError = (pair) => !["right", "unjudged"].includes(pair.kind);

  function kindOf(gold, found) {
    if (gold === 0) return "unjudged";
    if (!gold) return "spurious";
    if (!found) return "missed";
    const label = gold[2] === found[2], edges = gold[0] === found[0] && gold[1] === found[1];
    return label && edges ? "right" : label ? "edges" : edges ? "label" : "both";
  }
  const texts = data.texts.map(([text, pairs], number) => ({
    text, number, lower: null,
    pairs: pairs.map(([gold, found, sure]) => ({ gold, found, sure, kind: kindOf(gold, found) })),
  }));
  const pairs = texts.flatMap((one) => one.pairs);

  // --- scores

  function showScores() {
    const unknown = Object.entries(data.unknown);
    const told = [];
    if (!data.scores) told.push("Nothing in these texts is annotated: there are no scores, and all that was found is shown.");
    else if (!texts.length) told.push("These are scores only. For texts and errors, name the pipeline and the corpus.");
    else if (!pairs.some((pair) => pair.gold)) told.push("No entity is annotated in these texts: all that was found counts as spurious.");
    if (unknown.length) told.push(`The pipeline does not have the labels ${unknown.map(([label, n]) => `${label} (${n})`).join(", ")}: all of these entities are missed.`);
    $("state").textContent = told.join(" ");
    $("state").hidden = !told.length;
    $("scores").hidden = !data.scores;
    if (!data.scores) return;
    const hasCounts = data.scores.some((row) => row[4]);
    const names = ["", "P", "R", "F1", "", ...(hasCounts ? ["Right", "Wrong", "Missed"] : [])];
    const kinds = {
      right: (pair, label) => pair.kind === "right" && (!label || pair.gold[2] === label),
      wrong: (pair, label) => isError(pair) && pair.found && (!label || pair.found[2] === label),
      missed: (pair, label) => isError(pair) && pair.gold && (!label || pair.gold[2] === label),
    };
    const counted = (kind, index, label, n) => (n && texts.length
      ? number(n, `${kind}${index ? `: ${label}` : ""}`, (pair) => kinds[kind](pair, index ? label : ""), [kind, " ", ...(index ? [chip(label)] : [])])
      : n.toLocaleString("en"));
    const row = ([label, p, r, f, counts], index) => el("tr", {},
      el("th", { scope: "row" }, index ? chip(label) : label), ...[p, r, f].map((each) => el("td", {}, (100 * each).toFixed(2))),
      el("td", {}, meter(f)), ...(hasCounts ? Object.keys(kinds).map((kind, i) => el("td", {}, counts ? counted(kind, index, label, counts[i]) : "–")) : []));
    $("scores").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el(name ? "th" : "td", name ? { scope: "col", title: { P: "Precision", R: "Recall" }[name] ?? name } : {}, name)))),
      el("tbody", {}, ...data.scores.map(row))));
  }

  // --- the confusion matrix: rows are annotated labels, columns found ones; beside them other edges, missed, spurious

  const EDGES = "\u0000edges", NONE = "\u0000none";
  const cellOf = (pair) => [pair.gold ? pair.gold[2] : NONE, pair.kind === "edges" ? EDGES : pair.found ? pair.found[2] : NONE];

  function showMatrix() {
    const judged = pairs.filter((pair) => pair.kind !== "unjudged");
    $("confusion").hidden = !judged.length;
    if (!judged.length) return;
    const counts = new Map(), labels = new Set();
    for (const pair of judged) {
      const key = JSON.stringify(cellOf(pair));
      counts.set(key, (counts.get(key) || 0) + 1);
      for (const side of [pair.gold, pair.found]) if (side) labels.add(side[2]);
    }
    const sorted = [...labels].sort();
    const most = Math.max(...counts.values());
    const columns = [...sorted, EDGES, NONE], rows = [...sorted, NONE];
    const name = (key, none) => (key === EDGES ? "other edges" : key === NONE ? none : chip(key));
    const said = (key, none) => (key === EDGES ? "with other edges" : key === NONE ? none : key);
    const cell = (gold, found) => {
      const n = counts.get(JSON.stringify([gold, found]));
      if (!n) return el("td");
      const isCell = (pair) => pair.kind !== "unjudged" && cellOf(pair).every((side, i) => side === [gold, found][i]);
      const told = `annotated ${said(gold, "not at all")}, found ${said(found, "not at all")}`;
      const button = number(n, told, isCell, [name(gold, "spurious"), " → ", name(found, "missed")]);
      if (gold === found) button.classList.add("right");
      button.style.setProperty("--a", 0.25 + 0.75 * Math.sqrt(n / most));
      return el("td", { "data-found": found === EDGES || found === NONE ? name(found, "missed") : found }, button);
    };
    $("matrix").replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, el("td", {}, "annotated ↓ found →"), ...columns.map((key) => el("th", { scope: "col" }, name(key, "missed"))))),
      el("tbody", {}, ...rows.map((gold) => el("tr", {}, el("th", { scope: "row" }, name(gold, "spurious")), ...columns.map((found) => cell(gold, found)))))));
  }

  // --- a number of either table shows what it counts

  function number(n, told, test, nodes) {
    const button = el("button", { type: "button", class: "plain", "data-told": told, "aria-pressed": "false", "aria-label": `${n}: ${told}` }, n.toLocaleString("en"));
    button.addEventListener("click", () => choose(button.getAttribute("aria-pressed") === "true" ? null : { told, test, nodes }));
    return button;
  }
  function choose(chosen) {
    state.chosen = chosen;
    $("kind").value = chosen ? "texts" : start;
    for (const button of document.querySelectorAll("[data-told]")) button.setAttribute("aria-pressed", String(button.dataset.told === chosen?.told));
    $("cell").hidden = !chosen;
    $("cell").replaceChildren(...(chosen ? [...chosen.nodes.map((node) => node.cloneNode?.(true) ?? node), " ×"] : []));
    $("cell").setAttribute("aria-label", chosen ? "Show other errors again" : "");
    show();
    if (!chosen) return;
    list.go(0);
    $("texts").scrollIntoView({ block: "start" });
  }

  // --- texts with their differences

  function spansOf(pair, unit) {
    const { gold, found, kind } = pair, sure = pair.sure === null ? "" : ` ${percent(pair.sure)}`;
    const span = ([start, end, label], state, name) => ({ start: unit(start), end: unit(end), label, name, kind: `${state}${isChosen(pair) ? " now" : ""}` });
    if (kind === "right" || kind === "unjudged") return [span(found, kind, `${found[2]}${sure}`)];
    if (kind === "label") return [span(found, "spurious", `${gold[2]} → ${found[2]}${sure}`)];
    return [...(gold ? [span(gold, "missed", `− ${gold[2]}${found ? "" : sure}`)] : []), ...(found ? [span(found, "spurious", `+ ${found[2]}${sure}`)] : [])];
  }

  /** Spans that overlap, in groups. */
  function groups(spans) {
    const found = [];
    for (const span of [...spans].sort((a, b) => a.start - b.start || b.end - a.end)) {
      const last = found.at(-1);
      if (last && span.start < last.end) { last.spans.push(span); last.end = Math.max(last.end, span.end); }
      else found.push({ start: span.start, end: span.end, spans: [span] });
    }
    return found;
  }

  /** Nodes of a text between two places. Of spans that overlap, annotated ones are above the text, found ones below. */
  function marked(text, spans, from, to) {
    const nodes = [];
    let done = from;
    for (const { start, end, spans: own } of groups(spans.filter((span) => span.start < to && span.end > from))) {
      const [first, last] = [Math.max(start, from), Math.min(end, to)];
      nodes.push(text.slice(done, first), ...(own.length > 1 ? stacks(text, own, first, last) : [single(text, own[0], first, last)]));
      done = last;
    }
    return [...nodes, text.slice(done, to)];
  }
  const cut = (span, start, end) => `${start > span.start ? " begun" : ""}${end < span.end ? " cut" : ""}`;
  const SHORT = 10; // an entity of so many characters stays on one line, also of a phone
  const single = (text, span, start, end) =>
    el("mark", { class: `ent ${span.kind}${cut(span, start, end)}${span.end - span.start <= SHORT ? " short" : ""}`, style: { "--h": hue(span.label) } }, text.slice(start, end), ...(end < span.end ? [] : [el("small", {}, span.name)]));

  /** A long group is in several pieces, so that lines can end between them. */
  function stacks(text, spans, start, end, most = 12) {
    const nodes = [];
    for (let from = start; from < end;) {
      let to = Math.min(end, from + most);
      const space = text.lastIndexOf(" ", to - 1) + 1;
      if (to < end && space > from) to = space;
      if (to < end && /[\udc00-\udfff]/.test(text[to])) to++;
      nodes.push(stack(text, spans.filter((span) => span.start < to && span.end > from), from, to, from === start));
      from = to;
    }
    return nodes;
  }
  function stack(text, spans, from, to, isFirst) {
    const edges = [...new Set([from, to, ...spans.flatMap((span) => [span.start, span.end])])].filter((edge) => from <= edge && edge <= to).sort((a, b) => a - b);
    const column = (edge) => edges.indexOf(edge) + 1;
    const ends = []; // of the rows below the text
    const bars = spans.map((span) => {
      const [start, end] = [Math.max(span.start, from), Math.min(span.end, to)];
      let row = 1;
      if (!span.kind.startsWith("missed")) {
        let below = ends.findIndex((last) => last <= start);
        if (below < 0) below = ends.push(0) - 1;
        ends[below] = end;
        row = 3 + below;
      }
      return el("mark", { class: `ent ${span.kind}${cut(span, start, end)}`, style: { "--h": hue(span.label), "grid-column": `${column(start)} / ${column(end)}`, "grid-row": row } },
        el("small", {}, isFirst || start === span.start ? span.name : ""));
    });
    const above = bars.filter((bar, i) => spans[i].kind.startsWith("missed")), below = bars.filter((bar) => !above.includes(bar));
    const letters = edges.slice(0, -1).map((edge, i) => el("span", { style: { "grid-column": i + 1, "grid-row": 2 } }, text.slice(edge, edges[i + 1])));
    return el("span", { class: "stack" }, ...above, ...letters, ...below);
  }
  const LEGEND = [["− annotated, not found", "missed"], ["+ found, not annotated", "spurious"], ["annotated → found", "spurious"]];

  function draw(one) {
    const { unit } = places(one.text), wrong = one.pairs.filter(isError);
    const spans = one.pairs.flatMap((pair) => spansOf(pair, unit));
    const shownSpans = wrong.length ? wrong.flatMap((pair) => spansOf(pair, unit)) : spans;
    const cuts = state.open.has(one.number) ? [[0, one.text.length]] : excerpts(one.text, shownSpans);
    const line = cuts.flatMap(([from, to], i) => [from && !i ? "… " : i ? " … " : "", ...marked(one.text, spans, from, to)]);
    const clipped = cuts[0][0] > 0 || cuts.length > 1 || cuts.at(-1)[1] < one.text.length;
    if (cuts.at(-1)[1] < one.text.length) line.push(" …");
    const facts = [`Text ${(one.number + 1).toLocaleString("en")}`, ...new Set(wrong.map((pair) => KINDS[pair.kind]))];
    const place = data.explained.texts[one.number];
    const whole = el("button", { type: "button", class: "plain" }, `Show all ${[...one.text].length.toLocaleString("en")} characters`);
    whole.addEventListener("click", () => { state.open.add(one.number); list.redraw(one); });
    return [
      el("p", { class: "quiet" }, facts.join(" · "), ...(place === undefined ? [] : [" · ", el("a", { href: `${data.explained.page}#text-${place}` }, "why")])),
      one.text ? el("p", { class: "line" }, ...line) : el("p", { class: "quiet" }, "This text is empty."), ...(clipped ? [whole] : []),
    ];
  }
  const list = listing({ draw, noun: "text" });

  function matches(pair) {
    const kind = $("kind").value, label = $("label").value;
    if (kind === "errors" ? !isError(pair) : kind !== "texts" && kind !== pair.kind) return false;
    if (state.chosen && !state.chosen.test(pair)) return false;
    return label === "" || (pair.gold && pair.gold[2] === label) || (pair.found && pair.found[2] === label);
  }
  /** Whether a pair is one of those that were asked for, among the others of its text. */
  const isChosen = (pair) => Boolean(state.chosen || $("label").value || !["errors", "texts"].includes($("kind").value)) && matches(pair);
  function show() {
    const wanted = $("search").value.trim().toLowerCase(), order = $("order").value;
    const whole = $("kind").value === "texts" && !state.chosen && !$("label").value;
    const found = texts.filter((one) => (whole || one.pairs.some(matches)) && (!wanted || (one.lower ??= one.text.toLowerCase()).includes(wanted)));
    if (order !== "given") {
      const most = order === "sure" ? Math.max : Math.min, sign = order === "sure" ? -1 : 1;
      const key = new Map(found.map((one) => [one, sign * one.pairs.filter(matches).map((pair) => pair.sure ?? 0).reduce((a, b) => most(a, b), order === "sure" ? -1 : 2)]));
      found.sort((a, b) => key.get(a) - key.get(b) || a.number - b.number);
    }
    list.show(found);
    $("none").hidden = found.length > 0;
    $("none").textContent = pairs.some(isError) || pairs.length === 0 ? "No text is like that." : "There are no errors.";
  }

  const kinds = new Set(pairs.map((pair) => pair.kind));
  const start = pairs.some(isError) ? "errors" : kinds.has("unjudged") ? "unjudged" : "errors";
  const numbers = (kind) => pairs.filter((pair) => (kind === "errors" ? isError(pair) : pair.kind === kind)).length;
  $("kind").replaceChildren(...Object.entries(KINDS).filter(([kind]) => kind === "errors" || kind === "texts" || kinds.has(kind))
    .map(([kind, name]) => el("option", { value: kind }, kind === "texts" ? name : `${name} (${numbers(kind).toLocaleString("en")})`)));
  $("kind").value = start;
  const labels = [...new Set(pairs.flatMap(({ gold, found }) => [gold, found].filter(Boolean).map((each) => each[2])))].sort();
  $("label").replaceChildren(el("option", { value: "" }, "all labels"), ...labels.map((label) => el("option", { value: label }, label)));
  if (!pairs.some((pair) => pair.sure !== null)) { $("order").value = "given"; $("order").parentElement.hidden = true; }
  $("legend").replaceChildren(...(pairs.some(isError) ? LEGEND.flatMap(([name, kind]) => [el("mark", { class: `ent ${kind}`, style: { "--h": 210 } }, name), " "]) : []),
    ...(pairs.some((pair) => pair.sure !== null) ? ["%: how sure the pipeline is of what it found, or that what it missed is none"] : []));
  $("texts").hidden = !texts.length;
  $("review").hidden = !data.review || !pairs.some(isError);
  $("review").lastElementChild.textContent = data.review;
  for (const name of ["kind", "label", "order"]) $(name).addEventListener("change", show);
  $("cell").addEventListener("click", () => choose(null));
  searching($("search"), show);
  /** Show the text that a link leads to, as `errors.html#text-7`: its number among all, from 0. */
  function showLinked() {
    const one = texts[Number(/^#text-(\d+)$/.exec(location.hash)?.[1] ?? NaN)];
    if (!one) return;
    $("label").value = $("search").value = "";
    choose(null);
    if (!list.items.includes(one)) { $("kind").value = "texts"; show(); }
    list.go(list.items.indexOf(one));
  }
  window.addEventListener("hashchange", showLinked);

  showScores();
  showMatrix();
  show();
  showLinked();
  document.documentElement.dataset.ready = "true";
})();
