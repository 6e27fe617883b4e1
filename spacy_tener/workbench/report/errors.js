(() => {
  const { $, el, data, chip, hue, count, percent, meter, places, excerpts, marked, listing, searching } = parts;
  const KINDS = {
    errors: "all errors", label: "other label", edges: "other edges", both: "other label and edges", missed: "missed",
    spurious: "spurious", right: "right", unjudged: "not annotated", texts: "all texts",
  };
  const state = { cell: null, open: new Set() };
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
    const names = ["", "Precision", "Recall", "F1", "", ...(hasCounts ? ["Right", "Wrong", "Missed"] : [])];
    const row = ([label, p, r, f, counts], index) => el("tr", {},
      el("th", { scope: "row" }, index ? chip(label) : label), ...[p, r, f].map((each) => el("td", {}, (100 * each).toFixed(2))),
      el("td", {}, meter(f)), ...(hasCounts ? (counts || ["–", "–", "–"]).map((each) => el("td", {}, each.toLocaleString("en"))) : []));
    $("scores").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el(name ? "th" : "td", name ? { scope: "col" } : {}, name)))),
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
      if (!n) return el("td", {}, "");
      const pressed = state.cell && state.cell[0] === gold && state.cell[1] === found;
      const button = el("button", {
        type: "button", class: `plain${gold === found ? " right" : ""}`, style: { "--a": 0.25 + 0.75 * Math.sqrt(n / most) },
        "aria-pressed": String(Boolean(pressed)), "aria-label": `${n}: annotated ${said(gold, "not at all")}, found ${said(found, "not at all")}`,
      }, n.toLocaleString("en"));
      button.addEventListener("click", () => choose(pressed ? null : [gold, found]));
      return el("td", {}, button);
    };
    $("matrix").replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, el("td", {}, "annotated ↓ found →"), ...columns.map((key) => el("th", { scope: "col" }, name(key, "missed"))))),
      el("tbody", {}, ...rows.map((gold) => el("tr", {}, el("th", { scope: "row" }, name(gold, "spurious")), ...columns.map((found) => cell(gold, found)))))));
    const chosen = state.cell && [name(state.cell[0], "spurious"), " → ", name(state.cell[1], "missed"), " ×"];
    $("cell").hidden = !chosen;
    $("cell").replaceChildren(...(chosen || []));
    $("cell").setAttribute("aria-label", chosen ? "Show other cells again" : "");
  }
  function choose(cell) {
    state.cell = cell;
    if (cell) $("kind").value = "texts";
    else $("kind").value = start;
    showMatrix();
    show();
  }

  // --- texts with their differences

  function mark(span, children, kind) {
    const style = { "--h": hue(span.label) };
    return el("mark", { class: `ent ${span.state}${kind}`, style }, ...children, ...(kind.includes("cut") ? [] : [el("small", {}, span.name)]));
  }
  function spansOf(pair, unit) {
    const { gold, found, kind } = pair, sure = pair.sure === null ? "" : ` ${percent(pair.sure)}`;
    const span = ([start, end, label], state, name) => ({ start: unit(start), end: unit(end), label, state, name });
    if (kind === "right" || kind === "unjudged") return [span(found, kind, `${found[2]}${sure}`)];
    if (kind === "label") return [span(found, "spurious", `${gold[2]} → ${found[2]}${sure}`)];
    return [...(gold ? [span(gold, "missed", `− ${gold[2]}${found ? "" : sure}`)] : []), ...(found ? [span(found, "spurious", `+ ${found[2]}${sure}`)] : [])];
  }
  const LEGEND = [["− annotated, not found", "missed"], ["+ found, not annotated", "spurious"], ["annotated → found", "spurious"]];

  function draw(one) {
    const { unit } = places(one.text), wrong = one.pairs.filter(isError);
    const spans = one.pairs.flatMap((pair) => spansOf(pair, unit));
    const shownSpans = wrong.length ? wrong.flatMap((pair) => spansOf(pair, unit)) : spans;
    const cuts = state.open.has(one.number) ? [[0, one.text.length]] : excerpts(one.text, shownSpans);
    const line = cuts.flatMap(([from, to], i) => [from && !i ? "… " : i ? " … " : "", ...marked(one.text, spans, mark, from, to)]);
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
    if (state.cell) { const [gold, found] = cellOf(pair); if (pair.kind === "unjudged" || gold !== state.cell[0] || found !== state.cell[1]) return false; }
    return label === "" || (pair.gold && pair.gold[2] === label) || (pair.found && pair.found[2] === label);
  }
  function show() {
    const wanted = $("search").value.trim().toLowerCase(), order = $("order").value;
    const whole = $("kind").value === "texts" && !state.cell && !$("label").value;
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
  showScores();
  showMatrix();
  show();
  document.documentElement.dataset.ready = "true";
})();
