import assert from "node:assert/strict";
import { test } from "node:test";

import { amountSaid, codeOf, edgesOf, flowsAt, layered, nearest, nodeSaid, ownOf, stepSaid, stopSaid } from "../compiler_lab_widgets/cut_view.js";

// source -> a -> b -> sink and source -> a -> c -> sink; the second path takes back what the first sent from a to b.
const net = {
  nodes: [["a", "input", 64, "", "", 1, "saved", 1], ["b", "aten.mm", 32, "matmul", "", 0, "", 0], ["c", "aten.t", 32, "", "view", 0, "recomputed", 0]],
  lines: ["", "f.py:1"],
  edges: [[0, 2, null, 40], [2, 3, 40, 40], [3, 4, null, 10], [3, 6, null, 30], [4, 5, 32, 10], [6, 7, null, 30], [5, 1, null, 10], [7, 1, null, 30]],
  paths: [[20, 2, 3, 4, 5], [20, 2, 3, 6, 7], [10, 6, 3]], told: [["20", "20", "source → a → b → sink", []], ["20", "40", "source → a → c → sink", ["keeping a"]]],
  rest: "", value: "40", side: [0, 2], cut: [1], budget: 1, weighed: false,
};
const program = { name: "p", graph: 2, net, saved: 64, around: "", stops: [[1, 40, 64, 0, [0], []], [0.25, 32, 32, 1200, [1], [2]]] };

test("the flow after some paths is what they push, and what is taken back is gone", () => {
  assert.deepEqual(flowsAt(net, 0), [0, 0, 0, 0, 0, 0, 0, 0]);
  assert.deepEqual(flowsAt(net, 1), [20, 20, 20, 0, 20, 0, 20, 0]);
  assert.deepEqual(flowsAt(net, 2), [40, 40, 20, 20, 20, 20, 20, 20]);
  const back = { ...net, paths: [[20, 2, 3, 4, 5], [5, 6, 3, 4, 5]] };
  assert.deepEqual(edgesOf({ ...back, edges: [...net.edges, [0, 6, null, 0]] }, 1).map(([e, s]) => s * e), [8, -3, 2, 4, 6]);
});

test("each step is said with its bottleneck, the last with what is saved", () => {
  assert.match(stepSaid(program, 0), /Before the first of 3 paths/);
  assert.match(stepSaid(program, 2), /^Path 2 of 3 pushes 20 bytes: source → a → c → sink\. Its bottleneck, full now: keeping a\. Flow so far 40 of 40\./);
  assert.match(stepSaid(program, 1), /an edge whose flow is taken back/);
  assert.match(stepSaid(program, 4), /saved bytes as counted = 40.*so saved: a \(64 bytes\)\./);
  assert.match(stepSaid({ ...program, net: { ...net, weighed: true, rest: "2 paths more are left out." } }, 4), /weighed together.*2 paths more/);
  assert.doesNotMatch(stepSaid({ ...program, net: { ...net, weighed: true } }, 2), /20 bytes/);
});

test("a node, a stop and the code are said", () => {
  const words = { matmul: "a product", view: "a view" };
  assert.match(nodeSaid(net, words, 0), /^a: input of f\.py:1, 64 bytes; keeping it counts 40\. It is an input.*Here it is saved/);
  assert.match(nodeSaid(net, words, 1), /keeping it counts 32\. It is not to be computed again: a product/);
  assert.match(nodeSaid(net, words, 2), /it is not kept: a view\..*Here it is computed again/);
  assert.match(stopSaid(program, 1), /^Budget 0\.25: 1 value kept, 32 bytes \(32 as counted\), 1,200 operations more; c computed again for it\./);
  assert.equal(codeOf(2, { save: ["a"], recompute: [], budget: 0.5 }), 'trace.stage("partition", graph=2).recut(budget=0.5, must_save=["a"])');
  assert.deepEqual([amountSaid(null), amountSaid(1234), amountSaid(12345678)], ["∞", "1,234", "1.23e+7"]);
});

test("a part of a large network is near what it starts with, and its boxes do not overlap", () => {
  const many = 60, edges = Array.from({ length: many }, (_, k) => [2 + 2 * k, 3 + 2 * k, 8, 0]);
  for (let k = 0; k < many; k++) for (const to of [k + 1, k + 7]) if (to < many) edges.push([3 + 2 * k, 2 + 2 * to, null, 0]);
  const large = { ...net, edges };
  assert.equal(ownOf(large).size, many);
  const near = nearest(large, [30], 9);
  assert.ok(near.length === 9 && [29, 30, 31, 37, 23].every((k) => near.includes(k)));
  assert.deepEqual(nearest(large, [30, 99], 1), [30], "what is no node with an edge of its own is left out");
  const all = [...Array(many).keys()], pairs = edges.slice(many).map((e) => [(e[0] >> 1) - 1, (e[1] >> 1) - 1]), width = (k) => 60 + k;
  const { at, width: wide, height } = layered(all, pairs, width);
  for (const a of all) {
    const [x, y] = at.get(a);
    assert.ok(x >= 0 && y >= 0 && x + width(a) <= wide && y + 46 <= height);
    for (const b of all) if (a < b && at.get(b)[1] === y) assert.ok(x + width(a) <= at.get(b)[0] || at.get(b)[0] + width(b) <= x);
  }
  assert.ok(pairs.every(([a, b]) => at.get(a)[1] < at.get(b)[1]), "what is read stands above its reader");
  assert.equal(layered([4], [], width).at.size, 1);
});
