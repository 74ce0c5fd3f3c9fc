// The film's behaviour: a slider, buttons and keys go through the steps; panes show stack, locals, graph and guards at each.
// In: the static HTML of film_view.py, and the delta-encoded shots in script.clab-data. What a step changed is said in its line of "All steps".

import { all, copying, liveOf, mount } from "./base.js";

/**
 * @typedef {[number, number, number, number, number, number[], [number, number][], number[], number[]]} Shot
 * depth, place, line, instruction, entries of the stack that stay, pushed, locals changed, nodes, guards
 * @typedef {{graph: number, function: string, broke: string, texts: string[], places: {name: string, function: string, first: number}[], shots: Shot[]}} Film
 * @typedef {{stack: string[], locals: Map<string, string>, pushed: number, changed: Set<string>, nodes: number, guards: number}} State
 */

/**
 * What there is before step `k`, by replaying: a call has a stack and locals of its own, and what was deeper is over when it returns.
 * `nodes` and `guards` count those that the steps up to `k` added; `pushed` entries at the top and the names in `changed` are new in this call.
 * @param {Film} film @param {number} k @returns {State}
 */
export function stateAt(film, k) {
  /** @type {{stack: string[], locals: Map<string, string>}[]} */ const calls = [];
  let nodes = 0, guards = 0;
  for (let n = 0; n <= k; n++) {
    const [depth, , , , kept, pushed, changed, made, checked] = /** @type {Shot} */ (film.shots[n]);
    calls.length = Math.min(calls.length, depth + 1);
    const call = (calls[depth] ??= { stack: [], locals: new Map() });
    call.stack = [...call.stack.slice(0, kept), ...pushed.map((t) => film.texts[t] ?? "")];
    for (const [name, value] of changed) {
      if (value < 0) call.locals.delete(film.texts[name] ?? "");
      else call.locals.set(film.texts[name] ?? "", film.texts[value] ?? "");
    }
    nodes += made.length;
    guards += checked.length;
  }
  const shot = /** @type {Shot} */ (film.shots[k]), call = /** @type {{stack: string[], locals: Map<string, string>}} */ (calls[shot[0]]);
  const changed = new Set(shot[6].filter(([, v]) => v >= 0).map(([name]) => film.texts[name] ?? ""));
  return { stack: call.stack, locals: call.locals, pushed: shot[5].length, changed, nodes, guards };
}

/**
 * The step whose line is shown at step `k`: its own, or that of the innermost call around it whose source there is; -1 for none.
 * @param {Shot[]} shots @param {number} k @param {(place: number) => boolean} known
 */
export function callerOf(shots, k, known) {
  let depth = Infinity;
  for (let n = k; n >= 0; n--) {
    const shot = /** @type {Shot} */ (shots[n]);
    if (shot[0] < depth) {
      if (known(shot[1])) return n;
      depth = shot[0];
    }
  }
  return -1;
}

/** A place among `count` steps. @param {number} at @param {number} count */
export const within = (at, count) => Math.max(0, Math.min(count - 1, Math.trunc(at) || 0));

/** Where a key goes from step `at`; undefined for other keys. @param {string} key @param {number} at @param {number} count */
export function stepOf(key, at, count) {
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: count - 1 }[key];
  return to === undefined ? undefined : within(to, count);
}

/** @param {HTMLElement} root @param {{films: Film[]}} data @param {import("./base.js").Store} store */
function start(root, data, store) {
  copying(root);
  if (!data.films.length) return;
  const live = liveOf(root), sections = all(root, ".clab-film-one"), choice = /** @type {HTMLSelectElement | null} */ (root.querySelector(".clab-film-choose select"));
  const shown = sections.map((section, n) => player(section, /** @type {Film} */ (data.films[n]), store, live));
  const show = () => {
    const film = within(store.get("film") ?? 0, sections.length);
    sections.forEach((s, n) => s.classList.toggle("clab-shown", n === film));
    if (choice) choice.value = String(film);
    shown[film]?.();
  };
  choice?.addEventListener("change", () => { store.set("film", Number(choice.value)); store.set("position", 0); show(); });
  store.on("film", show);
  store.on("position", show);
  show();
}

/** @param {HTMLElement} section @param {Film} film @param {import("./base.js").Store} store @param {HTMLElement} live @returns {() => void} shows the store's position */
function player(section, film, store, live) {
  const count = film.shots.length, slider = /** @type {HTMLInputElement} */ (section.querySelector("input[type=range]")), said = /** @type {HTMLElement} */ (section.querySelector("output"));
  const words = all(section, ".clab-film-all li").map((li) => (li.textContent ?? "").split("  |  ").slice(1).join("  |  "));
  const places = all(section, "[data-place]"), steps = all(section, ".clab-film-all li");
  const pane = (/** @type {string} */ name) => /** @type {HTMLElement} */ (section.querySelector(`.clab-film-${name} ol.clab-lines`));
  const graph = growing(pane("graph"), film.shots.flatMap((s) => s[7].map((t) => film.texts[t] ?? ""))), guards = growing(pane("guards"), film.shots.flatMap((s) => s[8].map((t) => film.texts[t] ?? "")));
  const play = /** @type {HTMLButtonElement} */ (section.querySelector("[data-go=play]"));
  let timer = 0, at = -1;
  const stop = () => { clearInterval(timer); timer = 0; play.textContent = "\u25B6\uFE0E Play"; };
  const go = (/** @type {number} */ to) => store.set("position", within(to, count));
  const toggle = () => {
    if (timer) return stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) { live.textContent = "Your system asks for less motion, so nothing plays by itself: the arrow keys step"; return; }
    if (at >= count - 1) go(0);
    play.textContent = "\u23F8\uFE0E Pause";
    timer = window.setInterval(() => (at >= count - 1 || !section.isConnected ? stop() : go(at + 1)), 700);
  };
  section.addEventListener("click", (event) => {
    const name = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.go;
    if (name === "play") toggle();
    else if (name) { stop(); go({ first: 0, back: at - 1, next: at + 1, last: count - 1 }[name] ?? at); }
  });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  section.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || /** @type {HTMLElement} */ (event.target).closest("select, summary, .clab-film-all")) return;
    if (event.key === "Escape") { stop(); /** @type {HTMLElement} */ (event.target).blur(); event.stopPropagation(); return; }
    const to = stepOf(event.key, at, count);
    if (to === undefined && event.key !== "p") return;
    event.preventDefault(); event.stopPropagation();
    if (to === undefined) toggle();
    else { stop(); go(to); }
  });
  return () => {
    const k = within(store.get("position") ?? 0, count), shot = /** @type {Shot} */ (film.shots[k]), state = stateAt(film, k), place = film.places[shot[1]];
    steps[at]?.classList.remove("clab-hot");
    at = k;
    slider.value = String(k);
    said.textContent = `step ${k + 1} of ${count}`;
    slider.setAttribute("aria-valuetext", `step ${k + 1} of ${count}: ${film.texts[shot[3]]}`);
    const yours = film.shots[callerOf(film.shots, k, (n) => !!places[n]?.querySelector("li"))] ?? shot, own = yours[1];
    places.forEach((p, n) => p.classList.toggle("clab-shown", n === own));
    for (const li of all(section, ".clab-film-source .clab-hot")) li.classList.remove("clab-hot");
    const line = /** @type {HTMLElement | undefined} */ (places[own]?.querySelectorAll("li")[yours[2] - (film.places[own]?.first ?? 0)]);
    if (line) { line.classList.add("clab-hot"); inSight(line); }
    steps[k]?.classList.add("clab-hot");
    if (steps[k]?.offsetParent) inSight(/** @type {HTMLElement} */ (steps[k]));
    const now = /** @type {HTMLElement} */ (section.querySelector(".clab-film-now"));
    /** @type {HTMLElement} */ (now.querySelector("p")).textContent = film.texts[shot[3]] ?? "";
    const did = (words[k] ?? "").split("; ").filter(Boolean);
    const list = /** @type {HTMLElement} */ (now.querySelector("ul"));
    list.replaceChildren(...[`at ${place?.name}:${shot[2]} in ${place?.function}${shot[0] ? `, ${shot[0]} call${shot[0] === 1 ? "" : "s"} deep` : ""}`, ...(did.length ? did : ["changes neither stack, locals, graph nor guards"])].map((t) => Object.assign(document.createElement("li"), { textContent: t })));
    fill(pane("stack"), state.stack.map((text, n) => ({ label: String(n), text, fresh: n >= state.stack.length - state.pushed })).reverse(), "the stack is empty");
    fill(pane("locals"), [...state.locals].map(([name, value]) => ({ label: "", text: `${name} = ${value}`, fresh: state.changed.has(name) })), "no locals yet");
    graph(state.nodes, shot[7].length);
    guards(state.guards, shot[8].length);
    live.textContent = `Step ${k + 1} of ${count}, line ${shot[2]}: ${film.texts[shot[3]]}. ${did.join("; ") || "Nothing changes"}`;
  };
}

/** A list of which more and more is shown; its elements are made once. @param {HTMLElement} list @param {string[]} texts */
function growing(list, texts) {
  const lines = texts.map((text, n) => Object.assign(document.createElement("li"), { textContent: text, hidden: true }));
  lines.forEach((li, n) => li.setAttribute("data-l", String(n + 1)));
  list.replaceChildren(...lines);
  let shown = 0, fresh = 0;
  return (/** @type {number} */ count, /** @type {number} */ added) => {
    for (let n = Math.min(shown, count); n < Math.max(shown, count); n++) /** @type {HTMLElement} */ (lines[n]).hidden = n >= count;
    for (let n = shown - fresh; n < shown; n++) lines[n]?.classList.remove("clab-new");
    for (let n = count - added; n < count; n++) lines[n]?.classList.add("clab-new");
    shown = count; fresh = added;
    list.scrollTop = list.scrollHeight;
  };
}

/** @param {HTMLElement} list @param {{label: string, text: string, fresh: boolean}[]} rows @param {string} none */
function fill(list, rows, none) {
  list.replaceChildren(...(rows.length ? rows : [{ label: "", text: none, fresh: false }]).map(({ label, text, fresh }) => {
    const li = Object.assign(document.createElement("li"), { textContent: text, className: fresh ? "clab-new" : "" });
    li.setAttribute("data-l", label);
    return li;
  }));
}

/** Scrolls its list alone, never the page. @param {HTMLElement} line */
function inSight(line) {
  const box = /** @type {HTMLElement} */ (line.parentElement), top = line.offsetTop - box.offsetTop;
  if (top < box.scrollTop || top + line.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 2);
}

mount("film", start);
