import { $, el } from "./common.js";

const DEBOUNCE = 150;
const SAMPLES = {
  zh: "王小明昨天去了上海，在中国银行工作的吴重阳也在。",
  en: "Angela Merkel met Tim Cook of Apple in Berlin on Monday.",
};
const state = { models: [], limits: null, text: "", entities: [], asked: null };

const model = () => state.models.find((each) => each.name === $("model").value);
const least = () => $("minimum").value / 100;
const shown = () => state.entities.filter((each) => each.probability === null || each.probability >= least());
const length = (text) => [...text].length;

const percent = (p) => {
  if (p === null) return "–";
  if (p > 0.9995) return "> 99.9 %";
  return p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(p > 0.1 && p < 0.9 ? 0 : 1)} %`;
};
const hue = (label) => {
  const labels = model().labels;
  return `${Math.round((labels.indexOf(label) * 360) / Math.max(labels.length, 1) + 205) % 360}`;
};

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message || `The service answered ${answer.status}.`);
  }
  return answer;
}

function tell(problem) {
  $("problem").textContent = problem;
  $("problem").hidden = !problem;
}

// --- asking

async function ask() {
  const text = $("input").value.toWellFormed?.() ?? $("input").value;
  $("count").textContent = length(text).toLocaleString("en");
  state.asked?.abort();
  const own = (state.asked = new AbortController());
  try {
    let entities = [];
    if (text.trim()) {
      const answer = await post("v1/entities", { text, model: model().name, offsets: "utf16" }, own.signal);
      entities = (await answer.json()).entities;
    }
    if (state.asked !== own) return;
    Object.assign(state, { text, entities });
    tell("");
    draw();
  } catch (error) {
    if (state.asked !== own) return;
    tell(error instanceof TypeError ? "The service does not answer. Is it still running?" : error.message);
  }
}

let timer = 0;
function askSoon() {
  clearTimeout(timer);
  timer = setTimeout(ask, DEBOUNCE);
}

// --- drawing

function draw() {
  const entities = shown();
  const parts = [];
  let end = 0;
  for (const one of entities) {
    // Components may find entities in the same place: the first is drawn in the text, all are in the list.
    if (one.start < end) continue;
    parts.push(state.text.slice(end, one.start), mark(one));
    end = one.end;
  }
  $("text").replaceChildren(...parts, state.text.slice(end));
  $("rows").replaceChildren(...entities.map(row));
  $("least").textContent = `${$("minimum").value} %`;
  $("explain").disabled = !state.text.trim();
  const hidden = state.entities.length - entities.length;
  const found = entities.length === 1 ? "1 entity" : `${entities.length} entities`;
  $("status").textContent = !state.text.trim() ? "" : hidden ? `${found}, and ${hidden} less probable` : found;
}

function mark(one) {
  const sure = one.probability ?? 1;
  const label = `${one.text}, ${one.label}, ${percent(one.probability)} sure`;
  const style = { "--h": hue(one.label), "--p": sure };
  const attributes = { class: `ent${sure < 0.5 ? " unsure" : ""}${one.text.length < 13 ? " short" : ""}`, style, title: `${one.label} ${percent(one.probability)}`, "aria-label": label };
  return el("mark", attributes, one.text, el("small", {}, one.label));
}

function row(one) {
  const chip = el("span", { class: "chip", style: { "--h": hue(one.label) } }, one.text, el("small", {}, one.label));
  const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("i", { style: { width: `${100 * (one.probability ?? 1)}%` } }));
  return el("li", {}, el("span", { class: "name" }, chip), meter, el("span", { class: "value" }, percent(one.probability)));
}

// --- the explanation

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
    $("frame").hidden = false;
    $("explanation").scrollIntoView({ block: "start" });
    $("working").textContent = text === $("input").value ? "" : "The text has changed since.";
  } catch (error) {
    $("working").textContent = error.message;
  }
}

async function copy() {
  const body = JSON.stringify({ text: state.text, model: model().name, minimum: least() });
  const url = new URL("v1/entities", location.href);
  await navigator.clipboard.writeText(
    `curl ${url} -H 'Content-Type: application/json' -d '${body.replaceAll("'", "'\\''")}'`,
  );
  $("copy").textContent = "Copied";
  setTimeout(() => ($("copy").textContent = "Copy as curl"), 1500);
}

// --- the beginning

function choose() {
  const { name, language, version, description, labels } = model();
  const spoken = language && new Intl.DisplayNames("en", { type: "language" }).of(language);
  $("about").textContent = [description || name, spoken, version === "0.0.0" ? "" : version].filter(Boolean).join(" · ");
  $("legend").replaceChildren(...labels.map((label) => el("span", { class: "chip", style: { "--h": hue(label) } }, label)), "");
  for (const part of ["input", "text"]) $(part).lang = language;
  ask();
}

async function begin() {
  const { models, limits } = await (await fetch("v1/models")).json();
  Object.assign(state, { models, limits });
  $("model").replaceChildren(...models.map((each) => el("option", { value: each.name }, each.name)));
  $("choose").hidden = models.length < 2;
  $("most").textContent = limits.characters.toLocaleString("en");
  if (!$("input").value) $("input").value = SAMPLES[models[0].language] || "";
  choose();
}

$("input").addEventListener("input", askSoon);
$("model").addEventListener("change", choose);
$("minimum").addEventListener("input", draw);
$("explain").addEventListener("click", explain);
$("copy").addEventListener("click", copy);
$("close").addEventListener("click", () => {
  $("explanation").hidden = true;
  $("frame").removeAttribute("srcdoc");
  $("explain").focus();
});
begin().catch(() => tell("The service does not answer. Is it still running?"));
