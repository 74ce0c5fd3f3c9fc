import assert from "node:assert/strict";
import { test } from "node:test";
import { nextDifference, rowSaid } from "../compiler_lab_widgets/compare_view.js";

test("the next difference goes round at both ends", () => {
  const differs = [false, true, false, true];
  assert.deepEqual([nextDifference(differs, -1, 1), nextDifference(differs, 1, 1), nextDifference(differs, 3, 1)], [1, 3, 1]);
  assert.deepEqual([nextDifference(differs, -1, -1), nextDifference(differs, 3, -1), nextDifference(differs, 1, -1)], [3, 1, 3]);
});

test("where nothing differs there is no next one", () => {
  assert.equal(nextDifference([false, false], 0, 1), -1);
  assert.equal(nextDifference([], -1, -1), -1);
  assert.equal(nextDifference([true], 0, 1), 0);
});

test("a row that was reached is said in words", () => {
  const names = ["lab", "torch"];
  assert.equal(rowSaid(names, ["a", "a"]), "both: a");
  assert.equal(rowSaid(names, ["a", "b"]), "lab: a; torch: b");
  assert.equal(rowSaid(names, [null, "b"]), "only torch: b");
  assert.equal(rowSaid(names, ["a", null]), "only lab: a");
});
