// The kernel view's behaviour: one kernel at a time, linked lines in its panes, and sliders through the steps of an access.
// In: the static HTML of kernel_view.py, links of lines and index expressions. All of it can be read without this script.

import { all, copying, liveOf, make, mount } from "./base.js";
import { link } from "./lines.js";

/** [const, [[coefficient, name | ["div" | "mod", index, by]]]] @typedef {[number, [number, any][]]} IndexTree */
/** @typedef {{buffer: string, tree: IndexTree, variables: {[name: string]: number}, size: number[], stride: number[], total: number}} KernelAccess */
/** @typedef {{name: string, lane: string, accesses: KernelAccess[]}} KernelFacts */
/** @typedef {{up: string, src: string, lost: Record<string, Record<string, number>>, why: string[], kernels: KernelFacts[]}} KernelData */

const ACROSS = 32, ROWS = 12, CELL = 14, LANES = 8;

/** The number that an index gives; division rounds down. @param {IndexTree} tree @param {{[name: string]: number}} values @returns {number} */
export function evaluateIndex(tree, values) {
  let total = tree[0];
  for (const [c, atom] of tree[1]) {
    if (typeof atom === "string") { total += c * (values[atom] ?? 0); continue; }
    const inner = evaluateIndex(atom[1], values), quotient = Math.floor(inner / atom[2]);
    total += c * (atom[0] === "div" ? quotient : inner - quotient * atom[2]);
  }
  return total;
}

/** The places that a block of steps of `lane` touches. @param {KernelAccess} a @param {string} lane @param {{[name: string]: number}} values */
export function touchedBy(a, lane, values) {
  const size = a.variables[lane] ?? 1, first = a.variables[lane] ? values[lane] ?? 0 : 0;
  return Array.from({ length: Math.min(LANES, size - first) }, (_, k) => evaluateIndex(a.tree, { ...values, [lane]: first + k }));
}

/** [elements in a row, first shown, past the last]. @param {KernelAccess} a @param {number[]} places @returns {[number, number, number]} */
export function windowOf(a, places) {
  const near = a.size.filter((n, d) => a.stride[d] === 1 && n > 1 && n <= ACROSS), across = near[near.length - 1] ?? ACROSS;
  const row = Math.max(0, Math.min(Math.floor(Math.min(...places) / across) - 1, Math.floor((a.total - 1) / across) - ROWS + 1));
  return [across, row * across, Math.min(a.total, (row + ROWS) * across)];
}

/** @param {HTMLElement} root @param {KernelData} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  if (!data.kernels.length) return;
  const live = liveOf(root), panels = all(root, ".clab-pane"), sections = all(root, ".clab-kern");
  const which = /** @type {HTMLSelectElement} */ (root.querySelector(".clab-which"));
  const at = () => Math.max(0, Math.min(sections.length - 1, Number(store.get("kernel") ?? 0)));
  /** @type {import("./lines.js").Panes} */
  const stage = {
    panels, tabs: panels.map((p) => /** @type {HTMLElement} */ (p.querySelector(".clab-h4"))), titles: panels.map((p) => p.dataset.title ?? ""),
    shown: () => panels.flatMap((p, k) => (sections[at()].contains(p) ? [k] : [])), changed: () => {},
  };
  link(root, live, stage, data);
  copying(root);

  function show() {
    which.value = String(at());
    sections.forEach((s, k) => s.classList.toggle("clab-shown", k === at()));
    choose();
    stage.changed();
  }

  /** The sliders of the chosen access, then its picture. */
  function choose() {
    const { accesses } = data.kernels[at()], select = /** @type {HTMLSelectElement | null} */ (sections[at()].querySelector(".clab-access"));
    if (!select) return;
    const k = Math.max(0, Math.min(accesses.length - 1, Number(store.get("access") ?? 0))), a = accesses[k];
    select.value = String(k);
    sections[at()].querySelector(".clab-sliders")?.replaceChildren(...Object.entries(a.variables).map(([name, size]) => {
      const label = make("label", `${name.startsWith("%") ? "loaded value " : ""}${name} `), slider = document.createElement("input"), out = make("output", "0");
      slider.type = "range"; slider.min = "0"; slider.max = String(size - 1); slider.dataset.variable = name;
      slider.addEventListener("input", () => store.set("point", { ...(store.get("point") ?? {}), [name]: Number(slider.value) }));
      label.append(slider, out);
      return label;
    }));
    draw(false);
  }

  /** @param {boolean} tell */
  function draw(tell) {
    const section = sections[at()], { accesses, lane } = data.kernels[at()], svg = section.querySelector(".clab-cells"), said = section.querySelector(".clab-hits");
    if (!svg || !said) return;
    const a = accesses[Math.max(0, Math.min(accesses.length - 1, Number(store.get("access") ?? 0)))];
    /** @type {{[name: string]: number}} */ const values = {};
    for (const [name, size] of Object.entries(a.variables)) values[name] = Math.max(0, Math.min(size - 1, Number(store.get("point")?.[name] ?? 0)));
    for (const slider of all(section, ".clab-sliders input")) {
      const value = String(values[slider.dataset.variable ?? ""] ?? 0);
      /** @type {HTMLInputElement} */ (slider).value = value;
      if (slider.nextElementSibling) slider.nextElementSibling.textContent = value;
    }
    const places = touchedBy(a, lane, values), [across, first, past] = windowOf(a, places), marks = new Set(places);
    const spot = (/** @type {string} */ tag, /** @type {{[name: string]: string | number}} */ attributes, text = "") => {
      const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
      e.textContent = text;
      return e;
    };
    /** @type {Element[]} */ const cells = [];
    for (let e = first; e < past; e++) {
      const x = ((e - first) % across) * CELL, y = Math.floor((e - first) / across) * CELL;
      cells.push(spot("rect", { x, y, width: CELL - 2, height: CELL - 2, ...(marks.has(e) ? { class: "clab-hit" } : {}) }));
      if (marks.has(e)) cells.push(spot("text", { x: x + 3, y: y + 10 }, "x"));
    }
    const number = (/** @type {number} */ n) => n.toLocaleString("en");
    const label = `${a.buffer}: elements ${number(first)} to ${number(past - 1)} of ${number(a.total)}, ${across} in a row`;
    svg.replaceChildren(...cells);
    svg.setAttribute("width", String(across * CELL));
    svg.setAttribute("viewBox", `0 0 ${across * CELL} ${ROWS * CELL}`);
    svg.setAttribute("aria-label", label);
    said.textContent = `${label}${first === 0 && past === a.total ? "" : " (a part: the buffer is larger)"}. Touched, marked x: ${places.join(", ")}`;
    if (tell) live.textContent = `Touched in ${a.buffer}: ${places.join(", ")}`;
  }

  which.addEventListener("change", () => { store.set("access", 0); store.set("point", {}); store.set("kernel", Number(which.value)); });
  for (const select of all(root, ".clab-access")) select.addEventListener("change", () => store.set("access", Number(/** @type {HTMLSelectElement} */ (select).value)));
  root.addEventListener("keydown", (event) => { if (/** @type {HTMLElement} */ (event.target).matches("select, input")) event.stopPropagation(); });
  store.on("kernel", show);
  store.on("access", choose);
  store.on("point", () => draw(true));
  show();
}

mount("kernel", start);
