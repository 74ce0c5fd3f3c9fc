// The guards' behaviour: trees that keys walk, recompiles that point to the check that failed, and, in a widget, inputs of one's own.
// In: the static HTML of guards_view.py; script.clab-data has each tree's arguments, and the element of each check.

import { all, liveOf, make, mount } from "./base.js";

/** @typedef {{inputs: {name: string, held: string}[], ids: Record<string, string>}} Tree */

/**
 * Where a key leads in a tree: the pattern of ARIA's trees. `open` is null at a leaf.
 * @param {string} key @param {{open: boolean | null, parent: boolean}} at
 * @returns {"next" | "back" | "first" | "last" | "open" | "close" | "parent" | "child" | "toggle" | ""}
 */
export function treeKey(key, at) {
  if (key === "ArrowDown") return "next";
  if (key === "ArrowUp") return "back";
  if (key === "Home") return "first";
  if (key === "End") return "last";
  if (key === "ArrowRight") return at.open === null ? "" : at.open ? "child" : "open";
  if (key === "ArrowLeft") return at.open ? "close" : at.parent ? "parent" : "";
  if (key === "Enter" || key === " ") return at.open === null ? "" : "toggle";
  return "";
}

/** The sentence for an answer of Python's. @param {{error?: string, fits?: boolean, text?: string, line?: string, advice?: string}} answer */
export function answered(answer) {
  if (answer.error) return `That could not be tried: ${answer.error}`;
  if (answer.fits) return `\u2713 ${answer.text}`;
  return `\u2717 It would be compiled again. ${answer.text}` + (answer.line ? `\nAssumed at ${answer.line}` : "") + (answer.advice ? `\nWhat would avoid it: ${answer.advice}` : "");
}

/** @param {HTMLElement} root @param {{trees: Tree[]}} data @param {import("./base.js").Store} store */
function start(root, data, store) {
  const live = liveOf(root);
  for (const tree of all(root, ".clab-guards-tree")) walk(tree);
  const find = (/** @type {string} */ id) => /** @type {HTMLElement | null} */ (id ? root.querySelector(`#${CSS.escape(id)}`) : null);
  for (const link of all(root, ".clab-guards-to"))
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const leaf = find((link.getAttribute("href") ?? "").slice(1));
      if (leaf) { reveal(leaf, root, "clab-guards-at"); leaf.focus(); live.textContent = `The check that failed: ${[...(leaf.querySelector("span")?.childNodes ?? [])].map((n) => n.textContent?.trim()).filter(Boolean).join("; ")}`; }
    });
  if (store.ask) for (const one of all(root, ".clab-guards-one")) trying(one, data, store, live, find);
}

/** Roles, one tab stop, and keys. @param {HTMLElement} tree */
function walk(tree) {
  const items = all(tree, "li");
  tree.setAttribute("role", "tree");
  for (const item of items) {
    const below = item.querySelector(":scope > ul");
    item.setAttribute("role", "treeitem");
    item.tabIndex = -1;
    if (below) { below.setAttribute("role", "group"); item.setAttribute("aria-expanded", "true"); }
  }
  if (items[0]) items[0].tabIndex = 0;
  const focus = (/** @type {HTMLElement | null | undefined} */ item) => {
    if (!item) return;
    for (const other of all(tree, "[tabindex='0']")) other.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  };
  tree.addEventListener("click", (event) => {
    const item = /** @type {HTMLElement} */ (event.target).closest("li");
    if (!item) return;
    if (item.hasAttribute("aria-expanded")) toggle(item);
    focus(item);
  });
  tree.addEventListener("keydown", (event) => {
    const item = /** @type {HTMLElement} */ (event.target).closest("li");
    if (!item) return;
    if (event.key === "Escape") { item.blur(); event.stopPropagation(); return; }
    const open = item.getAttribute("aria-expanded"), above = item.parentElement?.closest("li");
    const to = treeKey(event.key, { open: open === null ? null : open === "true", parent: !!above });
    if (!to) return;
    event.preventDefault(); event.stopPropagation();
    const shown = items.filter((i) => i.offsetParent !== null), at = shown.indexOf(item);
    if (to === "open" || to === "close" || to === "toggle") toggle(item);
    else if (to === "parent") focus(above);
    else focus(shown[{ next: at + 1, child: at + 1, back: at - 1, first: 0, last: shown.length - 1 }[to]]);
  });
}

/** @param {HTMLElement} item */
const toggle = (item) => item.setAttribute("aria-expanded", item.getAttribute("aria-expanded") === "true" ? "false" : "true");

/** Opens what a leaf is in, marks it, and brings it into sight. @param {HTMLElement} leaf @param {HTMLElement} root @param {string} css */
function reveal(leaf, root, css) {
  for (const other of all(root, `.${css}`)) other.classList.remove(css);
  leaf.classList.add(css);
  for (let up = leaf.parentElement?.closest("li"); up; up = up.parentElement?.closest("li")) up.setAttribute("aria-expanded", "true");
  const box = leaf.closest(".clab-guards-tree");
  if (box) box.scrollTop += leaf.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

/** A form with a field for each argument. @param {HTMLElement} one @param {{trees: Tree[]}} data @param {import("./base.js").Store} store @param {HTMLElement} live @param {(id: string) => HTMLElement | null} find */
function trying(one, data, store, live, find) {
  const number = Number(one.dataset.tree), tree = /** @type {Tree} */ (data.trees[number]), form = make("form", ""), said = document.createElement("output");
  form.append(make("strong", "Try inputs of your own"), make("p", "A Python expression for each argument that is to differ; arguments can be used by name, as in x[:1] or x.double()."));
  /** @type {Map<string, HTMLInputElement>} */ const fields = new Map();
  for (const { name, held } of tree.inputs) {
    const label = make("label", ""), field = document.createElement("input");
    field.placeholder = held || "as at the compile";
    field.value = store.get("tree") === number ? (store.get("values") ?? {})[name] ?? "" : "";
    fields.set(name, field);
    label.append(make("code", name), field);
    form.append(label);
  }
  const button = make("button", "Would it fit?");
  button.setAttribute("type", "submit");
  form.append(button, said);
  form.addEventListener("keydown", (event) => event.stopPropagation());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = Object.fromEntries([...fields].map(([name, field]) => [name, field.value]));
    store.set("tree", number);
    store.set("values", values);
    const answer = await store.ask?.({ tree: number, values });
    said.textContent = live.textContent = answered(answer);
    for (const old of all(one, ".clab-guards-fails")) { old.classList.remove("clab-guards-fails"); old.querySelector("b.clab-guards-now")?.remove(); }
    const leaf = find(tree.ids[answer.check] ?? "");
    if (!leaf) return;
    reveal(leaf, root_(one), "clab-guards-fails");
    const badge = make("b", "fails for your inputs");
    badge.className = "clab-guards-now";
    leaf.querySelector("span")?.append(badge);
  });
  one.querySelector(".clab-guards-try")?.append(form);
}

/** @param {HTMLElement} one */
const root_ = (one) => /** @type {HTMLElement} */ (one.closest(".clab"));

mount("guards", start);
