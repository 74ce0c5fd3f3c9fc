import assert from "node:assert/strict";
import { test } from "node:test";

import { drawn, fitting, stepTo, timeTicks, tookText } from "../compiler_lab_widgets/time_view.js";

// [name, at, seconds, lane, parent, kind, said]
const phases = [
  ["compile", 0, 8, 0, -1, "compile", ""], ["capture", 0, 2, 1, 0, "step", ""], ["build, forward", 2, 5, 1, 0, "step", ""], ["compiler run", 3, 4, 2, 2, "cc", ""],
  ["build, backward", 2, 6, 3, 0, "step", ""], ["compile", 9, 1, 0, -1, "compile", ""], ["instant", 9.5, 0.0001, 1, 5, "", ""],
];

test("what is drawn is what the stretch holds, clipped, and wide enough to be seen", () => {
  assert.deepEqual(drawn(phases, 0, 10).map(([n]) => n), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(drawn(phases, 4, 8), [[0, 0, 960], [2, 0, 720], [3, 0, 720], [4, 0, 960]]);
  assert.deepEqual(drawn(phases, 9.4, 9.6).map(([n]) => n), [5, 6]);
  assert.deepEqual(drawn([], 0, 0), []);
});

test("arrow keys go along the lane, into a phase and out of it", () => {
  assert.equal(stepTo(phases, 1, "ArrowRight"), 2);
  assert.equal(stepTo(phases, 2, "ArrowRight"), 6);
  assert.equal(stepTo(phases, 2, "ArrowLeft"), 1);
  assert.equal(stepTo(phases, 0, "ArrowRight"), 5);
  assert.equal(stepTo(phases, 5, "ArrowRight"), -1);
  assert.equal(stepTo(phases, 2, "ArrowDown"), 3);
  assert.equal(stepTo(phases, 3, "ArrowDown"), -1);
  assert.equal(stepTo(phases, 3, "ArrowUp"), 2);
  assert.equal(stepTo(phases, 0, "ArrowUp"), -1);
  assert.deepEqual([stepTo(phases, 3, "Home"), stepTo(phases, 3, "End")], [0, 6]);
});

test("labels fit their bars, times have three digits, ticks are round", () => {
  assert.equal(fitting("capture", 100), "capture");
  assert.equal(fitting("compile of f, graph 0", 60), "compile…");
  assert.equal(fitting("capture", 20), "");
  assert.deepEqual([2.912, 0.045, 0.0045, 0.00045, 0.0000123].map(tookText), ["2.91 s", "45 ms", "4.5 ms", "450 µs", "12.3 µs"]);
  assert.deepEqual(timeTicks(0, 10), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(timeTicks(3, 3), []);
  assert.ok(timeTicks(1.234, 1.236).length >= 3);
});
