// The fusion view's behaviour: steps by slider, buttons and arrow keys; groups that grow as boxes; the question why two loops are not one kernel.
// In: the static HTML of fusion_view.py and the decisions as rows. All of it can be read without this script.

import { all, liveOf, make, mount } from "./base.js";

/** [name, what, kind, line, kernel, reads, makes] @typedef {[string, string, string, string, string, string[], string[]]} Loop */
/** [left, right, accepted, reason, saved, joins, moved, kernels] @typedef {[number, number, number, number, number, number, number, number]} Pair */
/** @typedef {{name: string, before: number, reasons: string[], loops: Loop[], steps: Pair[]}} FusionProgram */
/** @typedef {{programs: FusionProgram[], reasons: {[id: string]: string}}} FusionData */

/** The group of each loop after the first n steps, named by its first loop. @param {number} loops @param {Pair[]} steps @param {number} n */
export function unitsAt(loops, steps, n) {
  const above = Array.from({ length: loops }, (_, k) => k);
  /** @param {number} k */
  const top = (k) => { while (above[k] !== k) k = above[k] = above[above[k]]; return k; };
  for (const [a, b, , , , joins] of steps.slice(0, n)) {
    if (!joins) continue;
    const i = top(a), j = top(b);
    above[Math.max(i, j)] = Math.min(i, j);
  }
  return above.map((_, k) => top(k));
}

/** @param {Loop} loop */
export const loopName = (loop) => `${loop[0]} ${loop[1]}`;

/**
 * Why two loops are, or are not, one kernel: the decision about them, else about the groups that hold them, else why they were never a candidate.
 * @param {FusionProgram} program @param {{[id: string]: string}} reasons @param {number} a @param {number} b
 */
export function whyNotOne(program, reasons, a, b) {
  const { loops, steps } = program, names = `${loopName(loops[a])} and ${loopName(loops[b])}`;
  if (a === b) return `${loopName(loops[a])} is one loop: choose another beside it.`;
  const units = unitsAt(loops.length, steps, steps.length), one = units[a] === units[b];
  /** @param {Pair} s */
  const said = (s) => `${reasons[program.reasons[s[3]]]} The two alone would save ${s[4].toLocaleString("en")} bytes.`;
  const own = steps.find((s) => (s[0] === a && s[1] === b) || (s[0] === b && s[1] === a));
  if (own) return `${names}: ${own[2] ? "they are one kernel" : "refused"}. ${said(own)}`;
  if (one) {
    const way = steps.find((s) => s[5] && units[s[0]] === units[a] && new Set([a, b]).has(s[0]) !== new Set([a, b]).has(s[1]));
    return `${names} are one kernel by way of others, though nobody asked about the two alone.${way ? ` Such a step: ${loopName(loops[way[0]])} with ${loopName(loops[way[1]])}. ${said(way)}` : ""}`;
  }
  const between = steps.filter((s) => !s[2] && new Set([units[s[0]], units[s[1]]]).has(units[a]) && new Set([units[s[0]], units[s[1]]]).has(units[b]));
  if (between.length) {
    const s = between[0];
    return `${names} were no candidate by themselves; their groups were, by ${loopName(loops[s[0]])} and ${loopName(loops[s[1]])}: refused. ${said(s)}`;
  }
  for (const k of [a, b]) if (loops[k][2] === "extern") return `${names} were never a candidate: ${loopName(loops[k])} is a library call, not a loop, and shares no data with the other.`;
  const made = [[a, b], [b, a]].some(([x, y]) => loops[x][6].some((buffer) => loops[y][5].includes(buffer)));
  const shared = loops[a][5].filter((buffer) => loops[b][5].includes(buffer));
  if (!made && !shared.length) return `${names} were never a candidate: they share no data, neither reads what the other makes or reads, nor do they stand beside each other over one space.`;
  return `${names} were never a candidate: both read ${shared[0] ?? "one buffer"}, but stand too far apart; readers of one buffer are paired with the few that follow them.`;
}

/** @param {HTMLElement} root @param {FusionData} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  if (!data.programs.length) return;
  const live = liveOf(root);
  /** @template {HTMLElement} T @param {string} css @returns {T} */
  const one = (css) => /** @type {T} */ (root.querySelector(css));
  const choose = /** @type {HTMLSelectElement} */ (one(".clab-program")), slider = /** @type {HTMLInputElement} */ (one(".clab-at"));
  const joined = /** @type {HTMLInputElement} */ (one(".clab-joined")), boxes = one(".clab-boxes"), now = one(".clab-now"), answer = one(".clab-answer");
  const sides = /** @type {HTMLSelectElement[]} */ ([one(".clab-left"), one(".clab-right")]);
  /** @param {string} name */
  const value = (name) => Number(store.get(name) ?? 0);
  const program = () => data.programs[Math.min(value("program"), data.programs.length - 1)];
  let turn = 0; // which of the two loops the next click in the picture chooses

  /** @param {number} from @param {1 | -1} by */
  function stepFrom(from, by) {
    const { steps } = program();
    let to = from + by;
    while (joined.checked && to > 0 && to < steps.length && !steps[to - 1][5]) to += by;
    return Math.max(0, Math.min(steps.length, to));
  }

  function fill() {
    const k = Math.min(value("program"), data.programs.length - 1), { loops, steps } = program();
    choose.value = String(k);
    for (const [i, section] of all(root, ".clab-fprogram").entries()) section.classList.toggle("clab-shown", i === k);
    slider.max = String(steps.length);
    for (const side of sides) side.replaceChildren(...loops.map((loop, i) => { const o = /** @type {HTMLOptionElement} */ (make("option", loopName(loop))); o.value = String(i); return o; }));
    deal(loops);
    draw(false);
    ask(false);
  }

  /** @type {HTMLElement[]} */ let chips = []; // of each loop of the program that is shown
  /** @type {number[]} */ let placed = []; // the group that each stands in
  /** @type {Map<number, HTMLElement>} */ const groups = new Map();
  /** @type {HTMLElement[]} */ let marked = [];
  /** @type {HTMLElement[]} */ let pressed = [];

  /** The chips of another program, none in a box yet. @param {Loop[]} loops */
  function deal(loops) {
    chips = loops.map((loop, k) => {
      const chip = make("button", loopName(loop));
      chip.setAttribute("type", "button");
      chip.setAttribute("aria-pressed", "false");
      chip.dataset.k = String(k);
      chip.tabIndex = -1;
      if (loop[3]) chip.title = loop[3];
      return chip;
    });
    placed = loops.map(() => -1);
    groups.clear();
    marked = pressed = [];
    boxes.replaceChildren();
  }

  /** Moves the chips whose group is another one than before, and no others; boxes stand in the order of their first loops. @param {number[]} units */
  function place(units) {
    const { loops } = program(), whole = placed[0] === -1;
    units.forEach((unit, k) => {
      if (unit === placed[k]) return;
      placed[k] = unit;
      let box = groups.get(unit);
      if (!box) {
        box = make("div", "");
        box.className = `clab-box${loops[unit]?.[2] === "extern" ? " clab-extern" : ""}`;
        groups.set(unit, box);
        let next = unit + 1;
        while (!whole && next < loops.length && !groups.has(next)) next++;
        boxes.insertBefore(box, (!whole && groups.get(next)) || null);
      }
      const after = whole ? null : [...box.children].find((e) => Number(/** @type {HTMLElement} */ (e).dataset.k) > k);
      box.insertBefore(/** @type {HTMLElement} */ (chips[k]), after ?? null);
    });
    for (const [unit, box] of groups) if (!box.firstChild) { box.remove(); groups.delete(unit); }
  }

  /** @param {boolean} tell */
  function draw(tell) {
    const { loops, steps, before, reasons } = program(), at = Math.max(0, Math.min(steps.length, value("position"))), step = steps[at - 1];
    slider.value = String(at);
    const units = unitsAt(loops.length, steps, at), moved = step ? step[6] : before;
    const hot = step ? new Set([units[step[0]], units[step[1]]]) : new Set();
    const said = step
      ? `Step ${at} of ${steps.length}: ${loopName(loops[step[0]])} with ${loopName(loops[step[1]])}: ${step[2] ? (step[5] ? "joined" : "already one") : "refused"}. ${data.reasons[reasons[step[3]]]}`
      : `Before the first step: ${loops.length} loops and calls, each alone.`;
    now.replaceChildren(make("strong", said), make("span", `${step ? step[7] : loops.length} kernels and calls move ${moved.toLocaleString("en")} bytes; saved so far ${(before - moved).toLocaleString("en")}.`));
    slider.setAttribute("aria-valuetext", said);
    place(units);
    for (const e of marked) e.classList.remove("clab-hot", "clab-pairof");
    marked = [...[...hot].map((unit) => groups.get(unit)), ...(step ? [chips[step[0]]] : []), ...(step ? [chips[step[1]]] : [])].filter((e) => e !== undefined);
    for (const e of marked) e.classList.add(e.matches("button") ? "clab-pairof" : "clab-hot");
    const first = step ? chips[step[0]] : chips[0];
    for (const e of boxes.querySelectorAll('[tabindex="0"]')) /** @type {HTMLElement} */ (e).tabIndex = -1;
    if (first) { first.tabIndex = 0; boxes.scrollTop = first.offsetTop - boxes.offsetTop - boxes.clientHeight / 2; }
    const mark = root.querySelector(".clab-shown .clab-mark"), x = String((640 * at) / Math.max(steps.length, 1));
    for (const end of ["x1", "x2"]) mark?.setAttribute(end, x);
    if (tell) live.textContent = said;
  }

  /** @param {boolean} tell */
  function ask(tell) {
    const { loops } = program(), [a, b] = ["left", "right"].map((name) => Math.max(0, Math.min(loops.length - 1, value(name))));
    [a, b].forEach((k, i) => { sides[i].value = String(k); });
    answer.textContent = loops.length ? whyNotOne(program(), data.reasons, a, b) : "";
    for (const chip of pressed) chip.setAttribute("aria-pressed", "false");
    pressed = [chips[a], chips[b]].filter((chip) => chip !== undefined);
    for (const chip of pressed) chip.setAttribute("aria-pressed", "true");
    if (tell) live.textContent = answer.textContent;
  }

  /** @param {number} to */
  const go = (to) => store.set("position", to);
  choose.addEventListener("change", () => { store.set("position", 0); store.set("left", 0); store.set("right", 0); store.set("program", Number(choose.value)); });
  slider.addEventListener("input", () => go(Number(slider.value)));
  one(".clab-first").addEventListener("click", () => go(0));
  one(".clab-last").addEventListener("click", () => go(program().steps.length));
  one(".clab-prev").addEventListener("click", () => go(stepFrom(value("position"), -1)));
  one(".clab-next").addEventListener("click", () => go(stepFrom(value("position"), 1)));
  sides.forEach((side, i) => side.addEventListener("change", () => store.set(i ? "right" : "left", Number(side.value))));
  boxes.addEventListener("click", (event) => {
    const chip = /** @type {HTMLElement} */ (event.target).closest("button");
    if (chip) store.set((turn = 1 - turn) ? "left" : "right", Number(chip.dataset.k));
  });
  boxes.addEventListener("keydown", (event) => {
    const chips = all(boxes, "button"), at = chips.indexOf(/** @type {HTMLElement} */ (event.target));
    const to = chips[{ ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: chips.length - 1 }[event.key] ?? -1];
    if (at < 0 || !to) return;
    event.preventDefault(); event.stopPropagation();
    chips[at].tabIndex = -1; to.tabIndex = 0; to.focus();
  });
  root.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { event.stopPropagation(); store.set("left", 0); store.set("right", 0); live.textContent = ""; return; }
    if (target.matches("select, input[type=checkbox], summary, .clab-scroll")) return;
    const at = value("position");
    /** @type {{[key: string]: number}} */ const keys = { ArrowRight: stepFrom(at, 1), ArrowLeft: stepFrom(at, -1), Home: 0, End: program().steps.length };
    if (!(event.key in keys)) return;
    event.preventDefault(); event.stopPropagation();
    go(keys[event.key]);
  });
  store.on("program", fill);
  store.on("position", () => draw(true));
  for (const name of ["left", "right"]) store.on(name, () => ask(true));
  fill();
}

mount("fusion", start);
