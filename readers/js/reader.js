/**
 * Named entity recognition with an ONNX file that `spacy tener export` wrote, in Node or in a browser.
 *
 *     const ner = await load("ner.onnx");
 *     const entities = await ner.entities("王小明去了上海");
 *
 * This module only requires ONNX Runtime: onnxruntime-node in Node, onnxruntime-web in a browser. reader.d.ts contains
 * the types, and docs/browser-and-node.md describes the format of the file.
 */

/** The version of the file format that this reader supports. */
const FORMAT = 1;
const FIX = "Export the pipeline with `python -m spacy tener export`";
/** Log errors only. */
const LOGGING = { logSeverityLevel: 3 };
/**
 * With two threads, a run takes twice as long, since its operations are too short to be divided. Memory patterns make
 * batches of different sizes slower.
 */
const OPTIONS = { ...LOGGING, intraOpNumThreads: 1, enableMemPattern: false };

/**
 * Load an exported file.
 *
 * source: A URL, the content of the file as bytes, or (in Node) a path.
 * ort: The module of ONNX Runtime. Pass it if it cannot be imported by its name, for example without a bundler.
 * options: Options of the inference session, such as intraOpNumThreads. The default is one thread.
 */
export async function load(source, ort, options) {
  ort ??= await import("#onnxruntime");
  const name = isAddress(source) ? String(source) : "the model";
  const model = await fetchModel(source, name);
  let session, about;
  try {
    session = await ort.InferenceSession.create(model, { ...OPTIONS, ...options });
    about = await readAbout(ort, session);
  } catch (cause) {
    throw new Error(`${name} cannot be loaded as an ONNX model: ${reason(cause)}. ${FIX} again.`, { cause });
  }
  if (!about) throw new Error(`${name} was not exported by spacy_tener. ${FIX}.`);
  if (about.format > FORMAT) {
    const formats = `it has the format ${about.format}, but this reader only supports the format ${FORMAT}`;
    throw new Error(
      `${name} was exported by a newer version of spacy_tener: ${formats}. ` +
        "Use the reader from the version of spacy_tener that exported the model.",
    );
  }
  return new Reader(ort, session, about);
}

class Reader {
  #ort;
  #session;
  #tags;
  /** The last run. Runs are executed one after another, since a session does not support concurrent runs. */
  #lastRun = Promise.resolve();

  constructor(ort, session, about) {
    this.#ort = ort;
    this.#session = session;
    this.about = about;
    // The separator is the first hyphen, since labels can contain hyphens as well.
    this.#tags = about.tags.map((tag) => ({ prefix: tag.slice(0, 1), label: tag.slice(2) }));
  }

  /**
   * Return the entities of a text, sorted by their start. Outer entities precede their nested entities. Offsets are
   * those of `String.slice`.
   */
  async entities(text) {
    return (await this.batch([text]))[0];
  }

  /** Return the entities of several texts. For short texts, this is faster than single calls. */
  async batch(texts) {
    if (!Array.isArray(texts)) throw new TypeError(`Texts must be an array of strings, but got ${describe(texts)}.`);
    const encoded = texts.map((text, index) => {
      if (typeof text !== "string") {
        throw new TypeError(`A text must be a string, but got ${describe(text)} at index ${index}.`);
      }
      return codePoints(text);
    });
    const codes = encoded.map((text) => text.codes);
    const run = this.#lastRun.then(() => runModel(this.#ort, this.#session, codes, ["tags", "probabilities"]));
    this.#lastRun = run.catch(() => {}); // an error in this run must not reject the next run
    const outputs = await run;
    let first = 0;
    return texts.map((text, index) => {
      const entities = this.#toEntities(text, encoded[index].starts, outputs, first);
      first += codes[index].length;
      return entities;
    });
  }

  /**
   * Convert the outputs of the model to the entities of one text.
   *
   * starts: The offset of each code point in the string.
   * first: The index of its first code point in the outputs.
   */
  #toEntities(text, starts, { tags, probabilities }, first) {
    const { probabilities: hasProbabilities, thresholds } = this.about;
    const [depth, size] = tags.dims;
    const entities = new Map();
    // There is one tag sequence for each nesting depth. Two sequences can contain the same entity.
    for (let level = 0; level < depth; level++) {
      let begin = 0;
      for (let unit = 0; unit + 1 < starts.length; unit++) {
        const index = level * size + first + unit;
        const { prefix, label } = this.#tags[tags.data[index]];
        if (prefix === "B" || prefix === "S") begin = unit;
        if (prefix !== "E" && prefix !== "S") continue;
        const probability = hasProbabilities ? probabilities.data[index] : null;
        if (probability !== null && probability < (thresholds[label] ?? 0)) continue;
        const [start, end] = [starts[begin], starts[unit + 1]];
        entities.set(`${start} ${end} ${label}`, { start, end, label, text: text.slice(start, end), probability });
      }
    }
    const compare = (a, b) => a.start - b.start || b.end - a.end || (a.label < b.label ? -1 : 1);
    // The entities of a single tag sequence are already sorted.
    return depth > 1 ? [...entities.values()].sort(compare) : [...entities.values()];
  }
}

const isAddress = (source) => typeof source === "string" || source instanceof URL;

/** Convert the source to an argument for ONNX Runtime: bytes, or a path in Node. */
async function fetchModel(source, name) {
  if (!isAddress(source)) {
    if (source instanceof Uint8Array || source instanceof ArrayBuffer) return source;
    const accepted = "a URL, a path or bytes (Uint8Array, ArrayBuffer)";
    throw new TypeError(`A model must be ${accepted}, but got ${describe(source)}.`);
  }
  if (globalThis.process?.versions?.node && !/^https?:/.test(name)) {
    // The pathname of file:///C:/ner.onnx is /C:/ner.onnx, so remove the first slash.
    return name.startsWith("file:") ? decodeURIComponent(new URL(name).pathname).replace(/^\/(?=[A-Za-z]:)/, "") : name;
  }
  const response = await fetch(source).catch((cause) => {
    throw new Error(`${name}: ${reason(cause)}. Check the URL.`, { cause });
  });
  if (!response.ok) throw new Error(`${name}: the server responded with status ${response.status}. Check the URL.`);
  return new Uint8Array(await response.arrayBuffer());
}

/**
 * Return the metadata of an exported file, or null for other models. The metadata is also an output of the model, since
 * ONNX Runtime's JavaScript API does not provide access to the metadata of a file.
 */
async function readAbout(ort, session) {
  if (!session.outputNames.includes("about")) return null;
  return JSON.parse((await runModel(ort, session, [], ["about"])).about.data[0]);
}

function runModel(ort, session, texts, outputs) {
  const lengths = Int32Array.from(texts, (codes) => codes.length);
  const codes = new Int32Array(lengths.reduce((sum, length) => sum + length, 0));
  let first = 0;
  for (const text of texts) {
    codes.set(text, first);
    first += text.length;
  }
  const tensor = (values) => new ort.Tensor("int32", values, [values.length]);
  return session.run({ codes: tensor(codes), lengths: tensor(lengths) }, outputs, LOGGING);
}

/** Return the code points of a text, and their offsets in the string. A lone surrogate counts as a code point. */
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

/** Describe the type of a value for an error message. */
function describe(value) {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a value of type ${typeof value}`;
}
