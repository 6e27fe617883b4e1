import { asCurl, post, problemOf, send } from "./requests.js";

const { $, el, chip, count, download, hue, listing, marked, meter, percent, places } = parts;
const DEBOUNCE = 150;
const SAMPLES = {
  zh: "王小明昨天去了上海，在中国银行工作的吴重阳也在。",
  en: "Angela Merkel met Tim Cook of Apple in Berlin on Monday.",
};
const state = { models: [], text: "", entities: [], explained: null, hidden: new Set(), asked: null };

const model = () => state.models.find((each) => each.name === $("model").value);
const least = () => $("minimum").value / 100;
const shown = () => state.entities.filter((one) => !state.hidden.has(one.label) && (one.probability ?? 1) >= least());
const written = () => $("input").value.toWellFormed?.() ?? $("input").value;

// --- requests

async function ask() {
  const text = written();
  state.asked?.abort();
  const own = (state.asked = new AbortController());
  let [entities, problem] = [[], ""];
  try {
    if (text.trim()) entities = (await (await post("v1/entities", { text, model: model().name, offsets: "utf16" }, own.signal)).json()).entities;
  } catch (error) {
    problem = problemOf(error);
  }
  if (state.asked !== own) return;
  // After an error, entities of the previous text are removed.
  Object.assign(state, problem ? { text: "", entities: [] } : { text, entities });
  tell(problem);
  draw();
}

function tell(problem) {
  $("problem").textContent = problem;
  $("problem").hidden = !problem;
}

let timer = 0;
function askSoon() {
  $("count").textContent = [...written()].length.toLocaleString("en");
  enable();
  clearTimeout(timer);
  timer = setTimeout(ask, DEBOUNCE);
}

/** Actions are for the text that was read, and wait while another one is written. */
function enable() {
  const isRead = Boolean(state.text.trim()) && state.text === written();
  for (const name of ["explain", "json", "csv", "copy"]) $(name).disabled = !isRead;
  if (!$("frame").hidden) $("working").textContent = isRead && state.text === state.explained ? "" : "This explains the previous text.";
}

// --- drawing

const ORDERS = {
  text: (a, b) => a.start - b.start,
  sure: (a, b) => (b.probability ?? 1) - (a.probability ?? 1),
  unsure: (a, b) => (a.probability ?? 1) - (b.probability ?? 1),
  label: (a, b) => a.label.localeCompare(b.label),
};

const list = listing({
  noun: "entity",
  plural: "entities",
  draw: (one) => [el("span", { class: "name" }, chip(one.label, ` ${one.text}`)), meter(one.probability ?? 1), el("span", { class: "value" }, percent(one.probability))],
  chosen: (one) => light("chosen", one),
});

function draw() {
  const entities = shown();
  $("text").replaceChildren(...marked(state.text, entities, mark));
  list.show([...entities].sort(ORDERS[$("order").value]));
  const hidden = state.entities.length - entities.length;
  $("nothing").textContent = hidden ? "All entities are hidden: show more labels, or less sure ones." : "No entities were found in this text.";
  $("nothing").hidden = entities.length > 0 || !state.text.trim();
  $("hidden").textContent = hidden ? `, ${hidden.toLocaleString("en")} hidden` : "";
  $("least").textContent = `${$("minimum").value} %`;
  $("command").hidden = true;
  enable();
}

function mark(one, children, kind) {
  const name = kind.includes("cut") ? [] : [el("small", {}, one.label)];
  const attributes = { class: `ent${kind}${one.text.length + one.label.length < 20 ? " short" : ""}`, "data-entity": state.entities.indexOf(one), style: { "--h": hue(one.label) }, title: `${one.label} ${percent(one.probability)}` };
  return el("mark", attributes, ...children, ...name);
}

/** Mark an entity in the text and in the list: the one pointed at, or the one chosen. */
function light(kind, one) {
  for (const node of document.querySelectorAll(`.${kind}`)) node.classList.remove(kind);
  if (!one) return;
  const found = $("text").querySelectorAll(`[data-entity="${state.entities.indexOf(one)}"]`);
  for (const node of [...found, rowOf(one)]) node?.classList.add(kind);
  // Moving through the list scrolls the text, unless the focus is in the input.
  if (kind === "chosen" && $("list").contains(document.activeElement)) found[0]?.scrollIntoView({ block: "nearest" });
}
const rowOf = (one) => $("list").querySelector(`[data-index="${list.items.indexOf(one)}"]`);
const entityOf = ({ target }) => {
  const [node, row] = [target.closest?.("mark"), target.closest?.("#list li")];
  return node ? state.entities[node.dataset.entity] : row && list.items[row.dataset.index];
};

// --- the explanation, a page in an iframe: it reports its height, and receives the theme

async function explain() {
  const { text } = state;
  $("explanation").hidden = false;
  $("frame").hidden = true;
  $("working").textContent = "Reading the text again, with one character masked at a time …";
  $("explanation").scrollIntoView({ block: "start" });
  $("explanation-title").focus({ preventScroll: true });
  try {
    const answer = await post("v1/explanation", { text, model: model().name, format: "html" });
    $("frame").srcdoc = await answer.text();
    state.explained = text;
    $("frame").hidden = false;
    enable();
  } catch (error) {
    $("working").textContent = problemOf(error);
  }
}

const tellTheme = () => $("frame").contentWindow?.postMessage({ theme: $("theme").getAttribute("aria-pressed") === "true" ? "dark" : "light" }, "*");
$("frame").addEventListener("load", tellTheme);
document.addEventListener("theme", tellTheme);
window.addEventListener("message", ({ source, data }) => {
  if (source === $("frame").contentWindow && data?.height > 0) $("frame").style.height = `${Math.min(data.height, 20000)}px`;
});

// --- downloads and the clipboard

/** The entities that are shown, with places in characters. */
function found() {
  const { character } = places(state.text);
  return shown().map((one) => ({ ...one, start: character(one.start), end: character(one.end) }));
}

const FIELDS = ["start", "end", "label", "text", "probability"];
const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
const asCsv = (rows) => rows.map((row) => `${row.map((value) => quoted(String(value ?? ""))).join(",")}\r\n`).join("");

async function copy() {
  const body = JSON.stringify({ text: state.text, model: model().name, minimum: least() });
  const command = asCurl("v1/entities", "application/json", body);
  $("command").textContent = command;
  let done = false;
  try {
    await navigator.clipboard.writeText(command);
    done = true;
  } catch {
    // Pages without TLS from another machine have no clipboard: then the selection is copied.
    $("command").hidden = false;
    getSelection().selectAllChildren($("command"));
    done = document.execCommand("copy");
  }
  $("copy").textContent = done ? "Copied" : "Selected: copy it";
  setTimeout(() => ($("copy").textContent = "Copy as curl"), 1500);
}

// --- start

function choose() {
  const { name, language, version, description, labels } = model();
  const spoken = language && new Intl.DisplayNames("en", { type: "language" }).of(language);
  $("about").textContent = [description || name, spoken, version === "0.0.0" ? "" : version].filter(Boolean).join(" · ");
  state.hidden.clear();
  Object.assign(state, { text: "", explained: null }); // by another model
  const filters = labels.map((label) => {
    const button = el("button", { type: "button", class: "chip", "aria-pressed": "true", style: { "--h": hue(label) } }, label || "no label");
    button.addEventListener("click", () => {
      const isShown = state.hidden.delete(label) || !state.hidden.add(label);
      button.setAttribute("aria-pressed", String(isShown));
      draw();
    });
    return button;
  });
  $("labels").replaceChildren(el("span", { class: "quiet" }, "Show"), ...filters);
  for (const part of ["input", "text", "list"]) $(part).lang = language;
  askSoon();
}

async function begin() {
  const answer = await send("v1/models");
  if (!answer.ok) throw new Error(`The service answered ${answer.status}.`);
  const { models, limits } = await answer.json();
  state.models = models;
  $("model").replaceChildren(...models.map((each) => el("option", { value: each.name }, each.name)));
  $("choose").hidden = models.length < 2;
  $("most").textContent = limits.characters.toLocaleString("en");
  if (!$("input").value) $("input").value = SAMPLES[models[0].language] || "";
  $("sample").hidden = $("input").value !== SAMPLES[models[0].language];
  choose();
  $("input").addEventListener("input", () => {
    $("sample").hidden = true;
    askSoon();
  });
  $("model").addEventListener("change", choose);
}

$("minimum").addEventListener("input", draw);
$("order").addEventListener("change", draw);
for (const part of ["text", "list"]) {
  $(part).addEventListener("mouseover", (event) => light("pointed", entityOf(event)));
  $(part).addEventListener("mouseleave", () => light("pointed"));
}
$("text").addEventListener("click", (event) => {
  const one = entityOf(event);
  if (!one) return;
  list.go(list.items.indexOf(one), false);
  rowOf(one).scrollIntoView({ block: "nearest" });
});
$("explain").addEventListener("click", explain);
$("json").addEventListener("click", () => download("entities.json", `${JSON.stringify({ text: state.text, model: model().name, entities: found() }, null, 2)}\n`));
// A byte order mark: spreadsheets read UTF-8 by it.
$("csv").addEventListener("click", () => download("entities.csv", `\ufeff${asCsv([FIELDS, ...found().map((one) => FIELDS.map((name) => one[name]))])}`, "text/csv"));
$("copy").addEventListener("click", copy);
$("close").addEventListener("click", () => {
  $("explanation").hidden = true;
  $("frame").hidden = true;
  $("frame").removeAttribute("srcdoc");
  $("explain").focus();
});
begin().catch((error) => tell(problemOf(error)));
