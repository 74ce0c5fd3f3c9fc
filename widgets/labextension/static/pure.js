// What the extension computes without JupyterLab and without a page; tested by node --test.

/**
 * @typedef {{path: string, number: string, title: string}} Lab
 * @typedef {{number: number, title: string, steps: number, graphs: number, seconds: number}} Recorded
 * @typedef {{stats: {graphs: number, breaks: number}, traces: Recorded[]}} Listing
 * @typedef {{name: string, path: string, type: string}} Entry
 */

const LAB = /^(\d\d)_(.+)\.ipynb$/;

/** The labs of a folder, in order; the title is the file's name in words until its heading has been read. @param {Entry[]} entries @returns {Lab[]} */
export function labsOf(entries) {
  return entries.flatMap(({ name, path, type }) => {
    const found = type === "notebook" ? LAB.exec(name) : null;
    return found ? [{ path, number: found[1], title: sentence(found[2].replaceAll("_", " ")) }] : [];
  }).sort((a, b) => (a.number < b.number ? -1 : 1));
}

/** @param {string} text */
const sentence = (text) => text[0].toUpperCase() + text.slice(1);

/** The heading of a lab's notebook without its number, or "". @param {any} notebook */
export function headingOf(notebook) {
  for (const cell of notebook?.cells ?? []) {
    const found = cell.cell_type === "markdown" ? /^#\s+(?:\d+\s+)?(.+)$/m.exec([cell.source].flat().join("")) : null;
    if (found) return found[1].trim();
  }
  return "";
}

/**
 * How far a learner is with a lab. The file `progress.json` beside the labs is {"labs": {"00": {"done": 2, "of": 4}}}; anything else is no progress.
 * @param {any} file @param {string} number @returns {{done: number, of: number} | null}
 */
export function progressOf(file, number) {
  const { done, of } = file?.labs?.[number] ?? {};
  return Number.isInteger(done) && Number.isInteger(of) && of > 0 && done >= 0 && done <= of ? { done, of } : null;
}

/** @param {number} count @param {string} word */
export const some = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** @param {number} seconds */
export const duration = (seconds) => (seconds >= 0.995 ? `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s` : `${Math.max(1, Math.round(seconds * 1e3))} ms`);

/** @param {Recorded} trace */
export const facts = (trace) => `${some(trace.steps, "step")}, ${some(trace.graphs, "graph")}, ${duration(trace.seconds)}`;

/** What stands above the list of compiles. @param {Listing | null} listing null: the kernel has compiled nothing with compiler_lab */
export function summary(listing) {
  if (!listing) return "This kernel has compiled nothing with compiler_lab yet. Inspect a cell, or put %%compile_inspect on its first line.";
  const counted = `${some(listing.stats.graphs, "graph")} compiled, ${some(listing.stats.breaks, "graph break")}.`;
  return listing.traces.length ? counted : `${counted} None was recorded: put %%compile_inspect on the first line of a cell.`;
}

/**
 * What is run to inspect a cell, or why it cannot be. The cell keeps its source: only what is sent to the kernel has the magic before it.
 * @param {string} source @returns {{code: string} | {why: string}}
 */
export function inspected(source) {
  const first = source.trimStart().split("\n", 1)[0];
  if (!first) return { why: "This cell is empty." };
  if (/^%?%compile_inspect\b/.test(first)) return { code: source };
  if (first.startsWith("%%")) return { why: `${first.split(/\s/, 1)[0]} must be a cell's first line, and so must %%compile_inspect: take one of them away.` };
  return { code: `%%compile_inspect\n${source}` };
}

/** The position that a key goes to in a list of `length`, or null where the key is none of a list's. @param {string} key @param {number} at @param {number} length */
export function moved(key, at, length) {
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: length - 1 }[key];
  return to === undefined || !length ? null : Math.min(Math.max(to, 0), length - 1);
}

const MODULE = (/** @type {string} */ name) => `__import__(${JSON.stringify(name)}, fromlist=["_"])`;
const LOADED = '__import__("sys").modules';

/** Python that asks a kernel and leaves nothing behind: expressions, evaluated silently. */
export const QUESTIONS = {
  /** null where the kernel has not imported the session: asking does not import torch. */
  listing: `${MODULE("compiler_lab.panel")}.listing() if "compiler_lab.session" in ${LOADED} else None`,
  /** @param {number} number */
  picture: (number) => `${MODULE("compiler_lab.panel")}.picture(${number})`,
  load: 'get_ipython().extension_manager.load_extension("compiler_lab")',
};
