import assert from "node:assert/strict";
import { test } from "node:test";

import { bufferSaid, kernelSaid, kernelsOf } from "../compiler_lab_widgets/memory_view.js";

const program = {
  kernels: [["k0", ["x"], ["a"], "f.py:3"], ["k1", ["a"], ["b"], ""], ["k2", ["a", "b"], [], ""]],
  buffers: [["a", "add", 4096, "arena at 64", "First.", 0, "f.py:3"], ["b", "mul", 8, "memory of its own", "", 1, ""]],
};

test("a buffer has its kernels, and a kernel its buffers", () => {
  assert.deepEqual(kernelsOf(program.kernels, "a"), { writes: [0], reads: [1, 2] });
  assert.equal(bufferSaid(program, 0), "a, add of f.py:3: 4,096 bytes, arena at 64. Written by k0 (f.py:3), read by k1, k2. First.");
  assert.match(bufferSaid(program, 1), /read by k2; a result\.$/);
  assert.equal(kernelSaid(program, 2), "k2: writes nothing; reads a, b.");
});
