// The graph view: boxes fold and unfold, are found, walked along and shown with their facts; Python's picture is the first one, what is unfolded
// here is laid out here, in the same layers as graph_layout.py has where there is no Graphviz.
import { all, copying, liveOf, make, mount, roving } from "./base.js";

const ROW_LENGTH = 14, MOST_BENDS = 800, GAP_X = 14, GAP_Y = 34, PADDING = 10, TITLE = 22, MOST_BOXES = 600, MOST_LINES = 2000;
const SIGN = { "~": 0, "+": 1, "-": 2 }, SVG_NS = "http://www.w3.org/2000/svg";

/** @typedef {[string, string, number, (number | any)[]]} Tree label, kind, times, members */
/**
 * Keys: node k is k, group g is count + g in the order of the tree; the root is count.
 * @typedef {{count: number, groups: {label: string, kind: string, times: number, members: number[], size: number}[], parent: Map<number, number>, unfolded: Set<number>}} Shape
 * @typedef {{x: number, y: number, w: number, h: number}} Box
 * @typedef {{boxes: Map<number, Box>, paths: {a: number, b: number, d: string}[], width: number, height: number}} Drawn
 */

/** @param {Tree} tree @param {number} count @param {number[]} unfolded @returns {Shape} */
export function shapeOf(tree, count, unfolded) {
  /** @type {Shape} */ const shape = { count, groups: [], parent: new Map(), unfolded: new Set(unfolded) };
  /** @param {Tree} one @param {number} parent @returns {number} */
  const add = ([label, kind, times, members], parent) => {
    const key = count + shape.groups.length, group = { label, kind, times, members: /** @type {number[]} */ ([]), size: 0 };
    shape.groups.push(group);
    shape.parent.set(key, parent);
    for (const member of members) {
      if (typeof member === "number") { shape.parent.set(member, key); group.members.push(member); group.size++; }
      else { const inner = add(member, key); group.members.push(inner); group.size += shape.groups[inner - count]?.size ?? 0; }
    }
    return key;
  };
  add(tree, -1);
  shape.unfolded.add(count);
  return shape;
}

/** The groups around a key, outermost first, and itself. @param {Shape} shape @param {number} key */
export function chainOf(shape, key) {
  const found = [key];
  for (let at = shape.parent.get(key) ?? -1; at >= 0; at = shape.parent.get(at) ?? -1) found.push(at);
  return found.reverse();
}

/** The box that stands for a node: itself, or the outermost folded group around it. @param {Shape} shape @param {number} node */
export const seenOf = (shape, node) => chainOf(shape, node).find((k) => !shape.unfolded.has(k)) ?? node;

/** Nodes and folded groups, in order. @param {Shape} shape @returns {number[]} */
export function visibleOf(shape, key = shape.count) {
  if (!shape.unfolded.has(key)) return [key];
  return (shape.groups[key - shape.count]?.members ?? []).flatMap((m) => (shape.unfolded.has(m) ? visibleOf(shape, m) : [m]));
}

/** Between visible boxes, each once. @param {Shape} shape @param {number[][]} reads @returns {[number, number][]} */
export function edgesOf(shape, reads) {
  const seen = reads.map((_, k) => seenOf(shape, k)), known = new Set(), stride = shape.count + shape.groups.length;
  /** @type {[number, number][]} */ const edges = [];
  reads.forEach((inputs, k) => {
    const b = seen[k] ?? k;
    for (const i of inputs) {
      const a = seen[i] ?? i, key = a * stride + b;
      if (a !== b && !known.has(key)) { known.add(key); edges.push([a, b]); }
    }
  });
  return edges;
}

/** Width and height of a box with these two lines. @param {string} first @param {string} below @returns {[number, number]} */
export const boxSize = (first, below) => [Math.min(Math.max(first.length * 7.2, below.length * 6.3, 36) + 18, 240), below ? 40 : 26];

/** A name that fits in a box. @param {string} name */
export const shortName = (name) => (name.length <= 24 ? name : "…" + name.slice(-22));

/**
 * Each unfolded group is laid out by itself and stands as one box among its neighbours.
 * @param {Shape} shape @param {[number, number][]} edges @param {(key: number) => [number, number]} size @returns {Drawn}
 */
export function layered(shape, edges, size) {
  /** @type {Map<number, Map<string, [number, number]>>} */ const atLevel = new Map();
  const levels = edges.map(([a, b]) => {
    const up = chainOf(shape, a), down = chainOf(shape, b), k = up.findIndex((x, i) => x !== down[i]);
    const pair = /** @type {[number, number]} */ ([up[k], down[k]]), group = shape.parent.get(pair[0]) ?? shape.count;
    if (!atLevel.has(group)) atLevel.set(group, new Map());
    atLevel.get(group)?.set(pair.join(), pair);
    return pair;
  });
  /** @type {Map<number, [number, number]>} */ const grown = new Map();
  /** @param {number} k */ const sizeOf = (k) => grown.get(k) ?? size(k);
  /** @type {Map<number, ReturnType<typeof layersOf>>} */ const inner = new Map();
  /** @param {number} group */
  const place = (group) => {
    const members = shape.groups[group - shape.count]?.members ?? [];
    for (const m of members) if (shape.unfolded.has(m)) place(m);
    const level = layersOf(members, [...(atLevel.get(group)?.values() ?? [])], sizeOf);
    inner.set(group, level);
    grown.set(group, [Math.max(level.width + 2 * PADDING, group === shape.count ? 0 : size(group)[0]), level.height + 2 * PADDING + TITLE]);
  };
  place(shape.count);
  /** @type {Map<number, Box>} */ const boxes = new Map();
  /** @type {Map<number, [number, number]>} */ const layer = new Map(); // top and bottom of the layer that a box stands in
  /** @type {Map<string, [number, number][]>} */ const bends = new Map();
  const queue = [[shape.count, PADDING, PADDING]];
  for (const [group = 0, left = 0, y = 0] of queue) {
    const level = inner.get(group);
    if (!level) continue;
    const x = left + (group === shape.count ? 0 : (sizeOf(group)[0] - level.width) / 2 - PADDING);
    for (const [member, [cx, top, ceiling, floor]] of level.centres) {
      const [w, h] = sizeOf(member);
      layer.set(member, [y + ceiling, y + floor]);
      boxes.set(member, { x: x + cx - w / 2, y: y + top, w, h });
      if (shape.unfolded.has(member)) queue.push([member, x + cx - w / 2 + PADDING, y + top + PADDING + TITLE]);
    }
    for (const [pair, points] of level.bends) bends.set(pair, points.map(([bx, by]) => [x + bx, y + by]));
  }
  const paths = edges.map(([a, b], k) => ({ a, b, d: curveOf(routeOf(shape, boxes, layer, [a, b], levels[k] ?? [a, b], bends.get((levels[k] ?? []).join()) ?? [])) }));
  const root = inner.get(shape.count);
  return { boxes, paths, width: (root?.width ?? 0) + 2 * PADDING, height: (root?.height ?? 0) + 2 * PADDING };
}

/** @param {number[]} members @param {[number, number][]} edges @param {(key: number) => [number, number]} size */
function layersOf(members, edges, size) {
  const rank = new Map(members.map((m, k) => [m, k]));
  const down = edges.map(([a, b]) => /** @type {[number, number]} */ ([rank.get(a) ?? 0, rank.get(b) ?? 0])).filter(([a, b]) => a < b);
  const rows = rowsOf(members.length, down);
  /** @type {number[]} */ const layer = [];
  rows.forEach((row, n) => row.forEach((k) => { layer[k] = n; }));
  const at = (/** @type {number} */ k) => layer[k] ?? 0;
  const straight = down.reduce((sum, [a, b]) => sum + at(b) - at(a) - 1, 0) > MOST_BENDS;
  const width = members.map((m) => size(m)[0]);
  /** @type {number[][]} */ const above = members.map(() => []);
  /** @type {number[][]} */ const below = members.map(() => []);
  const chains = down.map(([a, b]) => {
    /** @type {number[]} */ const bent = [];
    let u = a;
    const link = (/** @type {number} */ v) => { above[v]?.push(u); below[u]?.push(v); u = v; };
    if (!straight) for (let n = at(a) + 1; n < at(b); n++) {
      const d = width.push(4) - 1;
      rows[n]?.push(d); above.push([]); below.push([]); bent.push(d);
      layer[d] = n;
      link(d);
    }
    link(b);
    return bent;
  });
  sortRows(rows, above, below);
  const centre = columnsOf(rows, above, below, width);
  let left = Infinity, right = -Infinity;
  width.forEach((w, k) => { left = Math.min(left, (centre[k] ?? 0) - w / 2); right = Math.max(right, (centre[k] ?? 0) + w / 2); });
  if (!width.length) left = right = 0;
  let y = 0;
  const tops = rows.map((row) => {
    const height = row.reduce((h, k) => (k < members.length ? Math.max(h, size(members[k] ?? 0)[1]) : h), 0), top = y;
    y += height + GAP_Y;
    return [top, height];
  });
  /** @type {Map<number, [number, number, number, number]>} */ const centres = new Map();
  members.forEach((m, k) => { const [top = 0, height = 0] = tops[at(k)] ?? []; centres.set(m, [(centre[k] ?? 0) - left, top + (height - size(m)[1]) / 2, top, top + height]); });
  /** @type {Map<string, [number, number][]>} */ const bends = new Map();
  down.forEach(([a, b], i) => bends.set([members[a], members[b]].join(), (chains[i] ?? []).flatMap((k) => {
    const [top = 0, height = 0] = tops[at(k)] ?? [], x = (centre[k] ?? 0) - left;
    return /** @type {[number, number][]} */ ([[x, top], [x, top + height]]);
  })));
  return { centres, bends, width: right - left, height: Math.max(y - GAP_Y, 0) };
}

/** Layers by longest path; what reads nothing stands right above its first reader; a wide layer becomes several. @param {number} count @param {[number, number][]} down */
export function rowsOf(count, down) {
  const layer = new Array(count).fill(0), read = new Set(down.map(([, b]) => b));
  for (const [a, b] of [...down].sort((e, f) => e[1] - f[1])) layer[b] = Math.max(layer[b], layer[a] + 1);
  /** @type {Map<number, number>} */ const first = new Map();
  for (const [a, b] of down) first.set(a, Math.min(first.get(a) ?? layer[b], layer[b]));
  for (const [k, n] of first) if (!read.has(k)) layer[k] = n - 1;
  /** @type {number[][]} */ const rows = [];
  layer.forEach((n, k) => (rows[n] ??= []).push(k));
  return rows.filter((row) => row).flatMap((row) => Array.from({ length: Math.ceil(row.length / ROW_LENGTH) }, (_, k) => row.slice(k * ROW_LENGTH, (k + 1) * ROW_LENGTH)));
}

/** @param {number[]} near @param {number[]} of @param {number} otherwise */
const meanOf = (near, of, otherwise) => (near.length ? near.reduce((sum, n) => sum + (of[n] ?? 0), 0) / near.length : otherwise);

/** @param {number[][]} rows @param {number[][]} above @param {number[][]} below */
function sortRows(rows, above, below) {
  /** @type {number[]} */ const place = [];
  rows.forEach((row) => row.forEach((k, i) => { place[k] = i; }));
  for (let sweep = 0; sweep < 4; sweep++)
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const mean = new Map(row.map((k) => [k, meanOf((sweep % 2 ? below : above)[k] ?? [], place, place[k] ?? 0)]));
      row.sort((a, b) => (mean.get(a) ?? 0) - (mean.get(b) ?? 0) || (place[a] ?? 0) - (place[b] ?? 0) || a - b);
      row.forEach((k, i) => { place[k] = i; });
    }
}

/** @param {number[][]} rows @param {number[][]} above @param {number[][]} below @param {number[]} width */
function columnsOf(rows, above, below, width) {
  /** @type {number[]} */ const centre = new Array(width.length).fill(0);
  const w = (/** @type {number | undefined} */ k) => width[k ?? -1] ?? 0;
  for (const row of rows) {
    let x = 0;
    for (const k of row) { centre[k] = x + w(k) / 2; x += w(k) + GAP_X; }
    for (const k of row) centre[k] = (centre[k] ?? 0) - (x - GAP_X) / 2;
  }
  for (let sweep = 0; sweep < 6; sweep++)
    for (const row of sweep % 2 ? [...rows].reverse() : rows) {
      const want = row.map((k) => meanOf((sweep % 2 ? below : above)[k] ?? [], centre, centre[k] ?? 0)), right = [...want], left = [...want];
      const gap = (/** @type {number} */ i) => (w(row[i]) + w(row[i + 1])) / 2 + GAP_X;
      for (let i = 1; i < row.length; i++) right[i] = Math.max(right[i] ?? 0, (right[i - 1] ?? 0) + gap(i - 1));
      for (let i = row.length - 2; i >= 0; i--) left[i] = Math.min(left[i] ?? 0, (left[i + 1] ?? 0) - gap(i));
      row.forEach((k, i) => { centre[k] = ((right[i] ?? 0) + (left[i] ?? 0)) / 2; });
    }
  return centre;
}

/**
 * From below the first box to the top of the second. An edge turns between layers only, and passes what else a group holds at its margin.
 * @param {Shape} shape @param {Map<number, Box>} boxes @param {Map<number, [number, number]>} layer @param {[number, number]} edge @param {[number, number]} level
 * @param {[number, number][]} bends @returns {[number, number][]}
 */
function routeOf(shape, boxes, layer, [a, b], [out, into], bends) {
  const none = { x: 0, y: 0, w: 0, h: 0 }, from = boxes.get(a) ?? none, to = boxes.get(b) ?? none;
  let x = from.x + from.w / 2, at = a;
  /** @type {[number, number][]} */ const points = [[x, from.y + from.h]];
  while (at !== out) {
    const floor = layer.get(at)?.[1] ?? 0;
    at = shape.parent.get(at) ?? out;
    const g = boxes.get(at) ?? none;
    if (floor < g.y + g.h - PADDING - 1) points.push([x, floor], [x = g.x + g.w - PADDING / 2, floor + GAP_Y * 0.8]);
    points.push([x, g.y + g.h]);
  }
  points.push([x, layer.get(out)?.[1] ?? 0]);
  x = to.x + to.w / 2; at = b;
  /** @type {[number, number][]} */ const tail = [[x, to.y]];
  while (at !== into) {
    const ceiling = layer.get(at)?.[0] ?? 0;
    at = shape.parent.get(at) ?? into;
    const g = boxes.get(at) ?? none;
    if (ceiling > g.y + PADDING + TITLE + 1) tail.push([x, ceiling], [x = g.x + PADDING / 2, ceiling - GAP_Y * 0.8]);
    tail.push([x, g.y]);
  }
  tail.push([x, layer.get(into)?.[0] ?? 0]);
  return [...points, ...bends, ...tail.reverse()];
}

/** An SVG path through the points that leaves and reaches each of them vertically. @param {[number, number][]} points */
function curveOf(points) {
  let [x, y] = points[0] ?? [0, 0], text = `M${x.toFixed()} ${y.toFixed()}`;
  for (const [nx, ny] of points.slice(1)) {
    if (nx === x && ny === y) continue;
    const middle = ((y + ny) / 2).toFixed();
    text += Math.abs(nx - x) < 1 ? `V${ny.toFixed()}` : `C${x.toFixed()} ${middle} ${nx.toFixed()} ${middle} ${nx.toFixed()} ${ny.toFixed()}`;
    [x, y] = [nx, ny];
  }
  return text;
}

/** Bytes with three digits, as Python writes them. @param {number} n */
export function bytesText(n) {
  for (const [unit, size] of /** @type {[string, number][]} */ ([["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])) if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  return `${n} bytes`;
}

/** Seconds as a reader says them. @param {number} s */
export const timeText = (s) => (s >= 1 ? `${s.toFixed(2)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms` : `${(s * 1e6).toPrecision(3)} µs`);

/** Nodes that hold every word, by name, operator, value, module or source line. @param {string} query @param {string[]} texts */
export function hitsOf(query, texts) {
  const wanted = query.toLowerCase().split(/\s+/).filter((w) => w);
  return wanted.length ? texts.flatMap((t, k) => (wanted.every((w) => t.includes(w)) ? [k] : [])) : [];
}

/**
 * @typedef {{words: string[], name: string[], op: number[], kind: number[], value: number[], module: number[], line: number[], fate: number[], mark: number[], bytes: (number | null)[],
 *   reads: number[][], from: string[], why: number[][], seconds?: (number | null)[], was: Record<number, string>, tree: Tree, unfolded: number[], overlay: string, overlays: Record<string, string>}} Given
 * @param {HTMLElement} root @param {Given} data @param {import("./base.js").Store} store
 */
function start(root, data, store) {
  const live = liveOf(root), view = /** @type {HTMLElement} */ (root.querySelector(".clab-g-view")), side = /** @type {HTMLElement} */ (root.querySelector(".clab-g-side"));
  let svg = /** @type {SVGSVGElement} */ (/** @type {unknown} */ (root.querySelector(".clab-g-svg")));
  const count = data.name.length, shape = shapeOf(data.tree, count, data.unfolded), overview = [...side.childNodes];
  const word = (/** @type {number | undefined} */ n) => data.words[n ?? -1] ?? "";
  /** @type {number[][]} */ const readers = data.name.map(() => []);
  data.reads.forEach((inputs, k) => inputs.forEach((i) => readers[i]?.push(k)));
  const texts = data.name.map((name, k) => [name, word(data.op[k]), word(data.value[k]), word(data.module[k]), word(data.line[k])].join(" ").toLowerCase());
  let overlay = data.overlay, zoom = 1, selected = -1;
  /** @type {Set<number>} */ let hits = new Set();
  const isGroup = (/** @type {number} */ k) => k >= count, group = (/** @type {number} */ k) => shape.groups[k - count];
  const title = (/** @type {number} */ k) => { const g = group(k); return g ? g.label + (g.times ? ` ×${g.times}` : "") : data.name[k] ?? ""; };
  const first = (/** @type {number} */ k) => (isGroup(k) ? `+ ${shortName(title(k))} ` : (word(data.mark[k]) ? `${word(data.mark[k])} ` : "") + shortName(title(k)));
  const plainSecond = (/** @type {number} */ k) => { const v = word(data.value[k]); return isGroup(k) ? counted(group(k)?.size ?? 0, "node") : v.length <= 30 ? v : v.slice(0, 29) + "…"; };
  const size = (/** @type {number} */ k) => boxSize(first(k), plainSecond(k));
  const counted = (/** @type {number} */ n, /** @type {string} */ what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  /** @param {number} k @returns {number[]} */
  const nodesIn = (k) => (isGroup(k) ? (group(k)?.members ?? []).flatMap(nodesIn) : [k]);
  /** @type {Map<number, number>} */ const sums = new Map();
  /** What the overlay says of a box: a number, or null. @param {number} k @returns {number | null} */
  function amount(k) {
    const of = overlay === "time" ? data.seconds : data.bytes;
    if (!isGroup(k)) return of?.[k] ?? null;
    if (!sums.has(k)) sums.set(k, nodesIn(k).reduce((sum, n) => sum + (word(data.kind[n]) === "in" || word(data.kind[n]) === "out" ? 0 : of?.[n] ?? 0), 0));
    return sums.get(k) ?? 0;
  }
  /** @param {number} k */
  function second(k) {
    if (overlay === "fate") {
      if (!isGroup(k)) return word(data.fate[k]) || plainSecond(k);
      const fates = nodesIn(k).map((n) => word(data.fate[n]));
      return ["saved", "recomputed"].map((f) => [f, fates.filter((x) => x === f).length]).filter(([, n]) => n).map(([f, n]) => `${n} ${f}`).join(", ") || plainSecond(k);
    }
    const n = overlay ? amount(k) : null;
    return n === null ? (overlay ? "" : plainSecond(k)) : overlay === "time" ? timeText(n) : bytesText(n);
  }

  // ---- drawing

  /** @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
  function draw(tag, attributes, text) {
    const e = document.createElementNS(SVG_NS, tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, String(value));
    if (text !== undefined) e.textContent = text;
    return e;
  }
  /** @param {number} k @param {Box} box */
  function drawBox(k, { x, y, w, h }) {
    const open = shape.unfolded.has(k), mark = isGroup(k) ? "" : word(data.mark[k]);
    const css = open ? "clab-box" : isGroup(k) ? "clab-n clab-fold" : `clab-n clab-${word(data.kind[k])}${mark ? ` clab-mark${SIGN[/** @type {"~"} */ (mark)]}` : ""}`;
    const g = draw("g", { class: css, "data-k": k, transform: `translate(${x.toFixed()} ${y.toFixed()})`, role: "button", tabindex: -1, "aria-label": spoken(k), ...(isGroup(k) ? { "aria-expanded": String(open) } : {}) });
    if (isGroup(k) && !open && group(k)?.times) g.append(draw("rect", { class: "clab-stack", x: 4, y: 4, width: w, height: h, rx: 5 }));
    g.append(draw("rect", { width: w.toFixed(), height: h.toFixed(), rx: isGroup(k) ? 5 : ["in", "out"].includes(word(data.kind[k])) ? 12 : 3 }));
    if (open) g.append(draw("text", { x: 9, y: 16 }, `− ${shortName(title(k))}`));
    else g.append(draw("text", { x: w / 2, y: 17 }, first(k).trim()), ...(h > 30 ? [draw("text", { class: "clab-v", x: w / 2, y: 32 }, plainSecond(k))] : []));
    return g;
  }
  /** @param {number} k */
  function spoken(k) {
    if (isGroup(k)) return `${title(k)}, ${counted(group(k)?.size ?? 0, "node")}${shape.unfolded.has(k) ? "" : ", folded"}`;
    const mark = { "~": "changed ", "+": "added ", "-": "removed " }[word(data.mark[k])] ?? "";
    return `${mark}${data.name[k]}: ${word(data.op[k])} ${word(data.value[k])}`;
  }
  /** @type {Map<number, Element>} */ const elements = new Map();
  /** @type {Element[]} */ let paths = [];
  /** The elements of the picture, Python's or ours. */
  function adopt() {
    elements.clear();
    for (const e of svg.querySelectorAll("[data-k]")) elements.set(Number(e.getAttribute("data-k")), e);
    paths = [...svg.querySelectorAll("[data-e]")];
    const focusable = elements.get(seenOf(shape, 0)) ?? [...elements.values()][0];
    focusable?.setAttribute("tabindex", "0");
    paint();
  }
  /** Lays out what is visible; the box `still` stays where it is on the screen. @param {number} still */
  function redraw(still) {
    const before = elements.get(still)?.getBoundingClientRect(), edges = edgesOf(shape, data.reads), drawn = layered(shape, edges, size);
    const next = /** @type {SVGSVGElement} */ (draw("svg", { class: "clab-g-svg", viewBox: `0 0 ${Math.max(drawn.width, 40).toFixed()} ${Math.max(drawn.height, 40).toFixed()}`, role: "group", "aria-label": `${elements.size} boxes` }));
    const layers = ["groups", "edges", "nodes"].map((name) => draw("g", { class: `clab-g-${name}` }));
    for (const [k, box] of drawn.boxes) layers[shape.unfolded.has(k) ? 0 : 2]?.append(drawBox(k, box));
    for (const { a, b, d } of drawn.paths) layers[1]?.append(draw("path", { "data-e": `${a} ${b}`, d }));
    next.append(...layers);
    svg.replaceWith(next);
    svg = next;
    adopt();
    resize();
    const after = elements.get(still)?.getBoundingClientRect();
    if (before && after) { view.scrollLeft += after.left - before.left; view.scrollTop += after.top - before.top; }
  }
  function resize() {
    const { width, height } = svg.viewBox.baseVal;
    svg.setAttribute("width", (width * zoom).toFixed());
    svg.setAttribute("height", (height * zoom).toFixed());
  }
  /** Selection, neighbours, hits and the overlay, on the picture as it is. */
  function paint() {
    const up = new Set(), down = new Set();
    for (const path of paths) {
      const [a, b] = (path.getAttribute("data-e") ?? "").split(" ").map(Number);
      path.classList.toggle("clab-up", b === selected);
      path.classList.toggle("clab-down", a === selected);
      if (b === selected) up.add(a);
      if (a === selected) down.add(b);
    }
    const found = new Set([...hits].map((k) => seenOf(shape, k)));
    sums.clear();
    /** The longest bar: groups are compared with groups, nodes with nodes. @param {boolean} of */
    const mostOf = (of) => (overlay && overlay !== "fate" ? Math.max(0, ...[...elements.keys()].filter((k) => !shape.unfolded.has(k) && isGroup(k) === of).map((k) => amount(k) ?? 0)) : 0);
    const longest = [mostOf(false), mostOf(true)];
    for (const [k, e] of elements) {
      if (shape.unfolded.has(k)) continue;
      const fate = overlay === "fate" ? isGroup(k) ? "" : word(data.fate[k]) : "";
      e.classList.toggle("clab-sel", k === selected);
      e.classList.toggle("clab-near", up.has(k) || down.has(k));
      e.classList.toggle("clab-found", found.has(k));
      e.classList.toggle("clab-saved", fate === "saved");
      e.classList.toggle("clab-again", fate === "recomputed");
      const line = e.querySelector(".clab-v");
      if (line) line.textContent = second(k);
      e.querySelector(".clab-gauge")?.remove();
      const most = longest[Number(isGroup(k))] ?? 0, n = most ? amount(k) : null;
      const rect = e.querySelector("rect:not(.clab-stack)");
      if (n && rect) e.append(draw("rect", { class: "clab-gauge", x: 0, y: Number(rect.getAttribute("height")) - 4, width: Math.max((n / most) * Number(rect.getAttribute("width")), 1.5).toFixed(1), height: 4 }));
    }
  }

  // ---- folding

  /** @param {number} k @param {boolean} [focus] */
  function toggle(k, focus = true) {
    if (!isGroup(k) || k === count) return;
    const began = shape.unfolded.has(k);
    if (began) shape.unfolded.delete(k); else shape.unfolded.add(k);
    redraw(k);
    if (focus) reach(k);
    live.textContent = `${title(k)} ${began ? "folded" : "unfolded"}; ${counted(visibleOf(shape).length, "box").replace("boxs", "boxes")}`;
  }
  /** Makes a node visible and goes to it. @param {number} k */
  function goTo(k) {
    const folded = chainOf(shape, k).slice(0, -1).filter((g) => !shape.unfolded.has(g));
    for (const g of folded) shape.unfolded.add(g);
    if (folded.length) redraw(folded[0] ?? k);
    choose(k);
    reach(k);
  }
  /** Focus, and the box in sight. @param {number} k */
  function reach(k) {
    const e = /** @type {SVGElement | undefined} */ (elements.get(k));
    if (!e) return;
    for (const o of svg.querySelectorAll('[tabindex="0"]')) o.setAttribute("tabindex", "-1");
    e.setAttribute("tabindex", "0");
    e.focus({ preventScroll: true });
    const box = e.getBoundingClientRect(), frame = view.getBoundingClientRect();
    if (box.left < frame.left || box.right > frame.right) view.scrollLeft += (box.left + box.right - frame.left - frame.right) / 2;
    if (box.top < frame.top || box.bottom > frame.bottom) view.scrollTop += (box.top + Math.min(box.bottom, box.top + 80) - frame.top - frame.bottom) / 2;
  }

  // ---- facts

  /** @param {number} k */
  function choose(k) {
    selected = k;
    store.set("selected", k < 0 ? "" : title(k));
    paint();
    side.replaceChildren(...(k < 0 ? overview : isGroup(k) ? groupFacts(k) : facts(k)));
    side.scrollTop = 0;
    live.textContent = k < 0 ? "" : `${spoken(k)}; ${isGroup(k) ? "Enter folds and unfolds it" : `reads ${counted(data.reads[k]?.length ?? 0, "value")}, read by ${readers[k]?.length ?? 0}`}`;
  }
  /** @param {string} name @param {(string | Node)[]} content @returns {Node[]} */
  function row(name, ...content) {
    const dd = document.createElement("dd");
    dd.append(...content);
    return content.length && (content[0] !== "" || content.length > 1) ? [make("dt", name), dd] : [];
  }
  /** @param {number[]} nodes @returns {Node[]} */
  const links = (nodes) => {
    const shown = [...new Set(nodes)].slice(0, 12).map((n) => { const b = make("button", title(n)); b.setAttribute("type", "button"); b.title = spoken(n); b.addEventListener("click", () => goTo(n)); return b; });
    return nodes.length > 12 ? [...shown, document.createTextNode(`and ${nodes.length - 12} more`)] : shown;
  };
  /** @param {string} text */
  const headed = (text) => { const h = make("div", text); h.className = "clab-h4"; h.setAttribute("role", "heading"); h.setAttribute("aria-level", "4"); return h; };
  /** @param {number} k */
  function facts(k) {
    const list = document.createElement("dl"), bytes = data.bytes[k], seconds = data.seconds?.[k], mark = { "~": "changed", "+": "added", "-": "removed" }[word(data.mark[k])] ?? "";
    const [, dtype, sizes, strides] = /^(\w+)\[([^\]]*)\](?:\{([^}]*)\})?$/.exec(word(data.value[k])) ?? [];
    list.append(
      ...row("operator", word(data.op[k])), ...row("difference", mark), ...(dtype ? [...row("dtype", dtype), ...row("shape", `(${sizes})`), ...row("strides", strides ? `(${strides})` : "dense")] : row("value", word(data.value[k]))),
      ...row("bytes", bytes === null || bytes === undefined ? "" : bytes.toLocaleString("en")), ...row("time", typeof seconds === "number" ? timeText(seconds) : ""), ...row("module", word(data.module[k])), ...row("backward", word(data.fate[k])),
      ...row("your line", word(data.line[k])), ...row("made from", data.from[k] ?? ""), ...row("reads", ...links(data.reads[k] ?? [])), ...row("read by", ...links(readers[k] ?? [])),
    );
    const why = (data.why[k] ?? []).map((n) => make("li", word(n))), ul = document.createElement("ul"), was = data.was[k] ? [headed("It was"), make("pre", data.was[k] ?? "")] : [];
    ul.append(...why);
    return [headed(data.name[k] ?? ""), list, ...was, ...(why.length ? [headed("Decisions about it"), ul] : [])];
  }
  /** @param {number} k */
  function groupFacts(k) {
    const inside = nodesIn(k), own = new Set(inside), list = document.createElement("dl"), ops = new Map();
    for (const n of inside) ops.set(word(data.op[n]), (ops.get(word(data.op[n])) ?? 0) + 1);
    const from = new Set(inside.flatMap((n) => data.reads[n] ?? []).filter((n) => !own.has(n))), to = new Set(inside.flatMap((n) => readers[n] ?? []).filter((n) => !own.has(n)));
    const common = [...ops].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([op, n]) => `${op} ×${n}`).join(", "), g = group(k);
    const what = { module: "a call of a module", repeat: "equal blocks, one after the other", part: "one of the equal blocks", stretch: "neighbours in the graph’s order" }[g?.kind ?? ""] ?? "";
    list.append(...row("what", what), ...row("nodes", (g?.size ?? 0).toLocaleString("en")), ...row("operators", common), ...row("reads", ...links([...from])), ...row("read by", ...links([...to])));
    const fold = make("button", shape.unfolded.has(k) ? "Fold" : "Unfold");
    fold.setAttribute("type", "button");
    fold.addEventListener("click", () => { toggle(k); choose(k); });
    return [headed(title(k)), list, fold];
  }

  // ---- tools

  const bar = document.createElement("div");
  bar.className = "clab-g-bar"; bar.setAttribute("role", "toolbar"); bar.setAttribute("aria-label", "Graph");
  /** @param {string} text @param {string} label @param {() => void} act */
  const button = (text, label, act) => { const b = make("button", text); b.setAttribute("type", "button"); b.setAttribute("aria-label", label); b.title = label; b.addEventListener("click", act); return b; };
  /** @param {...(Node | string)} parts */
  const together = (...parts) => { const s = document.createElement("span"); s.append(...parts); return s; };
  const scale = (/** @type {number} */ to) => {
    const [cx, cy] = [(view.scrollLeft + view.clientWidth / 2) / zoom, (view.scrollTop + view.clientHeight / 2) / zoom];
    zoom = Math.min(Math.max(to, 0.08), 3);
    resize();
    view.scrollTo(cx * zoom - view.clientWidth / 2, cy * zoom - view.clientHeight / 2);
    live.textContent = `Zoom ${Math.round(zoom * 100)} %`;
  };
  const fit = () => { const { width, height } = svg.viewBox.baseVal; scale(Math.min((view.clientWidth - 2) / width, (view.clientHeight - 2) / height, 1)); view.scrollTo(0, 0); };
  const zooms = [button("−", "Zoom out", () => scale(zoom / 1.25)), button("+", "Zoom in", () => scale(zoom * 1.25)), button("1:1", "Full size", () => scale(1)), button("Fit", "Fit all into the view", fit)];
  const pans = [["←", "Move left", -1, 0], ["→", "Move right", 1, 0], ["↑", "Move up", 0, -1], ["↓", "Move down", 0, 1]].map(([text, label, dx, dy]) => button(String(text), String(label), () => view.scrollBy(Number(dx) * view.clientWidth * 0.6, Number(dy) * view.clientHeight * 0.6)));
  roving([...zooms, ...pans]);
  const search = document.createElement("input"), found = make("small", "");
  search.type = "search"; search.placeholder = "name, operator, line…"; search.setAttribute("aria-label", "Find nodes by name, operator, value, module or source line");
  let at = -1;
  /** @param {number} by */
  const step = (by) => {
    const list = [...hits];
    if (!list.length) return;
    at = (at + by + list.length) % list.length;
    goTo(list[at] ?? 0);
    found.textContent = `${at + 1} of ${list.length}`;
  };
  search.addEventListener("input", () => {
    hits = new Set(hitsOf(search.value, texts)); at = -1;
    found.textContent = search.value ? counted(hits.size, "node") : "";
    live.textContent = search.value ? `${counted(hits.size, "node")} found; Enter goes to the next` : "";
    paint();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { step(event.shiftKey ? -1 : 1); if (hits.size) search.focus(); }
    else if (event.key === "Escape") { search.value = ""; hits = new Set(); found.textContent = ""; paint(); elements.get(selected) ? reach(selected) : view.focus(); }
    else return;
    event.preventDefault(); event.stopPropagation();
  });
  const select = document.createElement("select"), label = make("label", "Show ");
  for (const [value, text] of Object.entries(data.overlays)) select.append(new Option(text, value));
  select.value = overlay;
  select.addEventListener("change", () => { overlay = select.value; store.set("overlay", overlay); paint(); live.textContent = `Boxes show ${select.selectedOptions[0]?.text ?? ""}`; });
  label.append(select);
  const foldAll = () => { for (const k of [...shape.unfolded]) if (k !== count) shape.unfolded.delete(k); redraw(count); live.textContent = `${visibleOf(shape).length} boxes`; };
  /** Unfolds all groups that are seen folded now. */
  const unfoldAll = () => {
    const folded = visibleOf(shape).filter(isGroup);
    if (!folded.length) return;
    for (const k of folded) shape.unfolded.add(k);
    const boxes = visibleOf(shape).length, lines = edgesOf(shape, data.reads).length;
    const tooMany = boxes > MOST_BOXES || lines > MOST_LINES;
    if (tooMany) for (const k of folded) shape.unfolded.delete(k);
    else redraw(count);
    live.textContent = tooMany ? `That would be ${boxes} boxes and ${lines} lines: unfold one by one` : `${boxes} boxes`;
  };
  bar.append(together(...zooms), together(...pans), together(search, button("‹", "Previous hit", () => step(-1)), button("›", "Next hit", () => step(1)), found));
  if (shape.groups.length > 1) bar.append(together(button("Fold all", "Fold all groups", foldAll), button("Unfold one level", "Unfold all groups that are seen", unfoldAll)));
  if (Object.keys(data.overlays).length > 1) bar.append(together(label));
  root.querySelector(".clab-g-main")?.before(bar);

  // ---- pointer and keys

  const keyOf = (/** @type {Event} */ event) => { const e = event.target instanceof Element ? event.target.closest("[data-k]") : null; return e ? Number(e.getAttribute("data-k")) : null; };
  let moved = false;
  view.addEventListener("click", (event) => {
    const k = keyOf(event);
    if (moved) return;
    if (k === null) { if (selected >= 0) choose(-1); return; }
    if (isGroup(k)) { toggle(k); choose(k); } else { choose(k === selected ? -1 : k); reach(k); }
  });
  view.addEventListener("pointerdown", (event) => {
    moved = false;
    if (event.button || event.pointerType === "touch") return;
    let [x, y] = [event.clientX, event.clientY];
    const began = [x, y], move = (/** @type {PointerEvent} */ e) => {
      if (!moved && Math.hypot(e.clientX - (began[0] ?? 0), e.clientY - (began[1] ?? 0)) < 4) return;
      moved = true; view.classList.add("clab-drag");
      view.scrollBy(x - e.clientX, y - e.clientY); [x, y] = [e.clientX, e.clientY];
    };
    const end = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", end); view.classList.remove("clab-drag"); };
    addEventListener("pointermove", move); addEventListener("pointerup", end);
  });
  view.addEventListener("wheel", (event) => { if (event.ctrlKey || event.metaKey) { event.preventDefault(); scale(zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15)); } }, { passive: false });
  /** The nearest box of the same kind of place, to the left or right. @param {number} k @param {number} by */
  function beside(k, by) {
    const here = elements.get(k)?.getBoundingClientRect();
    if (!here) return undefined;
    const row = [...elements].filter(([o]) => !shape.unfolded.has(o)).map(([o, e]) => [o, e.getBoundingClientRect()]).filter(([o, r]) => o !== k && Math.abs(/** @type {DOMRect} */ (r).top - here.top) < 24 * zoom && (/** @type {DOMRect} */ (r).left - here.left) * by > 0);
    return /** @type {number | undefined} */ (row.sort((a, b) => (/** @type {DOMRect} */ (a[1]).left - /** @type {DOMRect} */ (b[1]).left) * by)[0]?.[0]);
  }
  /** Along an edge: up to what it reads, down to what reads it; of a group that is open, into it. @param {number} k @param {number} end 0 up, 1 down */
  function along(k, end) {
    const other = paths.map((p) => (p.getAttribute("data-e") ?? "").split(" ").map(Number)).filter((e) => e[1 - end] === k).map((e) => e[end] ?? -1);
    return other.length ? other[0] : shape.unfolded.has(k) && end ? group(k)?.members[0] : undefined;
  }
  root.addEventListener("keydown", (event) => {
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
    const k = keyOf(event);
    if (k !== null && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const to = { ArrowUp: () => along(k, 0), ArrowDown: () => along(k, 1), ArrowLeft: () => beside(k, -1), ArrowRight: () => beside(k, 1) }[event.key];
      if (to) { const next = to(); if (next !== undefined) { choose(next); reach(next); } else live.textContent = "Nothing there"; event.preventDefault(); event.stopPropagation(); return; }
      if (event.key === "Enter" || event.key === " ") { if (isGroup(k)) { toggle(k); choose(k); } else choose(k); event.preventDefault(); event.stopPropagation(); return; }
      if (event.key === "Backspace") { const around = shape.parent.get(k) ?? count; if (around !== count) { toggle(around); choose(around); } event.preventDefault(); event.stopPropagation(); return; }
    }
    const act = { "+": () => scale(zoom * 1.25), "-": () => scale(zoom / 1.25), 0: fit, "/": () => search.focus(), Escape: selected >= 0 || hits.size ? () => { hits = new Set(); search.value = ""; found.textContent = ""; choose(-1); } : undefined }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault(); event.stopPropagation();
  });
  store.on("selected", () => {
    const wanted = store.get("selected"), k = data.name.indexOf(wanted);
    if (wanted && k >= 0 && k !== selected) goTo(k);
  });
  store.on("overlay", () => {
    const wanted = store.get("overlay");
    if (wanted !== overlay && wanted in data.overlays) { overlay = select.value = wanted; paint(); }
  });
  adopt();
  zoom = Math.max(Math.min((view.clientWidth - 4) / svg.viewBox.baseVal.width, 1), 0.8);
  resize();
  const top = [...elements.values()].reduce((a, b) => (a.getBoundingClientRect().top <= b.getBoundingClientRect().top ? a : b)).getBoundingClientRect();
  view.scrollLeft += (top.left + top.right) / 2 - view.getBoundingClientRect().left - view.clientWidth / 2;
  live.textContent = "Arrow keys walk along edges, Enter folds and unfolds, Backspace folds what is around, / finds, + and − zoom, 0 fits.";
  copying(root);
}

mount("graph", start);
