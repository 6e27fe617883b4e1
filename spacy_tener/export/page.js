(() => {
  const { $, data, digits, download, el, say } = parts;
  const { about, max_characters: maxCharacters, runtime } = data;
  const DEBOUNCE = 150;
  /** Maximum number of characters in a batch of lines. */
  const BATCH_CHARACTERS = 4000;
  const TEXT = "spacy_tener.text";
  const found = foundEntities({ drawn: enable, saved: () => ({ model: about.pipeline.name }), reread: () => update() });

  // --- the worker, which has the model and processes requests one after the other

  const requests = [];
  const worker = new Worker(URL.createObjectURL(new Blob([data.worker], { type: "text/javascript" })));
  worker.addEventListener("message", ({ data: { entities, problem } }) => {
    const { resolve, reject } = requests.shift();
    if (problem) reject(new Error(problem));
    else resolve(entities);
  });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    for (const { reject } of requests.splice(0)) reject(new Error(say("The browser does not start the worker.")));
  });
  const ask = (message) =>
    new Promise((resolve, reject) => {
      requests.push({ resolve, reject });
      worker.postMessage(message);
    });
  const ready = ask({ files: { wasm: data.wasm, model: data.model }, texts: [] });
  // Free the memory of the data that was sent to the worker.
  $("data").remove();
  for (const name of ["worker", "wasm", "model"]) delete data[name];

  /** Return the end of the first segment of a text: the last end of a line, or otherwise of a sentence, in its second half. */
  function endOfSegment(text) {
    if (text.length <= maxCharacters) return text.length;
    const begin = Math.floor(maxCharacters / 2), half = text.slice(begin, maxCharacters);
    const [upTo] = half.match(/^[^]*\n/) ?? half.match(/^[^]*[。！？!?；;…]/) ?? half.match(/^[^]*[.\s]/) ?? [half];
    const end = begin + upTo.length;
    return /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(end - 1, end + 1)) ? end - 1 : end;
  }

  /** Yield the entities and the end of each segment of a text. */
  async function* read(text) {
    for (let start = 0, end; start < text.length; start = end) {
      end = start + endOfSegment(text.slice(start, start + maxCharacters + 1));
      const [entities] = await ask({ texts: [text.slice(start, end)] });
      yield { end, entities: entities.map((entity) => ({ ...entity, start: start + entity.start, end: start + entity.end })) };
    }
  }

  /** Yield the entities and the end of each segment or batch of several texts. Short texts are predicted in batches. */
  async function* readAll(texts) {
    for (let first = 0, last; first < texts.length; first = last) {
      const { start, text } = texts[first];
      last = first + 1;
      if (text.length > BATCH_CHARACTERS)
        for await (const { end, entities } of read(text)) yield { end: start + end, entities: found.moved(entities, start) };
      else {
        while (last < texts.length && texts[last].start + texts[last].text.length <= start + BATCH_CHARACTERS) last++;
        const part = texts.slice(first, last), results = await ask({ texts: part.map((line) => line.text) });
        yield { end: part.at(-1).start + part.at(-1).text.length, entities: results.flatMap((entities, index) => found.moved(entities, part[index].start)) };
      }
    }
  }

  function showProblem(id, problem) {
    $(id).textContent = problem;
    $(id).hidden = !problem;
  }

  // --- the text

  const input = () => $("input").value.toWellFormed?.() ?? $("input").value;
  let turn = 0;

  async function update() {
    const started = ++turn, text = input(), entities = [];
    let problem = "";
    try {
      await ready;
      for await (const segment of readAll(found.textsOf(text))) {
        if (started !== turn) return;
        for (const entity of segment.entities) entities.push(entity);
        if (segment.end < text.length) showWork(say("{percentage} % of the text is processed.", { percentage: Math.floor((100 * segment.end) / text.length) }));
      }
    } catch (error) {
      problem = error.message;
    }
    if (started !== turn) return;
    showWork("");
    showProblem("problem", problem);
    found.show(problem ? "" : text, problem ? [] : entities);
  }

  function showWork(message) {
    $("working").textContent = message;
    for (const id of ["shown", "hidden"]) $(id).hidden = Boolean(message);
  }

  /** Enable the buttons if the shown entities are those of the current input. */
  function enable() {
    const isRead = Boolean(found.text.trim()) && found.text === input();
    for (const name of ["json", "csv"]) $(name).disabled = !isRead;
  }

  let timer = 0;
  function updateSoon() {
    $("count").textContent = digits([...input()].length);
    enable();
    clearTimeout(timer);
    timer = setTimeout(update, DEBOUNCE);
  }

  // --- a file

  let isStopped = false;

  async function* linesOf(file) {
    let rest = "";
    const reader = file.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      yield* lines;
    }
    if (rest) yield rest;
  }

  /** Return a record for each line of a file, or null if the user stops it. Short lines are predicted in batches. */
  async function recordsOf(file) {
    const records = [];
    let texts = [], length = 0;
    const add = (text, entities) => records.push(`${JSON.stringify({ text, entities: found.inCharacters(text, entities) })}\n`);
    async function readTogether() {
      const results = texts.length ? await ask({ texts }) : [];
      for (const [index, entities] of results.entries()) add(texts[index], entities);
      [texts, length] = [[], 0];
      $("progress").textContent = say("Texts processed: {n}", { n: digits(records.length) });
    }
    for await (const line of linesOf(file)) {
      const text = line.replace(/\r$/, "");
      if (length + text.length > BATCH_CHARACTERS) await readTogether();
      if (text.length <= maxCharacters) {
        texts.push(text);
        length += text.length;
      } else {
        const entities = [];
        for await (const segment of read(text)) {
          if (isStopped) return null;
          for (const entity of segment.entities) entities.push(entity);
        }
        add(text, entities);
      }
      if (isStopped) return null;
    }
    await readTogether();
    return records;
  }

  async function readFile() {
    const [file] = $("file").files;
    if (!file) return;
    isStopped = false;
    $("stop").hidden = false;
    $("file").disabled = true;
    let [message, problem] = ["", ""];
    try {
      await ready;
      const records = await recordsOf(file);
      message = records ? say("Texts saved: {n}", { n: digits(records.length) }) : say("Stopped: nothing is saved.");
      if (records) download(`${file.name.replace(/\.\w+$/, "")}.jsonl`, new Blob(records), "application/jsonl");
    } catch (error) {
      problem = error instanceof TypeError ? say("The file is not a text file in UTF-8. Save it as UTF-8 first.") : error.message;
    }
    $("progress").textContent = message;
    showProblem("file-problem", problem);
    $("stop").hidden = true;
    $("file").disabled = false;
    $("file").value = "";
  }

  // --- start

  function showOrigin() {
    const { pipeline, license, author, encoders, sources } = about;
    // spaCy's sources have the fields license and url, and encoders have the fields licence and origin.
    const describe = ({ name, license: terms, licence, url, origin }) => [name, terms ?? licence, url ?? origin].filter(Boolean).join(", ");
    const rows = [
      ["Model", [pipeline.name, pipeline.version].filter(Boolean).join(" ")], ["Licence", license], ["Author", author],
      ...encoders.map((encoder) => ["Pretrained encoder", describe(encoder)]),
      ...sources.map((source) => ["Source", describe(source)]), ["Computed by", `${runtime}, MIT`],
    ];
    const written = rows.filter(([, value]) => value);
    $("origin").replaceChildren(...written.flatMap(([name, value]) => [el("dt", {}, say(name)), el("dd", {}, value)]));
    $("pieces").textContent = say("A text of more than {n} characters is split at the end of a line or sentence.", { n: digits(maxCharacters) });
  }

  // A sandboxed page has no access to the storage.
  const storage = (() => { try { return sessionStorage; } catch { return {}; } })();
  const sample = SAMPLES[about.pipeline.lang] || "";
  $("input").value ||= storage[TEXT] ?? sample;
  delete storage[TEXT];
  $("sample").hidden = !sample || $("input").value !== sample;
  found.offer(data.labels);
  showOrigin();
  showWork(say("The model is being loaded …"));
  updateSoon();
  $("input").addEventListener("input", () => {
    $("sample").hidden = true;
    updateSoon();
  });
  $("file").addEventListener("change", readFile);
  $("stop").addEventListener("click", () => { isStopped = true; });
  // A change of the language reloads the page. Keep the text.
  document.addEventListener("language", () => { storage[TEXT] = $("input").value; });
})();
