import { asCurl, post, problemOf, send } from "./requests.js";

const { $, el, digits, language, say } = parts;
const DEBOUNCE = 150;
/** request: the one in progress, if any. explained: the text whose explanation is shown. */
const state = { models: [], explained: null, request: null };
const found = foundEntities({
  drawn: () => {
    $("command").hidden = true;
    enable();
  },
  saved: () => ({ model: model().name }),
});

const model = () => state.models.find(({ name }) => name === $("model").value);
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
  showProblem(problem);
  found.show(problem ? "" : text, entities);
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
  const isRead = Boolean(found.text.trim()) && found.text === input();
  for (const name of ["explain", "json", "csv", "copy"]) $(name).disabled = !isRead;
  $("explain").hidden = !model()?.explained;
  if (!$("frame").hidden) $("working").textContent = isRead && found.text === state.explained ? "" : say("This explains the previous text.");
}

// --- the explanation, a page in an iframe: it reports its height, and receives the theme

async function explain() {
  const { text } = found;
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

// --- the clipboard

async function copy() {
  const body = JSON.stringify({ text: found.text, model: model().name, minimum: found.minimum() });
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
  $("about").textContent = [description || name, languageName, version === "0.0.0" ? "" : version].filter(Boolean).join(" · ");
  found.offer(labels);
  found.show("", []); // what another model found
  state.explained = null;
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

$("explain").addEventListener("click", explain);
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
