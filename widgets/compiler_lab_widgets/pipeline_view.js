// The pipeline view's behaviour: tabs, a second pane, and linked lines. Plain ES module, inlined into the output.
// In: the static HTML of pipeline_view.py. Lines carry data-n (their number), data-p (their parents' numbers) and data-s (source
// lines); source lines carry data-src. Nothing here creates content: without this script all of it can be read.

/**
 * Who is made of whom: the map of parents, turned around.
 * @param {Map<number, number[]>} parents number of a line -> numbers of its parents
 * @returns {Map<number, number[]>}
 */
export function turned(parents) {
  /** @type {Map<number, number[]>} */
  const children = new Map();
  for (const [n, up] of parents)
    for (const p of up) {
      const list = children.get(p);
      if (list) list.push(n); else children.set(p, [n]);
    }
  return children;
}

/**
 * Everything that a line comes from and everything made of it.
 * @param {Map<number, number[]>} parents
 * @param {Map<number, number[]>} children
 * @param {number[]} start
 * @returns {Set<number>} `start`, its ancestors and its descendants
 */
export function related(parents, children, start) {
  const found = new Set(start);
  for (const next of [parents, children]) {
    const queue = [...start];
    for (let n = queue.pop(); n !== undefined; n = queue.pop())
      for (const m of next.get(n) ?? []) if (!found.has(m)) { found.add(m); queue.push(m); }
  }
  return found;
}

/** @param {string | undefined} text @returns {number[]} */
export function numbers(text) {
  return text ? text.split(" ").map(Number) : [];
}

/**
 * What to light when a line is pointed at: `hot` lines by their own number, `sources` by source line.
 * @param {{n: number, p: number[], s: number[]}[]} lines
 * @param {{n?: number, src?: number}} at
 * @param {Map<number, number[]>} parents
 * @param {Map<number, number[]>} children
 */
export function lit(lines, at, parents = new Map(lines.map((l) => [l.n, l.p])), children = turned(parents)) {
  const start = at.src === undefined ? [/** @type {number} */ (at.n)] : lines.filter((l) => l.s.includes(/** @type {number} */ (at.src))).map((l) => l.n);
  const hot = at.src === undefined ? related(parents, children, start) : new Set(start);
  const own = lines.filter((l) => l.n === at.n).flatMap((l) => l.s);
  const sources = new Set(at.src === undefined ? own : [at.src]);
  const warm = new Set(lines.filter((l) => !hot.has(l.n) && l.s.some((s) => sources.has(s))).map((l) => l.n));
  return { hot, warm, sources };
}

/** @param {HTMLElement} root */
function start(root) {
  root.classList.add("clab-on");
  /** @type {HTMLDetailsElement[]} */
  const steps = [...root.querySelectorAll(".clab-step")].map((e) => /** @type {HTMLDetailsElement} */ (e));
  const tabs = [...root.querySelectorAll(".clab-nav a")].map((e) => /** @type {HTMLElement} */ (e));
  const live = /** @type {HTMLElement} */ (root.querySelector(".clab-live"));
  const id = "clab" + Math.random().toString(36).slice(2);
  const list = /** @type {HTMLElement} */ (root.querySelector(".clab-nav ol"));
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-orientation", "vertical");
  steps.forEach((step, i) => { step.open = true; step.id = `${id}p${i}`; step.tabIndex = 0; step.setAttribute("role", "tabpanel"); step.setAttribute("aria-labelledby", `${id}t${i}`); });
  tabs.forEach((tab, i) => {
    tab.id = `${id}t${i}`; tab.setAttribute("role", "tab"); tab.setAttribute("aria-controls", `${id}p${i}`);
    tab.parentElement?.setAttribute("role", "presentation");
    tab.addEventListener("click", (event) => { event.preventDefault(); show(i); });
  });
  const beside = chooser(tabs.map((t) => t.textContent ?? ""), () => show(current));
  root.querySelector(".clab-head")?.append(beside.label);

  let current = 0;
  /** @param {number} i */
  function show(i) {
    current = i;
    const second = beside.value();
    steps.forEach((step, k) => step.classList.toggle("clab-shown", k === i || k === second));
    tabs.forEach((tab, k) => { tab.setAttribute("aria-selected", String(k === i)); tab.tabIndex = k === i ? 0 : -1; });
    live.textContent = `Step ${i + 1} of ${tabs.length}: ${tabs[i]?.textContent ?? ""}`;
  }
  list.addEventListener("keydown", (event) => {
    const to = { ArrowDown: current + 1, ArrowUp: current - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || !tabs[to]) return;
    event.preventDefault(); event.stopPropagation(); show(to); tabs[to].focus();
  });
  if (tabs.length) show(0);
  link(root, live);
  for (const button of root.querySelectorAll(".clab-copy"))
    button.addEventListener("click", () => { navigator.clipboard?.writeText(button.nextElementSibling?.textContent ?? ""); live.textContent = "Copied"; });
}

/** A labelled select "Beside it", "nothing" first. @param {string[]} titles @param {() => void} changed */
function chooser(titles, changed) {
  const label = document.createElement("label"), select = document.createElement("select");
  label.append("Beside it: ", select);
  for (const [value, text] of [["", "nothing"], ...titles.map((t, i) => [String(i), t])]) select.append(new Option(text, value));
  select.addEventListener("change", changed);
  return { label, value: () => (select.value === "" ? -1 : Number(select.value)) };
}

/** Pointing at a line, or moving the cursor to it, lights what it is linked with. @param {HTMLElement} root @param {HTMLElement} live */
function link(root, live) {
  const items = [...root.querySelectorAll(".clab-l[data-n]")].map((e) => /** @type {HTMLElement} */ (e));
  const sources = [...root.querySelectorAll(".clab-l[data-src]")].map((e) => /** @type {HTMLElement} */ (e));
  const lines = items.map((e) => ({ n: Number(e.dataset.n), p: numbers(e.dataset.p), s: numbers(e.dataset.s) }));
  const parents = new Map(lines.map((l) => [l.n, l.p])), children = turned(parents);
  let pinned = false;
  /** @param {HTMLElement} e */
  const at = (e) => (e.dataset.src === undefined ? { n: Number(e.dataset.n) } : { src: Number(e.dataset.src) });
  /** @param {HTMLElement} e */
  function light(e) {
    const { hot, warm, sources: from } = lit(lines, at(e), parents, children);
    items.forEach((line, i) => { const n = lines[i]?.n ?? -1; line.classList.toggle("clab-hot", hot.has(n)); line.classList.toggle("clab-warm", warm.has(n)); });
    sources.forEach((line) => line.classList.toggle("clab-hot", from.has(Number(line.dataset.src))));
    live.textContent = `${hot.size + warm.size} linked lines`;
  }
  for (const e of [...items, ...sources]) {
    e.addEventListener("pointerenter", () => { if (!pinned) light(e); });
    e.addEventListener("focus", () => light(e));
    e.addEventListener("click", () => { pinned = !pinned; light(e); });
  }
  for (const group of root.querySelectorAll(".clab-lines")) rove([...group.children].map((e) => /** @type {HTMLElement} */ (e)));
}

/** One tab stop for a list of lines; arrows move within it. @param {HTMLElement[]} lines */
function rove(lines) {
  lines.forEach((line, i) => {
    line.tabIndex = i ? -1 : 0;
    line.addEventListener("keydown", (event) => {
      const to = lines[i + ({ ArrowDown: 1, ArrowUp: -1 }[event.key] ?? 0)];
      if (!to || to === line) return;
      event.preventDefault(); event.stopPropagation();
      line.tabIndex = -1; to.tabIndex = 0; to.focus();
    });
  });
}

if (typeof document !== "undefined") for (const root of document.querySelectorAll(".clab:not(.clab-on)")) start(/** @type {HTMLElement} */ (root));
