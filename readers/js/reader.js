/**
 * Find named entities with a file that `tener export` wrote. This module only requires ONNX Runtime: onnxruntime-node in
 * Node, or onnxruntime-web in a browser. reader.d.ts contains the types, and docs/elsewhere.md describes the file format.
 */

/** The latest version of the file format that this reader supports. */
const FORMAT = 1;
const REMEDY = "Write it by `python -m spacy tener export`";
/** Log only errors. */
const LOG = { logSeverityLevel: 3 };
/** One thread is twice as fast as two, because the operations are short. Memory patterns are slower if batch sizes vary. */
const OPTIONS = { ...LOG, intraOpNumThreads: 1, enableMemPattern: false };

/**
 * Load an exported file.
 *
 * source: The content of the file, its URL, or, in Node, its path.
 * ort: The module of ONNX Runtime, if it cannot be imported by its name, for example without a bundler.
 * options: Options of the session, such as intraOpNumThreads.
 */
export async function load(source, ort, options) {
  ort ??= await import("#onnxruntime");
  const name = isPlace(source) ? String(source) : "the model";
  const opened = await open(source, name);
  let session, about;
  try {
    session = await ort.InferenceSession.create(opened, { ...OPTIONS, ...options });
    about = await readAbout(ort, session);
  } catch (cause) {
    throw new Error(`${name}: not readable as a model: ${reason(cause)}. ${REMEDY} again.`, { cause });
  }
  if (!about) throw new Error(`${name}: a model, but no export of spacy_tener. ${REMEDY}.`);
  if (about.format > FORMAT) {
    const versions = `its format is ${about.format}, and this reader supports ${FORMAT}`;
    throw new Error(`${name}: written by a newer version of spacy_tener: ${versions}. Use the reader of that version.`);
  }
  return new Reader(ort, session, about);
}

class Reader {
  #ort;
  #session;
  #tags;
  /** The promise of the last run. A session can only compute one run at a time. */
  #run = Promise.resolve();

  constructor(ort, session, about) {
    this.#ort = ort;
    this.#session = session;
    this.about = about;
    // The label begins after the first hyphen, and may contain hyphens.
    this.#tags = about.tags.map((tag) => ({ prefix: tag.slice(0, 1), label: tag.slice(2) }));
  }

  /** Return the entities in a text, in order. An outer entity precedes its inner entities. Offsets count UTF-16 code units. */
  async entities(text) {
    return (await this.batch([text]))[0];
  }

  /** Return the entities in each of several texts. This is faster than single calls if the texts are short. */
  async batch(texts) {
    if (!Array.isArray(texts)) throw new TypeError(`Texts must be an array of strings, and are ${describe(texts)}.`);
    const units = texts.map((text, index) => {
      if (typeof text !== "string") throw new TypeError(`A text must be a string: number ${index} is ${describe(text)}.`);
      return codePoints(text);
    });
    const codes = units.map((unit) => unit.codes);
    const run = this.#run.then(() => compute(this.#ort, this.#session, codes, ["tags", "probabilities"]));
    this.#run = run.catch(() => {}); // an error of this run must not reject the next run
    const outputs = await run;
    let first = 0;
    return texts.map((text, index) => {
      const found = this.#found(text, units[index].starts, outputs, first);
      first += codes[index].length;
      return found;
    });
  }

  /** Return the entities of a text. first: Index of its first character in the outputs. */
  #found(text, starts, { tags, probabilities }, first) {
    const { probabilities: hasProbabilities, thresholds } = this.about;
    const [depth, size] = tags.dims;
    const found = new Map();
    // Each path contains the entities of one nesting depth. Two paths may contain the same entity.
    for (let path = 0; path < depth; path++) {
      let begin = 0;
      for (let at = 0; at + 1 < starts.length; at++) {
        const index = path * size + first + at;
        const { prefix, label } = this.#tags[tags.data[index]];
        if (prefix === "B" || prefix === "S") begin = at;
        if (prefix !== "E" && prefix !== "S") continue;
        const probability = hasProbabilities ? probabilities.data[index] : null;
        if (probability !== null && probability < (thresholds[label] ?? 0)) continue;
        const [start, end] = [starts[begin], starts[at + 1]];
        found.set(`${start} ${end} ${label}`, { start, end, label, text: text.slice(start, end), probability });
      }
    }
    const entities = [...found.values()];
    return depth > 1 ? entities.sort((a, b) => a.start - b.start || b.end - a.end || (a.label < b.label ? -1 : 1)) : entities;
  }
}

const isPlace = (source) => typeof source === "string" || source instanceof URL;

/** Return an argument for ONNX Runtime: the content of a file or, in Node, a path. */
async function open(source, name) {
  if (!isPlace(source)) {
    if (source instanceof Uint8Array || source instanceof ArrayBuffer) return source;
    throw new TypeError(`A model is a URL, a path or bytes (Uint8Array, ArrayBuffer), not ${describe(source)}.`);
  }
  if (globalThis.process?.versions?.node && !/^https?:/.test(name)) {
    // Remove the first slash of a Windows path such as /C:/ner.onnx.
    return name.startsWith("file:") ? decodeURIComponent(new URL(name).pathname).replace(/^\/(?=[A-Za-z]:)/, "") : name;
  }
  const answer = await fetch(source).catch((cause) => {
    throw new Error(`${name}: ${reason(cause)}. Check the address.`, { cause });
  });
  if (!answer.ok) throw new Error(`${name}: the server answered ${answer.status}. Check the address.`);
  return new Uint8Array(await answer.arrayBuffer());
}

/**
 * Return the metadata of the file, or null if it was not written by `tener export`. ONNX Runtime has no access to metadata
 * in JavaScript, so the metadata is also an output of the graph.
 */
async function readAbout(ort, session) {
  if (!session.outputNames.includes("about")) return null;
  return JSON.parse((await compute(ort, session, [], ["about"])).about.data[0]);
}

function compute(ort, session, texts, outputs) {
  const lengths = Int32Array.from(texts, (codes) => codes.length);
  const codes = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
  let first = 0;
  for (const text of texts) {
    codes.set(text, first);
    first += text.length;
  }
  const tensor = (values) => new ort.Tensor("int32", values, [values.length]);
  return session.run({ codes: tensor(codes), lengths: tensor(lengths) }, outputs, LOG);
}

/** Return the code points of a text and their offsets. A lone surrogate is a code point. */
function codePoints(text) {
  const [codes, starts] = [new Int32Array(text.length), new Uint32Array(text.length + 1)];
  let count = 0;
  for (let unit = 0; unit < text.length; count++) {
    codes[count] = text.codePointAt(unit);
    starts[count] = unit;
    unit += codes[count] > 0xffff ? 2 : 1;
  }
  starts[count] = text.length;
  return { codes: codes.subarray(0, count), starts: starts.subarray(0, count + 1) };
}

const reason = (error) => String(error?.message ?? error).replace(/\.+$/, "");
const describe = (value) => (value === null ? "null" : Array.isArray(value) ? "an array" : `of type ${typeof value}`);
