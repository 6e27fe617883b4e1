// Requests to the service. The user is asked for the API key if the service requires one, and the tab stores it.
const { el, say } = parts;
const STORAGE_KEY = "spacy_tener.key";
let key = "", question = null;
try { key = sessionStorage.getItem(STORAGE_KEY) || ""; } catch { /* the browser denies access to the storage */ }

export async function send(path, options = {}) {
  for (;;) {
    const sent = key;
    const answer = await fetch(path, { ...options, headers: { ...options.headers, ...(sent ? { Authorization: `Bearer ${sent}` } : {}) } });
    if (answer.status !== 401) return answer;
    if (sent === key) await (question ||= askForKey().finally(() => (question = null)));
  }
}

/** Send JSON. Throw an error with the message of the service if it returns an error. */
export async function post(path, body, signal) {
  const answer = await send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  if (!answer.ok) {
    const content = await answer.json().catch(() => null);
    throw new Error(content?.error?.message || say("The service returned the status {status}.", { status: answer.status }));
  }
  return answer;
}

export const problemOf = (error) => (error instanceof TypeError ? say("The service does not respond. Is it still running?") : error.message);

function askForKey() {
  const field = el("input", { type: "password", id: "key", required: true, pattern: "[!-~]+", title: say("ASCII characters without spaces"), autocomplete: "off" });
  const message = say(key ? "This is not the API key of the service." : "The service requires an API key.");
  const form = el("form", { method: "dialog" }, el("p", {}, message), el("label", {}, "API key ", field), " ",
    el("button", { class: "plain first" }, say("Send")));
  const dialog = document.body.appendChild(el("dialog", { "aria-label": "API key" }, form));
  dialog.showModal();
  return new Promise((resolve, reject) => {
    form.addEventListener("submit", () => {
      key = field.value;
      try { sessionStorage.setItem(STORAGE_KEY, key); } catch { /* the key is only kept in memory */ }
      resolve();
    });
    dialog.addEventListener("close", () => { dialog.remove(); reject(new Error(say("The service requires an API key. Reload the page to enter it."))); });
  });
}

/** A request as a shell command. It contains the environment variable of the API key instead of the key. */
export function asCurl(path, type, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const url = new URL(path, location.href).href;
  const header = key ? ' -H "Authorization: Bearer $TENER_API_KEY"' : "";
  return `curl ${/[^\w:/.-]/.test(url) ? quoted(url) : url}${header}${type ? ` -H 'Content-Type: ${type}' --data-binary ${quoted(body)}` : ""}`;
}
