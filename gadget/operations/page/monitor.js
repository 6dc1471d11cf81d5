// The page: listens to the server's events and shows them. It asks for nothing else, and sends nothing.

import { byId, clock, keep, make, write } from "./elements.js";
import { drawLatency } from "./chart.js";
import { showSlices } from "./slices.js";

const TONES = { ok: "good", loading: "warning", restarting: "error", stopping: "warning" };
const STATES = { done: "good", failed: "error" };
const RUNNING = {
  receiving: "receiving",
  reconstructing: "all received, reconstructing",
  answered: "all answered, waiting for the client to end",
};

function showState(state) {
  write("software", `${state.software}, running since ${new Date(1000 * state.started).toLocaleString()}`);
  showCondition(TONES[state.health.status] ?? "error", state.health.words);
  write("latency-median", state.latency.median);
  write("latency-p95", state.latency.p95);
  drawLatency(byId("latency-chart"), state.latency.recent);
  for (const name of ["images", "scans", "failed", "fallbacks", "errors", "warnings"]) {
    write(`count-${name}`, state.counts[name]);
  }
  write("queue-waiting", state.queue.waiting_mib);
  const most = state.queue.most === null ? "" : ` of at most ${state.queue.most}`;
  write("queue-connections", `${state.queue.connections}${most}`);
  write("memory-total", state.memory.reduce((sum, part) => sum + part.mib, 0));
  write("memory-parts", state.memory.map((part) => `${part.what} ${part.mib}`).join(", "));
  keep(byId("running"), state.running, (scan) => scan.number, runningScan);
  byId("idle").hidden = state.running.length > 0;
  showSlices(state.slices);
  keep(byId("problem-list"), state.problems, (one) => `${one.at} ${one.text}`, problem);
  byId("no-problems").hidden = state.problems.length > 0;
}

function showScans(scans) {
  keep(byId("scans"), scans, (scan) => scan.number, endedScan);
  byId("no-scans").hidden = scans.length > 0;
}

function showCondition(tone, words) {
  byId("condition").dataset.tone = tone;
  write("condition-words", words);
}

const measured = (scan) => [scan.measured, scan.coils ? `${scan.coils} coils` : ""].filter(Boolean).join(", ");

const ofAnnounced = (scan) =>
  scan.announced === null ? `${scan.images}` : `${scan.images} of ${scan.announced} announced`;

function runningScan(scan, old) {
  const element = old ?? make("article", { class: "scan" });
  const bar = element.querySelector("progress") ?? make("progress", { "aria-label": `Images of scan ${scan.number}` });
  if (scan.announced && scan.images <= scan.announced) {
    bar.max = scan.announced;
    bar.value = scan.images;
  } else {
    bar.removeAttribute("value");
  }
  const latency = scan.median === null ? "" : `latency ${scan.median} s median, 95 % within ${scan.p95} s`;
  const speed = scan.mib_per_s ? `, ${scan.mib_per_s} MiB/s` : "";
  element.replaceChildren(
    make("div", { class: "line" },
      make("b", {}, `Scan ${scan.number}`),
      make("span", {}, RUNNING[scan.state]),
      make("span", { class: "quiet" }, measured(scan))),
    bar,
    make("div", { class: "line quiet" },
      make("span", {}, `${ofAnnounced(scan)} images`),
      make("span", {}, `${scan.messages} messages, ${scan.mib} MiB${speed}`),
      make("span", {}, `${scan.seconds} s`),
      make("span", {}, latency),
      make("span", {}, `${scan.peer}, ${scan.address}`)),
    scan.words ? make("p", { class: "state", "data-tone": "warning" }, scan.words) : "");
  return element;
}

function endedScan(scan) {
  const kinds = Object.entries(scan.kinds).filter(([kind]) => kind === "FALLBACK");
  const words = [scan.words, ...kinds.map(([, count]) => `${count} fallback image${count === 1 ? "" : "s"}`)].filter(Boolean).join("; ");
  const tone = scan.state === "done" && words ? "warning" : STATES[scan.state];
  const number = (text) => make("td", { class: "number" }, text ?? "–");
  return make("tr", {},
    number(scan.number),
    make("td", { class: "nowrap" }, clock(scan.began)),
    make("td", {}, make("span", { class: "state", "data-tone": tone }, scan.state),
      words ? make("div", { class: "quiet" }, words) : ""),
    make("td", {}, measured(scan), make("div", { class: "quiet" }, `${scan.peer}, ${scan.address}`)),
    number(scan.announced === null ? `${scan.images}` : `${scan.images} / ${scan.announced}`),
    number(scan.median), number(scan.p95), number(scan.seconds.toFixed(1)), number(scan.mib.toFixed(1)));
}

function problem(one) {
  const times = one.times > 1 ? ` (${one.times} times)` : "";
  return make("li", { "data-tone": one.level },
    make("span", { class: "quiet" }, `${clock(one.at)} ${one.level}${times} `), one.text);
}

const events = new EventSource("events");
events.addEventListener("state", (event) => showState(JSON.parse(event.data)));
events.addEventListener("scans", (event) => showScans(JSON.parse(event.data)));
events.addEventListener("error", () => showCondition("error", "no connection to the server; trying again"));
