// Search where the site is opened as files: browsers start no worker there, so the worker's script runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame;
    #sent = [];

    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = url;
      script.addEventListener("load", () => {
        this.#frame = inner;
        this.#sent.splice(0).forEach((data) => this.postMessage(data));
      });
      inner.document.body.append(script);
    }

    postMessage(data) {
      if (this.#frame) this.#frame.dispatchEvent(new MessageEvent("message", { data }));
      else this.#sent.push(data);
    }
  };
}
