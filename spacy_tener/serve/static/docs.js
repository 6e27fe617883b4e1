// Draws the service's OpenAPI schema.
import { $, el } from "./common.js";

const schema = await (await fetch("openapi.json")).json();
const resolve = (part) => (part?.$ref ? part.$ref.split("/").slice(1).reduce((at, key) => at[key], schema) : part);
const code = (text) => el("code", {}, text);

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
    const needed = own.required?.includes(name) ? "" : part.default === undefined || part.default === null ? " (optional)" : ` (default ${JSON.stringify(part.default)})`;
    return el("tr", {}, el("td", {}, code(name)), el("td", {}, kind(part) + needed), el("td", {}, part.description || ""));
  });
  const nested = Object.values(own.properties || {}).flatMap(inside).filter((part) => !seen.includes(part.title));
  return [
    el("table", {}, ...rows),
    ...nested.flatMap((part) => [el("h3", {}, part.title), ...fields(part, [...seen, part.title])]),
  ];
}

function body(content) {
  const [type, { schema: part } = {}] = Object.entries(content || {})[0] || [];
  const own = resolve(part);
  return own?.properties ? [el("p", { class: "quiet" }, type), ...fields(own)] : type ? [el("p", { class: "quiet" }, type)] : [];
}

function example(path, content) {
  const [type, { schema: part } = {}] = Object.entries(content || {})[0] || [];
  if (!type) return `curl ${location.origin}${path}`;
  const values = Object.entries(resolve(part).properties).filter(([, each]) => each.examples);
  const data = JSON.stringify(Object.fromEntries(values.map(([name, each]) => [name, each.examples[0]])));
  return `curl ${location.origin}${path} -H 'Content-Type: ${type}' -d '${data}'`;
}

function draw([path, method, route]) {
  const query = (route.parameters || []).map((each) =>
    el("tr", {}, el("td", {}, code(each.name)), el("td", {}, kind(each.schema)), el("td", {}, each.schema.description || each.description || "")),
  );
  const { 200: good, ...others } = route.responses;
  const bad = Object.entries(others).map(([status, each]) => el("tr", {}, el("td", {}, code(status)), el("td", {}, each.description || "")));
  return el(
    "section", { "aria-label": path },
    el("h2", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), code(path)),
    ...(route.description || "").split("\n\n").map((text) => el("p", {}, text)),
    el("pre", { tabindex: "0" }, example(path, route.requestBody?.content)),
    ...(query.length ? [el("h3", {}, "Query parameters"), el("table", {}, ...query)] : []),
    ...(route.requestBody ? [el("h3", {}, "Request"), ...body(route.requestBody.content)] : []),
    ...(good?.content ? [el("h3", {}, "Response"), ...body(good.content)] : []),
    ...(bad.length ? [el("h3", {}, "Errors"), el("table", {}, ...bad)] : []),
  );
}

const routes = Object.entries(schema.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, route]) => [path, method, route]));
$("routes").replaceChildren(...routes.map(draw));
