// Linked lines: a line under the pointer or the cursor lights up what it comes from and what is made of it. Shared by views whose panes hold
// lists of items; it stands between base.js and such a view's script. Line k of <ol start=n> is item n + k (or source line n + k in a list .clab-src).

import { all, make } from "./base.js";

export const CHUNK = 100; // lines of one list of a pane that is drawn when it is opened: the browser lays out the lists in sight

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
 * Lines of one pane with numbers in a row; `lists` are empty until the pane is drawn.
 * @typedef {{first: number, count: number, panel: number, chunk: number, lists: Element[], details: HTMLElement | null, far: number}} Range
 */

/** The range that holds item n. @template {{first: number, count: number}} T @param {T[]} ranges sorted by `first` @param {number} n @returns {T | undefined} */
export function rangeOf(ranges, n) {
  let low = 0, high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ranges[middle]?.first ?? 0) <= n) low = middle + 1; else high = middle;
  }
  const found = ranges[low - 1];
  return found && n < found.first + found.count ? found : undefined;
}

/**
 * Pointing at a line, or moving the cursor to it, lights what it is linked with; a click or Enter keeps it, Escape lets go. In a large trace
 * what is not shown is counted and not touched.
 * @template {{kind: string}} P `far`: panes that are data until they are opened (details[data-far]); those of kind "lines" have `n`, [first, count] of their runs
 * @param {HTMLElement} root @param {HTMLElement} live @param {Panes} stage
 * @param {{up: string, src: string, lost: Record<string, Record<string, number>>, why: string[], far?: (P & {n?: [number, number][]})[]}} data
 * @param {(details: HTMLElement, pane: P, label: (n: number) => string) => void} [drawPane] draws an opened one; `label`: the user's lines of an item
 */
export function link(root, live, stage, data, drawPane = () => {}) {
  const links = linksOf(data), far = data.far ?? [], large = far.length > 0;
  /** @type {HTMLElement[]} */ const sources = [];
  /** @type {{line: number, place: string}[]} */ const places = [];
  /** @type {WeakMap<Element, number>} */ const sourceOf = new WeakMap();
  /** @type {Range[]} */ const ranges = [];
  /** @param {Element} e */
  const panelOf = (e) => stage.panels.findIndex((p) => p.contains(e));
  for (const list of /** @type {HTMLOListElement[]} */ (all(root, "ol.clab-lines"))) {
    const first = list.start;
    if (list.firstElementChild) /** @type {HTMLElement} */ (list.firstElementChild).tabIndex = 0;
    if (!list.classList.contains("clab-src")) {
      const panel = panelOf(list);
      ranges.push({ first, count: list.children.length, panel, chunk: Infinity, lists: [list], details: list.closest("details"), far: -1 });
      continue;
    }
    [...list.children].forEach((child, k) => {
      const line = Number(list.dataset.first) + k;
      sources[first + k] = /** @type {HTMLElement} */ (child);
      places[first + k] = { line, place: `${list.dataset.file}:${line}` };
      sourceOf.set(child, first + k);
    });
  }
  for (const details of all(root, "details[data-far]")) {
    const number = Number(details.dataset.far), panel = panelOf(details);
    for (const [first, count] of far[number]?.n ?? []) ranges.push({ first, count, panel, chunk: CHUNK, lists: [], details, far: number });
  }
  ranges.sort((a, b) => a.first - b.first);
  /** @param {Range} range @param {number} n */
  const elementOf = (range, n) => {
    const at = n - range.first, list = range.lists[range.chunk === Infinity ? 0 : Math.floor(at / range.chunk)];
    return /** @type {HTMLElement | undefined} */ (list?.children[range.chunk === Infinity ? at : at % range.chunk]);
  };
  /** @param {number} s */
  const place = (s) => places[s]?.place ?? "";
  /** @param {Element} line @returns {{n?: number, src?: number}} */
  const pointOf = (line) => {
    const src = sourceOf.get(line), list = /** @type {HTMLOListElement} */ (line.parentElement);
    return src !== undefined ? { src } : { n: list.start + Array.prototype.indexOf.call(list.children, line) };
  };
  /** The user's lines at the edge of a line that is drawn here. @param {number} n */
  const label = (n) => {
    const numbers = (links.src[n] ?? []).map((s) => places[s]?.line);
    return numbers.slice(0, 2).join() + (numbers.length > 2 ? "+" : "");
  };
  /** @param {HTMLElement} details */
  function draw(details) {
    const number = Number(details.dataset.far), pane = far[number];
    if (!pane || details.classList.contains("clab-drawn")) return;
    details.classList.add("clab-drawn");
    drawPane(details, pane, label);
    const lists = all(details, "ol.clab-lines"), drawn = lists.length;
    for (const range of ranges) if (range.far === number) range.lists = lists.splice(0, Math.ceil(range.count / CHUNK));
    if (drawn && pinned) light(pinned);
  }
  root.addEventListener("toggle", (event) => {
    const details = /** @type {HTMLDetailsElement} */ (event.target);
    if (details.open && details.dataset.far) draw(details);
  }, true);
  /** @type {HTMLElement[]} */ let lights = [];
  /** @type {HTMLElement[]} */ let badges = [];
  /** @type {Map<number, Range>} */ let waiting = new Map(); // of each panel, the first pane that holds a lit line and is not drawn
  /** @type {HTMLElement | null} */ let pinned = null;

  function dark() {
    for (const e of lights) e.classList.remove("clab-hot", "clab-warm", "clab-pin");
    for (const b of badges) b.remove();
    lights = []; badges = []; waiting = new Map();
  }
  /** @param {HTMLElement} line */
  function light(line) {
    dark();
    const point = pointOf(line), { hot, warm, sources: from } = lit(links, point), shown = new Set(stage.shown());
    /** @type {number[]} */ const counts = stage.panels.map(() => 0);
    /** @type {Map<Element, number>} */ const folded = new Map();
    for (const [set, css] of /** @type {[Set<number>, string][]} */ ([[hot, "clab-hot"], [warm, "clab-warm"]]))
      for (const n of set) {
        const range = rangeOf(ranges, n);
        if (!range) continue;
        counts[range.panel] = (counts[range.panel] ?? 0) + 1;
        if (large && !shown.has(range.panel)) continue;
        if (range.details) folded.set(range.details, (folded.get(range.details) ?? 0) + 1);
        const e = elementOf(range, n), first = waiting.get(range.panel);
        if (e) { e.classList.add(css); lights.push(e); }
        else if (css === "clab-hot" && (!first || range.first < first.first)) waiting.set(range.panel, range);
      }
    for (const s of from) { const e = sources[s]; if (e) { e.classList.add("clab-hot"); lights.push(e); } }
    if (pinned === line) { line.classList.add("clab-pin"); lights.push(line); }
    counts.forEach((count, p) => { if (count) badge(stage.tabs[p], count); });
    for (const [details, count] of folded) badge(details.firstElementChild, count);
    live.textContent = say(point, counts, from);
  }
  /** @param {Element | null | undefined} e @param {number} count */
  function badge(e, count) {
    const b = make("b", String(count));
    b.className = "clab-badge"; b.title = "linked lines"; b.setAttribute("aria-hidden", "true");
    e?.append(b);
    badges.push(b);
  }
  /** @param {{n?: number, src?: number}} point @param {number[]} counts @param {Set<number>} from */
  function say(point, counts, from) {
    const now = stage.shown();
    if (point.src !== undefined) {
      const why = now.map((p) => data.why[data.lost[stage.panels[p]?.dataset.step ?? ""]?.[point.src ?? -1] ?? -1] ?? "");
      return wentTo(place(point.src), now.map((p) => stage.titles[p] ?? ""), now.map((p) => counts[p] ?? 0), why);
    }
    const total = counts.reduce((a, b) => a + b, 0), steps = counts.filter((c) => c).length, named = [...from].slice(0, 8).map(place).join(", ");
    return `${from.size ? `from ${named}${from.size > 8 ? ` and ${from.size - 8} more` : ""}` : "from no single line of yours"}: ${total} linked lines in ${steps} steps`;
  }
  /** Brings the first lit line of every other pane into sight, without moving the page. @param {HTMLElement} line */
  function reveal(line) {
    for (const p of [-1, ...stage.shown()]) {
      const pane = p < 0 ? root.querySelector(".clab-source") : stage.panels[p];
      if (!pane || pane.contains(line)) continue;
      const unseen = waiting.get(p);
      if (unseen?.details && !pane.querySelector(".clab-hot")) draw(unseen.details);
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
    if (event.key === "Escape" && lights.length) { pinned = null; dark(); live.textContent = ""; event.stopPropagation(); }
    const line = lineOf(event);
    if (!line) return;
    const list = line.parentElement, whole = list?.parentElement?.matches(".clab-far-lines") ? list.parentElement : null; // lists of one pane follow each other
    const to = {
      ArrowDown: line.nextElementSibling ?? (whole && list?.nextElementSibling?.firstElementChild), ArrowUp: line.previousElementSibling ?? (whole && list?.previousElementSibling?.lastElementChild),
      Home: (whole?.firstElementChild ?? list)?.firstElementChild, End: (whole?.lastElementChild ?? list)?.lastElementChild,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") pin(line);
    else if (to) { line.removeAttribute("tabindex"); const next = /** @type {HTMLElement} */ (to); next.tabIndex = 0; next.focus(); }
    else return;
    event.preventDefault(); event.stopPropagation();
  });
}
