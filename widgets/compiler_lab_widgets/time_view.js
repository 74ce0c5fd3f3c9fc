// The time view's behaviour: a phase that is chosen fills the chart, keys go from phase to phase, two charts have one scale or each its own.
// In: the static HTML of time_view.py and the phases as rows. All of it can be read without this script.

import { all, liveOf, make, mount } from "./base.js";

/** [name, at, seconds, lane, parent, kind, said] @typedef {[string, number, number, number, number, string, string]} TimePhase */
/** @typedef {{name: string, length: number, lanes: number, cuts: [number, string][], phases: TimePhase[]}} TimeSide */
/** @typedef {{sides: TimeSide[]}} TimeData */

const TIME = { wide: 960, row: 19, top: 22, letter: 6.5, least: 0.4 }; // as in time_view.py

/** The phases that can be drawn in a stretch of the axis: [place, x, width], clipped to the chart. @param {TimePhase[]} phases @param {number} from @param {number} to */
export function drawn(phases, from, to) {
  const scale = TIME.wide / (to - from || 1);
  /** @type {[number, number, number][]} */ const found = [];
  phases.forEach(([, at, seconds], n) => {
    const a = Math.max((at - from) * scale, 0), b = Math.min((at + seconds - from) * scale, TIME.wide);
    if (b > 0 && a < TIME.wide && b - a >= TIME.least) found.push([n, a, b - a]);
  });
  return found;
}

/** What fits into so many pixels. @param {string} name @param {number} width */
export function fitting(name, width) {
  const letters = Math.floor((width - 6) / TIME.letter);
  return name.length <= letters ? name : letters >= 4 ? `${name.slice(0, letters - 1)}…` : "";
}

/** A time in three digits, as in time_view.py. @param {number} s */
export function tookText(s) {
  if (s >= 1) return `${s.toFixed(2)} s`;
  if (s >= 0.001) return `${(s * 1e3).toFixed(s >= 0.01 ? 0 : 1)} ms`;
  return `${(s * 1e6).toFixed(s < 0.0001 ? 1 : 0)} µs`;
}

/** Some five round times between two. @param {number} from @param {number} to */
export function timeTicks(from, to) {
  if (!(to > from)) return [];
  const raw = (to - from) / 5, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * ([1, 2, 5].find((f) => size * f >= raw) ?? 10);
  const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/**
 * Where a key goes from a phase: its next or last one of the lane, what is inside it, what it is inside of, the first, the last; -1 for none.
 * @param {TimePhase[]} phases @param {number} n @param {string} key
 */
export function stepTo(phases, n, key) {
  if (key === "Home") return 0;
  if (key === "End") return phases.length - 1;
  if (key === "ArrowUp") return phases[n][4];
  if (key === "ArrowDown") return phases.findIndex((p) => p[4] === n);
  const lane = phases.map((p, k) => k).filter((k) => phases[k][3] === phases[n][3]).sort((a, b) => phases[a][1] - phases[b][1]);
  const next = lane[lane.indexOf(n) + (key === "ArrowRight" ? 1 : -1)];
  return next ?? -1;
}

const TIME_KEYS = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"];

/** @param {HTMLElement} root @param {TimeData} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  if (!data.sides.length) return;
  const live = liveOf(root), sections = all(root, ".clab-side"), picked = /** @type {HTMLElement} */ (root.querySelector(".clab-picked"));
  const own = /** @type {HTMLInputElement | null} */ (root.querySelector(".clab-own"));
  const svg = "http://www.w3.org/2000/svg";

  /** @param {string} tag @param {{[name: string]: string | number}} attributes @param {string} [text] */
  function shape(tag, attributes, text) {
    const e = document.createElementNS(svg, tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
    if (text !== undefined) e.textContent = text;
    return e;
  }

  /** [side, from, to], or nothing: all. @returns {number[]} */
  const zoom = () => store.get("zoom") ?? [];
  /** [side, phase] that keys start from. @returns {[number, number]} */
  const focus = () => { const at = store.get("focus") ?? []; return data.sides[at[0]]?.phases[at[1]] ? [at[0], at[1]] : [0, 0]; };
  /** @param {number} side @returns {[number, number]} */
  const range = (side) => (zoom()[0] === side ? [zoom()[1], zoom()[2]] : [0, own?.checked ? data.sides[side].length : Math.max(...data.sides.map((s) => s.length))]);

  function draw() {
    const [at, chosen] = focus(), held = root.contains(document.activeElement) && document.activeElement?.classList.contains("clab-bar");
    data.sides.forEach((side, k) => {
      const [from, to] = range(k), scale = TIME.wide / (to - from || 1), height = TIME.top + TIME.row * side.lanes + 4;
      const found = drawn(side.phases, from, to);
      const stop = k === at && found.some(([n]) => n === chosen) ? chosen : found[0]?.[0];
      const bars = found.map(([n, x, width]) => {
        const [name, , , lane, , kind, said] = side.phases[n], y = TIME.top + TIME.row * lane;
        const g = shape("g", { class: `clab-bar${kind ? ` clab-${kind}` : ""}${store.get("focus")?.length && k === at && n === chosen ? " clab-lit" : ""}`, "data-n": n, role: "button", "aria-label": said, tabindex: n === stop ? 0 : -1 });
        g.append(shape("title", {}, said), shape("rect", { x: x.toFixed(2), y, width: Math.max(width, TIME.least).toFixed(2), height: TIME.row - 1 }));
        const label = fitting(name, width);
        if (label) g.append(shape("text", { x: (x + 3).toFixed(1), y: y + 13 }, label));
        return g;
      });
      const ticks = timeTicks(from, to).flatMap((t) => {
        const x = ((t - from) * scale).toFixed(1);
        return [shape("line", { x1: x, x2: x, y1: TIME.top - 6, y2: height }), shape("text", { x: Number(x) + 3, y: 12 }, t ? tookText(t) : "0")];
      });
      const cuts = side.cuts.filter(([t]) => t >= from && t <= to).map(([t, said]) => {
        const g = shape("g", { class: "clab-cut" }), x = ((t - from) * scale).toFixed(1);
        g.append(shape("title", {}, said), shape("line", { x1: x, x2: x, y1: 0, y2: height }));
        return g;
      });
      for (const [css, made] of /** @type {[string, Element[]][]} */ ([[".clab-bars", bars], [".clab-axis", ticks], [".clab-cuts", cuts]])) sections[k].querySelector(css)?.replaceChildren(...made);
    });
    const phase = data.sides[at].phases[chosen];
    picked.replaceChildren(...(store.get("focus")?.length ? [make("strong", data.sides.length > 1 ? `${data.sides[at].name}: ` : ""), make("span", phase[6])] : [make("span", "No phase is chosen.")]));
    if (held) bar(at, chosen)?.focus();
  }

  /** @param {number} side @param {number} n */
  const bar = (side, n) => /** @type {HTMLElement | null} */ (sections[side].querySelector(`.clab-bar[data-n="${n}"]`));

  /** Chooses a phase; one that is outside the picture, or too short to be in it, brings it along. @param {number} side @param {number} n */
  function go(side, n) {
    const phases = data.sides[side].phases, [from, to] = range(side);
    if (!drawn(phases, from, to).some(([k]) => k === n)) {
      let wide = phases[n][4] < 0 ? n : phases[n][4];
      if (!drawn(phases, phases[wide][1], phases[wide][1] + phases[wide][2]).some(([k]) => k === n)) wide = n;
      store.set("zoom", [side, phases[wide][1], phases[wide][1] + phases[wide][2]]);
    }
    store.set("focus", [side, n]);
    bar(side, n)?.focus();
    live.textContent = phases[n][6];
  }

  /** @param {number} side @param {number} n */
  function fill(side, n) {
    const [, at, seconds, , , , said] = data.sides[side].phases[n];
    store.set("focus", [side, n]);
    store.set("zoom", [side, at, at + seconds]);
    bar(side, n)?.focus();
    live.textContent = `Zoomed to ${said}`;
  }

  function whole() {
    store.set("zoom", []);
    live.textContent = "All phases are shown.";
  }

  /** Half or twice the stretch, about the phase that is chosen. @param {number} by */
  function scaled(by) {
    const [side, n] = focus(), [from, to] = range(side), [, at, seconds] = data.sides[side].phases[n];
    const middle = Math.min(Math.max(at + seconds / 2, from), to), half = ((to - from) * by) / 2, length = range(side)[1] - range(side)[0];
    const most = Math.max(...data.sides.map((s) => s.length));
    if (by > 1 && length * by >= most) { whole(); return; }
    const a = Math.min(Math.max(middle - half, 0), Math.max(most - 2 * half, 0));
    store.set("zoom", [side, a, a + 2 * half]);
    live.textContent = `${tookText(2 * half)} are shown, from ${tookText(a)} on.`;
  }

  root.querySelector(".clab-all")?.addEventListener("click", whole);
  root.querySelector(".clab-in")?.addEventListener("click", () => scaled(0.5));
  root.querySelector(".clab-out")?.addEventListener("click", () => scaled(2));
  own?.addEventListener("change", () => { draw(); live.textContent = own.checked ? "Each chart has its own scale." : "Both charts have one scale."; });
  sections.forEach((section, side) => {
    const chart = /** @type {HTMLElement} */ (section.querySelector(".clab-flame"));
    /** @param {Event} event */
    const place = (event) => Number(/** @type {Element} */ (event.target).closest(".clab-bar")?.getAttribute("data-n") ?? -1);
    chart.addEventListener("click", (event) => { const n = place(event); if (n >= 0) fill(side, n); });
    chart.addEventListener("keydown", (event) => {
      const n = place(event);
      if (n < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") fill(side, n);
      else if (event.key === "+" || event.key === "=") { store.set("focus", [side, n]); scaled(0.5); }
      else if (event.key === "-") { store.set("focus", [side, n]); scaled(2); }
      else if (TIME_KEYS.includes(event.key)) { const to = stepTo(data.sides[side].phases, n, event.key); if (to >= 0) go(side, to); }
      else return;
      event.preventDefault(); event.stopPropagation();
    });
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); whole(); }
  });
  store.on("zoom", draw);
  store.on("focus", draw);
  draw();
}

mount("time", start);
