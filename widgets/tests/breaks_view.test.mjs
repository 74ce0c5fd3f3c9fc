import assert from "node:assert/strict";
import { test } from "node:test";
import { breakOf } from "../compiler_lab_widgets/breaks_view.js";

test("n and p go from break to break and stop at the ends", () => {
  assert.deepEqual([breakOf("n", -1, 3), breakOf("n", 2, 3), breakOf("p", 0, 3), breakOf("p", 2, 3)], [0, 2, 0, 1]);
  assert.deepEqual([breakOf("x", 0, 3), breakOf("n", -1, 0)], [undefined, undefined]);
});
