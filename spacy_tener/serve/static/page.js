import { asCurl, post, problemOf, send } from "./requests.js";

const { $, el, digits, language, say } = parts;
const DEBOUNCE = 150;
/** request: the AbortController of the request in progress. explained: the text whose explanation is shown. */
const state = { models: [], limits: null, explained: null, request: null };
const found = foundEntities({
  drawn: () => {
    $("command").hidden = true;
    enable();
  },
  saved: () => ({ model: model().name }),
  reread: () => ask(),
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
    entities = await entitiesOf(found.textsOf(text), request.signal);
  } catch (error) {
    problem = problemOf(error);
  }
  if (state.request !== request) return;
  // After an error, entities of the previous text are removed.
  showProblem(problem);
  found.show(problem ? "" : text, entities);
}

async function entitiesOf(texts, signal) {
  const options = { model: model().name, offsets: "utf16" }, entities = [];
  const read = async (route, body) => (await post(route, { ...body, ...options }, signal)).json();
  if (texts.length === 1) return found.moved((await read("v1/entities", { text: texts[0].text })).entities, texts[0].start);
  for (let first = 0; first < texts.length; first += state.limits.texts) {
    const part = texts.slice(first, first + state.limits.texts);
    const { answers } = await read("v1/entities/batch", { texts: part.map(({ text }) => text) });
    for (const [index, answer] of answers.entries()) entities.push(...found.moved(answer, part[index].start));
  }
  return entities;
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

/** Enable the buttons if the shown entities are those of the current input. */
function enable() {
  const isRead = Boolean(found.text.trim()) && found.text === input();
  for (const name of ["explain", "json", "csv", "copy"]) $(name).disabled = !isRead;
  $("explain").hidden = !model()?.explained;
  if (!$("frame").hidden) $("working").textContent = isRead && found.text === state.explained ? "" : say("This explains the previous text.");
}

// --- the explanation: a page in an iframe, which sends its height and receives the theme

async function explain() {
  // If there are several texts, explain the text with the selected entity.
  const texts = found.textsOf(found.text), place = found.chosen?.start ?? 0;
  const { text } = texts.findLast(({ start }) => start <= place) ?? texts[0];
  $("explanation").hidden = false;
  $("frame").hidden = true;
  $("working").textContent = say("Predicting the text again, with one character masked at a time …");
  $("explanation").scrollIntoView({ block: "start" });
  $("explanation-title").focus({ preventScroll: true });
  try {
    const answer = await post("v1/explanation", { text, model: model().name, format: "html" });
    // A sandboxed frame has no access to the storage that contains the language.
    $("frame").srcdoc = (await answer.text()).replace("<html ", `<html data-language="${language}" `);
    state.explained = found.text;
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
  const texts = found.textsOf(found.text).map(({ text }) => text), isOne = texts.length === 1;
  const body = JSON.stringify({ ...(isOne ? { text: texts[0] } : { texts }), model: model().name, minimum: found.minimum() });
  const command = asCurl(isOne ? "v1/entities" : "v1/entities/batch", "application/json", body);
  $("command").textContent = command;
  let isCopied = false;
  try {
    await navigator.clipboard.writeText(command);
    isCopied = true;
  } catch {
    // Browsers offer no clipboard to pages without TLS from other machines. Select the command and copy the selection.
    $("command").hidden = false;
    getSelection().selectAllChildren($("command"));
    isCopied = document.execCommand("copy");
  }
  $("copy").textContent = say(isCopied ? "Copied" : "Selected: copy it");
  setTimeout(() => ($("copy").textContent = say("Copy as curl")), 1500);
}

// --- start

function choose() {
  const { name, language: lang, version, description, labels, uncalibrated } = model();
  const languageName = lang && new Intl.DisplayNames(language, { type: "language" }).of(lang);
  $("about").textContent = [description || name, languageName, version === "0.0.0" ? "" : version, uncalibrated && say("uncalibrated probabilities")].filter(Boolean).join(" · ");
  found.offer(labels);
  found.show("", []); // remove the entities of the previous model
  state.explained = null;
  for (const part of ["input", "text", "list"]) $(part).lang = lang;
  askSoon();
}

async function begin() {
  const answer = await send("v1/models");
  if (!answer.ok) throw new Error(say("The service returned the status {status}.", { status: answer.status }));
  const { models, limits } = await answer.json();
  Object.assign(state, { models, limits });
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
// A change of the language reloads the page. Keep the text.
document.addEventListener("language", () => sessionStorage.setItem("spacy_tener.text", $("input").value));
begin().catch((error) => showProblem(problemOf(error)));
