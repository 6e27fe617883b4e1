// Draws the service's OpenAPI schema, with a form for each route.
import { asCurl, problemOf, send } from "./requests.js";

const { $, el } = parts;
const MOST = 20000;
const schema = await (await fetch("openapi.json")).json();
const resolve = (part) => (part?.$ref ? part.$ref.split("/").slice(1).reduce((at, key) => at[key], schema) : part);
const code = (text) => el("code", {}, text);
const table = (...rows) => el("table", {}, el("tbody", {}, ...rows));
const row = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, code(name)), ...cells.map((cell) => el("td", {}, cell || "")));

function kind(part) {
  const own = resolve(part);
  if (own.anyOf) return own.anyOf.map(kind).join(" or ");
  if (own.enum) return own.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (own.type === "array") return `list of ${kind(own.items)}`;
  return (part.$ref ? own.title : own.type) || "anything";
}

// The objects that a field holds, however deep in lists.
function inside(part) {
  if (part.anyOf) return part.anyOf.flatMap(inside);
  if (part.items) return inside(part.items);
  return resolve(part).properties ? [resolve(part)] : [];
}

function fields(own, seen = []) {
  const rows = Object.entries(own.properties || {}).map(([name, part]) => {
    const isOptional = part.default === undefined || part.default === null;
    const needed = own.required?.includes(name) ? "" : isOptional ? " (optional)" : ` (default ${JSON.stringify(part.default)})`;
    return row(name, kind(part) + needed, part.description);
  });
  const nested = Object.values(own.properties || {}).flatMap(inside).filter((part) => !seen.includes(part.title));
  return [table(...rows), ...nested.flatMap((part) => [el("h3", {}, part.title), ...fields(part, [...seen, part.title])])];
}

const content = (holder) => {
  const [type, { schema: part } = {}] = Object.entries(holder?.content || {})[0] || [];
  return { type, own: resolve(part) };
};

function body(title, holder) {
  const { type, own } = content(holder);
  if (!type) return [];
  const shown = example(own);
  const lines = shown && Object.keys(shown).length ? [el("pre", { tabindex: "0", "aria-label": `Example of a ${title.toLowerCase()}` }, written(type, shown))] : [];
  return [el("h3", {}, title), el("p", { class: "quiet" }, type), ...lines, ...(own?.properties ? fields(own) : [])];
}

/** The example of a schema: its own, or that of its parts. Parts without one are left out. */
function example(part) {
  const own = resolve(part);
  if (own?.examples) return own.examples[0];
  if (own?.type === "array") return [example(own.items)];
  if (!own?.properties) return undefined;
  return Object.fromEntries(Object.entries(own.properties).map(([name, each]) => [name, example(each)]).filter(([, value]) => value !== undefined));
}

// An object of a stream is a line.
const written = (type, value) => (type.includes("ndjson") ? JSON.stringify(value) : JSON.stringify(value, null, 2));

function indented(text, type) {
  try {
    return type?.startsWith("application/json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

// --- trying a request

function form(path, method, route) {
  const request = content(route.requestBody);
  const place = el("input", { type: "text", value: path.slice(1), spellcheck: "false", "aria-label": "Path of the request" });
  const sent = request.type && el("textarea", { rows: "5", spellcheck: "false", "aria-label": "Body of the request" }, written(request.type, example(request.own)));
  const button = el("button", { class: "plain first" }, "Send");
  const command = el("pre", { tabindex: "0", "aria-label": "The request as curl" });
  const status = el("p", { class: "quiet", role: "status" });
  const answer = el("pre", { tabindex: "0", "aria-label": "Response", hidden: true });
  const own = el("form", {}, el("div", { class: "bar tools" }, el("span", { class: `method ${method}` }, method.toUpperCase()), place, button),
    ...(sent ? [sent] : []), command, status, answer);
  const describe = () => (command.textContent = asCurl(place.value, request.type, sent?.value));
  own.addEventListener("input", describe);
  own.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const started = performance.now();
    try {
      const options = sent ? { headers: { "Content-Type": request.type }, body: sent.value } : {};
      const got = await send(place.value, { method: method.toUpperCase(), ...options });
      const text = indented(await got.text(), got.headers.get("content-type"));
      status.textContent = `${got.status} ${got.statusText} · ${Math.round(performance.now() - started)} ms · ${got.headers.get("content-type") || "no content"}`;
      answer.textContent = text.length > MOST ? `${text.slice(0, MOST)} …` : text;
      answer.hidden = !text;
    } catch (error) {
      status.textContent = problemOf(error);
      answer.hidden = true;
    }
    button.disabled = false;
    describe();
  });
  describe();
  return own;
}

const idOf = (path) => path.slice(1).replaceAll("/", "-");

function contents(routes) {
  const items = routes.map(([path, , route]) => el("li", {}, el("a", { href: `#${idOf(path)}` }, code(path)), ` ${route.summary}`));
  return el("nav", { id: "contents", class: "card", "aria-label": "Contents" }, el("h2", {}, "Contents"), el("ul", {}, ...items));
}

function draw([path, method, route]) {
  const query = (route.parameters || []).map((each) => row(each.name, kind(each.schema), each.schema.description || each.description));
  const { 200: good, ...others } = route.responses;
  const bad = Object.entries(others).map(([status, each]) => row(status, each.description));
  const text = (route.description || "").split("\n\n").map((each) => el("p", {}, each));
  return el("section", { class: "route", "aria-label": path, id: idOf(path) },
    el("h2", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), code(path)), ...text,
    el("details", {}, el("summary", {}, "Try it"), form(path, method, route)),
    ...(query.length ? [el("h3", {}, "Query parameters"), table(...query)] : []),
    ...body("Request", route.requestBody), ...body("Response", good),
    ...(bad.length ? [el("h3", {}, "Errors"), table(...bad)] : []));
}

const routes = Object.entries(schema.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, route]) => [path, method, route]));
$("main").replaceChildren(contents(routes), ...routes.map(draw));
// The page was empty when the browser looked for the part that its address names.
document.getElementById(location.hash.slice(1))?.scrollIntoView();
