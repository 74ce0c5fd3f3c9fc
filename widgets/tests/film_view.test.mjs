import assert from "node:assert/strict";
import { test } from "node:test";
import { callerOf, stateAt, stepOf, within } from "../compiler_lab_widgets/film_view.js";

// f(x): y = g(x); a call of g in the middle, whose stack and locals are its own
const texts = ["LOAD x", "x", "tensor", "CALL g", "RETURN", "inner", "STORE y", "y", "node n", "guard g"];
const film = { graph: 0, function: "f", broke: "", texts, places: [{ name: "a.py", function: "f", first: 1 }, { name: "b.py", function: "g", first: 9 }], shots: [
  [0, 0, 2, 0, 0, [], [[1, 2]], [], [9]],
  [0, 0, 2, 3, 0, [2], [], [8], []],
  [1, 1, 9, 0, 0, [], [[5, 2]], [], []],
  [1, 1, 9, 4, 0, [2], [], [8], []],
  [0, 0, 2, 6, 0, [5], [], [], []],
  [0, 0, 3, 4, 0, [], [[1, -1], [7, 5]], [], []],
] };

test("the state at a step is what replaying gives, and a call has its own", () => {
  const at = (k) => { const { stack, locals, nodes, guards } = stateAt(film, k); return [stack, [...locals], nodes, guards]; };
  assert.deepEqual(at(0), [[], [["x", "tensor"]], 0, 1]);
  assert.deepEqual(at(1), [["tensor"], [["x", "tensor"]], 1, 1]);
  assert.deepEqual(at(3), [["tensor"], [["inner", "tensor"]], 2, 1]);
  assert.deepEqual(at(4), [["inner"], [["x", "tensor"]], 2, 1]);
  assert.deepEqual(at(5), [[], [["y", "inner"]], 2, 1]);
});

test("what is new at a step is said", () => {
  assert.equal(stateAt(film, 4).pushed, 1);
  assert.deepEqual([...stateAt(film, 5).changed], ["y"]);
});

test("inside a library the line of the call that led there is shown", () => {
  assert.equal(callerOf(film.shots, 3, (place) => place === 0), 1);
  assert.equal(callerOf(film.shots, 3, () => true), 3);
  assert.equal(callerOf(film.shots, 3, () => false), -1);
});

test("keys stay inside the film", () => {
  assert.deepEqual([stepOf("ArrowRight", 5, 6), stepOf("ArrowLeft", 0, 6), stepOf("End", 0, 6), stepOf("Home", 3, 6), stepOf("x", 1, 6)], [5, 0, 5, 0, undefined]);
  assert.equal(within(Number.NaN, 6), 0);
});
