import assert from "node:assert/strict";
import { test } from "node:test";
import { decode, linksOf, lit, rangeOf, related, wentTo } from "../compiler_lab_widgets/lines.js";
import { listsOf, painted, rowsWith } from "../compiler_lab_widgets/pipeline_view.js";

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

test("an item is found in the lists that hold it, and in none where none does", () => {
  const ranges = [{ first: 0, count: 3 }, { first: 3, count: 2 }, { first: 9, count: 1 }];
  assert.deepEqual([0, 2, 3, 4, 5, 8, 9, 10].map((n) => ranges.indexOf(rangeOf(ranges, n))), [0, 0, 1, 1, -1, -1, 2, -1]);
  assert.equal(rangeOf([], 0), undefined);
});

test("lines that are drawn here stand in short lists, numbered as they are, coloured and escaped", () => {
  const text = Array.from({ length: 250 }, (_, k) => `a${k} < b`), html = listsOf({ kind: "lines", paint: "cpp", n: [[7, 240], [900, 10]], text, new: [1] }, (n) => (n < 9 ? "3" : ""));
  assert.deepEqual([...html.matchAll(/start="(\d+)"/g)].map((m) => Number(m[1])), [7, 107, 207, 900]);
  assert.equal(html.match(/<li/g).length, 250);
  assert.equal(html.match(/<\/ol>/g).length, 4);
  assert.ok(html.includes("<ins>a1 &lt; b</ins>") && html.match(/data-l="3"/g).length === 1);
});

test("painting keeps every character", () => {
  const plain = (html) => html.replace(/<[^>]*>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&amp;/g, "&");
  for (const [text, paint] of [['for (int i = 0; i < 4; ++i) f("a<b//", \'x\'); // </script> & co', "cpp"], ["    return x[0] if y else 'a#b'  # <i>", "python"], ["x: f32[2] = aten.mul.Tensor(a, 2)", "node"], ["  vmulps %zmm1, %zmm2", "assembly"]])
    assert.equal(plain(painted(text, paint, true)), text);
  assert.ok(painted("return 1; // no", "cpp").includes('<i class="k">return</i> <i class="m">1</i>; <i class="c">// no</i>'));
});

test("of a long table a bounded number of rows is drawn, and all are searched", () => {
  const parts = [["save, saved: why", "a sentence", Array.from({ length: 5000 }, (_, k) => [`n${k}`, `bytes ${k}`])]];
  assert.deepEqual([rowsWith(parts, "").left, rowsWith(parts, "").html.match(/<td>n/g).length], [5000, 300]);
  assert.deepEqual([rowsWith(parts, "n4999").left, rowsWith(parts, "n4999").html.includes("<td>n4999</td>")], [1, true]);
  assert.equal(rowsWith(parts, "nothing").html, "");
});
