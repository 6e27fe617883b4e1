import { asCurl, post, problemOf, send } from "./requests.js";

const { $, el, chip, digits, download, hue, language, listing, marked, meter, offsetsOf, percent, say, setLabels } = parts;
const DEBOUNCE = 150;
const SAMPLES = {
  zh: "王小明昨天去了上海，在中国银行工作的吴重阳也在。",
  en: "Angela Merkel met Tim Cook of Apple in Berlin on Monday.",
};
/** request: the one in progress, if any. explained: the text whose explanation is shown. */
const state = { models: [], text: "", entities: [], explained: null, hidden: new Set(), request: null };

const model = () => state.models.find(({ name }) => name === $("model").value);
const minimum = () => $("minimum").value / 100;
const shownEntities = () => state.entities.filter(({ label, probability }) => !state.hidden.has(label) && (probability ?? 1) >= minimum());
const input = () => $("input").value.toWellFormed?.() ?? $("input").value;

// --- requests

async function ask() {
  const text = input();
  state.request?.abort();
  const request = (state.request = new AbortController());
  let [entities, problem] = [[], ""];
  try {
    if (text.trim()) entities = (await (await post("v1/entities", { text, model: model().name, offsets: "utf16" }, request.signal)).json()).entities;
  } catch (error) {
    problem = problemOf(error);
  }
  if (state.request !== request) return;
  // After an error, entities of the previous text are removed.
  Object.assign(state, problem ? { text: "", entities: [] } : { text, entities });
  showProblem(problem);
  draw();
}

function showProblem(problem) {
  $("problem").textContent = problem;
  $("problem").hidden = !problem;
}

let timer = 0;
function askSoon() {
  $("count").textContent = digits([...input()].length);
  enable();
  clearTimeout(timer);
  timer = setTimeout(ask, DEBOUNCE);
}

/** Actions are for the text that was read, and wait while another one is written. */
function enable() {
  const isRead = Boolean(state.text.trim()) && state.text === input();
  for (const name of ["explain", "json", "csv", "copy"]) $(name).disabled = !isRead;
  $("explain").hidden = !model()?.explained;
  if (!$("frame").hidden) $("working").textContent = isRead && state.text === state.explained ? "" : say("This explains the previous text.");
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
  draw: ({ label, text, probability }) => [
    el("span", { class: "name" }, chip(label, ` ${text}`)), ...(probability === null ? [] : [meter(probability)]),
    el("span", { class: "value" }, probability === null ? say("no probability") : percent(probability)),
  ],
  chosen: (entity) => light("chosen", entity),
});

function draw() {
  const entities = shownEntities();
  $("text").replaceChildren(...marked(state.text, entities, mark));
  list.show([...entities].sort(ORDERS[$("order").value]));
  const hidden = state.entities.length - entities.length;
  $("nothing").textContent = say(hidden ? "All entities are hidden: show more labels, or a lower probability." : "No entities were found in this text.");
  $("nothing").hidden = entities.length > 0 || !state.text.trim();
  $("hidden").textContent = hidden ? say(", {n} hidden", { n: digits(hidden) }) : "";
  // Without probabilities there is nothing to choose by.
  const hasProbabilities = !state.entities.length || state.entities.some(({ probability }) => probability !== null);
  for (const node of document.querySelectorAll("[data-by-probability]")) node.hidden = !hasProbabilities;
  $("least").textContent = `${$("minimum").value} %`;
  $("command").hidden = true;
  enable();
}

function mark(entity, children, kind) {
  const { label, text, probability } = entity;
  const name = kind.includes("cut") ? [] : [el("small", {}, label)];
  const title = probability === null ? label : `${label} ${percent(probability)}`;
  const attributes = { class: `ent${kind}${text.length + label.length < 20 ? " short" : ""}`, "data-entity": state.entities.indexOf(entity), style: { "--h": hue(label) }, title };
  return el("mark", attributes, ...children, ...name);
}

/** Mark an entity in the text and in the list: the one pointed at, or the one chosen. */
function light(kind, entity) {
  for (const node of document.querySelectorAll(`.${kind}`)) node.classList.remove(kind);
  if (!entity) return;
  const nodes = $("text").querySelectorAll(`[data-entity="${state.entities.indexOf(entity)}"]`);
  for (const node of [...nodes, rowOf(entity)]) node?.classList.add(kind);
  // Moving through the list scrolls the text, unless the focus is in the input.
  if (kind === "chosen" && $("list").contains(document.activeElement)) nodes[0]?.scrollIntoView({ block: "nearest" });
}
const rowOf = (entity) => $("list").querySelector(`[data-index="${list.items.indexOf(entity)}"]`);
const entityOf = ({ target }) => {
  const [node, row] = [target.closest?.("mark"), target.closest?.("#list li")];
  return node ? state.entities[node.dataset.entity] : row && list.items[row.dataset.index];
};

// --- the explanation, a page in an iframe: it reports its height, and receives the theme

async function explain() {
  const { text } = state;
  $("explanation").hidden = false;
  $("frame").hidden = true;
  $("working").textContent = say("Reading the text again, with one character masked at a time …");
  $("explanation").scrollIntoView({ block: "start" });
  $("explanation-title").focus({ preventScroll: true });
  try {
    const answer = await post("v1/explanation", { text, model: model().name, format: "html" });
    // A sandboxed frame has no storage to read the language from.
    $("frame").srcdoc = (await answer.text()).replace("<html ", `<html data-language="${language}" `);
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

/** The entities that are shown, with offsets in characters. */
function savedEntities() {
  const { character } = offsetsOf(state.text);
  return shownEntities().map((entity) => ({ ...entity, start: character(entity.start), end: character(entity.end) }));
}

const FIELDS = ["start", "end", "label", "text", "probability"];
const quoted = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
const asCsv = (rows) => rows.map((row) => `${row.map((value) => quoted(String(value ?? ""))).join(",")}\r\n`).join("");

async function copy() {
  const body = JSON.stringify({ text: state.text, model: model().name, minimum: minimum() });
  const command = asCurl("v1/entities", "application/json", body);
  $("command").textContent = command;
  let isCopied = false;
  try {
    await navigator.clipboard.writeText(command);
    isCopied = true;
  } catch {
    // Pages without TLS from another machine have no clipboard: then the selection is copied.
    $("command").hidden = false;
    getSelection().selectAllChildren($("command"));
    isCopied = document.execCommand("copy");
  }
  $("copy").textContent = say(isCopied ? "Copied" : "Selected: copy it");
  setTimeout(() => ($("copy").textContent = say("Copy as curl")), 1500);
}

// --- start

function choose() {
  const { name, language: lang, version, description, labels } = model();
  const languageName = lang && new Intl.DisplayNames(language, { type: "language" }).of(lang);
  setLabels(labels);
  $("about").textContent = [description || name, languageName, version === "0.0.0" ? "" : version].filter(Boolean).join(" · ");
  state.hidden.clear();
  Object.assign(state, { text: "", explained: null }); // by another model
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
  for (const part of ["input", "text", "list"]) $(part).lang = lang;
  askSoon();
}

async function begin() {
  const answer = await send("v1/models");
  if (!answer.ok) throw new Error(say("The service answered {status}.", { status: answer.status }));
  const { models, limits } = await answer.json();
  state.models = models;
  $("model").replaceChildren(...models.map(({ name }) => el("option", { value: name }, name)));
  $("choose").hidden = models.length < 2;
  $("most").textContent = digits(limits.characters);
  $("input").value ||= sessionStorage.getItem("spacy_tener.text") || "";
  sessionStorage.removeItem("spacy_tener.text");
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
  const entity = entityOf(event);
  if (!entity) return;
  list.go(list.items.indexOf(entity), false);
  rowOf(entity).scrollIntoView({ block: "nearest" });
});
$("explain").addEventListener("click", explain);
$("json").addEventListener("click", () => download("entities.json", `${JSON.stringify({ text: state.text, model: model().name, entities: savedEntities() }, null, 2)}\n`));
// A byte order mark: spreadsheets read UTF-8 by it.
$("csv").addEventListener("click", () => download("entities.csv", `\ufeff${asCsv([FIELDS, ...savedEntities().map((entity) => FIELDS.map((name) => entity[name]))])}`, "text/csv"));
$("copy").addEventListener("click", copy);
$("close").addEventListener("click", () => {
  $("explanation").hidden = true;
  $("frame").hidden = true;
  $("frame").removeAttribute("srcdoc");
  $("explain").focus();
});
// The page is loaded again in the other language, with the text.
document.addEventListener("language", () => sessionStorage.setItem("spacy_tener.text", $("input").value));
begin().catch((error) => showProblem(problemOf(error)));
