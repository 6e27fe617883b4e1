"use strict";
/** What all pages share. Nothing of the data is ever read as markup: text goes into text nodes and attributes. */
const parts = (() => {
  const $ = (id) => document.getElementById(id);
  const data = $("data") && JSON.parse($("data").textContent);

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "style") for (const [key, own] of Object.entries(value)) node.style.setProperty(key, own);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }

  // --- labels and numbers

  /** The hue of a label in degrees. `label_hue` of colors.py computes the same. */
  function hue(label) {
    let value = 1123335291;
    for (const char of label) value = Math.imul(value ^ char.codePointAt(0), 0x01000193);
    value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
    return ((value ^ (value >>> 12)) >>> 0) % 360;
  }
  const chip = (label, ...children) =>
    el("span", { class: "chip", style: { "--h": hue(label) }, title: label }, el("b", {}, label || "no label"), ...children);
  const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
  function percent(p) {
    if (p === null || p === undefined) return "–";
    if (p >= 0.9995) return "> 99.9 %";
    return p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(p > 0.1 && p < 0.9 ? 0 : 1)} %`;
  }
  const meter = (share, kind = "") =>
    el("span", { class: `meter ${kind}`, "aria-hidden": "true" }, el("i", { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } }));

  // --- places in texts: data counts characters, JavaScript UTF-16 units

  /** Two functions for a text: from characters to units, and back. */
  function places(text) {
    if (!/[\ud800-\udbff]/.test(text)) return { unit: (place) => place, character: (place) => place };
    const units = [0];
    for (const char of text) units.push(units.at(-1) + char.length);
    const characters = new Map(units.map((unit, place) => [unit, place]));
    return { unit: (place) => units[place], character: (unit) => characters.get(unit) ?? characters.get(unit - 1) };
  }

  /** The parts of a text that are shown around some spans: all of a short one. Places are units. */
  function excerpts(text, spans, around = 80, short = 600) {
    if (text.length <= short) return [[0, text.length]];
    const whole = (place) => (place > 0 && /[\udc00-\udfff]/.test(text[place] || "") ? place - 1 : place);
    const found = [];
    for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
      const [from, to] = [whole(Math.max(0, start - around)), whole(Math.min(text.length, end + around))];
      if (found.length && from <= found.at(-1)[1]) found.at(-1)[1] = Math.max(to, found.at(-1)[1]);
      else found.push([from, to]);
    }
    return found.length ? found : [[0, whole(short)]];
  }

  /**
   * Nodes of a text between two places, with its spans as elements inside of each other. Of spans that cross, the one
   * that begins later is cut in two. mark(span, children, kind): the element of a span, or of a part of it: then kind is
   * `begun`, `cut` or both.
   */
  function marked(text, spans, mark, from = 0, to = text.length) {
    const rest = spans.filter((span) => span.start < to && span.end > from && span.start < span.end)
      .map((span) => ({ span, start: Math.max(span.start, from), end: Math.min(span.end, to) }));
    const order = (a, b) => a.start - b.start || b.end - a.end;
    rest.sort(order).reverse();
    function fill(start, end) {
      const nodes = [];
      let done = start;
      while (rest.length && rest.at(-1).start < end) {
        const part = rest.pop();
        const stop = Math.min(part.end, end);
        if (done < part.start) nodes.push(text.slice(done, part.start));
        if (part.end > end) {
          let place = rest.length;
          const later = { ...part, start: end };
          while (place && order(rest[place - 1], later) < 0) place--;
          rest.splice(place, 0, later);
        }
        const kind = `${part.start > part.span.start ? " begun" : ""}${stop < part.span.end ? " cut" : ""}`;
        nodes.push(mark(part.span, fill(part.start, stop), kind));
        done = stop;
      }
      if (done < end) nodes.push(text.slice(done, end));
      return nodes;
    }
    return fill(from, to);
  }

  // --- a list with pages

  /**
   * ids: `list` (an ol), `pager` (a nav), `shown` (a status). draw(item): the content of its li. noun, plural: of items.
   * Arrow keys, Home and End go through the items, PageUp and PageDown through pages.
   */
  function listing({ draw, noun, plural, size = 50, chosen = () => {} }) {
    let items = [], first = 0, current = -1;
    const list = $("list");
    const step = (name, to) => {
      const button = el("button", { type: "button", class: "plain", disabled: to < 0 || to >= items.length || to === first }, name);
      button.addEventListener("click", () => { turn(to); list.scrollIntoView({ block: "start" }); });
      return button;
    };
    function row(item, index) {
      const node = el("li", { tabindex: index === current ? "0" : "-1", "data-index": index }, ...draw(item));
      if (index === current) node.setAttribute("aria-current", "true");
      return node;
    }
    function turn(to, at = to) {
      first = Math.max(0, to);
      current = items.length ? at : -1;
      const last = Math.min(items.length, first + size);
      list.replaceChildren(...items.slice(first, last).map((item, i) => row(item, first + i)));
      $("pager").hidden = items.length <= size;
      $("pager").replaceChildren(step("‹ Previous", first - size),
        el("span", { class: "quiet" }, `${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")}`), step("Next ›", first + size));
      $("shown").textContent = count(items.length, noun, plural);
      chosen(items[current]);
    }
    /** Make an item the current one, on its page. */
    function go(index, focus = true) {
      if (index < 0 || index >= items.length) return;
      if (index < first || index >= first + size) turn(Math.floor(index / size) * size, index);
      const before = list.querySelector("[aria-current]"), node = list.children[index - first];
      if (before) { before.removeAttribute("aria-current"); before.tabIndex = -1; }
      current = index;
      node.setAttribute("aria-current", "true");
      node.tabIndex = 0;
      if (focus) node.focus();
      chosen(items[index]);
    }
    list.addEventListener("keydown", (event) => {
      if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      const to = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: first + size, PageUp: first - size, Home: 0, End: items.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      go(to);
    });
    list.addEventListener("focusin", (event) => {
      const node = event.target.closest("li[data-index]");
      if (node && Number(node.dataset.index) !== current) go(Number(node.dataset.index), event.target === node);
    });
    return {
      show: (found) => { items = found; turn(0); },
      /** Draw an item again, the current one if none is named. */
      redraw(item = items[current]) {
        const index = items.indexOf(item), old = list.children[index - first];
        if (!old) return;
        const node = row(item, index), had = old.contains(document.activeElement);
        old.replaceWith(node);
        if (had) node.focus({ preventScroll: true });
      },
      go,
      get current() { return current; },
      get item() { return items[current]; },
      get items() { return items; },
    };
  }

  /** Call a function when someone has stopped typing in a field. `/` goes to the field from anywhere, Escape empties it. */
  function searching(field, changed) {
    let timer = 0;
    field.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(changed, 120); });
    field.addEventListener("keydown", (event) => { if (event.key === "Escape") { field.value = ""; changed(); } });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
      event.preventDefault();
      field.focus();
    });
  }

  // --- local storage and downloads

  /** localStorage, or nothing where a browser keeps nothing for a page. */
  const kept = {
    get(key) { try { return JSON.parse(localStorage.getItem(`spacy_tener.${key}`)); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(`spacy_tener.${key}`, JSON.stringify(value)); return true; } catch { return false; } },
  };
  function download(name, content, type = "application/json") {
    const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- light and dark: the system's setting, until the reader chooses

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  function paint(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    $("theme")?.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("theme"));
  }
  $("theme")?.addEventListener("click", () => { paint(isDark() ? "light" : "dark"); kept.set("theme", document.documentElement.dataset.theme); });
  dark.addEventListener("change", () => paint());
  paint({ dark: "dark", light: "light" }[kept.get("theme")]);

  return { $, el, data, hue, chip, count, percent, meter, places, excerpts, marked, listing, searching, kept, download };
})();
