// Requests to the service, with its API key where it asks for one. The key is kept until the tab is closed.
const { el } = parts;
const KEPT = "spacy_tener.key";
let asking = null;

export const hasKey = () => Boolean(sessionStorage.getItem(KEPT));

export async function send(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEPT);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { ...options, headers });
    if (answer.status !== 401) return answer;
    asking ||= askForKey(key !== null).finally(() => (asking = null));
    await asking;
  }
}

/** Send JSON; throw what the service says where it refuses. */
export async function post(path, body, signal) {
  const answer = await send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message || `The service answered ${answer.status}.`);
  }
  return answer;
}

export const problemOf = (error) => (error instanceof TypeError ? "The service does not answer. Is it still running?" : error.message);

function askForKey(isWrong) {
  const field = el("input", { type: "password", id: "key", required: true, pattern: "[!-~]+", title: "One word of ASCII", autocomplete: "off" });
  const told = isWrong ? "This is not the API key of the service." : "The service asks for its API key.";
  const form = el("form", { method: "dialog" }, el("p", {}, told), el("label", {}, "API key ", field), " ",
    el("button", { class: "plain first" }, "Send"));
  const dialog = document.body.appendChild(el("dialog", { "aria-label": "API key" }, form));
  dialog.showModal();
  return new Promise((resolve, reject) => {
    form.addEventListener("submit", () => { sessionStorage.setItem(KEPT, field.value); resolve(); });
    dialog.addEventListener("close", () => { dialog.remove(); reject(new Error("The service asks for its API key.")); });
  });
}

/** A request as a command for a shell. It names the key's variable, not the key. */
export function asCurl(path, type, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const key = hasKey() ? ' -H "Authorization: Bearer $TENER_API_KEY"' : "";
  return `curl ${new URL(path, location.href)}${key}${type ? ` -H 'Content-Type: ${type}' --data-binary ${quoted(body)}` : ""}`;
}
