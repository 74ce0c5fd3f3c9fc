// The pipeline view's behaviour: tabs, a second pane, linked lines, filters and copying. Plain ES module, inlined into the output.
// In: the static HTML of pipeline_view.py. Line k of <ol start=n> is item n + k (or source line n + k in a list .clab-src); who is made of
// whom, and why a source line has nothing in a step, stand in script.clab-data. All content can be read without this script.

import { all, copying, firstFrame, liveOf, make, mount, unpack } from "./base.js";

const CHUNK = 100, MOST_ROWS = 300; // lines of one list, of which the browser lays out those in sight; rows of a table that is drawn here

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
 * Long panes of a large trace, which are data until they are opened; see pipeline_far.py.
 * @typedef {{kind: "lines", paint: string, n: [number, number][], text: string[], new: number[], vector?: number[], depth?: number[]}} Lines
 * @typedef {Lines | {kind: "text", text: string} | {kind: "gone", text: string[]} | {kind: "why", parts: [string, string, [string, string][]][]}} Pane
 * @typedef {{up: string, src: string, lost: Record<string, Record<string, number>>, why: string[], far?: Pane[]}} Data
 */

/** @param {HTMLElement} root @param {Data | {packed: string}} data */
async function start(root, data) {
  const live = liveOf(root), stage = tabs(root, live);
  /** @type {Data} */ let whole;
  try { whole = "packed" in data ? (await firstFrame(), await unpack(data.packed)) : data; }
  catch { live.textContent = "This browser cannot unpack the long panes: each says which command shows it."; return; }
  link(root, live, stage, whole);
  filters(root);
  copying(root);
  root.classList.add("clab-linked");
}

// ---- panes that are drawn when they are opened

/** @param {string} text */
const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c] ?? c);

const STRINGS = `"(?:[^"\\\\]|\\\\.)*"|'(?:[^'\\\\]|\\\\.)*'`, NUMBERS = "\\b\\d[\\w.]*";
const SYNTAX = {
  cpp: new RegExp(`(?<c>//.*|/\\*.*?\\*/|^\\s*#.*)|(?<s>${STRINGS})|(?<m>${NUMBERS})|\\b(?<k>auto|bool|break|case|char|const|constexpr|continue|double|else|extern|false|float|for|if|inline|int|long|nullptr|return|short|sizeof|static|struct|template|true|typename|unsigned|using|void|while|u?int\\d+_t)\\b`, "g"),
  python: new RegExp(`(?<c>#.*)|(?<s>${STRINGS})|(?<m>${NUMBERS})|\\b(?<k>and|as|assert|def|del|else|False|for|from|if|import|in|is|lambda|None|not|or|pass|return|True|while|with)\\b`, "g"),
};

/** A line as HTML, coloured as Python colours those that it draws. @param {string} text @param {string} paint @param {boolean} [vector] */
export function painted(text, paint, vector = false) {
  if (paint === "assembly") {
    if (text.endsWith(":")) return `<i class="k">${escaped(text)}</i>`;
    const [, name = "", rest = ""] = (vector && /^(\s*\S+)(.*)$/.exec(text)) || [];
    return name ? `<i class="f">${escaped(name)}</i>${escaped(rest)}` : escaped(text);
  }
  if (paint === "node") {
    const [, name, value, target = "", rest = ""] = /^(\w+)(: .*?)? = ([\w.]+)(.*)$/s.exec(text) ?? [];
    return name ? `${name}${value ? `<i class="c">${escaped(value)}</i>` : ""} = <i class="f">${escaped(target)}</i>${escaped(rest)}` : escaped(text);
  }
  let html = "", at = 0;
  for (const found of text.matchAll(SYNTAX[paint === "cpp" ? "cpp" : "python"])) {
    const css = Object.entries(found.groups ?? {}).find(([, v]) => v !== undefined)?.[0];
    html += `${escaped(text.slice(at, found.index))}<i class="${css}">${escaped(found[0])}</i>`;
    at = found.index + found[0].length;
  }
  return html + escaped(text.slice(at));
}

/**
 * A pane's lines as lists of up to CHUNK, each as wide as the longest line and as high as its lines, so that those out of sight need no layout.
 * @param {Lines} pane @param {(n: number) => string} label the user's lines of an item
 */
export function listsOf(pane, label) {
  const fresh = new Set(pane.new), vector = new Set(pane.vector), wide = pane.text.reduce((w, t) => Math.max(w, t.length), 0) + 9 + 2 * Math.max(0, ...(pane.depth ?? []));
  let html = "", k = 0;
  for (const [first, count] of pane.n) {
    let last = "";
    for (let at = 0; at < count; at++, k++) {
      if (at % CHUNK === 0) {
        const here = Math.min(CHUNK, count - at);
        html += `${at ? "</ol>" : ""}<ol class="clab-lines" start="${first + at}" style="width:max(100%,${wide}ch);contain-intrinsic-size:auto ${here * 18}px">`;
      }
      const l = label(first + at), inner = "  ".repeat(pane.depth?.[k] ?? 0) + painted(pane.text[k] ?? "", pane.paint, vector.has(k));
      html += `<li${l && l !== last ? ` data-l="${l}"` : ""}${k ? "" : ' tabindex="0"'}>${fresh.has(k) ? `<ins>${inner}</ins>` : inner}</li>`;
      last = l;
    }
    html += "</ol>";
  }
  return html;
}

/** Rows that hold a word, the first MOST_ROWS of them. @param {[string, string, [string, string][]][]} parts @param {string} wanted in small letters */
export function rowsWith(parts, wanted) {
  let left = 0, html = "";
  for (const [head, said, rows] of parts) {
    const inHead = head.toLowerCase().includes(wanted) || said.toLowerCase().includes(wanted);
    const here = inHead ? rows : rows.filter(([what, facts]) => `${what}\n${facts}`.toLowerCase().includes(wanted));
    const shown = here.slice(0, Math.max(MOST_ROWS - left, 0));
    left += here.length;
    if (!shown.length) continue;
    html += `<tbody><tr><th colspan="2" scope="rowgroup">${escaped(head)} <small>${rows.length}</small>${said ? `<br><em>${escaped(said)}</em>` : ""}</th></tr>`;
    html += shown.map(([what, facts]) => `<tr><td>${escaped(what)}</td><td>${escaped(facts)}</td></tr>`).join("") + "</tbody>";
  }
  return { left, html };
}

/** Draws a pane into its opened element. @param {HTMLElement} details @param {Pane} pane @param {(n: number) => string} label */
function drawPane(details, pane, label) {
  const box = make("div", "");
  details.querySelector(":scope > p")?.replaceWith(box);
  if (pane.kind === "why") return drawWhy(box, pane.parts);
  box.className = "clab-far-lines";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", details.querySelector("summary")?.textContent ?? "");
  if (pane.kind === "lines") { box.innerHTML = listsOf(pane, label); return; }
  const lines = pane.kind === "text" ? pane.text.split("\n") : pane.text;
  const wide = lines.reduce((w, t) => Math.max(w, t.length), 0) + 3, gone = pane.kind === "gone";
  let html = "";
  for (let k = 0; k < lines.length; k += CHUNK) {
    const some = lines.slice(k, k + CHUNK).map((l) => (gone ? `<del>${escaped(l)}</del>` : escaped(l)));
    html += `<pre style="width:max(100%,${wide}ch);contain-intrinsic-size:auto ${some.length * 18}px">${some.join("\n")}</pre>`;
  }
  box.innerHTML = html;
}

/** @param {HTMLElement} box @param {[string, string, [string, string][]][]} parts */
function drawWhy(box, parts) {
  const label = make("label", "Only rows with "), input = document.createElement("input"), count = make("small", ""), scroll = make("div", "");
  input.type = "search";
  scroll.className = "clab-scroll";
  for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", "Decisions"]]) scroll.setAttribute(name ?? "", value ?? "");
  const draw = () => {
    const { left, html } = rowsWith(parts, input.value.toLowerCase());
    count.textContent = ` ${left} left${left > MOST_ROWS ? `, the first ${MOST_ROWS} are shown` : ""}`;
    scroll.innerHTML = `<table><thead><tr><th scope="col">what</th><th scope="col">facts</th></tr></thead>${html}</table>`;
  };
  input.addEventListener("input", draw);
  label.append(input, count);
  box.append(label, scroll);
  draw();
}

/**
 * The steps as tabs; "Beside it" shows a second one.
 * @param {HTMLElement} root @param {HTMLElement} live
 * @returns {{panels: HTMLElement[], tabs: HTMLElement[], titles: string[], shown: () => number[], changed: () => void}} set `changed` to be told of every change
 */
function tabs(root, live) {
  const panels = all(root, ".clab-step"), found = /** @type {HTMLAnchorElement[]} */ (all(root, ".clab-nav a"));
  const titles = panels.map((p) => p.querySelector(".clab-h3")?.firstChild?.textContent?.trim() ?? "");
  const order = found.map((tab) => panels.findIndex((p) => p.dataset.step === tab.hash.slice(root.id.length + 2)));
  for (const list of all(root, ".clab-nav ul")) {
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-orientation", "vertical");
    list.setAttribute("aria-label", list.previousElementSibling?.textContent ?? "Steps");
  }
  found.forEach((tab, k) => {
    const panel = /** @type {HTMLElement} */ (panels[order[k] ?? 0]);
    tab.id = `${panel.id}-tab`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel.id);
    tab.parentElement?.setAttribute("role", "presentation");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    panel.tabIndex = 0;
    tab.addEventListener("click", (event) => { event.preventDefault(); show(k); });
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowDown: k + 1, ArrowRight: k + 1, ArrowUp: k - 1, ArrowLeft: k - 1, Home: 0, End: found.length - 1 }[event.key];
      if (to === undefined || !found[to]) return;
      event.preventDefault(); event.stopPropagation(); show(to); found[to]?.focus();
    });
  });
  const label = make("label", "Beside it: "), select = document.createElement("select");
  [["", "nothing"], ...order.map((p) => [String(p), titles[p] ?? ""])].forEach(([value, text]) => select.append(new Option(text, value)));
  select.addEventListener("change", () => show(current));
  label.append(select);
  root.querySelector(".clab-head")?.append(label);
  let current = 0;
  const shown = () => [...new Set([order[current] ?? 0, ...(select.value === "" ? [] : [Number(select.value)])])];
  /** @param {number} k */
  function show(k) {
    current = k;
    const now = shown();
    panels.forEach((panel, p) => panel.classList.toggle("clab-shown", now.includes(p)));
    found.forEach((tab, i) => { tab.setAttribute("aria-selected", String(i === k)); tab.tabIndex = i === k ? 0 : -1; });
    stage.changed();
    live.textContent ||= `Step ${k + 1} of ${found.length}: ${titles[order[k] ?? 0] ?? ""}. Point at a line to see what it comes from and what came of it; click keeps it.`;
  }
  const stage = { panels, tabs: order.map((_, k) => /** @type {HTMLElement} */ (found[order.indexOf(k)])), titles, shown, changed: () => { live.textContent = ""; } };
  if (found.length) show(0);
  return stage;
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
 * @param {HTMLElement} root @param {HTMLElement} live @param {ReturnType<typeof tabs>} stage @param {Data} data
 */
function link(root, live, stage, data) {
  const links = linksOf(data), far = data.far ?? [], large = far.length > 0;
  /** @type {HTMLElement[]} */ const sources = [];
  /** @type {{line: number, place: string}[]} */ const places = [];
  /** @type {WeakMap<Element, number>} */ const sourceOf = new WeakMap();
  /** @type {Range[]} */ const ranges = [];
  for (const list of /** @type {HTMLOListElement[]} */ (all(root, "ol.clab-lines"))) {
    const first = list.start;
    if (list.firstElementChild) /** @type {HTMLElement} */ (list.firstElementChild).tabIndex = 0;
    if (!list.classList.contains("clab-src")) {
      const panel = stage.panels.indexOf(/** @type {HTMLElement} */ (list.closest(".clab-step")));
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
    const number = Number(details.dataset.far), pane = far[number], panel = stage.panels.indexOf(/** @type {HTMLElement} */ (details.closest(".clab-step")));
    if (pane?.kind === "lines") for (const [first, count] of pane.n) ranges.push({ first, count, panel, chunk: CHUNK, lists: [], details, far: number });
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
    const lists = all(details, "ol.clab-lines");
    for (const range of ranges) if (range.far === number) range.lists = lists.splice(0, Math.ceil(range.count / CHUNK));
    if (pane.kind === "lines" && pinned) light(pinned);
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
      if (first) pane.scrollTop += first.getBoundingClientRect().top - pane.getBoundingClientRect().top - pane.clientHeight / 3;
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

/** A field above each table of decisions that leaves the rows that hold a word. @param {HTMLElement} root */
function filters(root) {
  for (const why of all(root, ".clab-why")) {
    const label = make("label", "Only rows with "), input = document.createElement("input"), count = make("small", "");
    const parts = /** @type {HTMLTableSectionElement[]} */ (all(why, "tbody"));
    input.type = "search";
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let left = 0;
      for (const part of parts) {
        const head = part.rows[0]?.textContent?.toLowerCase() ?? "";
        let here = 0;
        for (const row of [...part.rows].slice(1)) {
          row.hidden = !(head + (row.textContent ?? "").toLowerCase()).includes(wanted);
          if (!row.hidden) here++;
        }
        part.hidden = !here;
        left += here;
      }
      count.textContent = wanted ? ` ${left} left` : "";
    });
    label.append(input, count);
    why.querySelector("summary")?.after(label);
  }
}

mount("pipeline", start);
