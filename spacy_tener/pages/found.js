"use strict";
/** An example text for each language. */
const SAMPLES = {
  zh: "王小明昨天去了上海，在中国银行工作的吴重阳也在。",
  en: "Angela Merkel met Tim Cook of Apple in Berlin on Monday.",
};
/** Approximate number of characters in a block of a long text. */
const BLOCK = 5000;
/** The entities in a text: they are marked in the text and listed, can be filtered by label and probability, and saved. */
function foundEntities({ drawn = () => {}, saved = () => ({}), reread = () => {} } = {}) {
  const { $, el, chip, digits, direction, download, hue, isShort, listing, marked, meter, offsetsOf, percent, say, setLabels, stored } = parts;
  const state = { text: "", entities: [], hidden: new Set() };
  const minimum = () => $("minimum").value / 100;
  const shownEntities = () => state.entities.filter(({ label, probability }) => !state.hidden.has(label) && (probability ?? 1) >= minimum());

  const ORDERS = {
    text: (a, b) => a.start - b.start,
    sure: (a, b) => (b.probability ?? 1) - (a.probability ?? 1),
    unsure: (a, b) => (a.probability ?? 1) - (b.probability ?? 1),
    label: (a, b) => a.label.localeCompare(b.label),
  };

  const list = listing({
    noun: "entity",
    plural: "entities",
    draw: ({ label, text, probability }) => [
      el("span", { class: "name" }, chip(label, ` ${text}`)), ...(probability === null ? [] : [meter(probability)]),
      el("span", { class: "value" }, probability === null ? say("no probability") : percent(probability)),
    ],
    chosen: (entity) => light("chosen", entity),
  });

  /** Yield the bounds of blocks of a text, preferably at the ends of lines. The browser only renders visible blocks. */
  function* blocksOf(text, entities) {
    for (let from = 0, to; from < text.length; from = to) {
      const line = text.indexOf("\n", from + BLOCK) + 1;
      to = line && line < from + 2 * BLOCK ? line : Math.min(from + 2 * BLOCK, text.length);
      if (/[\udc00-\udfff]/.test(text[to] || "")) to++;
      for (const { start, end } of entities) if (start < to && to < end) to = end;
      yield [from, to];
    }
  }

  function draw() {
    const entities = shownEntities();
    state.numbers = new Map(state.entities.map((entity, number) => [entity, number]));
    $("text").replaceChildren();
    $("text").dir = direction(state.text);
    for (const [from, to] of blocksOf(state.text, entities)) {
      const block = to - from < state.text.length ? el("div", { class: "block" }) : $("text");
      // The nodes are appended one by one, because the number of arguments of a call is limited.
      for (const node of marked(state.text, entities, mark, from, to)) block.append(node);
      if (block !== $("text")) $("text").append(block);
    }
    list.show([...entities].sort(ORDERS[$("order").value]));
    const hidden = state.entities.length - entities.length;
    $("nothing").textContent = say(hidden ? "All entities are hidden. Show more labels, or lower the minimum probability." : "No entities were found in this text.");
    $("nothing").hidden = entities.length > 0 || !state.text.trim();
    $("hidden").textContent = hidden ? say(", {n} hidden", { n: digits(hidden) }) : "";
    // Hide the controls for probabilities if no entity has a probability.
    const hasProbabilities = !state.entities.length || state.entities.some(({ probability }) => probability !== null);
    for (const node of document.querySelectorAll("[data-by-probability]")) node.hidden = !hasProbabilities;
    $("least").textContent = `${$("minimum").value} %`;
    drawn();
  }

  function mark(entity, children, kind) {
    const { label, probability } = entity;
    const name = kind.includes("cut") ? [] : [el("small", {}, label)];
    const title = probability === null ? label : `${label} ${percent(probability)}`;
    const attributes = { class: `ent${kind}${isShort(children, label) ? " short" : ""}`, "data-entity": state.numbers.get(entity), style: { "--h": hue(label) }, title };
    return el("mark", attributes, ...children, ...name);
  }

  /** Highlight an entity in the text and in the list. kind: `pointed` (under the mouse) or `chosen`. */
  function light(kind, entity) {
    for (const node of document.querySelectorAll(`.${kind}`)) node.classList.remove(kind);
    if (!entity) return;
    const nodes = $("text").querySelectorAll(`[data-entity="${state.numbers.get(entity)}"]`);
    for (const node of [...nodes, rowOf(entity)]) node?.classList.add(kind);
    // Scroll the text if the user moves through the list.
    if (kind === "chosen" && $("list").contains(document.activeElement)) nodes[0]?.scrollIntoView({ block: "nearest" });
  }
  const rowOf = (entity) => $("list").querySelector(`[data-index="${list.items.indexOf(entity)}"]`);
  const entityOf = ({ target }) => {
    const [node, row] = [target.closest?.("mark"), target.closest?.("#list li")];
    return node ? state.entities[node.dataset.entity] : row && list.items[row.dataset.index];
  };

  /** Show a text and its entities, whose offsets are in UTF-16 code units. */
  function show(text, entities) {
    Object.assign(state, { text, entities });
    draw();
  }

  /** Set the labels of a pipeline, and create a button for each label that hides its entities. */
  function offer(labels) {
    setLabels(labels);
    state.hidden.clear();
    const filters = labels.map((label) => {
      const button = el("button", { type: "button", class: "chip", "aria-pressed": "true", style: { "--h": hue(label) } }, label || say("no label"));
      button.addEventListener("click", () => {
        const isShown = state.hidden.delete(label) || !state.hidden.add(label);
        button.setAttribute("aria-pressed", String(isShown));
        draw();
      });
      return button;
    });
    $("labels").replaceChildren(el("span", { class: "quiet" }, say("Show")), ...filters);
  }

  /** The texts in the input, with their start: the whole input, or each line. */
  function textsOf(written) {
    if (!$("lines").value) return written.trim() ? [{ start: 0, text: written }] : [];
    let start = 0;
    return written.split("\n").map((text) => ({ text, start: (start += text.length + 1) - text.length - 1 })).filter(({ text }) => text.trim());
  }
  const moved = (entities, by) => entities.map((entity) => ({ ...entity, start: entity.start + by, end: entity.end + by }));

  const FIELDS = ["start", "end", "label", "text", "probability"];
  const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const asCsv = (rows) => rows.map((row) => `${row.map((value) => quoted(String(value ?? ""))).join(",")}\r\n`).join("");

  /** Convert the offsets of entities to characters. */
  function inCharacters(text, entities) {
    const { character } = offsetsOf(text);
    return entities.map((entity) => ({ ...entity, start: character(entity.start), end: character(entity.end) }));
  }
  const savedEntities = () => inCharacters(state.text, shownEntities());

  // A change of the language reloads the page.
  $("lines").value = stored.get("lines") ? "lines" : "";
  $("lines").addEventListener("change", () => {
    stored.set("lines", Boolean($("lines").value));
    reread();
  });
  $("minimum").addEventListener("input", draw);
  $("order").addEventListener("change", draw);
  for (const part of ["text", "list"]) {
    $(part).addEventListener("mouseover", (event) => light("pointed", entityOf(event)));
    $(part).addEventListener("mouseleave", () => light("pointed"));
  }
  $("text").addEventListener("click", (event) => {
    const entity = entityOf(event);
    if (!entity) return;
    list.go(list.items.indexOf(entity), false);
    rowOf(entity).scrollIntoView({ block: "nearest" });
  });
  $("json").addEventListener("click", () => download("entities.json", `${JSON.stringify({ text: state.text, ...saved(), entities: savedEntities() }, null, 2)}\n`));
  // Spreadsheet programs need a byte order mark to detect UTF-8.
  $("csv").addEventListener("click", () => download("entities.csv", `\ufeff${asCsv([FIELDS, ...savedEntities().map((entity) => FIELDS.map((name) => entity[name]))])}`, "text/csv"));

  return { show, offer, minimum, inCharacters, textsOf, moved, get text() { return state.text; }, get chosen() { return list.item; } };
}
