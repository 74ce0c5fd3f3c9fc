// The report's behaviour: its links become tabs, one section is shown at a time; an address that ends in #id shows the section that holds the id.
// Plain ES module. In: the static HTML of report_view.py. All content can be read without this script.

import { all, liveOf, mount, roving } from "./base.js";

/**
 * Which section an address asks for.
 * @param {string} hash with its "#"
 * @param {string[]} ids of the sections
 * @param {(id: string) => string | undefined} holder the section that holds an element
 * @returns {string | undefined}
 */
export function sectionOf(hash, ids, holder) {
  let id = hash.slice(1);
  try { id = decodeURIComponent(id); } catch { /* it is taken as it stands */ }
  return ids.includes(id) ? id : id ? holder(id) : undefined;
}

/** @param {HTMLElement} root */
export function startReport(root) {
  const tabs = all(root, ".clab-tabs a"), list = root.querySelector(".clab-tabs ul");
  const parts = tabs.map((tab) => /** @type {HTMLElement} */ (document.getElementById(tab.getAttribute("href")?.slice(1) ?? "")));
  const ids = parts.map((part) => part.id);
  list?.setAttribute("role", "tablist");
  list?.setAttribute("aria-label", "Views");
  const place = new Map();
  let shown = "";
  /** @param {string} id @param {boolean} [said] */
  const show = (id, said = true) => {
    if (id === shown) return;
    place.set(shown, window.scrollY);
    shown = id;
    tabs.forEach((tab, k) => {
      const on = ids[k] === id;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      /** @type {HTMLElement} */ (parts[k]).hidden = !on;
      if (on && said) liveOf(root).textContent = `Showing: ${tab.textContent}`;
    });
    window.scrollTo(0, place.get(id) ?? 0);
    document.getElementById(id)?.dispatchEvent(new Event("clab-shown"));
    window.dispatchEvent(new Event("resize"));
  };
  const follow = () => {
    const id = sectionOf(location.hash, ids, (inner) => document.getElementById(inner)?.closest(".clab-part")?.id);
    if (id && id !== shown) show(id);
  };
  tabs.forEach((tab, k) => {
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", ids[k] ?? "");
    tab.parentElement?.setAttribute("role", "presentation");
    parts[k]?.setAttribute("role", "tabpanel");
    tab.addEventListener("click", (event) => { event.preventDefault(); history.replaceState(null, "", `#${ids[k]}`); show(ids[k] ?? ""); });
    tab.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); tab.click(); } });
  });
  roving(tabs, (tab) => tab.click());
  window.addEventListener("hashchange", follow);
  // Modules run when the page has been read, this one first: what it hides is not laid out, and starts when it is shown (mount of base.js).
  show(sectionOf(location.hash, ids, (inner) => document.getElementById(inner)?.closest(".clab-part")?.id) ?? ids[0] ?? "", false);
}

mount("report", startReport);
