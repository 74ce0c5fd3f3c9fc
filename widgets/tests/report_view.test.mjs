import assert from "node:assert/strict";
import test from "node:test";

import { sectionOf } from "../compiler_lab_widgets/report_view.js";

const holder = (/** @type {string} */ id) => (id === "line" ? "b" : undefined);

test("an address names a section or something inside one", () => {
  assert.equal(sectionOf("#a", ["a", "b"], holder), "a");
  assert.equal(sectionOf("#line", ["a", "b"], holder), "b");
  assert.equal(sectionOf("#elsewhere", ["a", "b"], holder), undefined);
  assert.equal(sectionOf("", ["a", "b"], holder), undefined);
  assert.equal(sectionOf("#%E0%A4%A", ["a"], () => "x"), "x");
});
