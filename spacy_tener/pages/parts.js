"use strict";
/** Functions for all pages. Data is only inserted as text nodes and attributes, and never interpreted as HTML. */
const parts = (() => {
  const $ = (id) => document.getElementById(id);
  const data = $("data") && JSON.parse($("data").textContent);

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "style") for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }

  // --- local storage, to which a browser may deny access

  const stored = {
    get(key) { try { return JSON.parse(localStorage.getItem(`spacy_tener.${key}`)); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(`spacy_tener.${key}`, JSON.stringify(value)); return true; } catch { return false; } },
  };

  // --- the language of titles and controls: the language of the browser, unless the user selects another one

  const browserLanguage = navigator.language.startsWith("zh") ? "zh" : "en";
  // If the local storage is not available, for example in private windows, the language is stored in the tab's history.
  const chosen = stored.get("language") || history.state?.language;
  const language = document.documentElement.dataset.language || chosen || browserLanguage;
  /** A string in the page's language, with values in place of their names in braces. */
  const say = (text, values = {}) =>
    (STRINGS[language]?.[text] ?? text).replace(/\{(\w+)\}/g, (braces, name) => values[name] ?? braces);
  /** The separator of two strings in a sentence. Chinese has no spaces between words. */
  const gap = language === "zh" ? "" : " ";

  /** Translate the English strings of the page's HTML. Data is not translated. */
  function translatePage() {
    document.documentElement.lang = language;
    $("language")?.setAttribute("lang", "en");
    const translate = (text) => text.replace(/\S.*\S|\S/s, (words) => say(words.replace(/\s+/g, " ")));
    document.title = say(document.title);
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { parentElement } = walker.currentNode;
      if (parentElement.closest("script, style")) continue;
      const { data: english } = walker.currentNode, translated = translate(english);
      // In a Chinese sentence, remove the spaces around nested elements.
      walker.currentNode.data = translated !== english && !gap && parentElement.closest("p") ? translated.trim() : translated;
    }
    for (const name of ["title", "aria-label", "placeholder"])
      for (const node of document.querySelectorAll(`[${name}]`)) node.setAttribute(name, translate(node.getAttribute(name)));
    const { title, about, values, uncalibrated } = data?.heading || {};
    if (title) document.title = document.querySelector("h1").textContent = say(title, values);
    if (about) $("about").textContent = say(about, values) + (uncalibrated ? ` · ${say("uncalibrated probabilities")}` : "");
  }
  if (language !== "en") translatePage();
  $("language")?.addEventListener("click", () => {
    document.dispatchEvent(new Event("language"));
    const other = language === "en" ? "zh" : "en";
    stored.set("language", other);
    history.replaceState({ language: other }, "");
    location.reload();
  });

  // --- labels and numbers

  const hues = new Map();
  /** The hue of a label in degrees: the preferred hue of the label, or the next free hue. `label_hues` in Python is the same function. */
  function hue(label) {
    if (hues.has(label)) return hues.get(label);
    let number = 0;
    for (const char of label) number = (number * 258 + char.codePointAt(0)) % 65521;
    const taken = new Set(hues.values());
    for (let n = 8; ; n *= 2)
      for (let i = 0; i < n; i++) {
        const free = (((number + i) % n) * 360) / n;
        if (!taken.has(free)) return hues.set(label, free) && free;
      }
  }
  /** Assign hues to all labels of a pipeline, in order. */
  function setLabels(names) {
    hues.clear();
    names.forEach(hue);
  }
  setLabels([...(data?.label_order ?? []), ...(data?.labels ?? [])]);
  const chip = (label, ...children) =>
    el("span", { class: "chip", style: { "--h": hue(label) }, title: label }, el("b", {}, label || say("no label")), ...children);
  const digits = (n) => n.toLocaleString("en");
  const count = (n, noun, plural = `${noun}s`) => `${digits(n)} ${say(n === 1 ? noun : plural)}`;
  function percent(p) {
    if (p === null || p === undefined) return "–";
    if (p >= 0.9995) return "> 99.9 %";
    return p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(p > 0.1 && p < 0.9 ? 0 : 1)} %`;
  }
  const meter = (share, kind = "") =>
    el("span", { class: `meter ${kind}`, "aria-hidden": "true" }, el("i", { style: { width: `${100 * Math.min(1, Math.max(0, share))}%` } }));

  // --- the size and the direction of a text

  const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;
  /** The approximate width of a text in columns, as in a terminal: a Chinese or Japanese character has two columns. */
  const columns = (text) => [...text].reduce((sum, char) => sum + (WIDE.test(char) ? 2 : 1), 0);
  const SHORT = 28;
  /** Whether an entity is displayed without line breaks. content: strings and elements of nested entities. name: the label, which has smaller letters. most: the maximum width in columns, by default what fits on the screen of a phone. */
  function isShort(content, name, most = SHORT) {
    const text = content.map((node) => node.textContent ?? node).join("");
    return text.length <= most && columns(text) + 0.7 * columns(name) <= most;
  }
  const RIGHT_TO_LEFT = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
  /** The direction of a text: that of its first letter. The labels that are inserted into the text have no effect. */
  const direction = (text) => (RIGHT_TO_LEFT.test(/\p{L}/u.exec(text)?.[0] ?? "") ? "rtl" : "ltr");

  // --- offsets: the data has offsets in characters (code points), and JavaScript uses UTF-16 code units

  /** Return two functions for a text, which convert offsets in characters to code units, and code units to characters. */
  function offsetsOf(text) {
    if (!/[\ud800-\udbff]/.test(text)) return { unit: (offset) => offset, character: (offset) => offset };
    const units = [0];
    for (const char of text) units.push(units.at(-1) + char.length);
    const characters = new Map(units.map((unit, character) => [unit, character]));
    return { unit: (character) => units[character], character: (unit) => characters.get(unit) ?? characters.get(unit - 1) };
  }

  /** The excerpts of a text around some spans, as pairs of offsets in code units. A short text has a single excerpt. */
  function excerpts(text, spans, around = 80, short = 600) {
    if (text.length <= short) return [[0, text.length]];
    // Do not split a surrogate pair.
    const align = (offset) => (offset > 0 && /[\udc00-\udfff]/.test(text[offset] || "") ? offset - 1 : offset);
    const parts = [];
    for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
      const [from, to] = [align(Math.max(0, start - around)), align(Math.min(text.length, end + around))];
      if (parts.length && from <= parts.at(-1)[1]) parts.at(-1)[1] = Math.max(to, parts.at(-1)[1]);
      else parts.push([from, to]);
    }
    return parts.length ? parts : [[0, align(short)]];
  }

  /**
   * Nodes of a text between two offsets, with nested elements for nested spans. If two spans cross, the later span is
   * split. mark(span, children, kind) returns the element of a span or of a part of a span. The kind of a part that does
   * not begin the span contains `begun`, and the kind of a part that does not end the span contains `cut`.
   */
  function marked(text, spans, mark, from = 0, to = text.length) {
    const stack = spans.filter((span) => span.start < to && span.end > from && span.start < span.end)
      .map((span) => ({ span, start: Math.max(span.start, from), end: Math.min(span.end, to) }));
    const order = (a, b) => a.start - b.start || b.end - a.end;
    stack.sort(order).reverse();
    function fill(start, end) {
      const nodes = [];
      let offset = start;
      while (stack.length && stack.at(-1).start < end) {
        const part = stack.pop();
        const stop = Math.min(part.end, end);
        if (offset < part.start) nodes.push(text.slice(offset, part.start));
        if (part.end > end) {
          let index = stack.length;
          const remainder = { ...part, start: end };
          while (index && order(stack[index - 1], remainder) < 0) index--;
          stack.splice(index, 0, remainder);
        }
        const kind = `${part.start > part.span.start ? " begun" : ""}${stop < part.span.end ? " cut" : ""}`;
        nodes.push(mark(part.span, fill(part.start, stop), kind));
        offset = stop;
      }
      if (offset < end) nodes.push(text.slice(offset, end));
      return nodes;
    }
    return fill(from, to);
  }

  // --- a list with pages

  /**
   * A list with pages. The HTML needs elements with the ids `list` (ol), `pager` (nav) and `shown` (status). draw(item)
   * returns the content of an item. noun and plural describe the items. The arrow keys, Home and End select an item,
   * and PageUp and PageDown select a page.
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
      const range = say("{first} to {last}", { first: digits(first + 1), last: digits(last) });
      $("pager").replaceChildren(step(say("‹ Previous"), first - size), el("span", { class: "quiet" }, range), step(say("Next ›"), first + size));
      $("shown").textContent = count(items.length, noun, plural);
      chosen(items[current]);
    }
    /** Show and select an item. */
    function go(index, focus = true) {
      if (index < 0 || index >= items.length) return;
      if (index < first || index >= first + size) turn(Math.floor(index / size) * size, index);
      const previous = list.querySelector("[aria-current]"), node = list.children[index - first];
      if (previous) { previous.removeAttribute("aria-current"); previous.tabIndex = -1; }
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
      /** Redraw an item, by default the selected item. */
      redraw(item = items[current]) {
        const index = items.indexOf(item), old = list.children[index - first];
        if (!old) return;
        const node = row(item, index), hadFocus = old.contains(document.activeElement);
        old.replaceWith(node);
        if (hadFocus) node.focus({ preventScroll: true });
      },
      go,
      get current() { return current; },
      get item() { return items[current]; },
      get items() { return items; },
    };
  }

  /** Call a function when the user stops typing in a field. The key `/` focuses the field, and Escape clears it. */
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

  // --- downloads

  function download(name, content, type = "application/json") {
    const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- light and dark colours: the setting of the system, unless the user selects another one

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  function paint(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    $("theme")?.setAttribute("aria-pressed", String(isDark()));
    document.dispatchEvent(new Event("theme"));
  }
  $("theme")?.addEventListener("click", () => { paint(isDark() ? "light" : "dark"); stored.set("theme", document.documentElement.dataset.theme); });
  dark.addEventListener("change", () => paint());
  paint({ dark: "dark", light: "light" }[stored.get("theme")]);

  return { $, el, data, language, say, gap, setLabels, hue, chip, digits, count, percent, meter, columns, isShort, direction, offsetsOf, excerpts, marked, listing, searching, stored, download };
})();
