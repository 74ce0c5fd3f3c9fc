// The pipeline view's behaviour: tabs, a second pane, linked lines, filters and copying. Plain ES module, inlined into the output.
// In: the static HTML of pipeline_view.py. Line k of <ol start=n> is item n + k (or source line n + k in a list .clab-src); who is made of
// whom, and why a source line has nothing in a step, stand in script.clab-data. All content can be read without this script.

import { all, copying, liveOf, make, mount } from "./base.js";
import { link } from "./lines.js";

/** @param {HTMLElement} root @param {{up: string, src: string, lost: Record<string, Record<string, number>>, why: string[]}} data */
function start(root, data) {
  const live = liveOf(root);
  const stage = tabs(root, live);
  link(root, live, stage, data);
  filters(root);
  copying(root);
}

/**
 * The steps as tabs; "Beside it" shows a second one.
 * @param {HTMLElement} root @param {HTMLElement} live
 * @returns {{panels: HTMLElement[], tabs: HTMLElement[], titles: string[], shown: () => number[], changed: () => void}} set `changed` to be told of every change
 */
function tabs(root, live) {
  const panels = all(root, ".clab-step"), found = all(root, ".clab-nav a");
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
    const parts = all(why, "tbody");
    input.type = "search";
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      let left = 0;
      for (const part of parts) {
        const head = part.rows[0]?.textContent?.toLowerCase() ?? "";
        let here = 0;
        for (const row of [.../** @type {HTMLTableSectionElement} */ (part).rows].slice(1)) {
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
