/** An entity: `text.slice(start, end)` is its text. */
export interface Entity {
  start: number;
  end: number;
  label: string;
  text: string;
  /** Probability over all label sequences of the text, or null if the model computes no probabilities. */
  probability: number | null;
}

/** What an exported file says of itself. */
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
  /** Find the entities of a text, in its order, those around others first. Offsets count as those of `String.slice`. */
  entities(text: string): Promise<Entity[]>;
  /** Find the entities of several texts together, which is faster for short ones. */
  batch(texts: readonly string[]): Promise<Entity[][]>;
}

/**
 * Load an exported file.
 *
 * @param source Its bytes, or where it is: a URL; in Node a path, too.
 * @param ort ONNX Runtime, where it is not to be found by its name, as without a bundler.
 * @param options Options of its session, such as `intraOpNumThreads`: by default it computes on one thread.
 */
export function load(source: string | URL | Uint8Array | ArrayBuffer, ort?: unknown, options?: object): Promise<Reader>;
