// Linked lines: a line under the pointer or the cursor lights up what it comes from and what is made of it. Shared by views whose panes hold
// lists of items; it stands between base.js and such a view's script. Line k of <ol start=n> is item n + k (or source line n + k in a list .clab-src).

import { all, make } from "./base.js";

/** @typedef {{panels: HTMLElement[], tabs: HTMLElement[], titles: string[], shown: () => number[], changed: () => void}} Panes `changed` is set here */

/**
 * @typedef {Object} Links
 * @property {number[][]} up of each item, its parents
 * @property {number[][]} down of each item, those made of it
 * @property {number[][]} src of each item, its source lines
 * @property {Map<number, number[]>} of of each source line, its items
 */

/**
 * Runs of equal lists, each written once: "3 4*7,,5" is seven times [3, 4], then [], then [5].
 * @param {string} text
 * @returns {number[][]}
 */
export function decode(text) {
  /** @type {number[][]} */
  const lists = [];
  for (const run of text.split(",")) {
    const [numbers = "", times = "1"] = run.split("*");
    const list = numbers ? numbers.split(" ").map(Number) : [];
    for (let k = Number(times); k > 0; k--) lists.push(list);
  }
  return lists;
}

/**
 * @param {{up: string, src: string}} data
 * @returns {Links}
 */
export function linksOf(data) {
  const up = decode(data.up), src = decode(data.src);
  /** @type {number[][]} */
  const down = up.map(() => []);
  /** @type {Map<number, number[]>} */
  const of = new Map();
  up.forEach((parents, n) => { for (const p of parents) down[p]?.push(n); });
  src.forEach((lines, n) => { for (const s of lines) { const made = of.get(s); if (made) made.push(n); else of.set(s, [n]); } });
  return { up, down, src, of };
}

/**
 * Everything that an item comes from and everything made of it, never its siblings.
 * @param {Links} links
 * @param {number} start
 * @returns {Set<number>} with `start`
 */
export function related(links, start) {
  const found = new Set([start]);
  for (const next of [links.up, links.down]) {
    const queue = [start];
    for (let n = queue.pop(); n !== undefined; n = queue.pop())
      for (const m of next[n] ?? []) if (!found.has(m)) { found.add(m); queue.push(m); }
  }
  return found;
}

/**
 * What to light when a line is pointed at: an item lights what it is related to, and more softly what else its source lines became; a
 * source line lights every item it became.
 * @param {Links} links
 * @param {{n?: number, src?: number}} at
 * @returns {{hot: Set<number>, warm: Set<number>, sources: Set<number>}}
 */
export function lit(links, at) {
  if (at.src !== undefined) return { hot: new Set(links.of.get(at.src) ?? []), warm: new Set(), sources: new Set([at.src]) };
  const hot = related(links, at.n ?? -1), sources = new Set(links.src[at.n ?? -1] ?? []), warm = new Set();
  for (const s of sources) for (const n of links.of.get(s) ?? []) if (!hot.has(n)) warm.add(n);
  return { hot, warm, sources };
}

/**
 * One sentence about where a source line went.
 * @param {string} place "demo.py:42"
 * @param {string[]} titles titles of the steps that are shown
 * @param {number[]} counts lines that came of it in each of them
 * @param {string[]} whys why there are none, where it is known
 */
export function wentTo(place, titles, counts, whys) {
  return `${place}: ` + titles.map((title, k) => (counts[k] ? `${counts[k]} line${counts[k] === 1 ? "" : "s"} in ${title}` : `none in ${title}${whys[k] ? ` (${whys[k]})` : ""}`)).join("; ");
}

/**
 * Pointing at a line, or moving the cursor to it, lights what it is linked with; a click or Enter keeps it, Escape lets go.
 * @param {HTMLElement} root @param {HTMLElement} live @param {Panes} stage
 * @param {{up: string, src: string, lost: Record<string, Record<string, number>>, why: string[]}} data
 */
export function link(root, live, stage, data) {
  const links = linksOf(data);
  /** @type {HTMLElement[]} */ const items = [];
  /** @type {HTMLElement[]} */ const sources = [];
  /** @type {number[]} */ const panelOf = [];
  /** @type {WeakMap<Element, {n?: number, src?: number, place?: string}>} */
  const at = new WeakMap();
  for (const list of all(root, "ol.clab-lines")) {
    const first = /** @type {HTMLOListElement} */ (list).start, source = list.classList.contains("clab-src");
    const panel = stage.panels.findIndex((p) => p.contains(list));
    [...list.children].forEach((child, k) => {
      const line = /** @type {HTMLElement} */ (child);
      (source ? sources : items)[first + k] = line;
      if (!source) panelOf[first + k] = panel;
      at.set(line, source ? { src: first + k, place: `${list.dataset.file}:${Number(list.dataset.first) + k}` } : { n: first + k });
    });
    if (list.firstElementChild) /** @type {HTMLElement} */ (list.firstElementChild).tabIndex = 0;
  }
  /** @param {number} s */
  const place = (s) => at.get(sources[s] ?? root)?.place ?? "";
  /** @type {HTMLElement[]} */ let painted = [];
  /** @type {HTMLElement | null} */ let pinned = null;

  function dark() {
    for (const e of painted) e.classList.remove("clab-hot", "clab-warm", "clab-pin");
    for (const badge of all(root, ".clab-badge")) badge.remove();
    painted = [];
  }
  /** @param {HTMLElement} line */
  function light(line) {
    dark();
    const point = at.get(line) ?? {}, { hot, warm, sources: from } = lit(links, point);
    /** @type {number[]} */ const counts = stage.panels.map(() => 0);
    /** @type {Map<Element, number>} */ const folded = new Map();
    for (const [set, css] of /** @type {[Set<number>, string][]} */ ([[hot, "clab-hot"], [warm, "clab-warm"]]))
      for (const n of set) {
        const e = items[n];
        if (!e) continue;
        e.classList.add(css); painted.push(e);
        const panel = panelOf[n] ?? -1, details = e.closest("details");
        counts[panel] = (counts[panel] ?? 0) + 1;
        if (details) folded.set(details, (folded.get(details) ?? 0) + 1);
      }
    for (const s of from) if (sources[s]) { sources[s]?.classList.add("clab-hot"); painted.push(/** @type {HTMLElement} */ (sources[s])); }
    if (pinned === line) { line.classList.add("clab-pin"); painted.push(line); }
    counts.forEach((count, p) => { if (count) badge(stage.tabs[p], count); });
    for (const [details, count] of folded) badge(details.firstElementChild, count);
    live.textContent = say(point, counts, from);
  }
  /** @param {Element | null | undefined} e @param {number} count */
  function badge(e, count) {
    const b = make("b", String(count));
    b.className = "clab-badge"; b.title = "linked lines"; b.setAttribute("aria-hidden", "true");
    e?.append(b);
  }
  /** @param {{n?: number, src?: number}} point @param {number[]} counts @param {Set<number>} from */
  function say(point, counts, from) {
    const now = stage.shown();
    if (point.src !== undefined) {
      const why = now.map((p) => data.why[data.lost[stage.panels[p]?.dataset.step ?? ""]?.[point.src ?? -1] ?? -1] ?? "");
      return wentTo(place(point.src), now.map((p) => stage.titles[p] ?? ""), now.map((p) => counts[p] ?? 0), why);
    }
    const total = counts.reduce((a, b) => a + b, 0), steps = counts.filter((c) => c).length;
    return `${from.size ? `from ${[...from].map(place).join(", ")}` : "from no single line of yours"}: ${total} linked lines in ${steps} steps`;
  }
  /** Brings the first lit line of every other pane into sight, without moving the page. @param {HTMLElement} line */
  function reveal(line) {
    for (const pane of [root.querySelector(".clab-source"), ...stage.shown().map((p) => stage.panels[p])]) {
      if (!pane || pane.contains(line)) continue;
      const first = pane.querySelector(".clab-hot");
      const details = first?.closest("details");
      if (details) details.open = true;
      const scroller = first?.closest(".clab-list") ?? pane; // a pane may scroll its list alone
      if (first) scroller.scrollTop += first.getBoundingClientRect().top - scroller.getBoundingClientRect().top - scroller.clientHeight / 3;
    }
  }
  stage.changed = () => {
    live.textContent = "";
    if (pinned) { light(pinned); reveal(pinned); } else dark();
  };
  /** @param {Event} event */
  const lineOf = (event) => /** @type {HTMLElement | null} */ (event.target instanceof Element ? event.target.closest(".clab-lines > li") : null);
  root.addEventListener("pointerover", (event) => { const line = lineOf(event); if (line && !pinned) light(line); });
  root.addEventListener("focusin", (event) => { const line = lineOf(event); if (line && !pinned) light(line); });
  /** @param {HTMLElement} line */
  function pin(line) {
    pinned = pinned === line ? null : line;
    if (!line.hasAttribute("tabindex")) line.tabIndex = -1;
    line.focus({ preventScroll: true }); // keys, Escape above all, go on from the line that was clicked
    light(line);
    if (pinned) reveal(line);
  }
  root.addEventListener("click", (event) => { const line = lineOf(event); if (line && !String(getSelection() ?? "")) pin(line); });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && painted.length) { pinned = null; dark(); live.textContent = ""; event.stopPropagation(); }
    const line = lineOf(event);
    if (!line) return;
    const to = { ArrowDown: line.nextElementSibling, ArrowUp: line.previousElementSibling, Home: line.parentElement?.firstElementChild, End: line.parentElement?.lastElementChild }[event.key];
    if (event.key === "Enter" || event.key === " ") pin(line);
    else if (to) { line.removeAttribute("tabindex"); const next = /** @type {HTMLElement} */ (to); next.tabIndex = 0; next.focus(); }
    else return;
    event.preventDefault(); event.stopPropagation();
  });
}
