import assert from "node:assert/strict";
import { test } from "node:test";
import { boxSize, bytesText, chainOf, edgesOf, hitsOf, layered, rowsOf, seenOf, shapeOf, shortName, timeText, visibleOf } from "../compiler_lab_widgets/graph_view.js";

// nodes 0..5; keys: root 6, "m" 7 with 1, 2 and "m.x" 8 with 3, 4
const tree = ["", "graph", 0, [0, ["m", "module", 0, [1, 2, ["m.x", "module", 0, [3, 4]]]], 5]];
const reads = [[], [0], [1], [1], [3, 2], [4, 0]];
const shape = (...unfolded) => shapeOf(tree, 6, unfolded);

test("a folded group stands for what is in it", () => {
  assert.deepEqual(visibleOf(shape()), [0, 7, 5]);
  assert.deepEqual(visibleOf(shape(7)), [0, 1, 2, 8, 5]);
  assert.deepEqual(visibleOf(shape(7, 8)), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(visibleOf(shape(8)), [0, 7, 5], "what is open inside of a folded group is not seen");
  assert.deepEqual([seenOf(shape(), 3), seenOf(shape(7), 3), seenOf(shape(7, 8), 3)], [7, 8, 3]);
  assert.deepEqual(chainOf(shape(), 3), [6, 7, 8, 3]);
  assert.equal(shape().groups[1].size, 4);
});

test("edges go between what is seen, each once", () => {
  assert.deepEqual(edgesOf(shape(), reads), [[0, 7], [7, 5], [0, 5]]);
  assert.deepEqual(edgesOf(shape(7), reads), [[0, 1], [1, 2], [1, 8], [2, 8], [8, 5], [0, 5]]);
});

/** Boxes do not overlap, edges go down, what is in a group is inside of its box. */
function holds(s, edges) {
  const { boxes } = layered(s, edges, (k) => [40 + 7 * (k % 5), 30]);
  assert.deepEqual([...boxes.keys()].filter((k) => !s.unfolded.has(k)).sort((a, b) => a - b), visibleOf(s).sort((a, b) => a - b));
  for (const [a, b] of edges) assert.ok(boxes.get(a).y + boxes.get(a).h < boxes.get(b).y, `${a} is above ${b}`);
  const list = [...boxes];
  list.forEach(([a, p], i) => list.slice(i + 1).forEach(([b, q]) => {
    if (chainOf(s, b).includes(a)) assert.ok(p.x <= q.x && p.y < q.y && q.x + q.w <= p.x + p.w + 0.01 && q.y + q.h <= p.y + p.h, `${b} is inside ${a}`);
    else if (!chainOf(s, a).includes(b)) assert.ok(p.x + p.w <= q.x + 0.01 || q.x + q.w <= p.x + 0.01 || p.y + p.h <= q.y || q.y + q.h <= p.y, `${a} and ${b} overlap`);
  }));
}

test("a layout of any state has layers and room", () => {
  for (const open of [[], [7], [7, 8]]) holds(shape(...open), edgesOf(shape(...open), reads));
  holds(shapeOf(["", "graph", 0, [0]], 1, []), []);
  let state = 7;
  const next = (n) => (state = (state * 1103515245 + 12345) % 2147483648) % n;
  for (let round = 0; round < 12; round++) {
    const count = 10 + next(150), inputs = Array.from({ length: count }, (_, k) => (k ? Array.from({ length: next(3) }, () => next(k)) : []));
    const members = [];
    for (let k = 0; k < count; ) { const length = Math.min(1 + next(20), count - k), part = Array.from({ length }, (_, i) => k + i); members.push(length > 1 ? ["g", "stretch", 0, part] : k); k += length; }
    const s = shapeOf(["", "graph", 0, members], count, Array.from({ length: 5 }, () => count + 1 + next(8)).filter((k) => k <= count + members.filter((m) => typeof m !== "number").length));
    holds(s, edgesOf(s, inputs));
  }
});

test("layers are longest paths, inputs stand above their first reader, wide ones are several rows", () => {
  assert.deepEqual(rowsOf(5, [[0, 1], [1, 2], [3, 2], [2, 4]]), [[0], [1, 3], [2], [4]]);
  assert.deepEqual(rowsOf(30, []).map((r) => r.length), [14, 14, 2]);
  assert.deepEqual(rowsOf(0, []), []);
});

test("a search finds every word, in any of a node's texts", () => {
  const texts = ["mm_1 aten.mm.default f32[4] blocks.0 a.py:3: y = a @ b", "relu aten.relu.default f32[4] blocks.1 a.py:4"];
  assert.deepEqual(hitsOf("MM blocks", texts), [0]);
  assert.deepEqual(hitsOf("f32[4]", texts), [0, 1]);
  assert.deepEqual([hitsOf("  ", texts), hitsOf("<b>", texts)], [[], []]);
});

test("sizes and names are said as Python says them", () => {
  assert.deepEqual([bytesText(512), bytesText(3250), bytesText(1200000)], ["512 bytes", "3.25 kB", "1.2 MB"]);
  assert.deepEqual([timeText(2), timeText(0.0123), timeText(0.0000045)], ["2.00 s", "12.3 ms", "4.50 µs"]);
  assert.equal(shortName("a".repeat(25)), "…" + "a".repeat(22));
  assert.deepEqual(boxSize("mm", "f32[4, 4]"), [9 * 6.3 + 18, 40]);
});
