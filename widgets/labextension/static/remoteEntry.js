// The door by which JupyterLab lets this extension in: a container of webpack's module federation, by hand. JupyterLab loads this file with a script
// element, calls init(scope) once, with the packages that it shares, and get(module) for each module that package.json names under "_build".
// scope: name -> version -> {get(): Promise<() => exports>, loaded?: 1, ...}. Nothing is bundled here: what is needed of JupyterLab is taken from there.
(() => {
  const here = /** @type {HTMLScriptElement} */ (document.currentScript).src;
  /** @type {Record<string, Record<string, {get: () => Promise<() => any>, loaded?: number | boolean}>>} */ let scope = {};

  /** The package that the page runs: all that this needs are singletons, so one that is loaded is the one. @param {string} name */
  async function shared(name) {
    const versions = Object.entries(scope[name] ?? {});
    if (!versions.length) throw new Error(`compiler-lab: this JupyterLab does not share ${name}`);
    const newest = versions.sort(([a], [b]) => b.localeCompare(a, "en", { numeric: true }))[0];
    return (await (versions.find(([, offer]) => offer.loaded) ?? newest)[1].get())();
  }

  /** @type {Record<string, () => Promise<any>>} */
  const modules = {
    "./extension": async () => (await import(new URL("extension.js", here).href)).load(shared),
    "./style": async () => {
      const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("style.css", here).href });
      document.head.append(link);
      return {};
    },
  };

  const page = /** @type {any} */ (window);
  page._JUPYTERLAB = page._JUPYTERLAB ?? {};
  page._JUPYTERLAB["compiler-lab"] = {
    /** @param {typeof scope} offered */
    init(offered) { scope = offered; },
    /** @param {string} name */
    async get(name) {
      if (!modules[name]) throw new Error(`compiler-lab has no module ${name}`);
      const made = await modules[name]();
      return () => made;
    },
  };
})();
