(() => {
  const { $, el, data, say, gap, chip, digits, hue, percent, meter, columns, isShort, direction, offsetsOf, excerpts, listing, searching } = parts;
  const KINDS = {
    errors: "all errors", label: "other label", edges: "other boundaries", both: "other label and boundaries", missed: "missed",
    spurious: "spurious", right: "right", unannotated: "not annotated", texts: "all texts",
  };
  /** chosen: The selected number of a table: its description, a test for the counted pairs, and nodes that describe it. */
  const state = { chosen: null, open: new Set() };
  const isError = (pair) => !["right", "unannotated"].includes(pair.kind);

  function kindOf(gold, found) {
    if (gold === 0) return "unannotated";
    if (!gold) return "spurious";
    if (!found) return "missed";
    const label = gold[2] === found[2], edges = gold[0] === found[0] && gold[1] === found[1];
    return label && edges ? "right" : label ? "edges" : edges ? "label" : "both";
  }
  const texts = data.texts.map(([text, pairs], number) => ({
    text, number, lower: null,
    pairs: pairs.map(([gold, found, probability]) => ({ gold, found, probability, kind: kindOf(gold, found) })),
  }));
  const pairs = texts.flatMap((entry) => entry.pairs);

  // --- scores

  function showScores() {
    const unknown = Object.entries(data.unknown);
    const messages = [];
    if (!data.scores) messages.push(say("These texts are not annotated. There are no scores, and all found entities are shown."));
    else if (!texts.length) messages.push(say("This page has only scores. To see texts and errors, pass the pipeline and the corpus."));
    else if (!pairs.some((pair) => pair.gold)) messages.push(say("These texts have no annotated entities, so all found entities count as spurious."));
    const missing = unknown.map(([label, n]) => `${label} (${n})`).join(say(", "));
    if (missing) messages.push(say("The pipeline does not have the labels {labels}: all of these entities are missed.", { labels: missing }));
    $("state").textContent = messages.join(" ");
    $("state").hidden = !messages.length;
    $("scores").hidden = !data.scores;
    $("interval").hidden = !data.interval;
    if (!data.scores) return;
    if (data.interval) {
      const [low, high] = data.interval.map((bound) => (100 * bound).toFixed(1));
      $("interval").textContent = say("95 % confidence interval of F1: {low} to {high}", { low, high });
    }
    const hasCounts = data.scores.some((row) => row[4]);
    const names = ["", "P", "R", "F1", "", ...(hasCounts ? ["Right", "Wrong", "Missed"].map((name) => say(name)) : [])];
    const kinds = {
      right: (pair, label) => pair.kind === "right" && (!label || pair.gold[2] === label),
      wrong: (pair, label) => isError(pair) && pair.found && (!label || pair.found[2] === label),
      missed: (pair, label) => isError(pair) && pair.gold && (!label || pair.gold[2] === label),
    };
    const counted = (kind, index, label, n) => (n && texts.length
      ? number(n, `${say(kind)}${index ? `: ${label}` : ""}`, (pair) => kinds[kind](pair, index ? label : ""), [say(kind), " ", ...(index ? [chip(label)] : [])])
      : digits(n));
    const row = ([label, p, r, f, counts], index) => el("tr", {},
      el("th", { scope: "row" }, index ? chip(label) : say(label)), ...[p, r, f].map((score) => el("td", {}, (100 * score).toFixed(2))),
      el("td", {}, meter(f)), ...(hasCounts ? Object.keys(kinds).map((kind, i) => el("td", {}, counts ? counted(kind, index, label, counts[i]) : "–")) : []));
    $("scores").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el(name ? "th" : "td", name ? { scope: "col", title: say({ P: "Precision", R: "Recall" }[name] ?? name) } : {}, name)))),
      el("tbody", {}, ...data.scores.map(row))));
  }

  // --- the confusion matrix: rows are annotated labels, and columns are found labels. The last columns and the last row
  // contain entities with other boundaries, missed entities and spurious entities

  const EDGES = "\u0000edges", NONE = "\u0000none";
  const cellOf = (pair) => [pair.gold ? pair.gold[2] : NONE, pair.kind === "edges" ? EDGES : pair.found ? pair.found[2] : NONE];

  function showMatrix() {
    const annotated = pairs.filter((pair) => pair.kind !== "unannotated");
    $("confusion").hidden = !annotated.length;
    if (!annotated.length) return;
    const counts = new Map(), labels = new Set();
    for (const pair of annotated) {
      const key = JSON.stringify(cellOf(pair));
      counts.set(key, (counts.get(key) || 0) + 1);
      for (const side of [pair.gold, pair.found]) if (side) labels.add(side[2]);
    }
    const sorted = [...labels].sort();
    const most = Math.max(...counts.values());
    const foundLabels = [...sorted, EDGES, NONE], rows = [...sorted, NONE];
    const name = (key, none) => (key === EDGES ? say("other boundaries") : key === NONE ? say(none) : chip(key));
    const describe = (key, none) => (key === EDGES ? say("with other boundaries") : key === NONE ? say(none) : key);
    const cell = (gold, found) => {
      const n = counts.get(JSON.stringify([gold, found]));
      if (!n) return el("td");
      const isCell = (pair) => pair.kind !== "unannotated" && cellOf(pair).every((side, i) => side === [gold, found][i]);
      const description = say("annotated {gold}, found {found}", { gold: describe(gold, "not at all"), found: describe(found, "not at all") });
      const button = number(n, description, isCell, [name(gold, "spurious"), " → ", name(found, "missed")]);
      if (gold === found) button.classList.add("right");
      button.style.setProperty("--a", 0.25 + 0.75 * Math.sqrt(n / most));
      return el("td", { "data-found": found === EDGES || found === NONE ? name(found, "missed") : found }, button);
    };
    $("matrix").replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, el("td", {}, say("annotated ↓ found →")), ...foundLabels.map((key) => el("th", { scope: "col" }, name(key, "missed"))))),
      el("tbody", {}, ...rows.map((gold) => el("tr", {}, el("th", { scope: "row" }, name(gold, "spurious")), ...foundLabels.map((found) => cell(gold, found)))))));
    // A matrix with many labels gets the full width of the page.
    $("confusion").classList.toggle("large", $("matrix").scrollWidth > $("matrix").clientWidth);
  }

  // --- a click on a number shows the texts with the counted pairs

  function number(n, description, test, nodes) {
    const button = el("button", { type: "button", class: "plain", "data-describes": description, "aria-pressed": "false", "aria-label": `${n}: ${description}` }, digits(n));
    button.addEventListener("click", () => choose(button.getAttribute("aria-pressed") === "true" ? null : { description, test, nodes }));
    return button;
  }
  function choose(chosen) {
    state.chosen = chosen;
    $("kind").value = chosen ? "texts" : start;
    for (const button of document.querySelectorAll("[data-describes]")) button.setAttribute("aria-pressed", String(button.dataset.describes === chosen?.description));
    $("cell").hidden = !chosen;
    $("cell").replaceChildren(...(chosen ? [...chosen.nodes.map((node) => node.cloneNode?.(true) ?? node), " ×"] : []));
    $("cell").setAttribute("aria-label", chosen ? say("Show other errors again") : "");
    show();
    if (!chosen) return;
    list.go(0);
    $("texts").scrollIntoView({ block: "start" });
  }

  // --- texts with their differences

  function spansOf(pair, unit) {
    const { gold, found, kind } = pair, probability = pair.probability === null ? "" : ` ${percent(pair.probability)}`;
    const span = ([start, end, label], state, name) => ({ start: unit(start), end: unit(end), label, name, kind: `${state}${isChosen(pair) ? " now" : ""}` });
    if (kind === "right" || kind === "unannotated") return [span(found, kind, `${found[2]}${probability}`)];
    if (kind === "label") return [span(found, "spurious", `${gold[2]} → ${found[2]}${probability}`)];
    return [...(gold ? [span(gold, "missed", `− ${gold[2]}${found ? "" : probability}`)] : []), ...(found ? [span(found, "spurious", `+ ${found[2]}${probability}`)] : [])];
  }

  /** Group spans that overlap, directly or through other spans. */
  function groupSpans(spans) {
    const groups = [];
    for (const span of [...spans].sort((a, b) => a.start - b.start || b.end - a.end)) {
      const last = groups.at(-1);
      if (last && span.start < last.end) { last.spans.push(span); last.end = Math.max(last.end, span.end); }
      else groups.push({ start: span.start, end: span.end, spans: [span] });
    }
    return groups;
  }

  /** Nodes of a text between two offsets. If spans overlap, gold entities are above the text, and found entities below. */
  function marked(text, spans, from, to) {
    const nodes = [];
    let offset = from;
    for (const { start, end, spans: group } of groupSpans(spans.filter((span) => span.start < to && span.end > from))) {
      const [first, last] = [Math.max(start, from), Math.min(end, to)];
      nodes.push(text.slice(offset, first), ...(group.length > 1 ? stacks(text, group, first, last) : [single(text, group[0], first, last)]));
      offset = last;
    }
    return [...nodes, text.slice(offset, to)];
  }
  const cut = (span, start, end) => `${start > span.start ? " begun" : ""}${end < span.end ? " cut" : ""}`;
  const single = (text, span, start, end) =>
    el("mark", { class: `ent ${span.kind}${cut(span, start, end)}${isShort([text.slice(start, end)], span.name, room() - 2) ? " short" : ""}`, style: { "--h": hue(span.label) } }, text.slice(start, end), ...(end < span.end ? [] : [el("small", {}, span.name)]));

  // --- a group of overlapping spans

  const [narrow, wide] = ["(max-width: 40rem)", "(min-width: 60rem)"].map((query) => matchMedia(query));
  /** The number of columns of a group that is displayed without line breaks. */
  const room = () => (narrow.matches ? 30 : wide.matches ? 90 : 56);
  const isAbove = (span) => span.kind.startsWith("missed");

  /** Nodes of a group. A long group is split so that lines can be wrapped. All parts have the same rows, and the same height. */
  function stacks(text, spans, start, end) {
    const rows = rowsOf(spans), nodes = [];
    for (let from = start, to; from < end; from = to) {
      to = partEnd(text, spans, rows, from, end);
      nodes.push(stack(text, spans.filter((span) => span.start < to && span.end > from), rows, from, to, from === start));
    }
    return nodes;
  }
  /** The grid row of each span. Gold entities are in row 1, the text is in row 2, and found entities are in the rows below. */
  function rowsOf(spans) {
    const ends = []; // end of the last span in each row below the text
    return new Map(spans.map((span) => {
      if (isAbove(span)) return [span, 1];
      let below = ends.findIndex((last) => last <= span.start);
      if (below < 0) below = ends.push(0) - 1;
      ends[below] = span.end;
      return [span, 3 + below];
    }));
  }
  /** The end of the part of a group that begins at `from` and fits in a line, preferably at a space or at the boundary of a span. */
  function partEnd(text, spans, rows, from, end) {
    const farthest = Math.min(end, from + room()), near = spans.filter((span) => span.start <= farthest && span.end > from);
    const fits = (to) => widthOf(text, near, rows, from, to) <= room();
    if (farthest === end && fits(end)) return end;
    const stops = [];
    for (let to = from + 1; to <= farthest; to++) if (text[to - 1] === " " || near.some((span) => span.start === to || span.end === to)) stops.push(to);
    const best = stops.findLast(fits);
    if (best) return best;
    let to = from + 1;
    while (to < farthest && fits(to + 1)) to++;
    return /[\udc00-\udfff]/.test(text[to] || "") ? to + 1 : to;
  }
  /** The approximate width of a part of a group in columns: a span is as wide as its text or its label, in its row. */
  function widthOf(text, spans, rows, from, to) {
    const added = new Map([[2, 0]]);
    for (const span of spans) {
      const [start, end] = [Math.max(span.start, from), Math.min(span.end, to)];
      if (start < end) added.set(rows.get(span), (added.get(rows.get(span)) ?? 0) + Math.max(0, 0.75 * columns(span.name) + 2 - columns(text.slice(start, end))));
    }
    return columns(text.slice(from, to)) + Math.max(...added.values());
  }
  function stack(text, spans, rows, from, to, isFirst) {
    const edges = [...new Set([from, to, ...spans.flatMap((span) => [span.start, span.end])])].filter((edge) => from <= edge && edge <= to).sort((a, b) => a - b);
    const column = (edge) => edges.indexOf(edge) + 1;
    const bar = (span) => {
      const [start, end] = [Math.max(span.start, from), Math.min(span.end, to)];
      return el("mark", { class: `ent ${span.kind}${cut(span, start, end)}`, style: { "--h": hue(span.label), "grid-column": `${column(start)} / ${column(end)}`, "grid-row": rows.get(span) } },
        el("small", {}, isFirst || start === span.start ? span.name : ""));
    };
    const letters = edges.slice(0, -1).map((edge, i) => el("span", { style: { "grid-column": i + 1, "grid-row": 2 } }, text.slice(edge, edges[i + 1])));
    const used = new Set(rows.values()), height = "minmax(1.7rem, auto)";
    const heights = `${used.has(1) ? height : "0"} auto${` ${height}`.repeat(Math.max(...used, 2) - 2)}`;
    return el("span", { class: "stack", style: { "grid-template-rows": heights } }, ...spans.filter(isAbove).map(bar), ...letters, ...spans.filter((span) => !isAbove(span)).map(bar));
  }
  const LEGEND = [["− annotated, not found", "missed"], ["+ found, not annotated", "spurious"], ["annotated → found", "spurious"]];

  const FEW = 8; // links that are always shown
  /** Links to the explanations of errors. Errors with the same words and label share a link. Most of many links are folded. */
  function whyLinks(entry, unit, explained, wrong) {
    const links = new Map();
    for (const pair of wrong) {
      const [start, end, label] = pair.gold || pair.found, key = JSON.stringify([entry.text.slice(unit(start), unit(end)), label]);
      if (!links.has(key)) links.set(key, whyLink(entry, unit, explained, pair));
    }
    const separated = (nodes) => nodes.flatMap((node, i) => (i ? [say(", "), node] : [node])), all = [...links.values()];
    const [few, more] = all.length > FEW + 2 ? [all.slice(0, FEW), all.slice(FEW)] : [all, []];
    return [[" · ", say("why:"), gap, ...separated(few)],
      more.length ? [el("details", { class: "more" }, el("summary", {}, say("{n} more explanations", { n: digits(more.length) })), ...separated(more))] : []];
  }
  /** A link to the explanation of an error: of the gold entity, or of a spurious entity. */
  function whyLink({ text }, unit, explained, { gold, found }) {
    const [start, end, label] = gold || found;
    const words = [...text.slice(unit(start), unit(end))], shown = words.length > 20 ? `${words.slice(0, 20).join("")}…` : words.join("");
    return el("a", { href: `${data.explained.page}#text-${explained}-${start}-${end}-${encodeURIComponent(label)}` }, shown);
  }

  function draw(entry) {
    const { unit } = offsetsOf(entry.text), wrong = entry.pairs.filter(isError);
    const spans = entry.pairs.flatMap((pair) => spansOf(pair, unit));
    const shownSpans = wrong.length ? wrong.flatMap((pair) => spansOf(pair, unit)) : spans;
    const cuts = state.open.has(entry.number) ? [[0, entry.text.length]] : excerpts(entry.text, shownSpans);
    const line = cuts.flatMap(([from, to], i) => [from && !i ? "… " : i ? " … " : "", ...marked(entry.text, spans, from, to)]);
    const clipped = cuts[0][0] > 0 || cuts.length > 1 || cuts.at(-1)[1] < entry.text.length;
    if (cuts.at(-1)[1] < entry.text.length) line.push(" …");
    const facts = [say("Text {number}", { number: digits(entry.number + 1) }), ...new Set(wrong.map((pair) => say(KINDS[pair.kind])))];
    const explained = data.explained.texts[entry.number];
    const showAll = el("button", { type: "button", class: "plain" }, say("Show all {n} characters", { n: digits([...entry.text].length) }));
    showAll.addEventListener("click", () => { state.open.add(entry.number); list.redraw(entry); });
    const [links, moreLinks] = explained === undefined || !wrong.length ? [[], []] : whyLinks(entry, unit, explained, wrong);
    return [
      el("p", { class: "quiet" }, facts.join(" · "), ...links), ...moreLinks,
      entry.text ? el("p", { class: "line", dir: direction(entry.text) }, ...line) : el("p", { class: "quiet" }, say("This text is empty.")), ...(clipped ? [showAll] : []),
    ];
  }
  const list = listing({ draw, noun: "text" });

  function matches(pair) {
    const kind = $("kind").value, label = $("label").value;
    if (kind === "errors" ? !isError(pair) : kind !== "texts" && kind !== pair.kind) return false;
    if (state.chosen && !state.chosen.test(pair)) return false;
    return label === "" || (pair.gold && pair.gold[2] === label) || (pair.found && pair.found[2] === label);
  }
  /** Whether a pair matches the filters, so that it is highlighted among the other pairs of its text. */
  const isChosen = (pair) => Boolean(state.chosen || $("label").value || !["errors", "texts"].includes($("kind").value)) && matches(pair);
  function show() {
    const wanted = $("search").value.trim().toLowerCase(), order = $("order").value;
    const all = $("kind").value === "texts" && !state.chosen && !$("label").value;
    const found = texts.filter((entry) => (all || entry.pairs.some(matches)) && (!wanted || (entry.lower ??= entry.text.toLowerCase()).includes(wanted)));
    if (order !== "given") {
      const extreme = order === "sure" ? Math.max : Math.min, sign = order === "sure" ? -1 : 1;
      const key = new Map(found.map((entry) => [entry, sign * entry.pairs.filter(matches).map((pair) => pair.probability ?? 0).reduce((a, b) => extreme(a, b), order === "sure" ? -1 : 2)]));
      found.sort((a, b) => key.get(a) - key.get(b) || a.number - b.number);
    }
    list.show(found);
    $("none").hidden = found.length > 0;
    $("none").textContent = pairs.some(isError) || pairs.length === 0 ? say("No text matches.") : say("There are no errors.");
  }

  const kinds = new Set(pairs.map((pair) => pair.kind));
  const start = pairs.some(isError) ? "errors" : kinds.has("unannotated") ? "unannotated" : "errors";
  const numbers = (kind) => pairs.filter((pair) => (kind === "errors" ? isError(pair) : pair.kind === kind)).length;
  $("kind").replaceChildren(...Object.entries(KINDS).filter(([kind]) => kind === "errors" || kind === "texts" || kinds.has(kind))
    .map(([kind, name]) => el("option", { value: kind }, kind === "texts" ? say(name) : `${say(name)} (${digits(numbers(kind))})`)));
  $("kind").value = start;
  const labels = [...new Set(pairs.flatMap(({ gold, found }) => [gold, found].filter(Boolean).map((entity) => entity[2])))].sort();
  $("label").replaceChildren(el("option", { value: "" }, say("all labels")), ...labels.map((label) => el("option", { value: label }, label)));
  if (!pairs.some((pair) => pair.probability !== null)) { $("order").value = "given"; $("order").parentElement.hidden = true; }
  $("legend").replaceChildren(...(pairs.some(isError) ? LEGEND.flatMap(([name, kind]) => [el("mark", { class: `ent ${kind}`, style: { "--h": 210 } }, say(name)), " "]) : []),
    ...(pairs.some((pair) => pair.probability !== null) ? [say("%: the probability of a found entity, or the probability that a missed entity is not one")] : []));
  $("texts").hidden = !texts.length;
  $("review").hidden = !data.review || !pairs.some(isError);
  $("review").lastElementChild.textContent = data.review;
  for (const name of ["kind", "label", "order"]) $(name).addEventListener("change", show);
  $("cell").addEventListener("click", () => choose(null));
  searching($("search"), show);
  /** Show the text of a link such as `errors.html#text-7`, which contains the index of the text. */
  function showLinked() {
    const entry = texts[Number(/^#text-(\d+)$/.exec(location.hash)?.[1] ?? NaN)];
    if (!entry) return;
    $("label").value = $("search").value = "";
    choose(null);
    if (!list.items.includes(entry)) { $("kind").value = "texts"; show(); }
    list.go(list.items.indexOf(entry));
  }
  window.addEventListener("hashchange", showLinked);
  for (const query of [narrow, wide]) query.addEventListener("change", show);

  showScores();
  showMatrix();
  show();
  showLinked();
  document.documentElement.dataset.ready = "true";
})();
