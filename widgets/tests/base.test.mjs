import assert from "node:assert/strict";
import { test } from "node:test";
import { GONE, goesOn, widget } from "../compiler_lab_widgets/base.js";

/** A widget whose page has what render() asks of it; `hear` says what a front end tells the model. */
function made() {
  /** @type {Map<string, (value?: any) => void>} */ const heard = new Map();
  const live = { textContent: "" }, root = { classList: { add() {} }, addEventListener() {}, querySelector: (s) => (s === ".clab-live" ? live : null) };
  const el = { innerHTML: "", querySelector: (s) => (s === ".clab" ? root : s === ".clab-live" ? live : null) }, sent = [];
  const model = { get: (name) => (name === "html" ? "<div></div>" : 0), set() {}, save_changes() {}, send: (m) => sent.push(m), on: (name, f) => heard.set(name, f) };
  let store;
  widget((_root, _data, given) => { store = given; }).render({ model, el });
  return { store, sent, live, hear: (name, value) => heard.get(name)?.(value) };
}

test("an answer goes to its question", async () => {
  const { store, sent, hear } = made(), first = store.ask("a"), second = store.ask("b");
  hear("msg:custom", { to: sent[1].number, answer: "to b" });
  hear("msg:custom", { to: sent[0].number, answer: "to a" });
  assert.deepEqual([await first, await second], ["to a", "to b"]);
});

test("a question that the kernel left is answered in words, and so is the next", async () => {
  const { store, live, hear } = made(), before = store.ask("a");
  hear("comm_live_update");
  assert.deepEqual([await before, live.textContent], [{ error: GONE }, GONE]);
  assert.deepEqual(await store.ask("b"), { error: GONE });
});

test("a kernel that answers after all is there", async () => {
  const { store, sent, hear } = made();
  hear("comm_live_update");
  const asked = store.ask("a");
  hear("msg:custom", { to: sent[0].number, answer: 1 });
  assert.equal(await asked, 1);
});

test("letters and arrows stay in a view, Tab and what has Control do not", () => {
  const plain = { ctrlKey: false, altKey: false, metaKey: false };
  for (const key of ["d", "x", "ArrowDown", "Enter", "Escape"]) assert.equal(goesOn({ ...plain, key }), false, key);
  assert.equal(goesOn({ ...plain, key: "Tab" }), true);
  assert.equal(goesOn({ ...plain, key: "s", ctrlKey: true }), true);
});
