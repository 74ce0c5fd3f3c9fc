import assert from "node:assert/strict";
import { test } from "node:test";

import { unitsAt, whyNotOne } from "../compiler_lab_widgets/fusion_view.js";

const reasons = { "same space": "One space.", extern: "A library call.", "loop order": "No common order." };
const program = {
  name: "forward", before: 100, reasons: Object.keys(reasons),
  loops: [
    ["a", "add", "pointwise", "", "k0", ["x"], ["a"]], ["b", "mul", "pointwise", "", "k0", ["a"], ["b"]], ["c", "exp", "pointwise", "", "k0", ["b"], ["c"]],
    ["d", "mm", "extern", "", "e0", ["c", "w"], ["d"]], ["e", "sum", "reduction", "", "k1", ["y", "x"], ["e"]], ["f", "neg", "pointwise", "", "k2", ["q"], ["f"]],
  ],
  steps: [[0, 1, 1, 0, 8, 1, 90, 5], [1, 2, 1, 0, 4, 1, 80, 4], [2, 3, 0, 1, 2, 0, 80, 4], [1, 4, 0, 2, 1, 0, 80, 4]],
};

test("groups grow with the steps that join", () => {
  assert.deepEqual(unitsAt(6, program.steps, 0), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(unitsAt(6, program.steps, 1), [0, 0, 2, 3, 4, 5]);
  assert.deepEqual(unitsAt(6, program.steps, 4), [0, 0, 0, 3, 4, 5]);
});

test("two loops are answered for by their decision, by their groups', or by why there was none", () => {
  const why = (a, b) => whyNotOne(program, reasons, a, b);
  assert.match(why(0, 1), /they are one kernel\. One space\. The two alone would save 8 bytes/);
  assert.match(why(3, 2), /refused\. A library call/);
  assert.match(why(0, 2), /one kernel by way of others/);
  assert.match(why(0, 4), /their groups were, by b mul and e sum: refused\. No common order/);
  assert.match(why(3, 5), /never a candidate: d mm is a library call/);
  assert.match(why(1, 5), /share no data/);
  assert.match(why(5, 5), /choose another/);
});
