(() => {
  const { $, el, data, say, gap, chip, count, percent, meter, isShort, direction, offsetsOf, marked, listing, searching } = parts;
  const SNIPPET = 80; // characters of a text in the list of texts
  const NEAR = 32; // characters on each side of an entity for which the words of the lexicon are shown
  const state = { text: null, chars: [], entity: -1 };

  // --- helpers

  const words = (part) => state.chars.slice(part.start, part.end).join("");
  const named = (part) => chip(part.label, ` ${words(part)}`);
  const row = (name, share, value, kind) =>
    el("li", {}, el("span", { class: "name" }, name), meter(share, kind), el("span", { class: "value" }, value));
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const isIn = (entities, entity) => entities.some((candidate) => same(candidate, entity));
  const listed = (nodes) => nodes.flatMap((node, i) => (i ? [say(", "), node] : [node]));
  const goldOf = (text) => (text.gold || []).map(([start, end, label]) => ({ start, end, label }));
  const mistakes = (text) => {
    if (!text.gold) return 0;
    const gold = goldOf(text);
    return text.entities.length + gold.length - 2 * text.entities.filter((entity) => isIn(gold, entity)).length;
  };
  const lowest = (text) => Math.min(1, ...text.entities.map((entity) => entity.probability));

  // --- the list of texts

  const texts = listing({
    noun: "text",
    chosen: (text) => { if (text !== state.text) showText(text); },
    draw(text) {
      const characters = Array.from(text.text.slice(0, 2 * SNIPPET + 2));
      const facts = [count(text.entities.length, "entity", "entities")];
      if (text.entities.length) facts.push(say("lowest probability {probability}", { probability: percent(lowest(text)) }));
      if (mistakes(text)) facts.push(`${count(mistakes(text), "difference")}${gap}${say("from the annotation")}`);
      return [el("span", { class: "snippet", dir: direction(text.text) }, characters.length > SNIPPET ? `${characters.slice(0, SNIPPET).join("")}…` : text.text), el("span", { class: "quiet" }, facts.join(" · "))];
    },
  });

  function listTexts() {
    const query = $("search").value.trim().toLowerCase();
    const matches = (text) => [text.text, ...text.entities.map((entity) => entity.label)].some((part) => part.toLowerCase().includes(query));
    const key = { unsure: lowest, wrong: (text) => -mistakes(text) }[$("order").value];
    const selected = data.texts.filter(matches);
    if (key) selected.sort((a, b) => key(a) - key(b));
    texts.show(selected);
  }

  /**
   * Show the text of a link such as `page.html#text-7`, which contains the index of the text. A link such as
   * `#text-7-4-8-ORG` also selects the entity with this start, end and label.
   */
  function showLinked() {
    const [, number = NaN, start, end, label = ""] = /^#text-(\d+)(?:-(\d+)-(\d+)-(.*))?$/.exec(location.hash) ?? [];
    const index = texts.items.indexOf(data.texts[Number(number)]);
    if (index < 0) return;
    texts.go(index, false);
    const linked = { start: Number(start), end: Number(end), label: decodeURIComponent(label) };
    const entity = targets().findIndex((target) => same(target, linked));
    if (entity >= 0) showEntity(entity);
  }

  // --- one text

  function showText(text) {
    Object.assign(state, { text, chars: Array.from(text?.text || ""), entity: -1 });
    $("read").hidden = !text;
    if (!text) return showEntity(-1);
    const link = data.links[data.texts.indexOf(text)];
    $("back").hidden = !link;
    if (link) $("back").href = link;
    const gold = goldOf(text);
    const { unit } = offsetsOf(text.text);
    const spans = text.entities.map((entity, index) => ({ start: unit(entity.start), end: unit(entity.end), entity, index }));
    for (const node of document.querySelectorAll("#read .line")) node.dir = direction(text.text);
    $("text").replaceChildren(...marked(text.text, spans, ({ entity, index }, children, kind) =>
      mark(entity, index, `${kind}${text.gold && !isIn(gold, entity) ? " wrong" : ""}`, children)));
    const long = state.chars.length > 1200;
    $("text").classList.toggle("long", long);
    if (long) $("text").tabIndex = 0;
    else $("text").removeAttribute("tabindex");
    $("none").hidden = text.entities.length > 0;
    $("possible").hidden = !text.possible.length;
    $("possible").lastElementChild.replaceChildren(...text.possible.flatMap((entity, i) => [mark(entity, text.entities.length + i), " "]));
    $("missed").hidden = !text.missed.length;
    $("missed").lastElementChild.replaceChildren(
      ...text.missed.flatMap((entity, i) => [mark(entity, text.entities.length + text.possible.length + i, " missed"), " "]));
    $("gold").hidden = !text.gold || (text.missed.length > 0 && !text.entities.some((entity) => !isIn(gold, entity)));
    $("gold").textContent = say(mistakes(text) ? "≠ found, not annotated" : "The same entities as annotated.");
    const choices = Math.exp(text.entropy);
    const equal = choices < 100 ? choices.toFixed(1) : choices < 10000 ? Math.round(choices) : say("more than 10,000");
    $("uncertainty").textContent = choices < 1.05 ? say("A single label sequence has nearly all the probability.")
      : say("Uncertainty of the whole text: equivalent to {n} equally probable label sequences.", { n: equal });
    showSequences(text);
    showEntity(targets().length ? 0 : -1);
  }

  /** All entities that can be selected: first the found entities, then the possible entities, then the missed entities. */
  const targets = () => (state.text ? [...state.text.entities, ...state.text.possible, ...state.text.missed] : []);
  const marks = () => [...document.querySelectorAll("#read .ent")];
  /** The buttons of all marked entities, nested entities included. Each entity has one. */
  const buttons = () => [...document.querySelectorAll("#read .ent > small")];

  /** Whether the component finds an entity that is not in the output of the pipeline. */
  const withheld = (entity, index) => index < state.text.entities.length && !entity.is_in_output;

  function mark(entity, index, kind = "", children = [words(entity)]) {
    const alternatives = entity.alternatives.map((alternative) => `${words(alternative)} ${alternative.label} ${percent(alternative.probability)}`);
    const name = `${entity.label} ${percent(entity.probability)}`;
    const button = () => el("small", { role: "button", tabindex: "-1", "aria-pressed": "false", "aria-label": `${words(entity)} ${name}` }, name);
    const kinds = `ent${kind}${entity.probability < 0.5 ? " unsure" : ""}${withheld(entity, index) ? " withheld" : ""}${isShort(children, name) ? " short" : ""}`;
    return el("mark",
      { class: kinds, "data-entity": index, style: { "--h": parts.hue(entity.label) },
        title: alternatives.length ? say("Alternatives: {alternatives}", { alternatives: alternatives.join(say(", ")) }) : say("No alternative has 1 % or more.") },
      ...children, ...(kind.includes(" cut") ? [] : [button()]));
  }

  function showSequences(text) {
    const best = text.entities;
    $("sequences").hidden = !text.k_best.length;
    $("sequences").lastElementChild.replaceChildren(
      ...text.k_best.map((sequence, i) => {
        const added = sequence.entities.filter((entity) => !isIn(best, entity)).map((entity) => el("span", {}, say("with"), gap, named(entity)));
        const removed = best.filter((entity) => !isIn(sequence.entities, entity)).map((entity) => el("span", {}, say("without"), gap, named(entity)));
        const same = say(i ? "the same entities" : "as marked above");
        return el("li", {}, say("{probability}: ", { probability: percent(sequence.probability) }), ...(added.length + removed.length ? listed([...added, ...removed]) : [same]));
      }));
  }

  // --- one entity

  function showEntity(index) {
    const entity = targets()[index];
    state.entity = index;
    for (const node of marks()) node.classList.toggle("chosen", Number(node.dataset.entity) === index);
    for (const node of buttons()) {
      const isSelected = Number(node.parentElement.dataset.entity) === index;
      node.setAttribute("aria-pressed", String(isSelected));
      node.tabIndex = isSelected ? 0 : -1; // Tab stops at one entity, and the arrow keys move between entities
    }
    $("entity").hidden = !entity;
    if (entity) {
      $("entity-title").replaceChildren(words(entity), " ", el("small", { class: "quiet" }, entity.label),
        ...(isMissed(entity) ? [" ", el("small", { class: "quiet" }, say("missed"))] : []),
        ...(entity.is_existing ? [" ", el("small", { class: "quiet" }, say("existing: set before the model was applied"))] : []),
        ...(withheld(entity, index) ? [" ", el("small", { class: "quiet" }, say("✕ not in the output of the pipeline"))] : []));
      $("sure").replaceChildren(el("strong", {}, percent(entity.probability)), meter(entity.probability));
      $("never").textContent = reason(entity);
      $("never").hidden = !reason(entity);
      $("alternatives-title").textContent = say(isMissed(entity) ? "Alternatives in its place" : "Alternatives");
      $("alternatives").replaceChildren(...alternativeRows(entity));
      showAttributions(entity);
    }
    showLattice(entity);
  }

  const isMissed = (entity) => state.text.missed.includes(entity);
  /** The reason why a missed entity has the probability 0, or an empty string. */
  function reason(entity) {
    if (!isMissed(entity) || entity.probability > 0) return "";
    if (!data.labels.includes(entity.label)) return say("The pipeline does not have this label.");
    return say(entity.outside === null ? "It begins or ends within a token, but the pipeline labels whole tokens." : "It cannot be found: an existing entity, a blocked word or a sentence boundary excludes it.");
  }
  /** The found entities that overlap with an entity. */
  const foundIn = ({ start, end }) => state.text.entities.filter((entity) => entity.start < end && start < entity.end);

  function alternativeRows(entity) {
    const found = isMissed(entity) ? foundIn(entity) : [];
    const describe = (alternative) => (isIn(found, alternative) ? el("span", {}, named(alternative), " ", el("small", { class: "quiet" }, say("found"))) : named(alternative));
    const alternatives = entity.alternatives.map((alternative) => [describe(alternative), alternative.probability]);
    if (entity.outside !== null && isMissed(entity)) alternatives.push([say("no entity"), entity.outside]);
    const rows = alternatives.sort((a, b) => b[1] - a[1]).map(([name, probability]) => row(name, probability, percent(probability)));
    return rows.length ? rows : [el("li", { class: "whole" }, say("No alternative has 1 % or more."))];
  }

  /** The description of a unit with a negative drop. */
  const opposed = (entity) => say(!isMissed(entity) ? "is evidence against it" : foundIn(entity).length ? "supports what was found" : "supports that there is no entity");

  function showAttributions(entity) {
    const attributions = entity.attributions.map(([start, end, drop]) => ({ start, end, drop }));
    $("attributions").hidden = !attributions.length;
    if (!attributions.length) return;
    $("against").textContent = opposed(entity);
    const largest = Math.max(0.5, ...attributions.map((unit) => Math.abs(unit.drop)));
    const nodes = [];
    let offset = attributions[0].start;
    for (const unit of attributions) {
      const share = Math.abs(unit.drop) / largest;
      const isInside = unit.start < entity.end && unit.end > entity.start;
      const kind = `${share < 0.04 ? "" : unit.drop > 0 ? "for" : "against"}${isInside ? " inside" : ""}`;
      nodes.push(state.chars.slice(offset, unit.start).join(""),
        el("span", { class: kind, title: change(entity, unit), style: { "--a": (0.1 + 0.5 * share).toFixed(2) } }, words(unit)));
      offset = unit.end;
    }
    $("strip").replaceChildren(...nodes);
    const strong = attributions.filter((unit) => Math.abs(unit.drop) > 0.1).sort((a, b) => Math.abs(b.drop) - Math.abs(a.drop)).slice(0, 6);
    $("strongest").replaceChildren(
      ...strong.map((unit) =>
        row(el("span", {}, words(unit), el("span", { class: "sr" }, ` ${unit.drop > 0 ? say("supports it") : opposed(entity)}`)),
          Math.abs(unit.drop) / largest, change(entity, unit), unit.drop > 0 ? "for" : "against")),
      ...(strong.length ? [] : [el("li", { class: "whole" }, say("No single unit has much influence."))]));
  }

  /** The probability of an entity with and without a unit. The drop is a difference of log-odds. */
  function change(entity, unit) {
    const p = Math.min(1 - 1e-9, Math.max(1e-9, entity.probability));
    const without = 1 / (1 + Math.exp(unit.drop - Math.log(p / (1 - p))));
    return `${percent(entity.probability)} → ${percent(without)}`;
  }

  // --- the lexicon's words

  /** Show the words of the lexicon near an entity, or near the first word if no entity is selected. */
  function showLattice(entity) {
    const all = state.text?.words || [];
    const [first, last] = entity ? [entity.start, entity.end] : [all[0]?.start ?? 0, 0];
    const from = Math.max(0, first - NEAR), to = Math.min(state.chars.length, Math.max(first, last) + NEAR);
    const near = all.filter((word) => from <= word.start && word.end <= to);
    $("lexicon").hidden = !near.length;
    if (!near.length) return;
    const isInside = (offset) => entity && entity.start <= offset && offset < entity.end;
    const units = state.chars.slice(from, to).map((char, i) =>
      el("li", { class: isInside(from + i) ? "unit inside" : "unit", "aria-hidden": "true", style: { "grid-column": i + 1, "grid-row": 1 } }, char));
    const ends = []; // end of the last word in each row of words
    const bars = near.map((word) => {
      let level = ends.findIndex((end) => end <= word.start);
      if (level < 0) level = ends.push(0) - 1;
      ends[level] = word.end;
      const description = [word.text, word.tag, word.known ? "" : say("no embedding in the model")].filter(Boolean).join(", ");
      return el("li",
        { class: word.known ? "word" : "word strange", title: description,
          style: { "grid-column": `${word.start - from + 1} / ${word.end - from + 1}`, "grid-row": level + 2 } },
        word.text);
    });
    $("lattice").style.gridTemplateColumns = `repeat(${to - from}, max-content)`;
    $("lattice").replaceChildren(...units, ...bars);
    const unit = $("lattice").querySelector(".inside");
    const box = $("lattice").parentElement;
    const left = unit ? unit.offsetLeft - box.offsetLeft : 0;
    box.scrollLeft = left > 0.7 * box.clientWidth ? left - 80 : 0;
  }

  // --- events

  const choose = (node) => {
    showEntity(Number(node.dataset.entity));
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if ($("entity").getBoundingClientRect().top > innerHeight - 60) $("entity").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
  };
  $("read").addEventListener("click", ({ target }) => { if (target.closest(".ent")) choose(target.closest(".ent")); });
  $("read").addEventListener("keydown", (event) => {
    const node = event.target.closest(".ent > small");
    if (!node) return;
    const all = buttons();
    const next = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(node.parentElement);
    else if (next) {
      const neighbour = all[all.indexOf(node) + next] || node;
      showEntity(Number(neighbour.parentElement.dataset.entity));
      neighbour.focus();
    } else return;
    event.preventDefault();
  });
  $("order").addEventListener("change", listTexts);
  searching($("search"), listTexts);

  // --- the page in an iframe of the service: the outer page sends the theme, and receives the height

  const inside = new ResizeObserver(() => parent.postMessage({ height: document.body.offsetHeight }, "*"));
  window.addEventListener("message", ({ data: message, source }) => {
    if (source !== parent || parent === window || !["light", "dark"].includes(message?.theme)) return;
    document.documentElement.classList.add("embedded");
    document.documentElement.dataset.theme = message.theme;
    inside.observe(document.body);
  });

  $("notes").append(...data.notes.map((note) => el("li", {}, say(note))));
  $("texts").hidden = data.texts.length < 2;
  if (!data.texts.some((text) => text.gold)) $("order").querySelector("[value=wrong]").remove();
  listTexts();
  showLinked();
  window.addEventListener("hashchange", showLinked);
  document.documentElement.dataset.ready = "true";
})();
