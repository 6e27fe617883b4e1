"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const HELP = {
    attention: "Each row is a query: what this unit looks at. Stronger colour = more attention. Move with the pointer or the arrow keys.",
    words: "Each row is a character, each column a word that covers it. Stronger colour = larger share. Move with the pointer or the arrow keys.",
    relations: "Strength of the relation of each pair, from weakest to strongest. Move with the pointer or the arrow keys.",
  };
  const STREAMS = { lattice: "characters and words", radicals: "radicals" };
  const state = { text: 0, chars: [], entity: -1, passage: null, map: "", head: 0, headChosen: false, rowsChosen: false, cell: null };

  // --- small things

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "style") for (const [key, own] of Object.entries(value)) node.style.setProperty(key, own);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }
  const percent = (p) => {
    if (p > 0.9995) return "> 99.9 %";
    if (p < 0.0005) return "< 0.1 %";
    return `${(100 * p).toFixed(p > 0.1 && p < 0.9 ? 0 : 1)} %`;
  };
  const hue = (label) => `${Math.round((data.labels.indexOf(label) * 360) / Math.max(data.labels.length, 1) + 205) % 360}`;
  const words = (part) => state.chars.slice(part.start, part.end).join("");
  const chip = (part, kind) =>
    el("span", { class: `chip ${kind || ""}`, style: { "--h": hue(part.label) } }, words(part), el("small", {}, part.label));
  const meter = (share, kind) =>
    el("span", { class: `meter ${kind || ""}`, "aria-hidden": "true" }, el("i", { style: { width: `${100 * Math.min(1, share)}%` } }));
  const row = (name, share, value, kind) =>
    el("li", {}, el("span", { class: "name" }, name), meter(share, kind), el("span", { class: "value" }, value));
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const goldOf = (text) => (text.gold || []).map(([start, end, label]) => ({ start, end, label }));
  const mistakes = (text) => {
    if (!text.gold) return 0;
    const gold = goldOf(text);
    const right = text.entities.filter((one) => gold.some((other) => same(one, other))).length;
    return text.entities.length + gold.length - 2 * right;
  };
  const least = (text) => Math.min(1, ...text.entities.map((one) => one.probability));

  // --- the list of texts

  function listTexts() {
    $("texts").hidden = data.texts.length < 2;
    if ($("texts").hidden) return;
    if (!data.texts.some((text) => text.gold)) $("order").querySelector("[value=wrong]").remove();
    const order = data.texts.map((_, i) => i);
    const keys = { unsure: (i) => least(data.texts[i]), wrong: (i) => -mistakes(data.texts[i]) };
    const key = keys[$("order").value];
    if (key) order.sort((a, b) => key(a) - key(b) || a - b);
    $("list").replaceChildren(
      ...order.map((i) => {
        const text = data.texts[i];
        const facts = [`${text.entities.length} ${text.entities.length === 1 ? "entity" : "entities"}`];
        if (text.entities.length) facts.push(`least sure ${percent(least(text))}`);
        if (mistakes(text)) facts.push(`${mistakes(text)} ${mistakes(text) === 1 ? "differs" : "differ"} from the annotation`);
        const button = el("button", { type: "button", "data-text": i, "aria-current": i === state.text && "true" },
          el("span", { class: "snippet" }, Array.from(text.text.slice(0, 200)).slice(0, 80).join("")),
          el("span", { class: "facts" }, facts.join(" · ")));
        return el("li", {}, button);
      }));
  }

  // --- one text

  function showText(index) {
    const text = data.texts[index];
    Object.assign(state, { text: index, chars: Array.from(text.text), entity: -1, headChosen: false });
    for (const button of $("list").querySelectorAll("button"))
      if (Number(button.dataset.text) === index) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    const gold = goldOf(text);
    const parts = [];
    let done = 0;
    text.entities.forEach((entity, i) => {
      const wrong = text.gold && !gold.some((other) => same(entity, other));
      parts.push(state.chars.slice(done, entity.start).join(""), mark(entity, i, wrong));
      done = entity.end;
    });
    parts.push(state.chars.slice(done).join(""));
    $("text").replaceChildren(...parts);
    $("text").classList.toggle("long", state.chars.length > 1200);
    $("none").hidden = text.entities.length > 0;
    $("possible").hidden = !text.possible.length;
    $("possible").lastElementChild.replaceChildren(
      ...text.possible.flatMap((entity, i) => [mark(entity, text.entities.length + i, false), " "]));
    const labels = [...new Set(text.entities.map((one) => one.label))];
    $("legend").replaceChildren(
      ...(labels.length ? ["paler = less probable ", ...labels.map((label) =>
        el("span", { class: "chip", style: { "--h": hue(label) } }, label))] : []));
    const missed = gold.filter((one) => !text.entities.some((other) => same(one, other)));
    $("gold").hidden = !text.gold;
    $("gold").replaceChildren(...(missed.length ? ["Annotated, not found: ", ...missed.flatMap((one) => [chip(one), " "])]
      : [mistakes(text) ? "≠ found, not annotated" : "The same entities as annotated."]));
    const choices = Math.exp(text.entropy);
    $("doubt").textContent = choices < 1.05 ? "One reading of the whole text has nearly all the probability."
      : `Uncertainty about the whole text: as between ${choices < 100 ? choices.toFixed(1) : choices < 10000 ? Math.round(choices) : "more than 10,000"} equally likely readings.`;
    showReadings(text);
    showEntity(targets().length ? 0 : -1);
  }

  /** What can be selected: the entities found, then the possible ones. */
  const targets = () => [...data.texts[state.text].entities, ...data.texts[state.text].possible];
  const marks = () => [...document.querySelectorAll("#text .ent, #possible .ent")];

  function mark(entity, index, wrong) {
    const sure = percent(entity.probability);
    const kind = `ent${entity.probability < 0.5 ? " unsure" : ""}${wrong ? " wrong" : ""}${entity.end - entity.start < 9 ? " short" : ""}`;
    return el("mark",
      { class: kind, role: "button", tabindex: "0", "aria-pressed": "false", "aria-controls": "entity", "data-entity": index,
        style: { "--h": hue(entity.label), "--p": entity.probability } },
      words(entity), el("small", {}, `${entity.label} ${sure}`));
  }

  function showReadings(text) {
    const best = text.entities;
    $("readings").hidden = !text.k_best.length;
    $("readings").lastElementChild.replaceChildren(
      ...text.k_best.map((reading, i) => {
        const more = reading.entities.filter((one) => !best.some((other) => same(one, other)));
        const gone = best.filter((one) => !reading.entities.some((other) => same(one, other)));
        const changes = [...more.map((one) => ["with ", one, ""]), ...gone.map((one) => ["without ", one, "gone"])];
        return el("li", {}, `${percent(reading.probability)} – `,
          ...(changes.length ? changes.flatMap(([word, one, kind]) => [word, chip(one, kind), " "])
            : [i ? "the same entities" : "as marked above"]));
      }));
  }

  // --- one entity

  function showEntity(index) {
    const text = data.texts[state.text];
    const entity = targets()[index];
    state.entity = index;
    for (const node of marks())
      node.setAttribute("aria-pressed", String(Number(node.dataset.entity) === index));
    $("entity").hidden = !entity;
    const holds = (passage) => !entity || (passage.start <= entity.start && entity.start < passage.end);
    state.passage = text.passages.find((one) => holds(one) && (entity || one.maps.length || one.words.length)) || null;
    state.cell = null;
    if (entity) {
      $("entity-title").replaceChildren(words(entity), " ", el("small", { class: "quiet" }, entity.label));
      $("sure").replaceChildren(el("strong", {}, percent(entity.probability)), meter(entity.probability));
      $("rivals").replaceChildren(...rivalRows(entity));
      showEvidence(entity);
      const made = [...new Set(state.chars.slice(entity.start, entity.end))].filter((char) => Object.hasOwn(text.radicals, char));
      $("radicals").hidden = !made.length;
      $("radicals").lastElementChild.replaceChildren(
        ...made.map((char) => el("li", {}, el("b", {}, char), Array.from(text.radicals[char]).join(" ＋ "))));
    }
    showLattice(entity);
    showMaps(entity);
  }

  function rivalRows(entity) {
    const rows = entity.rivals.map((one) => row(chip(one), one.probability, percent(one.probability)));
    return rows.length ? rows : [el("li", { class: "whole" }, "No rival has 1 % or more.")];
  }

  function showEvidence(entity) {
    const found = entity.evidence.map(([start, end, drop]) => ({ start, end, drop }));
    $("evidence").hidden = !found.length;
    if (!found.length) return;
    const largest = Math.max(0.5, ...found.map((one) => Math.abs(one.drop)));
    const parts = [];
    let done = found[0].start;
    for (const one of found) {
      const share = Math.abs(one.drop) / largest;
      const own = one.start < entity.end && one.end > entity.start;
      const kind = `${share < 0.04 ? "" : one.drop > 0 ? "for" : "against"}${own ? " own" : ""}`;
      parts.push(state.chars.slice(done, one.start).join(""),
        el("span", { class: kind, title: change(entity, one), style: { "--a": (0.1 + 0.65 * share).toFixed(2) } }, words(one)));
      done = one.end;
    }
    $("strip").replaceChildren(...parts);
    const strong = found.filter((one) => Math.abs(one.drop) > 0.1).sort((a, b) => Math.abs(b.drop) - Math.abs(a.drop)).slice(0, 6);
    $("strongest").replaceChildren(
      ...(strong.length ? strong : []).map((one) =>
        row(el("span", {}, words(one), el("span", { class: "sr" }, one.drop > 0 ? " supports it" : " speaks against it")),
          Math.abs(one.drop) / largest, change(entity, one), one.drop > 0 ? "for" : "against")),
      ...(strong.length ? [] : [el("li", { class: "whole" }, "No single unit has much influence.")]));
  }

  /** What the probability becomes without a unit. */
  function change(entity, one) {
    const p = Math.min(1 - 1e-9, Math.max(1e-9, entity.probability));
    const without = 1 / (1 + Math.exp(one.drop - Math.log(p / (1 - p))));
    return `${percent(entity.probability)} → ${percent(without)}`;
  }

  // --- the lexicon's words

  const unpacked = new Map();

  /** The weights of a map, 0 to 255. */
  function weights(map) {
    if (!unpacked.has(map)) unpacked.set(map, Uint8Array.from(atob(map.weights), (char) => char.charCodeAt(0)));
    return unpacked.get(map);
  }
  function value(map, head, query, key) {
    const [, queries, keys] = map.shape;
    return (weights(map)[(head * queries + query) * keys + key] / 255) * map.largest;
  }
  const unitsOf = (passage, entity) =>
    passage.units.flatMap(([start, end], i) => (entity && start < entity.end && end > entity.start ? [i] : []));

  /** How strongly the units of an entity look at each word: a mean over heads and units. */
  function strengths(passage, entity) {
    const map = passage.maps.find((one) => one.kind === "words")
      || passage.maps.findLast((one) => one.shape[2] > passage.units.length && one.stream !== "radicals");
    if (!map || !entity) return null;
    const behind = map.kind === "words" ? 0 : passage.units.length;
    return passage.words.map((word, i) => {
      let units = unitsOf(passage, entity);
      if (map.kind === "words") units = units.filter((unit) => word.start <= unit && unit < word.end);
      let sum = 0;
      for (let head = 0; head < map.shape[0]; head++) for (const unit of units) sum += value(map, head, unit, behind + i);
      return units.length ? sum / units.length / map.shape[0] : 0;
    });
  }

  function showLattice(entity) {
    const passage = state.passage;
    $("lexicon").hidden = !passage || !passage.words.length;
    if ($("lexicon").hidden) return;
    const strong = strengths(passage, entity);
    const top = Math.max(0.01, ...(strong || [0]));
    $("lexicon-note").textContent = (strong
      ? "Stronger colour = read more by the entity’s characters. " : "") + "Dashed = no row of its own in the model.";
    const own = new Set(unitsOf(passage, entity));
    const units = passage.units.map(([start, end], i) =>
      el("li", { class: own.has(i) ? "unit own" : "unit", "aria-hidden": "true", style: { "grid-column": i + 1, "grid-row": 1 } }, words({ start, end })));
    const filled = [];
    const bars = passage.words.map((word, i) => {
      let level = filled.findIndex((end) => end <= word.start);
      if (level < 0) level = filled.push(0) - 1;
      filled[level] = word.end;
      const share = strong ? strong[i] : 0;
      const told = [word.text, word.tag, word.known ? "" : "no row of its own", strong ? percent(share) : ""].filter(Boolean).join(", ");
      return el("li",
        { class: word.known ? "word" : "word strange", title: told,
          style: { "grid-column": `${word.start + 1} / ${word.end + 1}`, "grid-row": level + 2, "--a": share / top } },
        word.text, ...(share >= 0.01 ? [el("small", {}, percent(share))] : []));
    });
    $("lattice").style.gridTemplateColumns = `repeat(${passage.units.length}, max-content)`;
    $("lattice").replaceChildren(...units, ...bars);
    const first = $("lattice").querySelector(".own");
    const box = $("lattice").parentElement;
    const place = first ? first.offsetLeft - box.offsetLeft : 0;
    box.scrollLeft = place > 0.7 * box.clientWidth ? place - 80 : 0;
  }

  // --- maps

  const name = (map) => {
    const layer = `layer ${map.layer}`;
    if (map.kind === "words") return "Words read into characters";
    if (map.kind === "relations") return "Relations of units";
    return `Attention, ${map.stream ? `${STREAMS[map.stream]}, ` : ""}${layer}`;
  };

  function showMaps(entity) {
    const maps = state.passage ? state.passage.maps.filter((map) => map.shape[2]) : [];
    $("maps").hidden = !maps.length;
    if (!maps.length) return;
    const names = maps.map(name);
    if (!names.includes(state.map)) state.map = name(maps.find((map) => map.kind !== "words") || maps[0]);
    const many = state.passage.units.length > 30 || maps[names.indexOf(state.map)].kind === "relations";
    if (!state.rowsChosen) $("rows-only").checked = many && Boolean(entity);
    $("map").replaceChildren(...names.map((one) => el("option", { value: one, selected: one === state.map }, one)));
    chooseHead(entity);
    $("heat").parentElement.scrollTo(0, 0);
  }

  const shownMap = () => state.passage.maps.find((map) => name(map) === state.map);

  /** The head that looks most from the entity at itself, until the reader chooses one. */
  function chooseHead(entity) {
    const map = shownMap();
    const heads = [...Array(map.shape[0]).keys()];
    if (!state.headChosen || state.head >= map.shape[0]) {
      const units = unitsOf(state.passage, entity);
      const keys = map.kind === "words" ? [] : units;
      const focus = heads.map((head) => units.reduce((sum, q) => sum + keys.reduce((own, k) => own + value(map, head, q, k), 0), 0));
      state.head = Math.max(0, focus.indexOf(Math.max(...focus)));
    }
    $("heads").hidden = heads.length < 2;
    $("heads").replaceChildren(el("legend", {}, "Head"), ...heads.map((head) => {
      const canvas = el("canvas", { width: map.shape[2], height: map.shape[1], "aria-hidden": "true" });
      return el("label", {}, canvas, String(head + 1),
        el("input", { type: "radio", name: "head", value: head, checked: head === state.head, "aria-label": `Head ${head + 1}` }));
    }));
    $("heat-help").textContent = HELP[map.kind] + (map.kept ? " Blank keys are those that the query did not keep; how many it kept is at the end of its row." : "");
    paint();
  }

  function paint() {
    const map = shownMap();
    $("heads").querySelectorAll("canvas").forEach((canvas, head) => thumbnail(canvas, map, head));
    drawHeat(map);
  }

  /** From 0 to 1, how dark each cell of a head is. */
  function shades(map, head) {
    const [, queries, keys] = map.shape;
    const bytes = weights(map).subarray(head * queries * keys, (head + 1) * queries * keys);
    let low = 0, high = 1;
    for (const byte of bytes) high = Math.max(high, byte);
    if (map.kind === "relations") { low = 255; for (const byte of bytes) low = Math.min(low, byte); }
    const floor = map.kept ? 0.1 : 0;
    return Float32Array.from(bytes, (byte) => (byte > low ? floor + (1 - floor) * ((byte - low) / Math.max(1, high - low)) : 0));
  }
  const hot = () => getComputedStyle(document.documentElement).getPropertyValue("--hot").split(",").map(Number);

  function thumbnail(canvas, map, head) {
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const [r, g, b] = hot();
    shades(map, head).forEach((shade, i) => image.data.set([r, g, b, 255 * shade], 4 * i));
    context.putImageData(image, 0, 0);
  }

  /** The rows that are drawn, and the names of rows and columns. */
  function axes(map) {
    const { units, words: found } = state.passage;
    const names = units.map(([start, end]) => words({ start, end }));
    const entities = [...data.texts[state.text].entities, ...targets().slice(state.entity, state.entity + 1)];
    const all = units.map((_, i) => i);
    const rows = $("rows-only").checked ? all.filter((i) => entities.some((one) => unitsOf(state.passage, one).includes(i))) : all;
    const columns = [...(map.kind === "words" ? [] : names), ...found.map((word) => word.text)].slice(0, map.shape[2]);
    return { rows, names, columns };
  }

  const grid = {};

  function drawHeat(map) {
    const { rows, names, columns } = axes(map);
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), line = style.getPropertyValue("--line");
    const canvas = $("heat"), context = canvas.getContext("2d");
    const font = `13px ${getComputedStyle(document.body).fontFamily}`;
    context.font = font;
    const short = (text) => (Array.from(text).length > 14 ? `${Array.from(text).slice(0, 13).join("")}…` : text);
    const wide = (list) => Math.ceil(Math.max(12, ...list.map((text) => context.measureText(short(text)).width)));
    // Chinese stands upright, one character below the other; what has letters is turned.
    const upright = columns.map((text) => Array.from(text).length < 2 || !/[\p{Script=Latin}\p{Nd}]/u.test(text));
    const tall = (text, i) => (upright[i] ? 15 * Array.from(short(text)).length : context.measureText(short(text)).width) + 6;
    const top = Math.max(...columns.map(tall));
    const left = wide(rows.map((i) => names[i])) + 8, right = map.kept ? 30 : 4;
    const size = Math.max(16, Math.min(28, Math.floor((canvas.parentElement.clientWidth - left - right) / columns.length)));
    Object.assign(grid, { size, left, top, rows, columns, names });
    const width = left + columns.length * size + right, height = top + rows.length * size + 2, ratio = window.devicePixelRatio || 1;
    canvas.width = Math.ceil(width * ratio);
    canvas.height = Math.ceil(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    context.scale(ratio, ratio);
    context.font = font;
    context.textBaseline = "middle";
    const shade = shades(map, state.head), keys = map.shape[2], [r, g, b] = hot();
    rows.forEach((query, i) => columns.forEach((_, key) => {
      const dark = shade[query * keys + key];
      if (!dark) return;
      context.fillStyle = `rgba(${r},${g},${b},${dark})`;
      context.fillRect(left + key * size, top + i * size, size - 1, size - 1);
    }));
    const entity = targets()[state.entity];
    const own = new Set(unitsOf(state.passage, entity));
    context.fillStyle = ink;
    context.textAlign = "right";
    rows.forEach((query, i) => {
      context.font = own.has(query) ? `bold ${font}` : font;
      context.fillText(short(names[query]), left - 6, top + i * size + size / 2);
    });
    columns.forEach((text, key) => {
      context.font = own.has(key) && map.kind !== "words" ? `bold ${font}` : font;
      context.save();
      context.translate(left + key * size + size / 2, top - 4);
      context.textAlign = "center";
      if (upright[key]) Array.from(short(text)).reverse().forEach((char, i) => context.fillText(char, 0, -6 - 15 * i));
      else { context.rotate(-Math.PI / 2); context.textAlign = "left"; context.fillText(short(text), 0, 0); }
      context.restore();
    });
    context.strokeStyle = line;
    context.strokeRect(left - 0.5, top - 0.5, columns.length * size, rows.length * size);
    if (map.kind !== "words" && columns.length > names.length) {
      context.beginPath();
      context.moveTo(left + names.length * size - 0.5, 0);
      context.lineTo(left + names.length * size - 0.5, height);
      context.stroke();
    }
    if (map.kept) {
      context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
      context.textAlign = "left";
      rows.forEach((query, i) => context.fillText(map.kept[state.head][query], left + columns.length * size + 4, top + i * size + size / 2));
    }
    if (state.cell) outline(context, state.cell, ink);
    canvas.setAttribute("aria-label", `${name(map)}${map.shape[0] > 1 ? `, head ${state.head + 1} of ${map.shape[0]}` : ""}: ${rows.length} rows, ${columns.length} columns`);
    tell(map);
  }

  function outline(context, [i, key], ink) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.strokeRect(grid.left + key * grid.size - 1, grid.top + i * grid.size - 1, grid.size + 1, grid.size + 1);
    context.lineWidth = 1;
  }

  function tell(map) {
    if (!state.cell) { $("cell").textContent = ""; return; }
    const [i, key] = state.cell, query = grid.rows[i];
    const found = value(map, state.head, query, key);
    const number = map.kind === "relations" ? `strength ${found.toFixed(2)}` : percent(found);
    const kept = map.kept ? `; it keeps ${map.kept[state.head][query]} keys` : "";
    const verb = map.kind === "relations" ? "and" : "looks at";
    $("cell").textContent = `${grid.names[query]} ${verb} ${grid.columns[key]}: ${found || !map.kept ? number : "not kept"}${kept}`;
  }

  function point(cell) {
    const [i, key] = cell;
    if (i < 0 || key < 0 || i >= grid.rows.length || key >= grid.columns.length) return;
    if (state.cell && state.cell[0] === i && state.cell[1] === key) return;
    state.cell = cell;
    drawHeat(shownMap());
  }

  // --- the tip beside an entity

  let hiding = 0;

  function showTip(node) {
    clearTimeout(hiding);
    const entity = targets()[Number(node.dataset.entity)];
    $("tip").replaceChildren(
      el("p", {}, el("strong", {}, percent(entity.probability)), ` ${entity.label}`),
      el("p", { class: "quiet" }, entity.rivals.length ? "Rivals" : "No rival has 1 % or more."),
      el("ul", { class: "rows" }, ...entity.rivals.map((one) => row(chip(one), one.probability, percent(one.probability)))));
    $("tip").hidden = false;
    const box = node.getClientRects()[0], tip = $("tip");
    const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    const below = [...node.getClientRects()].at(-1).bottom + 4;
    const over = box.top - tip.offsetHeight - 4;
    const top = below + tip.offsetHeight > window.innerHeight && over > 0 ? over : below;
    tip.style.left = `${Math.max(8, left) + window.scrollX}px`;
    tip.style.top = `${top + window.scrollY}px`;
    node.setAttribute("aria-describedby", "tip");
  }
  function hideTip() {
    clearTimeout(hiding);
    $("tip").hidden = true;
    for (const node of marks()) node.removeAttribute("aria-describedby");
  }

  // --- what a reader does

  const markOf = (event) => event.target.closest && event.target.closest(".ent");
  const choose = (node) => {
    showEntity(Number(node.dataset.entity));
    const box = $("entity").getBoundingClientRect();
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (box.top > window.innerHeight - 60) {
      hideTip();
      $("entity").scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "nearest" });
    }
  };
  $("read").addEventListener("mouseover", (event) => markOf(event) && showTip(markOf(event)));
  $("read").addEventListener("mouseout", (event) => { if (markOf(event)) hiding = setTimeout(hideTip, 120); });
  $("read").addEventListener("focusin", (event) => markOf(event) && showTip(markOf(event)));
  $("read").addEventListener("focusout", hideTip);
  $("read").addEventListener("click", (event) => markOf(event) && choose(markOf(event)));
  $("read").addEventListener("keydown", (event) => {
    const node = markOf(event);
    if (!node) return;
    const all = marks();
    const next = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(node);
    else if (next) (all[all.indexOf(node) + next] || node).focus();
    else return;
    event.preventDefault();
  });
  $("text").addEventListener("scroll", hideTip);
  $("tip").addEventListener("mouseenter", () => clearTimeout(hiding));
  $("tip").addEventListener("mouseleave", hideTip);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
  $("list").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) showText(Number(button.dataset.text));
  });
  $("order").addEventListener("change", listTexts);
  $("map").addEventListener("change", () => {
    Object.assign(state, { map: $("map").value, cell: null, headChosen: false });
    chooseHead(targets()[state.entity]);
  });
  $("heads").addEventListener("change", (event) => {
    Object.assign(state, { head: Number(event.target.value), headChosen: true });
    drawHeat(shownMap());
  });
  $("rows-only").addEventListener("change", () => { Object.assign(state, { cell: null, rowsChosen: true }); drawHeat(shownMap()); });
  $("heat").addEventListener("mousemove", (event) => {
    const box = $("heat").getBoundingClientRect();
    point([Math.floor((event.clientY - box.top - grid.top) / grid.size), Math.floor((event.clientX - box.left - grid.left) / grid.size)]);
  });
  $("heat").addEventListener("keydown", (event) => {
    const move = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    if (!move) return;
    point(state.cell ? [state.cell[0] + move[0], state.cell[1] + move[1]] : [0, 0]);
    event.preventDefault();
  });

  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(dark));
    if (!$("maps").hidden) paint();
  }
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  window.addEventListener("resize", () => { if (!$("maps").hidden) drawHeat(shownMap()); });
  prefers.addEventListener("change", (event) => setTheme(event.matches));
  $("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));

  const { name: own, version, component, view } = data.pipeline;
  $("pipeline").textContent = [[own, version].filter(Boolean).join(" "), component, `reads ${view}`].filter(Boolean).join(" · ");
  $("notes").append(...data.notes.map((note) => el("li", {}, note)));
  setTheme(prefers.matches);
  listTexts();
  const asked = Number(/^#text-(\d+)$/.exec(location.hash)?.[1] || 0);
  if (data.texts.length) showText(Math.min(asked, data.texts.length - 1));
  document.documentElement.dataset.ready = "true";
})();
