// Shows the OpenAPI schema of the service, with a form to try each route.
import { asCurl, problemOf, send } from "./requests.js";

const { $, el, say } = parts;
const MAX_SHOWN = 20000;
const TAGS = { entities: "Entities", "Label Studio": "Label Studio", operation: "Operation" };
const schema = await (await fetch("openapi.json")).json();
const resolve = (part) => (part?.$ref ? part.$ref.split("/").slice(1).reduce((value, key) => value[key], schema) : part);
/** Translate a sentence of the schema to the language of the page. */
const translated = (text) => text && say(text.replace(/\s+/g, " "));
const code = (text) => el("code", {}, text);
const table = (...rows) => el("table", {}, el("tbody", {}, ...rows));
const row = (name, ...cells) => el("tr", {}, el("th", { scope: "row" }, code(name)), ...cells.map((cell) => el("td", {}, cell || "")));

function typeName(part) {
  const definition = resolve(part);
  if (definition.anyOf) return definition.anyOf.map(typeName).join(say(" or "));
  if (definition.enum) return definition.enum.map((value) => JSON.stringify(value)).join(say(" or "));
  if (definition.type === "array") return say("list of {items}", { items: typeName(definition.items) });
  return (part.$ref ? definition.title : definition.type) || say("anything");
}

// The objects in a field, which may be nested in lists.
function objectsIn(part) {
  if (part.anyOf) return part.anyOf.flatMap(objectsIn);
  if (part.items) return objectsIn(part.items);
  return resolve(part).properties ? [resolve(part)] : [];
}

function fields(definition, titles = []) {
  const rows = Object.entries(definition.properties || {}).map(([name, part]) => {
    const isOptional = part.default === undefined || part.default === null;
    const absence = isOptional ? say(" (optional)") : say(" (default {value})", { value: JSON.stringify(part.default) });
    return row(name, typeName(part) + (definition.required?.includes(name) ? "" : absence), translated(part.description));
  });
  const nested = Object.values(definition.properties || {}).flatMap(objectsIn).filter((part) => !titles.includes(part.title));
  return [table(...rows), ...nested.flatMap((part) => [el("h4", {}, part.title), ...fields(part, [...titles, part.title])])];
}

const content = (container) => {
  const [type, { schema: part } = {}] = Object.entries(container?.content || {})[0] || [];
  return { type, definition: resolve(part) };
};

function body(title, container) {
  const { type, definition } = content(container);
  if (!type) return [];
  const value = example(definition);
  const lines = value && Object.keys(value).length ? [el("pre", { tabindex: "0", "aria-label": say(`Example of a ${title.toLowerCase()}`) }, JSON.stringify(value, null, 2))] : [];
  return [el("h4", {}, say(title)), el("p", { class: "quiet" }, type), ...lines, ...(definition?.properties ? fields(definition) : [])];
}

/** The example in a schema, or an example made of the fields that have examples. */
function example(part) {
  const definition = resolve(part);
  if (definition?.examples) return definition.examples[0];
  if (definition?.type === "array") return [example(definition.items)];
  if (!definition?.properties) return undefined;
  return Object.fromEntries(Object.entries(definition.properties).map(([name, field]) => [name, example(field)]).filter(([, value]) => value !== undefined));
}

function indented(text, type) {
  try {
    return type?.startsWith("application/json") ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

// --- trying a request

function requestForm(path, method, route) {
  const request = content(route.requestBody);
  const address = el("input", { type: "text", value: path.slice(1), spellcheck: "false", "aria-label": say("Path of the request") });
  const input = request.type && el("textarea", { rows: "5", spellcheck: "false", "aria-label": say("Body of the request") }, JSON.stringify(example(request.definition), null, 2));
  const button = el("button", { class: "plain first" }, say("Send"));
  const command = el("pre", { tabindex: "0", "aria-label": say("The request as curl") });
  const status = el("p", { class: "quiet", role: "status" });
  const answer = el("pre", { tabindex: "0", "aria-label": say("Response"), hidden: true });
  const form = el("form", {}, el("div", { class: "bar tools" }, el("span", { class: `method ${method}` }, method.toUpperCase()), address, button),
    ...(input ? [input] : []), command, status, answer);
  const describe = () => (command.textContent = asCurl(address.value, request.type, input?.value));
  form.addEventListener("input", describe);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const started = performance.now();
    try {
      const options = input ? { headers: { "Content-Type": request.type }, body: input.value } : {};
      const response = await send(address.value, { method: method.toUpperCase(), ...options });
      const text = indented(await response.text(), response.headers.get("content-type"));
      status.textContent = `${response.status} ${response.statusText} · ${Math.round(performance.now() - started)} ms · ${response.headers.get("content-type") || say("no content")}`;
      answer.textContent = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} …` : text;
      answer.hidden = !text;
    } catch (error) {
      status.textContent = problemOf(error);
      answer.hidden = true;
    }
    button.disabled = false;
    describe();
  });
  describe();
  return form;
}

const idOf = (path) => path.slice(1).replaceAll("/", "-");

function contents(groups) {
  const items = (routes) => routes.map(([path, , route]) => el("li", {}, el("a", { href: `#${idOf(path)}` }, code(path)), ` ${translated(route.summary)}`));
  return el("nav", { id: "contents", class: "card", "aria-label": say("Contents") }, el("h2", {}, say("Contents")),
    ...groups.flatMap(([tag, routes]) => [el("h3", {}, say(TAGS[tag] ?? tag)), el("ul", {}, ...items(routes))]));
}

function draw([path, method, route]) {
  const query = (route.parameters || []).map(({ name, schema: part, description }) => row(name, typeName(part), translated(part.description || description)));
  const { 200: success, ...failures } = route.responses;
  const errors = Object.entries(failures).map(([status, { description }]) => row(status, translated(description)));
  const text = (route.description || "").split("\n\n").map((paragraph) => el("p", {}, translated(paragraph)));
  return el("section", { class: "route", "aria-label": path, id: idOf(path) },
    el("h3", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), code(path)), ...text,
    el("details", {}, el("summary", {}, say("Try it")), requestForm(path, method, route)),
    ...(query.length ? [el("h4", {}, say("Query parameters")), table(...query)] : []),
    ...body("Request", route.requestBody), ...body("Response", success),
    ...(errors.length ? [el("h4", {}, say("Errors")), table(...errors)] : []));
}

const groups = new Map();
for (const [path, methods] of Object.entries(schema.paths))
  for (const [method, route] of Object.entries(methods)) {
    const tag = route.tags?.[0] ?? "operation";
    groups.set(tag, [...(groups.get(tag) || []), [path, method, route]]);
  }
$("main").replaceChildren(contents([...groups]), ...[...groups].flatMap(([tag, routes]) => [el("h2", { class: "tag" }, say(TAGS[tag] ?? tag)), ...routes.map(draw)]));
// The browser has already looked for the fragment of the URL, when the page was still empty.
document.getElementById(location.hash.slice(1))?.scrollIntoView();
