// The pipeline view's behaviour: tabs, a second pane, linked lines, filters and copying. Plain ES module, inlined into the output.
// In: the static HTML of pipeline_view.py; who is made of whom, and why a source line has nothing in a step, stand in script.clab-data. Lines are
// linked by lines.js. All content can be read without this script.

import { all, copying, firstFrame, liveOf, make, mount, unpack } from "./base.js";
import { CHUNK, link } from "./lines.js";

const MOST_ROWS = 300; // of a table that is drawn here

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
  link(root, live, stage, whole, drawPane);
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
  box.setAttribute("role", "group");
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
  for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", "Decisions"]]) scroll.setAttribute(name ?? "", value ?? "");
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
 * @returns {import("./lines.js").Panes}
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
