// What the pages of the service share.
export const $ = (id) => document.getElementById(id);

export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") for (const [key, own] of Object.entries(value)) node.style.setProperty(key, own);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function paint(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").setAttribute("aria-pressed", dark);
}
paint(matchMedia("(prefers-color-scheme: dark)").matches);
$("theme").addEventListener("click", () => paint(document.documentElement.dataset.theme !== "dark"));
