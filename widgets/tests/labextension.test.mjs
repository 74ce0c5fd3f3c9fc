import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import vm from "node:vm";
import { QUESTIONS, duration, facts, headingOf, inspected, labsOf, moved, progressOf, summary } from "../labextension/static/pure.js";

const entry = (name, type = "notebook") => ({ name, path: `labs/${name}`, type });

test("labs are the numbered notebooks of a folder, in order", () => {
  const found = labsOf([entry("12_min_cut.ipynb"), entry("scratch.ipynb"), entry("00_what_it_sees.ipynb"), entry("07_folder.ipynb", "directory"), entry("sanitize.cfg", "file")]);
  assert.deepEqual(found, [{ path: "labs/00_what_it_sees.ipynb", number: "00", title: "What it sees" }, { path: "labs/12_min_cut.ipynb", number: "12", title: "Min cut" }]);
});

test("a lab's title is its first heading without the number", () => {
  const cells = [{ cell_type: "code", source: "# 1 no heading" }, { cell_type: "markdown", source: ["intro\n", "# 04 The frame hook\n", "more"] }];
  assert.equal(headingOf({ cells }), "The frame hook");
  assert.equal(headingOf({ cells: [{ cell_type: "markdown", source: "## deeper" }] }), "");
  assert.equal(headingOf(null), "");
});

test("progress is shown only where the file says something that can be", () => {
  const file = (done, of) => ({ labs: { "00": { done, of } } });
  assert.deepEqual(progressOf(file(2, 4), "00"), { done: 2, of: 4 });
  for (const wrong of [null, {}, [], "x", file(5, 4), file(-1, 4), file(0, 0), file("2", 4)]) assert.equal(progressOf(wrong, "00"), null);
  assert.equal(progressOf(file(2, 4), "01"), null);
});

test("a compile in words", () => {
  assert.equal(facts({ number: 1, title: "f", steps: 1, graphs: 2, seconds: 0.0004 }), "1 step, 2 graphs, 1 ms");
  assert.deepEqual([0.25, 0.9949, 0.996, 9.94, 12.4].map(duration), ["250 ms", "995 ms", "1.0 s", "9.9 s", "12 s"]);
  assert.match(summary(null), /compiled nothing/);
  assert.equal(summary({ stats: { graphs: 3, breaks: 1 }, traces: [{}] }), "3 graphs compiled, 1 graph break.");
  assert.match(summary({ stats: { graphs: 0, breaks: 0 }, traces: [] }), /%%compile_inspect/);
});

test("a cell is inspected as it stands, with the magic before it", () => {
  assert.deepEqual(inspected("f(x)\n"), { code: "%%compile_inspect\nf(x)\n" });
  assert.deepEqual(inspected("%%compile_inspect --text\nf(x)"), { code: "%%compile_inspect --text\nf(x)" });
  assert.deepEqual(inspected("%compile_inspect f(x)"), { code: "%compile_inspect f(x)" });
  assert.match(inspected("%%time\nf(x)").why, /^%%time must be/);
  assert.match(inspected(" \n").why, /empty/);
});

test("keys move within the list and end at its ends", () => {
  assert.deepEqual(["ArrowDown", "ArrowUp", "Home", "End"].map((k) => moved(k, 1, 3)), [2, 0, 0, 2]);
  assert.deepEqual([moved("ArrowDown", 2, 3), moved("ArrowUp", 0, 3), moved("Tab", 1, 3), moved("End", 0, 0)], [2, 0, null, null]);
});

test("questions are single expressions", () => {
  for (const question of [QUESTIONS.listing, QUESTIONS.picture(3), QUESTIONS.load]) assert.doesNotMatch(question, /[\n;]|undefined/);
});

// the container, as JupyterLab's bootstrap uses it

async function container() {
  const source = await readFile(new URL("../labextension/static/remoteEntry.js", import.meta.url), "utf8");
  const added = [];
  const document = { currentScript: { src: "http://localhost/lab/extensions/compiler-lab/static/remoteEntry.js" }, createElement: () => ({}), head: { append: (e) => added.push(e) } };
  const window = {};
  const importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  new vm.Script(source.replace(/await import\(new URL\("extension.js", here\).href\)/, "await load()"), { importModuleDynamically })
    .runInNewContext({ window, document, URL, load: () => import("../labextension/static/extension.js") });
  return { made: window._JUPYTERLAB["compiler-lab"], added };
}

test("the container takes JupyterLab's own packages: the loaded one, else the newest, and says which is missing", async () => {
  const { made } = await container(), taken = [];
  const offer = (name, version, loaded) => ({ loaded, get: async () => { taken.push(`${name}@${version}`); return () => ({ [name]: version }); } });
  const names = ["@jupyterlab/application", "@jupyterlab/apputils", "@jupyterlab/launcher", "@jupyterlab/notebook", "@jupyterlab/rendermime", "@jupyterlab/ui-components"];
  const scope = Object.fromEntries(names.map((n) => [n, { "4.6.6": offer(n, "4.6.6") }]));
  scope["@jupyterlab/notebook"] = { "4.9.0": offer("nb", "4.9.0"), "4.10.0": offer("nb", "4.10.0") };
  scope["@jupyterlab/apputils"] = { "4.7.0": offer("ut", "4.7.0", 1), "4.8.0": offer("ut", "4.8.0") };
  made.init(scope);
  await assert.rejects(made.get("./extension"), /does not share @lumino\/widgets/);
  made.init({ ...scope, "@lumino/widgets": { "2.0.0": offer("w", "2.0.0") } });
  const factory = await made.get("./extension");
  assert.ok(taken.includes("nb@4.10.0") && taken.includes("ut@4.7.0"));
  const [plugin] = factory().default;
  assert.equal(plugin.id, "compiler-lab:plugin");
  await assert.rejects(made.get("./nothing"), /no module/);
});

test("the style is the extension's own file", async () => {
  const { made, added } = await container();
  await made.get("./style");
  assert.equal(added[0].href, "http://localhost/lab/extensions/compiler-lab/static/style.css");
});
