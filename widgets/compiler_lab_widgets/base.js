// What the views share. Plain ES module: it stands before a view's own script in every output, so names are unique across both.
// A view's script ends with mount(NAME, start); start(root, data) is called once for each root of that view on the page, and brings to life
// what is there as HTML already. Events that a view uses do not leave it: notebooks have keys of their own.

/**
 * What a view remembers, by name, and whom it may ask. In a page of its own the values live here and nobody answers; in a widget they are
 * the widget's traits, which Python sees and other widgets link to.
 * @typedef {Object} Store
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {(name: string, changed: () => void) => void} on
 * @property {((question: any) => Promise<any>) | null} ask
 */

/** @returns {Store} */
export function localStore() {
  /** @type {Map<string, any>} */ const values = new Map();
  /** @type {Map<string, (() => void)[]>} */ const told = new Map();
  return {
    get: (name) => values.get(name),
    set: (name, value) => { values.set(name, value); for (const f of told.get(name) ?? []) f(); },
    on: (name, changed) => { told.set(name, [...(told.get(name) ?? []), changed]); },
    ask: null,
  };
}

/**
 * Starts the view on every root that has not been started: `root.clab[data-view=name]`, with the data of its script.clab-data. One in a part of a
 * report that is not shown starts when it is: views measure themselves, and nobody waits for what is not seen.
 * @template T
 * @param {string} name
 * @param {(root: HTMLElement, data: T, store: Store) => void} start
 */
export function mount(name, start) {
  if (typeof document === "undefined") return;
  for (const root of all(document, `.clab[data-view=${name}]:not(.clab-on)`)) {
    const hidden = root.closest(".clab-part[hidden]");
    if (!hidden) begin(root, start, localStore());
    else if (!root.classList.contains("clab-waits")) {
      root.classList.add("clab-waits");
      hidden.addEventListener("clab-shown", () => { root.classList.remove("clab-waits"); begin(root, start, localStore()); }, { once: true });
    }
  }
}

/**
 * Whether a key that a view did not use goes on to the page. Letters alone are commands of a notebook (d d deletes a cell), and JupyterLab takes them from
 * whatever has the focus in its outputs; with Control, Alt or Meta they are the whole page's, as is Tab.
 * @param {{key: string, ctrlKey: boolean, altKey: boolean, metaKey: boolean}} event
 */
export const goesOn = ({ key, ctrlKey, altKey, metaKey }) => ctrlKey || altKey || metaKey || key === "Tab";

/** @template T @param {HTMLElement} root @param {(root: HTMLElement, data: T, store: Store) => void} start @param {Store} store */
function begin(root, start, store) {
  root.classList.add("clab-on");
  root.addEventListener("keydown", (event) => { if (!goesOn(event)) event.stopPropagation(); });
  start(root, JSON.parse(root.querySelector(".clab-data")?.textContent || "null"), store);
}

/**
 * The view as an anywidget: the same HTML, brought to life by the same function; its store is the widget's traits, and Python answers.
 * @template T @param {(root: HTMLElement, data: T, store: Store) => void} start
 */
export function widget(start) {
  /** @param {{model: any, el: HTMLElement}} given */
  function render({ model, el }) {
    el.innerHTML = model.get("html");
    /** @type {Map<number, (answer: any) => void>} */ const waiting = new Map();
    let number = 0, gone = false;
    /** @param {string} text */
    const say = (text) => { liveOf(el).textContent = text; };
    /** @param {number} to @param {any} answer */
    const tell = (to, answer) => { waiting.get(to)?.(answer); waiting.delete(to); };
    model.on("msg:custom", (/** @type {{to: number, answer: any}} */ message) => { gone = false; tell(message.to, message.answer); });
    // JupyterLab's word for a widget that its kernel has left; what was asked before is not answered any more
    model.on("comm_live_update", () => {
      gone = true;
      say(GONE);
      for (const to of [...waiting.keys()]) tell(to, { error: GONE });
    });
    begin(/** @type {HTMLElement} */ (el.querySelector(".clab")), start, {
      get: (name) => model.get(name),
      set: (name, value) => { model.set(name, value); model.save_changes(); },
      on: (name, changed) => model.on(`change:${name}`, changed),
      ask: (question) => new Promise((resolve) => {
        const own = ++number, late = setTimeout(() => (gone ? tell(own, { error: GONE }) : say(LATE)), gone ? 1500 : 5000);
        waiting.set(own, (answer) => { clearTimeout(late); resolve(answer); });
        try {
          model.send({ number: own, question });
        } catch { // a front end whose connection to the kernel is closed
          tell(own, { error: GONE });
        }
      }),
    });
  }
  return { render };
}

/** Until there is a picture, or would be in a page that is not seen: work that it does not need comes after it. @returns {Promise<void>} */
export const firstFrame = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); setTimeout(done, 200); });

/**
 * What `packed` of frame.py made: compressed JSON. @param {string} text @returns {Promise<any>}
 */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}
export const GONE = "Python is there no more: the kernel was restarted or ended. What is shown is the compile as it was; run the cell again to ask about it.";
const LATE = "No answer yet: Python is busy, or its kernel is gone.";

/** The line at the foot of a view that says what happened, to screen readers too. @param {HTMLElement} root */
export const liveOf = (root) => /** @type {HTMLElement} */ (root.querySelector(".clab-live"));

/**
 * Arrow keys move one tab stop through elements: the pattern of toolbars, lists and trees. Home and End go to the ends.
 * @param {HTMLElement[]} elements
 * @param {(element: HTMLElement, k: number) => void} [entered] called when one is reached by a key
 */
export function roving(elements, entered = () => {}) {
  elements.forEach((e, k) => {
    e.tabIndex = k ? -1 : 0;
    e.addEventListener("focus", () => elements.forEach((o) => { o.tabIndex = o === e ? 0 : -1; }));
    e.addEventListener("keydown", (event) => {
      const shown = elements.filter((o) => o.offsetParent !== null || o === e), at = shown.indexOf(e);
      const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: shown.length - 1 }[event.key];
      const next = to === undefined ? undefined : shown[to];
      if (!next) return;
      event.preventDefault(); event.stopPropagation();
      next.focus();
      entered(next, elements.indexOf(next));
    });
  });
}

/** @template {HTMLElement} T @param {ParentNode} root @param {string} selector @returns {T[]} */
export const all = (root, selector) => [...root.querySelectorAll(selector)].map((e) => /** @type {T} */ (e));

/** A small element. @param {string} tag @param {string} text */
export function make(tag, text) {
  const e = document.createElement(tag);
  e.textContent = text;
  return e;
}

/** A button on every pane `.clab-sec` that copies its lines as they stand. @param {HTMLElement} root */
export function copying(root) {
  const live = liveOf(root);
  for (const pane of all(root, ".clab-sec")) {
    const button = make("button", "Copy");
    button.setAttribute("type", "button");
    button.addEventListener("click", async () => {
      const lines = all(pane, "ol.clab-lines > li, pre").map((e) => e.textContent ?? "");
      live.textContent = (await copy(lines.join("\n"))) ? `Copied ${lines.length} lines` : "The browser did not allow copying";
    });
    const head = pane.querySelector(".clab-h4");
    head ? head.append(button) : pane.querySelector("summary")?.after(button);
  }
}

/** @param {string} text @returns {Promise<boolean>} */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
