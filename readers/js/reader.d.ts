/** An entity. Its text is `text.slice(start, end)`. */
export interface Entity {
  start: number;
  end: number;
  label: string;
  text: string;
  /** The probability of the entity over all label sequences, or null if the model does not compute probabilities. */
  probability: number | null;
}

/** The metadata of an exported file. */
export interface About {
  format: number;
  tags: string[];
  labels: string[];
  thresholds: Record<string, number>;
  probabilities: boolean;
  depth: number;
  pipeline: Record<string, string>;
  license: string;
  [name: string]: unknown;
}

export interface Reader {
  readonly about: About;
  /**
   * Return the entities of a text, sorted by their start. Outer entities precede their nested entities. Offsets are
   * those of `String.slice`.
   */
  entities(text: string): Promise<Entity[]>;
  /** Return the entities of several texts. For short texts, this is faster than single calls. */
  batch(texts: readonly string[]): Promise<Entity[][]>;
}

/**
 * Load an exported file.
 *
 * @param source A URL, the content of the file as bytes, or (in Node) a path.
 * @param ort The module of ONNX Runtime. Pass it if it cannot be imported by its name, for example without a bundler.
 * @param options Options of the inference session, such as `intraOpNumThreads`. The default is one thread.
 */
export function load(source: string | URL | Uint8Array | ArrayBuffer, ort?: unknown, options?: object): Promise<Reader>;
