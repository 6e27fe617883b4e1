(() => {
  const { $, el, data, chip, count, percent, meter, listing, searching, rgb } = parts;
  const HELP = {
    attention: "Each row is a query: what this unit looks at. Stronger colour = more attention. Move with the pointer or the arrow keys.",
    words: "Each row is a character, each column a word that covers it. Stronger colour = larger share. Move with the pointer or the arrow keys.",
    relations: "Strength of the relation of each pair, from weakest to strongest. Move with the pointer or the arrow keys.",
  };
  const STREAMS = { lattice: "characters and words", radicals: "radicals" };
  const state = { text: null, chars: [], entity: -1, passage: null, map: "", head: 0, headChosen: false, rowsChosen: false, cell: null };

  // --- helpers

  const words = (part) => state.chars.slice(part.start, part.end).join("");
  const named = (part) => chip(part.label, ` ${words(part)}`);
  const row = (name, share, value, kind) =>
    el("li", {}, el("span", { class: "name" }, name), meter(share, kind), el("span", { class: "value" }, value));
  const same = (a, b) => a.start === b.start && a.end === b.end && a.label === b.label;
  const isIn = (found, one) => found.some((other) => same(one, other));
  const listed = (nodes) => nodes.flatMap((node, i) => (i ? [", ", node] : [node]));
  const goldOf = (text) => (text.gold || []).map(([start, end, label]) => ({ start, end, label }));
  const mistakes = (text) => {
    if (!text.gold) return 0;
    const gold = goldOf(text);
    return text.entities.length + gold.length - 2 * text.entities.filter((one) => isIn(gold, one)).length;
  };
  const least = (text) => Math.min(1, ...text.entities.map((one) => one.probability));

  // --- the list of texts

  const texts = listing({
    noun: "text",
    chosen: (text) => { if (text !== state.text) showText(text); },
    draw(text) {
      const facts = [count(text.entities.length, "entity", "entities")];
      if (text.entities.length) facts.push(`least sure ${percent(least(text))}`);
      if (mistakes(text)) facts.push(`${mistakes(text)} ${mistakes(text) === 1 ? "differs" : "differ"} from the annotation`);
      return [el("span", { class: "snippet" }, Array.from(text.text.slice(0, 200)).slice(0, 80).join("")), el("span", { class: "quiet" }, facts.join(" · "))];
    },
  });

  function listTexts() {
    const sought = $("search").value.trim().toLowerCase();
    const holds = (text) => [text.text, ...text.entities.map((one) => one.label)].some((part) => part.toLowerCase().includes(sought));
    const key = { unsure: least, wrong: (text) => -mistakes(text) }[$("order").value];
    const found = data.texts.filter(holds);
    if (key) found.sort((a, b) => key(a) - key(b));
    texts.show(found);
  }

  /** Show the text that a link leads to, as `page.html#text-7`: its number among all, from 0. */
  function showLinked() {
    const place = texts.items.indexOf(data.texts[Number(/^#text-(\d+)$/.exec(location.hash)?.[1] ?? NaN)]);
    if (place >= 0) texts.go(place, false);
  }

  // --- one text

  function showText(text) {
    Object.assign(state, { text, chars: Array.from(text?.text || ""), entity: -1, headChosen: false });
    $("read").hidden = !text;
    if (!text) return showEntity(-1);
    const link = data.links[data.texts.indexOf(text)];
    $("back").hidden = !link;
    if (link) $("back").href = link;
    const gold = goldOf(text);
    const nodes = [];
    let done = 0;
    text.entities.forEach((entity, i) => {
      nodes.push(state.chars.slice(done, entity.start).join(""), mark(entity, i, text.gold && !isIn(gold, entity)));
      done = entity.end;
    });
    $("text").replaceChildren(...nodes, state.chars.slice(done).join(""));
    const long = state.chars.length > 1200;
    $("text").classList.toggle("long", long);
    if (long) $("text").tabIndex = 0;
    else $("text").removeAttribute("tabindex");
    $("none").hidden = text.entities.length > 0;
    $("possible").hidden = !text.possible.length;
    $("possible").lastElementChild.replaceChildren(...text.possible.flatMap((entity, i) => [mark(entity, text.entities.length + i, false), " "]));
    const missed = gold.filter((one) => !isIn(text.entities, one));
    $("gold").hidden = !text.gold;
    $("gold").replaceChildren(...(missed.length ? ["Annotated, not found: ", ...listed(missed.map(named))]
      : [mistakes(text) ? "≠ found, not annotated" : "The same entities as annotated."]));
    const choices = Math.exp(text.entropy);
    $("doubt").textContent = choices < 1.05 ? "One reading of the whole text has nearly all the probability."
      : `Uncertainty about the whole text: as if ${choices < 100 ? choices.toFixed(1) : choices < 10000 ? Math.round(choices) : "more than 10,000"} readings were equally likely.`;
    showReadings(text);
    showEntity(targets().length ? 0 : -1);
  }

  /** What can be selected: the entities found, then the possible ones. */
  const targets = () => (state.text ? [...state.text.entities, ...state.text.possible] : []);
  const marks = () => [...document.querySelectorAll("#text .ent, #possible .ent")];

  function mark(entity, index, wrong) {
    const rivals = entity.rivals.map((one) => `${words(one)} ${one.label} ${percent(one.probability)}`);
    const kind = `ent${entity.probability < 0.5 ? " unsure" : ""}${wrong ? " wrong" : ""}${entity.end - entity.start + entity.label.length < 20 ? " short" : ""}`;
    return el("mark",
      { class: kind, role: "button", tabindex: "-1", "aria-pressed": "false", "data-entity": index, style: { "--h": parts.hue(entity.label) },
        title: rivals.length ? `Rivals: ${rivals.join(", ")}` : "No rival has 1 % or more." },
      words(entity), el("small", {}, `${entity.label} ${percent(entity.probability)}`));
  }

  function showReadings(text) {
    const best = text.entities;
    $("readings").hidden = !text.k_best.length;
    $("readings").lastElementChild.replaceChildren(
      ...text.k_best.map((reading, i) => {
        const more = reading.entities.filter((one) => !isIn(best, one)).map((one) => el("span", {}, "with ", named(one)));
        const gone = best.filter((one) => !isIn(reading.entities, one)).map((one) => el("span", {}, "without ", named(one)));
        const same = i ? "the same entities" : "as marked above";
        return el("li", {}, `${percent(reading.probability)}: `, ...(more.length + gone.length ? listed([...more, ...gone]) : [same]));
      }));
  }

  // --- one entity

  function showEntity(index) {
    const entity = targets()[index];
    state.entity = index;
    for (const node of marks()) {
      const own = Number(node.dataset.entity) === index;
      node.setAttribute("aria-pressed", String(own));
      node.tabIndex = own ? 0 : -1; // one stop of the Tab key; the arrow keys go on from there
    }
    $("entity").hidden = !entity;
    const holds = (passage) => !entity || (passage.start <= entity.start && entity.start < passage.end);
    state.passage = state.text?.passages.find((one) => holds(one) && (entity || one.maps.length || one.words.length)) || null;
    state.cell = null;
    if (entity) {
      $("entity-title").replaceChildren(words(entity), " ", el("small", { class: "quiet" }, entity.label));
      $("sure").replaceChildren(el("strong", {}, percent(entity.probability)), meter(entity.probability));
      $("rivals").replaceChildren(...rivalRows(entity));
      showEvidence(entity);
      const { radicals } = state.text;
      const made = [...new Set(state.chars.slice(entity.start, entity.end))].filter((char) => Object.hasOwn(radicals, char));
      $("radicals").hidden = !made.length;
      $("radicals").lastElementChild.replaceChildren(
        ...made.map((char) => el("li", {}, el("b", {}, char), Array.from(radicals[char]).join(" ＋ "))));
    }
    showLattice(entity);
    showMaps(entity);
  }

  function rivalRows(entity) {
    const rows = entity.rivals.map((one) => row(named(one), one.probability, percent(one.probability)));
    return rows.length ? rows : [el("li", { class: "whole" }, "No rival has 1 % or more.")];
  }

  function showEvidence(entity) {
    const found = entity.evidence.map(([start, end, drop]) => ({ start, end, drop }));
    $("evidence").hidden = !found.length;
    if (!found.length) return;
    const largest = Math.max(0.5, ...found.map((one) => Math.abs(one.drop)));
    const nodes = [];
    let done = found[0].start;
    for (const one of found) {
      const share = Math.abs(one.drop) / largest;
      const own = one.start < entity.end && one.end > entity.start;
      const kind = `${share < 0.04 ? "" : one.drop > 0 ? "for" : "against"}${own ? " own" : ""}`;
      nodes.push(state.chars.slice(done, one.start).join(""),
        el("span", { class: kind, title: change(entity, one), style: { "--a": (0.1 + 0.5 * share).toFixed(2) } }, words(one)));
      done = one.end;
    }
    $("strip").replaceChildren(...nodes);
    const strong = found.filter((one) => Math.abs(one.drop) > 0.1).sort((a, b) => Math.abs(b.drop) - Math.abs(a.drop)).slice(0, 6);
    $("strongest").replaceChildren(
      ...strong.map((one) =>
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
          style: { "grid-column": `${word.start + 1} / ${word.end + 1}`, "grid-row": level + 2, "--a": (0.4 * share) / top } },
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

  /** Draw the maps of a passage, where a reader has opened them. */
  function showMaps(entity) {
    const maps = state.passage ? state.passage.maps.filter((map) => map.shape[2]) : [];
    $("maps").hidden = !maps.length;
    if (!isDrawn()) return;
    const names = maps.map(name);
    if (!names.includes(state.map)) state.map = name(maps.find((map) => map.kind !== "words") || maps[0]);
    const many = state.passage.units.length > 30 || maps[names.indexOf(state.map)].kind === "relations";
    if (!state.rowsChosen) $("rows-only").checked = many && Boolean(entity);
    $("map").replaceChildren(...names.map((one) => el("option", { value: one, selected: one === state.map }, one)));
    chooseHead(entity);
    $("heat").parentElement.scrollTo(0, 0);
  }

  const isDrawn = () => !$("maps").hidden && $("open-maps").open;
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

  /** From 0 to 1, how strong the colour of each cell of a head is. */
  function shades(map, head) {
    const [, queries, keys] = map.shape;
    const bytes = weights(map).subarray(head * queries * keys, (head + 1) * queries * keys);
    let low = 0, high = 1;
    for (const byte of bytes) high = Math.max(high, byte);
    if (map.kind === "relations") { low = 255; for (const byte of bytes) low = Math.min(low, byte); }
    const floor = map.kept ? 0.1 : 0;
    return Float32Array.from(bytes, (byte) => (byte > low ? floor + (1 - floor) * ((byte - low) / Math.max(1, high - low)) : 0));
  }
  function thumbnail(canvas, map, head) {
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    const [r, g, b] = rgb("--accent");
    shades(map, head).forEach((shade, i) => image.data.set([r, g, b, 255 * shade], 4 * i));
    context.putImageData(image, 0, 0);
  }

  /** The rows that are drawn, and the names of rows and columns. */
  function axes(map) {
    const { units, words: found } = state.passage;
    const names = units.map(([start, end]) => words({ start, end }));
    const entities = [...state.text.entities, ...targets().slice(state.entity, state.entity + 1)];
    const all = units.map((_, i) => i);
    const rows = $("rows-only").checked ? all.filter((i) => entities.some((one) => unitsOf(state.passage, one).includes(i))) : all;
    const columns = [...(map.kind === "words" ? [] : names), ...found.map((word) => word.text)].slice(0, map.shape[2]);
    return { rows, names, columns };
  }

  const grid = {};

  function drawHeat(map) {
    const { rows, names, columns } = axes(map);
    const [ink, line] = ["--ink", "--line"].map((token) => `rgb(${rgb(token)})`);
    const canvas = $("heat"), context = canvas.getContext("2d");
    const font = `13px ${getComputedStyle(document.body).fontFamily}`;
    context.font = font;
    const short = (text) => (Array.from(text).length > 14 ? `${Array.from(text).slice(0, 13).join("")}…` : text);
    const wide = (list) => Math.ceil(Math.max(12, ...list.map((text) => context.measureText(short(text)).width)));
    // Chinese is written top to bottom; text with letters is rotated.
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
    const shade = shades(map, state.head), keys = map.shape[2], [r, g, b] = rgb("--accent");
    rows.forEach((query, i) => columns.forEach((_, key) => {
      const strong = shade[query * keys + key];
      if (!strong) return;
      context.fillStyle = `rgba(${r},${g},${b},${strong})`;
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
      const other = all[all.indexOf(node) + next] || node;
      showEntity(Number(other.dataset.entity));
      other.focus();
    } else return;
    event.preventDefault();
  });
  $("order").addEventListener("change", listTexts);
  searching($("search"), listTexts);
  $("open-maps").addEventListener("toggle", () => showMaps(targets()[state.entity]));
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
  window.addEventListener("resize", () => { if (isDrawn()) drawHeat(shownMap()); });
  document.addEventListener("theme", () => { if (isDrawn()) paint(); });

  // --- in an iframe: the outer page sends its theme and receives the height

  const inside = new ResizeObserver(() => parent.postMessage({ height: document.body.offsetHeight }, "*"));
  window.addEventListener("message", ({ data: told, source }) => {
    if (source !== parent || parent === window || !["light", "dark"].includes(told?.theme)) return;
    document.documentElement.classList.add("inside");
    document.documentElement.dataset.theme = told.theme;
    document.dispatchEvent(new Event("theme"));
    inside.observe(document.body);
  });

  $("notes").append(...data.notes.map((note) => el("li", {}, note)));
  $("texts").hidden = data.texts.length < 2;
  if (!data.texts.some((text) => text.gold)) $("order").querySelector("[value=wrong]").remove();
  listTexts();
  showLinked();
  window.addEventListener("hashchange", showLinked);
  document.documentElement.dataset.ready = "true";
})();
