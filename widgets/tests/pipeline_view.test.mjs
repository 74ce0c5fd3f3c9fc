import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, linksOf, lit, related, wentTo } from "../compiler_lab_widgets/lines.js";

const sorted = (set) => [...set].sort((a, b) => a - b);
// 0 and 1 come from source line 7 and 8; 2 is made of 0, 3 of both, 4 of 1; 5 stands alone on line 7
const links = linksOf({ up: ",,0,2 1,1,", src: "7,8,7,7 8,8,7" });

test("runs of equal lists are written once", () => {
  assert.deepEqual(decode("3 4*2,,5"), [[3, 4], [3, 4], [], [5]]);
  assert.deepEqual(decode(""), [[]]);
});

test("related is what a line comes from and what is made of it, never its siblings", () => {
  assert.deepEqual(sorted(related(links, 2)), [0, 2, 3]);
  assert.deepEqual(sorted(related(links, 1)), [1, 3, 4]);
  assert.deepEqual(sorted(related(links, 5)), [5]);
});

test("a line that is pointed at lights its source line and, more softly, the rest of that line", () => {
  const { hot, warm, sources } = lit(links, { n: 2 });
  assert.deepEqual([sorted(hot), sorted(warm), sorted(sources)], [[0, 2, 3], [5], [7]]);
});

test("a source line that is pointed at lights every line made of it", () => {
  const { hot, warm, sources } = lit(links, { src: 7 });
  assert.deepEqual([sorted(hot), sorted(warm), sorted(sources)], [[0, 2, 3, 5], [], [7]]);
  assert.deepEqual(sorted(lit(links, { src: 99 }).hot), []);
});

test("where a line went is one sentence, with the reason where it went nowhere", () => {
  assert.equal(wentTo("a.py:3", ["joint", "build"], [1, 0], ["", "removed: nobody reads it"]), "a.py:3: 1 line in joint; none in build (removed: nobody reads it)");
});
