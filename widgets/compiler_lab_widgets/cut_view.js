// The min-cut view's behaviour: augmenting paths by slider, buttons and arrow keys; a node's facts; the budget's stops; and, in a widget, cutting again.
// In: the static HTML of cut_view.py and the network as rows. All of it can be read without this script.

import { all, copy, liveOf, make, mount } from "./base.js";

/** [name, what, bytes, ban, unkept, place in lines, fate, input] @typedef {[string, string, number, string, string, number, string, number]} CutNode */
/** [tail, head, capacity, flow] @typedef {[number, number, number | null, number]} FlowEdge */
/** [budget, counted, bytes, operations, kept, lifted] @typedef {[number, number, number, number, number[], number[]]} Stop */
/**
 * @typedef {{nodes: CutNode[], lines: string[], edges: FlowEdge[], paths: number[][], told: [string, string, string, string[]][], rest: string, value: string,
 *   side: number[], cut: number[], budget: number, weighed: boolean}} Net
 */
/** @typedef {{name: string, graph: number, net: Net | null, stops: Stop[], saved: number, around: string}} CutProgram */
/** @typedef {{save: string[], recompute: string[], budget: number}} Wishes */

/** A capacity as a label. @param {number | null} value */
export const amountSaid = (value) => (value === null ? "∞" : value < 1e7 ? value.toLocaleString("en") : value.toPrecision(3));

/** Of each network, the number of the edge between two vertices. @type {WeakMap<Net, Map<string, number>>} */
const numbers = new WeakMap();

/** The edges of path i: [edge, 1 forward or -1 taken back]. @param {Net} net @param {number} i @returns {[number, number][]} */
export function edgesOf(net, i) {
  if (!numbers.has(net)) numbers.set(net, new Map(net.edges.map((e, n) => [`${e[0]},${e[1]}`, n])));
  const number = /** @type {Map<string, number>} */ (numbers.get(net)), way = [0, ...net.paths[i].slice(1), 1];
  return way.slice(1).map((b, k) => {
    const there = number.get(`${way[k]},${b}`);
    return there === undefined ? [/** @type {number} */ (number.get(`${b},${way[k]}`)), -1] : [there, 1];
  });
}

/** The flow of each edge after the first n paths. @param {Net} net @param {number} n */
export function flowsAt(net, n) {
  const flow = net.edges.map(() => 0);
  for (let i = 0; i < n; i++) for (const [edge, sign] of edgesOf(net, i)) flow[edge] += sign * net.paths[i][0];
  return flow;
}

/** What a step is, in words: before the first path, a path, or the cut. @param {CutProgram} program @param {number} at */
export function stepSaid(program, at) {
  const net = /** @type {Net} */ (program.net), many = net.paths.length, units = net.weighed ? "" : " bytes";
  if (at === 0) return `Before the first of ${many} paths: nothing flows. What is infinite is never cut.`;
  if (at <= many) {
    const [amount, soFar, way, full] = net.told[at - 1];
    return `Path ${at} of ${many} pushes ${amount}${units}: ${way}. Its bottleneck, full now: ${full.join(", ") || "an edge whose flow is taken back"}. Flow so far ${soFar} of ${net.value}.`;
  }
  const kept = net.nodes.filter((n) => n[6] === "saved").map((n) => `${n[0]} (${n[2].toLocaleString("en")} bytes)`);
  const most = kept.length > 12 ? [...kept.slice(0, 12), `and ${kept.length - 12} more`] : kept;
  const equal = net.weighed ? `Flow = capacity of the cut = ${net.value}, bytes and work weighed together.` : `Flow = capacity of the cut = saved bytes as counted = ${net.value}.`;
  return `The cut: no path is left. ${equal} Between the source's side and the sink's, and so saved: ${most.join(", ") || "nothing"}. ${net.rest}`.trim();
}

/** What is known of a node. @param {Net} net @param {{[id: string]: string}} words @param {number} k */
export function nodeSaid(net, words, k) {
  const [name, what, bytes, ban, unkept, place, fate, input] = net.nodes[k], line = net.lines[place], inner = net.edges.find((e) => e[0] === 2 + 2 * k && e[1] === 3 + 2 * k);
  const counts = !inner ? "it belongs to the backward" : inner[2] === null ? `it is not kept: ${words[unkept] ?? unkept}` : `keeping it counts ${inner[2].toLocaleString("en")}`;
  const why = input ? " It is an input, so at hand in the forward only." : ban ? ` It is not to be computed again: ${words[ban] ?? ban}.` : inner ? " It may be computed again." : "";
  return `${name}: ${what}${line ? ` of ${line}` : ""}, ${bytes.toLocaleString("en")} bytes; ${counts}.${why}${fate ? ` Here it is ${fate === "saved" ? "saved" : "computed again"}.` : ""}`;
}

/** A stop of the budget in words. @param {CutProgram} program @param {number} i */
export function stopSaid(program, i) {
  const [budget, counted, bytes, work, kept, lifted] = program.stops[i], net = /** @type {Net} */ (program.net);
  /** @param {number[]} ks */
  const names = (ks) => (ks.length > 8 ? [...ks.slice(0, 8).map((k) => net.nodes[k][0]), `${ks.length - 8} more`] : ks.map((k) => net.nodes[k][0])).join(", ");
  const again = lifted.length ? `; ${names(lifted)} computed again for it` : "";
  return `Budget ${Number(budget.toPrecision(4))}: ${kept.length} value${kept.length === 1 ? "" : "s"} kept, ${bytes.toLocaleString("en")} bytes (${counted.toLocaleString("en")} as counted), ${work.toLocaleString("en")} operations more${again}.`;
}

/** Python that cuts again. @param {number} graph @param {Wishes} wishes */
export function codeOf(graph, wishes) {
  /** @param {string[]} names */
  const list = (names) => `[${names.map((n) => JSON.stringify(n)).join(", ")}]`;
  const given = [wishes.budget >= 0 ? `budget=${wishes.budget}` : "", wishes.save.length ? `must_save=${list(wishes.save)}` : "", wishes.recompute.length ? `must_recompute=${list(wishes.recompute)}` : ""];
  return `trace.stage("partition", graph=${graph}).recut(${given.filter(Boolean).join(", ")})`;
}

// ---- a part of a large network, laid out here: layers by longest path, in each the order of the neighbours' mean

const NS = "http://www.w3.org/2000/svg", SOME = 90, ALONG = 40, READERS = 8, HIGH = 46, DOWN = 36, ACROSS = 16, CHARS = 22;

/** node -> its own edge, between its halves; a node of the backward has none. @param {Net} net @returns {Map<number, number>} */
export const ownOf = (net) => new Map(net.edges.flatMap((e, i) => (e[0] > 1 && e[0] % 2 === 0 && e[1] === e[0] + 1 ? [[(e[0] >> 1) - 1, i]] : [])));

/** Edges between two nodes that are both in `among`: [from, to, edge]. @param {Net} net @param {{has(k: number): boolean}} among @returns {[number, number, number][]} */
const between = (net, among) => net.edges.flatMap((e, i) => {
  const a = (e[0] >> 1) - 1, b = (e[1] >> 1) - 1;
  return e[0] > 1 && e[1] > 1 && a !== b && among.has(a) && among.has(b) ? [/** @type {[number, number, number]} */ ([a, b, i])] : [];
});

/** Up to `most` nodes around those to start with. @param {Net} net @param {number[]} starts @param {number} most */
export function nearest(net, starts, most) {
  const own = ownOf(net), /** @type {Map<number, number[]>} */ near = new Map([...own.keys()].map((k) => [k, []]));
  for (const [a, b] of between(net, own)) { near.get(a)?.push(b); near.get(b)?.push(a); }
  const found = new Set(starts.filter((k) => own.has(k)));
  for (const k of found) for (const n of (near.get(k) ?? []).slice(0, READERS)) if (found.size < most) found.add(n);
  return [...found].sort((a, b) => a - b);
}

/**
 * Where the boxes stand: node -> [left, top]. Nodes are in an order in which each comes after what it reads.
 * @param {number[]} nodes @param {[number, number][]} pairs @param {(k: number) => number} width
 */
export function layered(nodes, pairs, width) {
  /** @type {Map<number, number>} */ const layer = new Map(nodes.map((k) => [k, 0]));
  /** @type {Map<number, number[]>} */ const above = new Map(nodes.map((k) => [k, []])), below = new Map(nodes.map((k) => [k, []]));
  /** @param {Map<number, any>} map @param {number} k */
  const of = (map, k) => map.get(k);
  for (const [a, b] of [...pairs].sort((p, q) => p[1] - q[1])) {
    layer.set(b, Math.max(of(layer, b), of(layer, a) + 1));
    of(above, b).push(a);
    of(below, a).push(b);
  }
  for (const k of nodes) if (!of(above, k).length && of(below, k).length) layer.set(k, Math.min(...of(below, k).map((/** @type {number} */ n) => of(layer, n))) - 1);
  /** @type {number[][]} */ const rows = [];
  for (const k of nodes) (rows[of(layer, k)] ??= []).push(k);
  /** @type {Map<number, number>} */ const x = new Map();
  /** Side by side, in order, the middle of the row at 0. @param {number[]} row */
  const pack = (row) => {
    let left = -(row.reduce((sum, k) => sum + width(k) + ACROSS, 0) - ACROSS) / 2;
    for (const k of row) { x.set(k, left); left += width(k) + ACROSS; }
  };
  const whole = rows.filter(Boolean);
  whole.forEach(pack);
  for (let sweep = 0; sweep < 4; sweep++) {
    const side = sweep % 2 ? below : above;
    for (const row of sweep % 2 ? [...whole].reverse() : whole) {
      /** @param {number} k */
      const mean = (k) => { const n = of(side, k); return n.length ? n.reduce((/** @type {number} */ sum, /** @type {number} */ m) => sum + of(x, m) + width(m) / 2, 0) / n.length : of(x, k) + width(k) / 2; };
      const wanted = new Map(row.map((k) => [k, mean(k)]));
      row.sort((a, b) => of(wanted, a) - of(wanted, b));
      pack(row);
    }
  }
  const left = Math.min(...nodes.map((k) => of(x, k))), right = Math.max(...nodes.map((k) => of(x, k) + width(k)));
  const at = new Map(whole.flatMap((row, n) => row.map((k) => /** @type {[number, [number, number]]} */ ([k, [of(x, k) - left + ACROSS, 16 + n * (HIGH + DOWN)]]))));
  return { at, width: right - left + 2 * ACROSS + 40, height: whole.length * (HIGH + DOWN) };
}

/** @param {string} tag @param {{[name: string]: string | number}} attributes @param {string} [text] */
function svg(tag, attributes, text = "") {
  const e = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
  if (text) e.textContent = text;
  return e;
}

/** The network's picture with some nodes only; what a step changes (labels, sides, the cut) is set by the step. @param {Element} picture @param {Net} net @param {number[]} nodes */
function drawPart(picture, net, nodes) {
  const own = ownOf(net), room = (/** @type {number} */ k) => amountSaid(net.edges[own.get(k) ?? 0][2]).length;
  const width = (/** @type {number} */ k) => Math.max(7.2 * Math.min(net.nodes[k][0].length, CHARS) + 36, 6.4 * (2 * room(k) + 8) + 28, 104);
  const lines = between(net, new Set(nodes)), { at, ...size } = layered(nodes, lines.map(([a, b]) => [a, b]), width);
  const edges = svg("g", { class: "clab-c-edges" });
  for (const [a, b, i] of lines) {
    const [ax, ay] = at.get(a) ?? [0, 0], [bx, by] = at.get(b) ?? [0, 0], x = ax + width(a) / 2, to = bx + width(b) / 2, middle = (ay + HIGH + by) / 2;
    edges.append(svg("path", { d: `M${x} ${ay + HIGH}C${x} ${middle} ${to} ${middle} ${to} ${by}`, "data-e": i }));
  }
  /** @type {Map<number, string[]>} */ const ends = new Map();
  for (const [a, b] of net.edges) {
    if (a === 0) ends.set((b >> 1) - 1, [...(ends.get((b >> 1) - 1) ?? []), "source"]);
    else if (b === 1 || !own.has((b >> 1) - 1)) { const k = (a >> 1) - 1, known = ends.get(k) ?? []; if (!known.includes("sink")) ends.set(k, [...known, "sink"]); }
  }
  const boxes = nodes.map((k) => {
    const [x, y] = at.get(k) ?? [0, 0], [name, what, bytes, , , , fate] = net.nodes[k], w = width(k);
    const box = svg("g", { class: `clab-c-n${fate === "recomputed" ? " clab-c-redo" : ""}`, "data-k": k, "data-i": own.get(k) ?? 0 });
    box.append(svg("title", {}, `${name}: ${what}, ${bytes.toLocaleString("en")} bytes`));
    for (const h of [0, 1]) box.append(svg("rect", { class: "clab-c-half", x, y: y + (h * HIGH) / 2, width: w, height: HIGH / 2 }), svg("text", { class: "clab-c-side", x: x + w - 4, y: y + (h * HIGH) / 2 + 15 }));
    box.append(svg("text", { class: "clab-c-name", x: x + 7, y: y + 15 }, name.length <= CHARS ? name : `${name.slice(0, CHARS - 1)}…`), svg("text", { class: "clab-c-cap", x: x + 7, y: y + HIGH - 7 }));
    if (ends.has(k)) box.append(svg("text", { class: "clab-c-touch", x, y: y - 3 }, ends.get(k)?.join(" and ")));
    return box;
  });
  for (const [name, value] of [["viewBox", `0 0 ${size.width} ${size.height}`], ["width", size.width], ["height", size.height]]) picture.setAttribute(String(name), String(value));
  picture.setAttribute("aria-label", `The flow network, ${nodes.length} nodes of it`);
  picture.replaceChildren(edges, ...boxes);
}

const WHO = "Only Python can cut again: run the code below, or open this view as a widget with view(trace, \"cut\").live().";

/** @param {HTMLElement} root @param {{programs: CutProgram[], words: {[id: string]: string}}} data @param {import("./base.js").Store} store */
export function start(root, data, store) {
  const live = liveOf(root), choose = /** @type {HTMLSelectElement | null} */ (root.querySelector(".clab-c-program"));
  const at = () => Math.max(0, Math.min(data.programs.length - 1, Number(store.get("program") ?? 0)));
  const program = () => data.programs[at()], section = () => /** @type {HTMLElement} */ (root.querySelector(`.clab-c-one[data-program="${at()}"]`));
  /** @template {Element} T @param {string} css @returns {T} */
  const one = (css) => /** @type {T} */ (/** @type {unknown} */ (section().querySelector(css)));
  const last = () => (program().net?.paths.length ?? 0) + 1;
  const position = () => { const p = Number(store.get("position") ?? -1); return p < 0 ? last() : Math.min(p, last()); };
  /** @returns {Wishes} */
  const wishes = () => ({ save: store.get("must_save") ?? [], recompute: store.get("must_recompute") ?? [], budget: Number(store.get("budget") ?? -1) });
  const node = () => program().net?.nodes.findIndex((n) => n[0] === store.get("node")) ?? -1;
  let turn = 0, waiting = 0, quiet = false, dirty = false;

  function show() {
    for (const s of all(root, ".clab-c-one")) s.classList.toggle("clab-shown", s === section());
    if (choose) choose.value = String(at());
    if (!program().net) return;
    draw(false); pick(false); told(); stop(ownStop());
  }

  /** Draws a part of a network that is too large for one picture. @param {number[]} starts @param {number} most @param {string} why */
  function part(starts, most, why) {
    const net = program().net, note = section().querySelector(".clab-c-drawn");
    if (!net || !note) return;
    const nodes = nearest(net, starts, most);
    drawPart(one(".clab-c-svg"), net, nodes);
    note.textContent = `Drawn are ${nodes.length} of the ${ownOf(net).size.toLocaleString("en")} nodes that need no tangent, ${why}. The table has every node.`;
    walk(section());
    stop(chosen());
    pick(false);
  }

  /** @param {boolean} tell */
  function draw(tell) {
    const net = program().net;
    if (!net) return;
    const now = position(), many = net.paths.length, end = now > many;
    if (tell && now && !end && section().querySelector(".clab-c-drawn")) {
      const own = ownOf(net), way = [...new Set(net.paths[now - 1].slice(1).map((v) => (v >> 1) - 1))].filter((k) => own.has(k));
      const there = new Set(all(section(), ".clab-c-n").map((box) => Number(box.dataset.k)));
      if (!way.every((k) => there.has(k))) part(way, ALONG, "those of this path and around it");
    }
    const flow = end ? net.edges.map((e) => e[3]) : flowsAt(net, now), hot = new Set(now && !end ? edgesOf(net, now - 1).map(([e]) => e) : []);
    const side = new Set(net.side), cut = new Set(net.cut), said = stepSaid(program(), now), slider = /** @type {HTMLInputElement} */ (one(".clab-c-at"));
    slider.value = String(now);
    slider.setAttribute("aria-valuetext", said);
    one(".clab-c-now").textContent = said;
    for (const path of all(section(), ".clab-c-edges path")) path.classList.toggle("clab-c-hot", (path.dataset.e ?? "").split(",").some((e) => hot.has(Number(e))));
    /** @type {HTMLElement | null} */ let first = null;
    const touched = new Set([...hot].flatMap((e) => net.edges[e].slice(0, 2).map((v) => Number(v) >> 1)));
    for (const box of all(section(), ".clab-c-n")) {
      const k = Number(box.dataset.k), i = Number(box.dataset.i), room = net.edges[i][2], on = touched.has(k + 1);
      /** @type {HTMLElement} */ (box.querySelector(".clab-c-cap")).textContent = `${amountSaid(flow[i])} / ${amountSaid(room)}${room && flow[i] >= room ? " full" : ""}`;
      box.classList.toggle("clab-c-hot", on);
      box.classList.toggle("clab-c-cut", end && cut.has(i) && net.nodes[k][6] === "saved");
      [2 + 2 * k, 3 + 2 * k].forEach((v, h) => {
        all(box, ".clab-c-half")[h].classList.toggle("clab-c-s", end && side.has(v));
        all(box, ".clab-c-side")[h].textContent = end ? (side.has(v) ? "S" : "T") : "";
      });
      if (on && !first) first = box;
    }
    if (!tell) return;
    if (first) reveal(first);
    live.textContent = said;
  }

  /** Brings a box into sight, without moving the page. @param {HTMLElement} box */
  function reveal(box) {
    const view = /** @type {HTMLElement} */ (one(".clab-c-view")), at = box.getBoundingClientRect(), of = view.getBoundingClientRect();
    if (at.top >= of.top && at.bottom <= of.bottom && at.left >= of.left && at.right <= of.right) return;
    view.scrollTop += at.top - of.top - view.clientHeight / 2;
    view.scrollLeft += at.left - of.left - view.clientWidth / 2;
  }

  /** @param {boolean} tell */
  function pick(tell) {
    const net = program().net, k = node();
    if (!net) return;
    const said = k < 0 ? "Choose a node in the picture or in the list." : nodeSaid(net, data.words, k);
    one(".clab-c-picked").textContent = said;
    /** @type {HTMLSelectElement} */ (one(".clab-c-node")).value = k < 0 ? "" : String(k);
    for (const box of all(section(), ".clab-c-n")) box.setAttribute("aria-pressed", String(Number(box.dataset.k) === k));
    for (const css of ["keep", "again", "free"]) /** @type {HTMLButtonElement} */ (one(`.clab-c-${css}`)).disabled = k < 0;
    /** @type {HTMLButtonElement} */ (one(".clab-c-around")).disabled = k < 0 || !section().querySelector(".clab-c-drawn");
    if (tell && k >= 0) live.textContent = said;
  }

  /** The wishes so far and the code for them. */
  function told() {
    if (!program().net) return;
    const { save, recompute, budget } = wishes();
    const list = [...save.map((n) => `must save ${n}`), ...recompute.map((n) => `must recompute ${n}`), ...(budget >= 0 ? [`budget ${Number(budget.toPrecision(4))}`] : [])];
    one(".clab-c-asked").textContent = list.length ? `Wishes: ${list.join("; ")}. A value that must be saved is never computed again: it is kept if the backward reads it at all.` : "No wishes yet.";
    one(".clab-c-code").textContent = codeOf(program().graph, wishes());
  }

  const ownStop = () => { const { stops, net } = program(), k = stops.findIndex((s) => s[0] <= (net?.budget ?? 1)); return k < 0 ? stops.length - 1 : k; };

  /** Shows a stop of the budget: its words, its place on the curve, and in the picture what it keeps. @param {number} i */
  function stop(i) {
    const slider = /** @type {HTMLInputElement | null} */ (section().querySelector(".clab-c-budget")), { stops, net } = program();
    if (!slider || !net || !stops[i]) return "";
    const said = stopSaid(program(), i), kept = new Set(stops[i][4]), lifted = new Set(stops[i][5]), other = i !== ownStop();
    slider.value = String(stops.length - 1 - i);
    slider.setAttribute("aria-valuetext", said);
    one(".clab-c-said").textContent = said;
    const mark = one(".clab-c-mark"), point = one(`.clab-c-curve [data-stop="${i}"]`);
    for (const key of ["cx", "cy"]) mark.setAttribute(key, point.getAttribute(key) ?? "0");
    for (const box of all(section(), ".clab-c-n")) {
      const k = Number(box.dataset.k), badge = box.querySelector(".clab-c-badge");
      badge?.remove();
      const word = !other ? "" : kept.has(k) ? "kept" : lifted.has(k) ? "again" : "";
      if (!word) continue;
      const rect = all(box, ".clab-c-half")[1], label = document.createElementNS("http://www.w3.org/2000/svg", "text");
      label.setAttribute("class", "clab-c-badge");
      label.setAttribute("x", String(Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")) + 4));
      label.setAttribute("y", String(Number(rect.getAttribute("y")) + 16));
      label.textContent = word;
      box.append(label);
    }
    return said;
  }

  /** The stop that the slider is at: more bytes to the right, as in the curve. */
  const chosen = () => program().stops.length - 1 - Number(/** @type {HTMLInputElement | null} */ (section().querySelector(".clab-c-budget"))?.value ?? 0);

  /** Asks Python to cut again, once for all wishes that came together. */
  function ask() {
    if (quiet) return;
    told();
    if (!store.ask) { live.textContent = WHO; return; }
    clearTimeout(waiting);
    waiting = window.setTimeout(async () => {
      const mine = ++turn, k = at(), { save, recompute, budget } = wishes();
      live.textContent = "Cutting again…";
      const answer = await store.ask?.({ program: k, budget, must_save: save, must_recompute: recompute, around: store.get("around") ?? "" });
      if (mine !== turn) return;
      if (!answer || answer.error) { live.textContent = answer?.error ?? "No answer."; return; }
      const focused = root.contains(document.activeElement) ? [...(document.activeElement?.classList ?? [])].find((c) => c.startsWith("clab-c-")) : undefined;
      const frame = document.createElement("template");
      frame.innerHTML = answer.html;
      root.querySelector(`.clab-c-one[data-program="${k}"]`)?.replaceWith(frame.content);
      data.programs[k] = answer.program;
      dirty = true;
      bind(/** @type {HTMLElement} */ (root.querySelector(`.clab-c-one[data-program="${k}"]`)));
      quiet = true; store.set("position", -1); quiet = false;
      show();
      if (focused) /** @type {HTMLElement | null} */ (section().querySelector(`.${focused}`))?.focus();
      live.textContent = answer.said;
    }, 0);
  }

  /** @param {"" | "must_save" | "must_recompute"} wish */
  function wishFor(wish) {
    const k = node(), name = k < 0 ? "" : /** @type {Net} */ (program().net).nodes[k][0];
    if (!name) return;
    for (const list of ["must_save", "must_recompute"]) {
      const without = (store.get(list) ?? []).filter((/** @type {string} */ n) => n !== name), now = list === wish ? [...without, name] : without;
      if (now.join() !== (store.get(list) ?? []).join()) store.set(list, now);
    }
  }

  /** @param {number} to */
  const go = (to) => store.set("position", Math.max(0, Math.min(last(), to)));

  /** What can be clicked in one program. @param {HTMLElement} part */
  function bind(part) {
    /** @param {string} css @param {string} event @param {() => void} then */
    const on = (css, event, then) => part.querySelector(css)?.addEventListener(event, then);
    on(".clab-c-first", "click", () => go(0));
    on(".clab-c-prev", "click", () => go(position() - 1));
    on(".clab-c-next", "click", () => go(position() + 1));
    on(".clab-c-last", "click", () => go(last()));
    on(".clab-c-at", "input", () => go(Number(/** @type {HTMLInputElement} */ (one(".clab-c-at")).value)));
    on(".clab-c-node", "change", () => { const k = /** @type {HTMLSelectElement} */ (one(".clab-c-node")).value; store.set("node", k ? /** @type {Net} */ (program().net).nodes[Number(k)][0] : ""); });
    on(".clab-c-keep", "click", () => wishFor("must_save"));
    on(".clab-c-again", "click", () => wishFor("must_recompute"));
    on(".clab-c-free", "click", () => wishFor(""));
    on(".clab-c-around", "click", () => store.set("around", store.get("node")));
    on(".clab-c-copy", "click", async () => { live.textContent = (await copy(one(".clab-c-code").textContent ?? "")) ? "Copied" : "The browser did not allow copying"; });
    on(".clab-c-budget", "input", () => { live.textContent = stop(chosen()); });
    on(".clab-c-budget", "change", () => store.set("budget", program().stops[chosen()][0]));
    walk(part);
  }

  /** The boxes of a picture: one tab stop, arrow keys, chosen by click and by Enter. @param {HTMLElement} part */
  function walk(part) {
    const boxes = all(part, ".clab-c-n");
    boxes.forEach((box, i) => {
      box.setAttribute("tabindex", i ? "-1" : "0");
      box.setAttribute("role", "button");
      box.addEventListener("focus", () => { for (const o of boxes) o.setAttribute("tabindex", o === box ? "0" : "-1"); });
      const take = () => store.set("node", /** @type {Net} */ (program().net).nodes[Number(box.dataset.k)][0]);
      box.addEventListener("click", take);
      box.addEventListener("keydown", (event) => {
        const next = boxes[{ ArrowDown: i + 1, ArrowUp: i - 1, Enter: i, " ": i }[event.key] ?? -1];
        if (!next) return;
        event.preventDefault(); event.stopPropagation();
        if (next === box) take(); else next.focus();
      });
    });
  }

  root.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || !program().net) return;
    if (event.key === "Escape") { event.stopPropagation(); store.set("node", ""); live.textContent = ""; return; }
    if (target.matches("select, summary, pre, .clab-scroll, .clab-c-budget")) return;
    /** @type {{[key: string]: number}} */ const keys = { ArrowRight: position() + 1, ArrowLeft: position() - 1, Home: 0, End: last() };
    if (!(event.key in keys)) return;
    event.preventDefault(); event.stopPropagation();
    go(keys[event.key]);
  });
  choose?.addEventListener("change", () => {
    quiet = true;
    for (const [name, value] of /** @type {[string, any][]} */ ([["node", ""], ["budget", -1], ["must_save", []], ["must_recompute", []], ["around", ""], ["position", -1]])) store.set(name, value);
    quiet = false;
    store.set("program", Number(choose.value));
  });
  store.on("program", show);
  store.on("position", () => { if (!quiet) draw(true); });
  store.on("node", () => pick(!quiet));
  for (const name of ["must_save", "must_recompute"]) store.on(name, ask);
  store.on("around", () => {
    const name = store.get("around"), k = program().net?.nodes.findIndex((n) => n[0] === name) ?? -1;
    if (quiet || k < 0) return;
    part([k], SOME, `those around ${name}`);
    draw(false);
    live.textContent = `Drawn around ${name}.`;
  });
  store.on("budget", () => {
    if (quiet) return;
    const { stops } = program(), k = stops.findIndex((s) => s[0] <= wishes().budget);
    const said = stop(wishes().budget < 0 ? ownStop() : k < 0 ? stops.length - 1 : k);
    if (store.ask) ask(); else { told(); live.textContent = said; }
  });
  for (const part of all(root, ".clab-c-one")) bind(part);
  show();
  if (store.ask && (wishes().save.length || wishes().recompute.length || wishes().budget >= 0) && !dirty) ask();
}

mount("cut", start);
