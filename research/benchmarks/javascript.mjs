/**
 * Reads texts by an exported file whenever a line comes in, for `javascript.py`: prints CPU seconds. First it prints the
 * seconds from the start of Node to the first entities, and the megabytes that a long text takes more than a short one.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { load } from "../../readers/js/reader.js";

const [model, file, size, length] = process.argv.slice(2);
const texts = JSON.parse(readFileSync(file, "utf8"));
const ner = await load(model);
await ner.entities(texts[0]);
const first = performance.now() / 1000;
const megabytes = (field) => Number(readFileSync("/proc/self/status", "utf8").match(`${field}:\\s+(\\d+)`)[1]) / 1024;
writeFileSync("/proc/self/clear_refs", "5");
const before = megabytes("VmRSS");
await ner.entities(texts.join("").repeat(Math.ceil(length / texts.join("").length)).slice(0, length));
console.log(JSON.stringify([first, megabytes("VmHWM") - before]));
for await (const line of createInterface({ input: process.stdin })) {
  const begin = process.cpuUsage();
  for (let start = 0; start < texts.length; start += Number(size)) await ner.batch(texts.slice(start, start + Number(size)));
  const { user, system } = process.cpuUsage(begin);
  console.log((user + system) / 1e6);
}
