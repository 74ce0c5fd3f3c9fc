import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, treeKey } from "../compiler_lab_widgets/guards_view.js";

test("keys walk a tree as ARIA says", () => {
  assert.equal(treeKey("ArrowRight", { open: false, parent: true }), "open");
  assert.equal(treeKey("ArrowRight", { open: true, parent: true }), "child");
  assert.equal(treeKey("ArrowRight", { open: null, parent: true }), "");
  assert.equal(treeKey("ArrowLeft", { open: true, parent: true }), "close");
  assert.equal(treeKey("ArrowLeft", { open: null, parent: true }), "parent");
  assert.equal(treeKey("ArrowLeft", { open: false, parent: false }), "");
  assert.equal(treeKey("Enter", { open: null, parent: true }), "");
  assert.equal(treeKey("x", { open: true, parent: true }), "");
});

test("an answer is a sentence, whatever it says", () => {
  assert.match(answered({ fits: true, text: "Every guard holds." }), /^✓ Every guard holds/);
  const said = answered({ fits: false, text: "L['x']: expected size (2, 3); got (4, 3).", line: "a.py:3", advice: "mark_dynamic(x, 0)" });
  for (const part of ["✗", "expected size (2, 3)", "a.py:3", "mark_dynamic(x, 0)"]) assert.ok(said.includes(part), part);
  assert.match(answered({ error: "x: NameError" }), /could not be tried: x: NameError/);
});
