// The memory view's behaviour: a buffer lights the kernels that write and read it, a kernel its buffers; by click, by the lists, by arrow keys.
// In: the static HTML of memory_view.py. All of it can be read without this script.

import { all, liveOf, make, mount } from "./base.js";

/** [name, reads, writes, line] @typedef {[string, string[], string[], string]} Kernel */
/** [name, what, bytes, where, why, result, line] @typedef {[string, string, number, string, string, number, string]} PlacedBuffer */
/** @typedef {{kernels: Kernel[], buffers: PlacedBuffer[]}} MemoryProgram */

/** The kernels of a buffer. @param {Kernel[]} kernels @param {string} name */
export function kernelsOf(kernels, name) {
  return { writes: kernels.flatMap((k, i) => (k[2].includes(name) ? [i] : [])), reads: kernels.flatMap((k, i) => (k[1].includes(name) ? [i] : [])) };
}

/** What is said of a buffer. @param {MemoryProgram} program @param {number} k */
export function bufferSaid(program, k) {
  const [name, what, bytes, where, why, result, line] = program.buffers[k], found = kernelsOf(program.kernels, name);
  /** @param {number[]} list */
  const names = (list) => list.map((i) => program.kernels[i][0] + (program.kernels[i][3] ? ` (${program.kernels[i][3]})` : "")).join(", ");
  const readers = found.reads.length ? `read by ${names(found.reads)}` : "read by no kernel";
  return `${name}, ${what}${line ? ` of ${line}` : ""}: ${bytes.toLocaleString("en")} bytes, ${where}. Written by ${names(found.writes)}, ${readers}${result ? "; a result" : ""}. ${why}`.trim();
}

/** What is said of a kernel. @param {MemoryProgram} program @param {number} i */
export function kernelSaid(program, i) {
  const [name, reads, writes, line] = program.kernels[i];
  return `${name}${line ? ` of ${line}` : ""}: writes ${writes.join(", ") || "nothing"}; reads ${reads.join(", ") || "nothing"}.`;
}

/** @param {HTMLElement} root @param {{programs: MemoryProgram[]}} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  if (!data.programs.length) return;
  const live = liveOf(root), picked = /** @type {HTMLElement} */ (root.querySelector(".clab-picked"));
  /** @param {string} css */
  const select = (css) => /** @type {HTMLSelectElement} */ (root.querySelector(css));
  const programs = select(".clab-program"), buffers = select(".clab-buffer"), kernels = select(".clab-kernel");
  const sections = all(root, ".clab-mprogram");
  const at = () => Math.min(Number(store.get("program") ?? 0), data.programs.length - 1);

  function fill() {
    programs.value = String(at());
    sections.forEach((s, k) => s.classList.toggle("clab-shown", k === at()));
    const { buffers: found, kernels: order } = data.programs[at()];
    for (const [list, names] of /** @type {[HTMLSelectElement, string[]][]} */ ([[buffers, found.map((b) => b[0])], [kernels, order.map((k) => k[0])]])) {
      list.replaceChildren(...["", ...names].map((name) => { const o = /** @type {HTMLOptionElement} */ (make("option", name || "none")); o.value = name; return o; }));
    }
    light();
  }

  function light() {
    const program = data.programs[at()], section = sections[at()];
    const b = program.buffers.findIndex((one) => one[0] === store.get("buffer")), k = program.kernels.findIndex((one) => one[0] === store.get("kernel"));
    buffers.value = b < 0 ? "" : program.buffers[b][0];
    kernels.value = k < 0 ? "" : program.kernels[k][0];
    const hot = new Set(b < 0 ? [] : [b]), { writes, reads } = kernelsOf(program.kernels, b < 0 ? "" : program.buffers[b][0]);
    if (k >= 0) program.buffers.forEach((one, i) => { if (program.kernels[k][1].includes(one[0]) || program.kernels[k][2].includes(one[0])) hot.add(i); });
    section.classList.toggle("clab-chosen", b >= 0 || k >= 0);
    for (const bar of all(section, ".clab-bar")) {
      bar.classList.toggle("clab-lit", hot.has(Number(bar.dataset.b)));
    }
    for (const column of all(section, ".clab-col")) {
      const i = Number(column.dataset.k);
      column.classList.toggle("clab-writes", writes.includes(i));
      column.classList.toggle("clab-reads", reads.includes(i) || i === k);
    }
    for (const [i, row] of all(section, ".clab-tbuffers tbody tr").entries()) row.classList.toggle("clab-lit", hot.has(i));
    const said = [b < 0 ? "" : bufferSaid(program, b), k < 0 ? "" : kernelSaid(program, k)].filter(Boolean).join(" ");
    picked.textContent = said || "Choose a buffer or a kernel, here or in the pictures.";
    live.textContent = said;
  }

  /** @param {string} buffer @param {string} kernel */
  function pick(buffer, kernel) {
    store.set("buffer", buffer);
    store.set("kernel", kernel);
  }

  programs.addEventListener("change", () => { pick("", ""); store.set("program", Number(programs.value)); });
  buffers.addEventListener("change", () => pick(buffers.value, ""));
  kernels.addEventListener("change", () => pick("", kernels.value));
  root.querySelector(".clab-none")?.addEventListener("click", () => pick("", ""));
  for (const [n, section] of sections.entries()) {
    section.addEventListener("click", (event) => {
      const target = /** @type {Element} */ (event.target);
      const bar = /** @type {HTMLElement | null} */ (target.closest(".clab-bar")), column = /** @type {HTMLElement | null} */ (target.closest(".clab-col"));
      if (bar) pick(data.programs[n].buffers[Number(bar.dataset.b)][0], "");
      else if (column) pick("", data.programs[n].kernels[Number(column.dataset.k)][0]);
    });
    const bars = all(section, ".clab-life .clab-bar");
    bars.forEach((bar, i) => {
      bar.setAttribute("tabindex", i ? "-1" : "0");
      bar.setAttribute("role", "button");
      bar.addEventListener("focus", () => { for (const o of bars) o.setAttribute("tabindex", o === bar ? "0" : "-1"); });
      bar.addEventListener("keydown", (event) => {
        const to = { ArrowDown: i + 1, ArrowRight: i + 1, ArrowUp: i - 1, ArrowLeft: i - 1, Home: 0, End: bars.length - 1, Enter: i, " ": i }[event.key];
        const next = to === undefined ? undefined : bars[to];
        if (!next) return;
        event.preventDefault(); event.stopPropagation();
        next.focus();
        pick(data.programs[n].buffers[Number(next.dataset.b)][0], "");
      });
    });
  }
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); pick("", ""); }
  });
  store.on("program", fill);
  store.on("buffer", light);
  store.on("kernel", light);
  fill();
}

mount("memory", start);
