/** What the worker of the page does: it opens the model, and answers requests. `ort` and `reader` stand before it. */
let opening;

async function unpack(packed) {
  const binary = atob(packed), bytes = new Uint8Array(binary.length);
  for (let index = 0; index < bytes.length; index++) bytes[index] = binary.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function open({ wasm, model }) {
  Object.assign(ort.env.wasm, { numThreads: 1, wasmBinary: await unpack(wasm) });
  return reader.load(await unpack(model), ort);
}

/** Requests are answered in turn. */
let turn = Promise.resolve();

async function answer({ files, texts }) {
  try {
    if (files) opening = open(files);
    postMessage({ entities: await (await opening).batch(texts) });
  } catch (error) {
    postMessage({ problem: error.message });
  }
}

addEventListener("message", ({ data }) => { turn = turn.then(() => answer(data)); });
