(() => {
  const { $, el, data, say, chip, count, percent, meter, listing, searching } = parts;
  const NEAR = 32; // characters on each side of an entity, in which the words of the lexicon are shown
  const state = { text: null, chars: [], entity: -1 };

  // --- helpers

  const words = (part) => state.chars.slice(part.start, part.end).join("");
  const named = (part) => chip(part.label, ` ${words(part)}`);
  const row = (name, share, value, kind) =>
    el("li", {}, el("span", { class: "name" }, name), meter(share, kind), el("span", { class: "value" }, value));
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const isIn = (entities, entity) => entities.some((candidate) => same(candidate, entity));
  const listed = (nodes) => nodes.flatMap((node, i) => (i ? [", ", node] : [node]));
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
      const facts = [count(text.entities.length, "entity", "entities")];
      if (text.entities.length) facts.push(say("lowest probability {probability}", { probability: percent(lowest(text)) }));
      if (mistakes(text)) facts.push(`${count(mistakes(text), "difference")} ${say("from the annotation")}`);
      return [el("span", { class: "snippet" }, Array.from(text.text.slice(0, 200)).slice(0, 80).join("")), el("span", { class: "quiet" }, facts.join(" · "))];
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

  /** Show the text that a link leads to, as `page.html#text-7`: its number among all, from 0. */
  function showLinked() {
    const index = texts.items.indexOf(data.texts[Number(/^#text-(\d+)$/.exec(location.hash)?.[1] ?? NaN)]);
    if (index >= 0) texts.go(index, false);
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
    const nodes = [];
    let offset = 0;
    text.entities.forEach((entity, i) => {
      nodes.push(state.chars.slice(offset, entity.start).join(""), mark(entity, i, text.gold && !isIn(gold, entity)));
      offset = entity.end;
    });
    $("text").replaceChildren(...nodes, state.chars.slice(offset).join(""));
    const long = state.chars.length > 1200;
    $("text").classList.toggle("long", long);
    if (long) $("text").tabIndex = 0;
    else $("text").removeAttribute("tabindex");
    $("none").hidden = text.entities.length > 0;
    $("possible").hidden = !text.possible.length;
    $("possible").lastElementChild.replaceChildren(...text.possible.flatMap((entity, i) => [mark(entity, text.entities.length + i, false), " "]));
    const missed = gold.filter((entity) => !isIn(text.entities, entity));
    $("gold").hidden = !text.gold;
    $("gold").replaceChildren(...(missed.length ? [say("Annotated, not found:"), " ", ...listed(missed.map(named))]
      : [say(mistakes(text) ? "≠ found, not annotated" : "The same entities as annotated.")]));
    const choices = Math.exp(text.entropy);
    const equal = choices < 100 ? choices.toFixed(1) : choices < 10000 ? Math.round(choices) : say("more than 10,000");
    $("doubt").textContent = choices < 1.05 ? say("One reading of the whole text has nearly all the probability.")
      : say("Uncertainty about the whole text: as if {n} readings were equally likely.", { n: equal });
    showReadings(text);
    showEntity(targets().length ? 0 : -1);
  }

  /** What can be selected: the entities found, then the possible ones. */
  const targets = () => (state.text ? [...state.text.entities, ...state.text.possible] : []);
  const marks = () => [...document.querySelectorAll("#text .ent, #possible .ent")];

  /** Whether an entity is found, and not given by the pipeline as a whole. */
  const withheld = (entity, index) => index < state.text.entities.length && !entity.is_given;

  function mark(entity, index, wrong) {
    const rivals = entity.rivals.map((rival) => `${words(rival)} ${rival.label} ${percent(rival.probability)}`);
    const kind = `ent${entity.probability < 0.5 ? " unsure" : ""}${wrong ? " wrong" : ""}${withheld(entity, index) ? " withheld" : ""}${entity.end - entity.start + entity.label.length < 20 ? " short" : ""}`;
    return el("mark",
      { class: kind, role: "button", tabindex: "-1", "aria-pressed": "false", "data-entity": index, style: { "--h": parts.hue(entity.label) },
        title: rivals.length ? say("Rivals: {rivals}", { rivals: rivals.join(", ") }) : say("No rival has 1 % or more.") },
      words(entity), el("small", {}, `${entity.label} ${percent(entity.probability)}`));
  }

  function showReadings(text) {
    const best = text.entities;
    $("readings").hidden = !text.k_best.length;
    $("readings").lastElementChild.replaceChildren(
      ...text.k_best.map((reading, i) => {
        const added = reading.entities.filter((entity) => !isIn(best, entity)).map((entity) => el("span", {}, say("with"), " ", named(entity)));
        const removed = best.filter((entity) => !isIn(reading.entities, entity)).map((entity) => el("span", {}, say("without"), " ", named(entity)));
        const same = say(i ? "the same entities" : "as marked above");
        return el("li", {}, `${percent(reading.probability)}: `, ...(added.length + removed.length ? listed([...added, ...removed]) : [same]));
      }));
  }

  // --- one entity

  function showEntity(index) {
    const entity = targets()[index];
    state.entity = index;
    for (const node of marks()) {
      const isSelected = Number(node.dataset.entity) === index;
      node.setAttribute("aria-pressed", String(isSelected));
      node.tabIndex = isSelected ? 0 : -1; // one stop of the Tab key; the arrow keys go on from there
    }
    $("entity").hidden = !entity;
    if (entity) {
      $("entity-title").replaceChildren(words(entity), " ", el("small", { class: "quiet" }, entity.label),
        ...(entity.from_list ? [" ", el("small", { class: "quiet" }, say("from a list"))] : []),
        ...(withheld(entity, index) ? [" ", el("small", { class: "quiet" }, say("✕ the pipeline does not give it"))] : []));
      $("sure").replaceChildren(el("strong", {}, percent(entity.probability)), meter(entity.probability));
      $("rivals").replaceChildren(...rivalRows(entity));
      showEvidence(entity);
    }
    showLattice(entity);
  }

  function rivalRows(entity) {
    const rows = entity.rivals.map((rival) => row(named(rival), rival.probability, percent(rival.probability)));
    return rows.length ? rows : [el("li", { class: "whole" }, say("No rival has 1 % or more."))];
  }

  function showEvidence(entity) {
    const evidence = entity.evidence.map(([start, end, drop]) => ({ start, end, drop }));
    $("evidence").hidden = !evidence.length;
    if (!evidence.length) return;
    const largest = Math.max(0.5, ...evidence.map((unit) => Math.abs(unit.drop)));
    const nodes = [];
    let offset = evidence[0].start;
    for (const unit of evidence) {
      const share = Math.abs(unit.drop) / largest;
      const isInside = unit.start < entity.end && unit.end > entity.start;
      const kind = `${share < 0.04 ? "" : unit.drop > 0 ? "for" : "against"}${isInside ? " inside" : ""}`;
      nodes.push(state.chars.slice(offset, unit.start).join(""),
        el("span", { class: kind, title: change(entity, unit), style: { "--a": (0.1 + 0.5 * share).toFixed(2) } }, words(unit)));
      offset = unit.end;
    }
    $("strip").replaceChildren(...nodes);
    const strong = evidence.filter((unit) => Math.abs(unit.drop) > 0.1).sort((a, b) => Math.abs(b.drop) - Math.abs(a.drop)).slice(0, 6);
    $("strongest").replaceChildren(
      ...strong.map((unit) =>
        row(el("span", {}, words(unit), el("span", { class: "sr" }, ` ${say(unit.drop > 0 ? "supports it" : "speaks against it")}`)),
          Math.abs(unit.drop) / largest, change(entity, unit), unit.drop > 0 ? "for" : "against")),
      ...(strong.length ? [] : [el("li", { class: "whole" }, say("No single unit has much influence."))]));
  }

  /** What the probability becomes without a unit. */
  function change(entity, unit) {
    const p = Math.min(1 - 1e-9, Math.max(1e-9, entity.probability));
    const without = 1 / (1 + Math.exp(unit.drop - Math.log(p / (1 - p))));
    return `${percent(entity.probability)} → ${percent(without)}`;
  }

  // --- the lexicon's words

  /** The words around an entity, or else around the first word. */
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
    const ends = []; // of the words in each level
    const bars = near.map((word) => {
      let level = ends.findIndex((end) => end <= word.start);
      if (level < 0) level = ends.push(0) - 1;
      ends[level] = word.end;
      const description = [word.text, word.tag, word.known ? "" : say("no row of its own")].filter(Boolean).join(", ");
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
    const node = event.target.closest(".ent");
    if (!node) return;
    const all = marks();
    const next = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(node);
    else if (next) {
      const neighbour = all[all.indexOf(node) + next] || node;
      showEntity(Number(neighbour.dataset.entity));
      neighbour.focus();
    } else return;
    event.preventDefault();
  });
  $("order").addEventListener("change", listTexts);
  searching($("search"), listTexts);

  // --- in an iframe: the outer page sends its theme and receives the height

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
