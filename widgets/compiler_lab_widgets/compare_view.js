// The compare view's behaviour: stages as tabs, equal rows hidden, from difference to difference by button or by the keys n and p.
// In: the static HTML of compare_view.py; rows of a stage are the rows of its table. All content can be read without this script.

import { all, liveOf, mount, roving } from "./base.js";

/** @typedef {{names: string[], stages: {title: string, left_out: number}[]}} CompareData */

/**
 * The place of the next difference, going round at the ends; -1 where there is none.
 * @param {boolean[]} differs of each row
 * @param {number} at the row at hand, -1 before the first
 * @param {1 | -1} step
 */
export function nextDifference(differs, at, step) {
  const n = differs.length;
  for (let k = 1; k <= n; k++) {
    const place = (((at < 0 && step < 0 ? 0 : at) + step * k) % n + n) % n;
    if (differs[place]) return place;
  }
  return -1;
}

/**
 * What is said of a row that was reached.
 * @param {string[]} names
 * @param {(string | null)[]} texts left and right
 */
export function rowSaid(names, texts) {
  const [left, right] = texts;
  if (left === null) return `only ${names[1]}: ${right}`;
  if (right === null) return `only ${names[0]}: ${left}`;
  return left === right ? `both: ${left}` : `${names[0]}: ${left}; ${names[1]}: ${right}`;
}

/** @param {HTMLElement} root @param {CompareData} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  const tabs = all(root, ".clab-nav a"), panels = all(root, ".clab-stage"), live = liveOf(root);
  const only = /** @type {HTMLInputElement} */ (root.querySelector(".clab-only"));
  let at = -1;
  /** @param {HTMLTableRowElement} row */
  const textsOf = (row) => [row.cells[0], row.cells[2]].map((cell) => cell?.querySelector("code")?.textContent?.trim() ?? null);

  /** @param {number} k @param {boolean} [tell] */
  function show(k, tell = true) {
    at = -1;
    tabs.forEach((tab, i) => { tab.setAttribute("aria-selected", String(i === k)); tab.tabIndex = i === k ? 0 : -1; });
    panels.forEach((panel, i) => panel.classList.toggle("clab-shown", i === k));
    for (const row of all(root, ".clab-at")) row.classList.remove("clab-at");
    if (tell) live.textContent = `${tabs[k]?.textContent?.trim()}: ${panels[k]?.querySelector("caption")?.textContent ?? "counts over all stages"}`;
  }

  /** @param {number} k */
  function choose(k) {
    if (store.get("stage") !== k) store.set("stage", k);
    else show(k);
  }

  /** @param {1 | -1} step */
  function go(step) {
    const panel = panels.find((p) => p.classList.contains("clab-shown"));
    const rows = /** @type {HTMLTableRowElement[]} */ (panel ? all(panel, ".clab-two tbody tr") : []);
    const next = nextDifference(rows.map((r) => !r.classList.contains("clab-same")), at, step);
    for (const row of rows) row.classList.remove("clab-at");
    const row = rows[next];
    if (!row) { live.textContent = "No row differs here"; return; }
    at = next;
    row.classList.add("clab-at");
    row.scrollIntoView({ block: "nearest" });
    live.textContent = rowSaid(data.names, textsOf(row));
  }

  tabs.forEach((tab, k) => {
    tab.setAttribute("role", "tab");
    tab.id = `${panels[k]?.id}-tab`;
    tab.setAttribute("aria-controls", panels[k]?.id ?? "");
    panels[k]?.setAttribute("role", "tabpanel");
    panels[k]?.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", (event) => { event.preventDefault(); choose(k); });
  });
  const list = root.querySelector(".clab-nav ul");
  list?.setAttribute("role", "tablist");
  list?.setAttribute("aria-label", "Stages");
  for (const li of all(root, ".clab-nav li")) li.setAttribute("role", "presentation");
  roving(tabs, (_, k) => choose(k));

  only.addEventListener("change", () => store.set("differences", only.checked));
  root.querySelector(".clab-on-to")?.addEventListener("click", () => go(1));
  root.querySelector(".clab-back")?.addEventListener("click", () => go(-1));
  root.addEventListener("keydown", (event) => {
    const typing = /** @type {HTMLElement} */ (event.target).matches("input:not([type=checkbox])");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n" || event.key === "p") { event.preventDefault(); event.stopPropagation(); go(event.key === "n" ? 1 : -1); }
    if (event.key === "Escape") { at = -1; for (const row of all(root, ".clab-at")) row.classList.remove("clab-at"); live.textContent = ""; event.stopPropagation(); }
  });
  const hide = () => { only.checked = Boolean(store.get("differences")); root.classList.toggle("clab-differences", only.checked); };
  store.on("stage", () => show(store.get("stage") ?? 0));
  store.on("differences", hide);
  hide();
  show(Math.min(store.get("stage") ?? 0, panels.length - 1), false);
  if (store.get("stage") === undefined) store.set("stage", 0);
}

mount("compare", start);
