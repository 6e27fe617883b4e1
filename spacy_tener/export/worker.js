/** The worker of the page, which loads the model and finds entities. `ort` and `reader` are defined before this script. */
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

/** The promise of the last request. Requests are processed one after the other. */
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
