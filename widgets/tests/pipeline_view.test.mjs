import assert from "node:assert/strict";
import { test } from "node:test";
import { lit, numbers, related, turned } from "../compiler_lab_widgets/pipeline_view.js";

const parents = new Map([[0, []], [1, []], [2, [0]], [3, [2, 1]], [4, [1]]]);

test("related is what a line comes from and what is made of it, never its siblings", () => {
  assert.deepEqual([...related(parents, turned(parents), [2])].sort(), [0, 2, 3]);
  assert.deepEqual([...related(parents, turned(parents), [1])].sort(), [1, 3, 4]);
});

test("a line that is pointed at lights its source line and, more softly, the rest of that line", () => {
  const lines = [{ n: 0, p: [], s: [7] }, { n: 1, p: [0], s: [7] }, { n: 2, p: [], s: [7] }, { n: 3, p: [], s: [8] }];
  const { hot, warm, sources } = lit(lines, { n: 1 });
  assert.deepEqual([[...hot].sort(), [...warm], [...sources]], [[0, 1], [2], [7]]);
});

test("a source line that is pointed at lights every line made of it", () => {
  const lines = [{ n: 0, p: [], s: [7] }, { n: 1, p: [0], s: [7, 8] }, { n: 2, p: [], s: [9] }];
  const { hot, warm, sources } = lit(lines, { src: 7 });
  assert.deepEqual([[...hot].sort(), [...warm], [...sources]], [[0, 1], [], [7]]);
});

test("numbers reads what the page carries", () => {
  assert.deepEqual(numbers("3 14"), [3, 14]);
  assert.deepEqual(numbers(undefined), []);
});
