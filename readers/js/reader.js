/**
 * Named entities in a text, by a file that `tener export` wrote. It needs nothing but ONNX Runtime: onnxruntime-node in
 * Node, onnxruntime-web in a browser. reader.d.ts has the types, docs/elsewhere.md the contract of the file.
 */

/** The version of the contract that this reader reads. */
const FORMAT = 1;
const REMEDY = "Write it by `python -m spacy tener export`";
/** Errors only. */
const LOG = { logSeverityLevel: 3 };
/** One thread takes half the time of two: steps are short. Memory patterns cost time where batches differ in size. */
const OPTIONS = { ...LOG, intraOpNumThreads: 1, enableMemPattern: false };

/**
 * Load an exported file.
 *
 * source: Its bytes, or where it is: a URL; in Node a path, too.
 * ort: ONNX Runtime, where it is not to be found by its name, as without a bundler.
 * options: Options of its session, such as intraOpNumThreads.
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
    const versions = `its format is ${about.format}, and this reader knows ${FORMAT}`;
    throw new Error(`${name}: written by a newer version of spacy_tener: ${versions}. Take the reader of that version.`);
  }
  return new Reader(ort, session, about);
}

class Reader {
  #ort;
  #session;
  #tags;
  /** The run in progress: a session computes one at a time. */
  #run = Promise.resolve();

  constructor(ort, session, about) {
    this.#ort = ort;
    this.#session = session;
    this.about = about;
    // A label may have a hyphen in it.
    this.#tags = about.tags.map((tag) => ({ prefix: tag.slice(0, 1), label: tag.slice(2) }));
  }

  /** Find the entities of a text, in its order, those around others first. Offsets count as those of `String.slice`. */
  async entities(text) {
    return (await this.batch([text]))[0];
  }

  /** Find the entities of several texts together, which is faster for short ones. */
  async batch(texts) {
    if (!Array.isArray(texts)) throw new TypeError(`Texts must be an array of strings, and are ${describe(texts)}.`);
    const units = texts.map((text, index) => {
      if (typeof text !== "string") throw new TypeError(`A text must be a string: number ${index} is ${describe(text)}.`);
      return codePoints(text);
    });
    const codes = units.map((unit) => unit.codes);
    const run = this.#run.then(() => compute(this.#ort, this.#session, codes, ["tags", "probabilities"]));
    this.#run = run.catch(() => {}); // the next run does not fail by the error of this one
    const outputs = await run;
    let first = 0;
    return texts.map((text, index) => {
      const found = this.#found(text, units[index].starts, outputs, first);
      first += codes[index].length;
      return found;
    });
  }

  /** Read the entities of a text from the outputs, where its characters begin at `first`. */
  #found(text, starts, { tags, probabilities }, first) {
    const { probabilities: hasProbabilities, thresholds } = this.about;
    const [depth, size] = tags.dims;
    const found = new Map();
    // Entities within others have a path of their own. Two paths may have the same entity.
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

/** Return what ONNX Runtime opens: bytes, or in Node a path. */
async function open(source, name) {
  if (!isPlace(source)) {
    if (source instanceof Uint8Array || source instanceof ArrayBuffer) return source;
    throw new TypeError(`A model is a URL, a path or bytes (Uint8Array, ArrayBuffer), not ${describe(source)}.`);
  }
  if (globalThis.process?.versions?.node && !/^https?:/.test(name)) {
    // The path of file:///C:/ner.onnx begins behind its first stroke.
    return name.startsWith("file:") ? decodeURIComponent(new URL(name).pathname).replace(/^\/(?=[A-Za-z]:)/, "") : name;
  }
  const answer = await fetch(source).catch((cause) => {
    throw new Error(`${name}: ${reason(cause)}. Check the address.`, { cause });
  });
  if (!answer.ok) throw new Error(`${name}: the server answered ${answer.status}. Check the address.`);
  return new Uint8Array(await answer.arrayBuffer());
}

/**
 * Read what the file says of itself, if it is an export. It is an output, too: ONNX Runtime shows no metadata in
 * JavaScript.
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

/** Return the code points of a text, and where each starts in it; a lone surrogate is one. */
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
