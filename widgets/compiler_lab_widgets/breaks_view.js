// The breaks' behaviour: panes can be copied, n and p go to the next break and the one before. All content stands in the HTML.

import { all, copying, liveOf, mount } from "./base.js";

/** The break that a key leads to, from number `at` (-1: none yet) of `count`; undefined for other keys. @param {string} key @param {number} at @param {number} count */
export function breakOf(key, at, count) {
  const to = key === "n" ? at + 1 : key === "p" ? at - 1 : undefined;
  return to === undefined || !count ? undefined : Math.max(0, Math.min(count - 1, to));
}

/** @param {HTMLElement} root */
function start(root) {
  copying(root);
  const live = liveOf(root), breaks = all(root, ".clab-breaks-one");
  const go = (/** @type {number} */ to) => {
    const one = /** @type {HTMLElement} */ (breaks[to]);
    one.focus();
    one.scrollIntoView({ block: "nearest" });
    live.textContent = `Break ${to + 1} of ${breaks.length}: ${one.getAttribute("aria-label")}`;
  };
  for (const link of all(root, "td a[href]"))
    link.addEventListener("click", (event) => {
      event.preventDefault();
      go(breaks.findIndex((one) => `#${one.id}` === link.getAttribute("href")));
    });
  if (breaks.length) live.textContent = "n and p go from break to break";
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const active = /** @type {HTMLElement} */ (event.target).closest(".clab-breaks-one");
    if (event.key === "Escape") { /** @type {HTMLElement} */ (event.target).blur(); event.stopPropagation(); return; }
    const to = breakOf(event.key, active ? breaks.indexOf(/** @type {HTMLElement} */ (active)) : -1, breaks.length);
    if (to === undefined) return;
    event.preventDefault(); event.stopPropagation();
    go(to);
  });
}

mount("breaks", start);
