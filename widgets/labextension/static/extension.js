// compiler_lab in JupyterLab: a panel at the side, a command and a button on the notebook's toolbar, a card in the launcher.
// It reads notebooks and asks kernels; it changes no cell. Everything that it does can be done without it: %%compile_inspect, and the files of the labs.

import { QUESTIONS, duration, facts, headingOf, inspected, labsOf, moved, progressOf, summary } from "./pure.js";

/**
 * @typedef {import("./pure.js").Lab} Lab
 * @typedef {import("./pure.js").Recorded} Recorded
 * @typedef {import("./pure.js").Listing} Listing
 * @typedef {{application: any, apputils: any, launcher: any, notebook: any, rendermime: any, ui: any, widgets: any}} Shared JupyterLab's packages
 * @typedef {{app: any, notebooks: any, rendermime: any, shared: Shared}} World
 */

const ICON = '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16"><g class="clabx-icon jp-icon3" fill="none" stroke="#616161" stroke-width="1.5" stroke-linejoin="round"><path d="M2 4.5 8 1.5l6 3-6 3z"/><path d="m2 8 6 3 6-3"/><path d="m2 11.5 6 3 6-3"/></g></svg>';
const INSPECT = "compiler-lab:inspect-cell", FIRST = "compiler-lab:open-first-lab", SHOW = "compiler-lab:show-panel";
const SHOWN = { autoClose: 10000 }; // without it JupyterLab keeps a notification behind its bell and shows nothing
const FOLDERS = ["", "labs"]; // where the labs may be, seen from the folder that JupyterLab shows

/** What JupyterLab asks the container for: the plugins of this extension. @param {(name: string) => Promise<any>} ask */
export async function load(ask) {
  const names = ["@jupyterlab/application", "@jupyterlab/apputils", "@jupyterlab/launcher", "@jupyterlab/notebook", "@jupyterlab/rendermime", "@jupyterlab/ui-components", "@lumino/widgets"];
  const [application, apputils, launcher, notebook, rendermime, ui, widgets] = await Promise.all(names.map(ask));
  const shared = { application, apputils, launcher, notebook, rendermime, ui, widgets };
  const plugin = {
    id: "compiler-lab:plugin",
    description: "The labs, the compiles of the running kernel, and a button that inspects a cell.",
    autoStart: true,
    requires: [notebook.INotebookTracker, rendermime.IRenderMimeRegistry],
    optional: [apputils.ICommandPalette, launcher.ILauncher, application.ILayoutRestorer],
    activate: (/** @type {any} */ app, /** @type {any} */ notebooks, /** @type {any} */ registry, /** @type {any} */ palette, /** @type {any} */ launchers, /** @type {any} */ restorer) =>
      start({ app, notebooks, rendermime: registry, shared }, palette, launchers, restorer),
  };
  return { __esModule: true, default: [plugin] };
}

/** @param {World} world @param {any} palette @param {any} launchers @param {any} restorer */
function start(world, palette, launchers, restorer) {
  const { app, notebooks, shared } = world;
  const icon = new shared.ui.LabIcon({ name: "compiler-lab:icon", svgstr: ICON });
  const panel = panelOf(world, icon);
  const inspect = async () => {
    await inspectCell(world);
    await panel.compiles();
  };
  app.commands.addCommand(INSPECT, {
    label: "Inspect This Cell", caption: "Inspect this cell: run it and show every step of its compiles (%%compile_inspect)", icon, execute: inspect,
    isEnabled: () => notebooks.activeCell?.model.type === "code",
  });
  app.commands.addCommand(FIRST, {
    label: "compiler_lab", caption: "Open the first lab", icon,
    execute: async () => {
      const labs = await findLabs(app);
      if (labs.length) await app.commands.execute("docmanager:open", { path: labs[0].path });
      else shared.apputils.Notification.warning(NO_LABS, SHOWN);
    },
  });
  app.commands.addCommand(SHOW, { label: "Show the Panel of compiler_lab", icon, execute: () => app.shell.activateById(panel.widget.id) });
  for (const command of [INSPECT, SHOW]) palette?.addItem({ command, category: "compiler_lab" });
  palette?.addItem({ command: FIRST, category: "compiler_lab", args: {} });
  launchers?.add({ command: FIRST, category: "Other", rank: 0 });
  const refresh = () => { app.commands.notifyCommandChanged(INSPECT); };
  notebooks.activeCellChanged.connect(refresh);
  notebooks.currentChanged.connect(() => { refresh(); void panel.compiles(); });
  notebooks.widgetAdded.connect((/** @type {any} */ _, /** @type {any} */ added) => { standIn(added.content); });
  notebooks.widgetAdded.connect((/** @type {any} */ _, /** @type {any} */ added) => added.sessionContext.kernelChanged.connect(() => void panel.compiles()));
  shared.notebook.NotebookActions.executed.connect(() => void panel.compiles());
  app.shell.add(panel.widget, "left", { rank: 600 });
  restorer?.add(panel.widget, panel.widget.id);
  void app.restored.then(() => panel.labs());
}

// ---- asking ----

const NO_LABS = "There is no lab in this folder. Start JupyterLab in the folder of the labs: make lab.";

/** @param {any} app @returns {Promise<Lab[]>} */
async function findLabs(app) {
  for (const folder of FOLDERS) {
    const found = await read(app, folder);
    const labs = labsOf(found?.content ?? []);
    if (labs.length) return labs;
  }
  return [];
}

/** A file or folder as JupyterLab's server gives it; null where there is none. @param {any} app @param {string} path @param {any} [options] without "content" the server gives none @returns {Promise<any>} */
async function read(app, path, options = { content: true }) {
  try {
    return await app.serviceManager.contents.get(path, options);
  } catch {
    return null; // a folder or file that is not there is an answer
  }
}

/** What `expression` is in the kernel, as MIME types; it is evaluated silently. Throws the kernel's error. @param {any} kernel @param {string} expression */
async function ask(kernel, expression) {
  const reply = await kernel.requestExecute({ code: "", silent: true, store_history: false, user_expressions: { answer: expression } }).done;
  const answer = reply.content.user_expressions?.answer;
  if (answer?.status !== "ok") throw new Error(answer ? `${answer.ename}: ${answer.evalue}` : "the kernel did not answer");
  return answer.data;
}

/** Runs the active cell as if the magic stood above it. @param {World} world */
async function inspectCell({ notebooks, shared }) {
  const cell = notebooks.activeCell, session = notebooks.currentWidget?.sessionContext;
  const tell = (/** @type {string} */ text) => { shared.apputils.Notification.warning(text, SHOWN); };
  if (cell?.model.type !== "code") return tell("Only a cell with code can be inspected.");
  await session.ready;
  const kernel = session.session?.kernel;
  if (!kernel) return tell("This notebook has no kernel: choose one, then inspect the cell.");
  const run = inspected(cell.model.sharedModel.getSource());
  if ("why" in run) return tell(run.why);
  try {
    await ask(kernel, QUESTIONS.load);
  } catch (error) {
    return tell(`This kernel cannot load compiler_lab (${error instanceof Error ? error.message : error}). Install it there: pip install compiler-lab`);
  }
  const { model } = cell;
  model.sharedModel.transact(() => { model.clearExecution(); cell.outputHidden = false; }, false);
  cell.setPrompt("*");
  model.trusted = true;
  const future = kernel.requestExecute({ code: run.code, stop_on_error: true }, false, { cellId: model.sharedModel.getId() });
  cell.outputArea.future = future;
  const reply = await future.done;
  if (!cell.isDisposed) model.executionCount = reply.content.execution_count;
}

/** A recorded compile in a tab of its own. @param {World} world @param {any} kernel @param {Recorded} trace @param {any} icon */
async function openPicture({ app, rendermime, shared }, kernel, trace, icon) {
  const id = `compiler-lab-${kernel.id}-${trace.number}`;
  const open = [...app.shell.widgets("main")].find((/** @type {any} */ w) => w.id === id);
  if (open) return app.shell.activateById(id);
  const data = await ask(kernel, QUESTIONS.picture(trace.number));
  const content = rendermime.createRenderer("text/html");
  content.addClass("clabx-picture");
  await content.renderModel(rendermime.createModel({ data, trusted: true }));
  const tab = new shared.apputils.MainAreaWidget({ content });
  tab.id = id;
  Object.assign(tab.title, { label: trace.title, caption: `${trace.title}: ${facts(trace)}`, icon, closable: true });
  app.shell.add(tab, "main");
  app.shell.activateById(id);
}

// ---- live views whose kernel is gone ----

const LOST = "Error displaying widget: model not found"; // what JupyterLab's widgets write in an output of a notebook that is opened again

/** Where a live view of ours has lost its kernel, the picture beside it in the output is shown instead of that sentence. @param {any} notebook */
function standIn(notebook) {
  const watch = new MutationObserver((records) => {
    for (const { target } of records)
      if (target instanceof Element && target.classList.contains("jp-OutputArea-output") && target.textContent === LOST) void picture(notebook, target);
  });
  watch.observe(notebook.node, { childList: true, subtree: true });
  notebook.disposed.connect(() => watch.disconnect());
}

/** @param {any} notebook @param {Element} lost */
async function picture(notebook, lost) {
  const area = notebook.widgets.map((/** @type {any} */ cell) => cell.outputArea).find((/** @type {any} */ one) => one?.node.contains(lost));
  const at = area?.widgets.findIndex((/** @type {any} */ child) => child.node.contains(lost)) ?? -1, output = at < 0 ? null : area.model.get(at);
  if (!String(output?.data["text/html"]).startsWith('<div class="clab ')) return;
  const content = notebook.rendermime.createRenderer("text/html");
  await content.renderModel(output);
  if (lost.textContent === LOST) lost.replaceChildren(content.node);
}

// ---- the panel ----

/** @param {string} tag @param {Record<string, any>} given @param {(Node | string)[]} children */
function element(tag, given, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) name.startsWith("on") ? made.addEventListener(name.slice(2), value) : made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The panel, and what fills its two lists. @param {World} world @param {any} icon */
function panelOf(world, icon) {
  const { app, notebooks, shared } = world;
  const labs = element("ul", { "aria-labelledby": "clabx-labs" }), compiles = element("ul", { "aria-labelledby": "clabx-compiles" });
  const noLabs = element("p", {}), state = element("p", { role: "status" });
  const command = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ run) => element("button", { type: "button", title, onclick: run }, text);
  const widget = new shared.widgets.Widget({ node: element("section", { "aria-label": "compiler_lab" }) });
  widget.id = "compiler-lab-panel";
  widget.addClass("clabx-panel");
  Object.assign(widget.title, { icon, caption: "compiler_lab: labs and compiles" });
  const filled = async () => { await fillLabs(app, labs, noLabs); };
  const asked = async () => { await fillCompiles(world, compiles, state, icon); };
  widget.node.append(
    element("h2", {}, "compiler_lab"),
    element("div", { class: "clabx-tools" },
      command("Inspect this cell", "Run the cell and show every step of its compiles", () => void app.commands.execute(INSPECT)),
      command("Refresh", "Read the labs and ask the kernel again", () => { void filled(); void asked(); })),
    element("h3", { id: "clabx-compiles" }, "Compiles of this kernel"), state, compiles,
    element("h3", { id: "clabx-labs" }, "Labs"), noLabs, labs);
  keys(labs);
  keys(compiles);
  state.textContent = notebooks.currentWidget ? "" : "No notebook is open.";
  return { widget, labs: filled, compiles: asked };
}

/** One tab stop for a list of buttons; arrow keys, Home and End move in it. @param {HTMLElement} list */
function keys(list) {
  const buttons = () => [...list.querySelectorAll("button")];
  list.addEventListener("focusin", (event) => buttons().forEach((b) => { b.tabIndex = b === event.target ? 0 : -1; }));
  list.addEventListener("keydown", (event) => {
    const all = buttons(), to = moved(event.key, all.findIndex((b) => b === event.target), all.length);
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    all[to].focus();
  });
}

/** @param {HTMLElement} list @param {{title: string, onclick: () => void, parts: (Node | string)[]}[]} rows */
function fill(list, rows) {
  const at = [...list.querySelectorAll("button")].findIndex((b) => b === document.activeElement);
  list.replaceChildren(...rows.map(({ title, onclick, parts }, k) => element("li", {}, element("button", { type: "button", title, onclick, tabindex: k ? "-1" : "0" }, ...parts))));
  if (at >= 0) /** @type {HTMLElement | null} */ ([...list.querySelectorAll("button")][Math.min(at, rows.length - 1)] ?? null)?.focus();
}

/** @param {any} app @param {HTMLElement} list @param {HTMLElement} note */
async function fillLabs(app, list, note) {
  const labs = await findLabs(app);
  note.textContent = labs.length ? "" : NO_LABS;
  note.hidden = labs.length > 0;
  const folder = labs.length ? labs[0].path.split("/").slice(0, -1).join("/") : "";
  const file = labs.length && (await read(app, folder, { type: "directory", content: true }))?.content.some((/** @type {any} */ e) => e.name === "progress.json")
    ? await read(app, `${folder && `${folder}/`}progress.json`, { format: "text", type: "file", content: true }) : null;
  const progress = parsed(file?.content);
  const draw = () => fill(list, labs.map((lab) => ({
    title: `Open lab ${lab.number}`, onclick: () => void app.commands.execute("docmanager:open", { path: lab.path }), parts: labParts(lab, progress),
  })));
  draw();
  for (const lab of labs) lab.title = headingOf((await read(app, lab.path))?.content) || lab.title;
  draw();
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // no file, or none of ours: no progress is shown
  }
}

/** @param {Lab} lab @param {any} progress @returns {(Node | string)[]} */
function labParts(lab, progress) {
  const known = progressOf(progress, lab.number);
  const name = [element("b", {}, lab.number), element("span", {}, lab.title)];
  if (!known) return name;
  const label = `${known.done} of ${known.of} exercises`;
  return [...name, element("progress", { max: known.of, value: known.done, "aria-label": label }), element("small", {}, label)];
}

/** @param {World} world @param {HTMLElement} list @param {HTMLElement} state @param {any} icon */
async function fillCompiles(world, list, state, icon) {
  const kernel = world.notebooks.currentWidget?.sessionContext.session?.kernel;
  if (!kernel) {
    state.textContent = world.notebooks.currentWidget ? "This notebook has no kernel." : "No notebook is open.";
    return fill(list, []);
  }
  try {
    const data = await ask(kernel, QUESTIONS.listing);
    /** @type {Listing | null} */ const listing = data["application/json"] ?? null;
    state.textContent = summary(listing);
    fill(list, (listing?.traces ?? []).map((trace) => ({
      title: `Show this compile: ${trace.title}, ${duration(trace.seconds)}`, parts: [element("b", {}, String(trace.number)), element("span", {}, trace.title), element("small", {}, facts(trace))],
      onclick: () => { openPicture(world, kernel, trace, icon).catch((error) => { state.textContent = error.message; }); },
    })));
  } catch (error) {
    state.textContent = `The kernel did not say: ${error instanceof Error ? error.message : error}`;
    fill(list, []);
  }
}
