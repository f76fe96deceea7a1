// What every page needs: making elements, loading data, the address, the keys.
//
// 1. Text that a model, a judge or a user wrote goes to the page as textContent, by `h`, and by nothing else.
// 2. Data comes in scripts, for a page opened from disk may not fetch. Each calls sequor.put(key, data), once.
// 3. What is shown is the address: #/page?name=value. Going back works, and any view can be sent to somebody.
"use strict";

const sequor = (() => {
  const waiting = new Map(), pages = new Map(), sequences = new Map();
  const kept = new Map(); // the latest loaded, so that a long visit does not keep everything
  const KEPT = 40;
  let summary = null, here = null, prefix = "";

  function h(tag, attributes, ...children) {
    const element = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(3)) if (child !== null && child !== undefined) element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    return element;
  }

  function load(key, path) {
    if (kept.has(key)) { const found = kept.get(key); kept.delete(key); kept.set(key, found); return Promise.resolve(found); }
    if (waiting.has(key)) return waiting.get(key).promise;
    const entry = {};
    entry.promise = new Promise((resolve, reject) => { entry.resolve = resolve; entry.reject = reject; });
    waiting.set(key, entry);
    const script = h("script", { src: path });
    const lost = () => { waiting.delete(key); script.remove(); entry.reject(new Error(`${path} is not there, or is no data file of this report`)); };
    script.addEventListener("error", lost);
    script.addEventListener("load", () => { script.remove(); if (waiting.has(key)) lost(); });
    document.head.append(script);
    return entry.promise;
  }

  function put(key, data) {
    const entry = waiting.get(key);
    if (!entry) return;
    waiting.delete(key);
    kept.set(key, data);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    entry.resolve(data);
  }

  const address = (page, values = {}) => {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(values)) if (value !== null && value !== undefined && value !== "") query.set(name, value);
    return `#/${page}${[...query].length ? "?" + query : ""}`;
  };
  const go = (page, values) => { location.hash = address(page, values); };
  /** The same view with other values, without a new entry in the history. */
  const refine = (page, values) => history.replaceState(null, "", address(page, values));

  async function show() {
    const [path, query] = (location.hash.replace(/^#\/?/, "") || "summary").split("?");
    if (location.hash === "#main") return;
    const name = pages.has(path) ? path : "summary", values = Object.fromEntries(new URLSearchParams(query || ""));
    const main = document.getElementById("main");
    for (const link of document.querySelectorAll("#nav a")) {
      const active = link.getAttribute("href") === `#/${name === "transcript" ? "browse" : name}`;
      if (active) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    const before = here;
    here = { name, values, keys: {} };
    const mine = here;
    try {
      const made = await pages.get(name)(values, mine, before);
      if (mine !== here || made === null) return;
      main.replaceChildren(...[made].flat(2).filter((part) => part !== null && part !== undefined));
      if (before && before.name !== name) { window.scrollTo(0, 0); main.focus({ preventScroll: true }); }
      if (mine.shown) mine.shown();
    } catch (error) {
      if (mine === here) main.replaceChildren(h("h1", {}, "This cannot be shown"), h("p", {}, error.message), h("p", {}, h("a", { href: "#/summary" }, "Back to the summary")));
      if (!/not there|no such/.test(error.message)) throw error;
    }
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || document.getElementById("keys").open) return;
    const pressed = prefix + event.key;
    prefix = event.key === "g" && !prefix ? "g" : "";
    const action = (here && here.keys[pressed]) || sequences.get(pressed);
    if (action) { event.preventDefault(); action(event); }
  }

  function theme(next) {
    const root = document.documentElement, order = ["", "light", "dark"];
    const to = next !== undefined ? next : order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
    if (to) root.dataset.theme = to; else delete root.dataset.theme;
    document.getElementById("theme").textContent = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" }[to];
    try { localStorage.setItem("sequor-theme", to); } catch { /* storage may be off; the choice then lasts as long as the page */ }
    document.dispatchEvent(new Event("themed"));
  }

  const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : (100 * share).toFixed(digits));
  const points = (share) => (share === null ? "–" : (share > 0 ? "+" : share < 0 ? "−" : "") + Math.abs(100 * share).toFixed(1));
  const range = (found, shown = percent) => (found && found[0] !== null ? `${shown(found[0])} [${shown(found[1])}, ${shown(found[2])}]` : "–");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  return {
    h, load, put, address, go, refine, show, key, theme, percent, points, range, colour,
    page: (name, make) => pages.set(name, make),
    sequence: (keys, action) => sequences.set(keys, action),
    get summary() { return summary; },
    set summary(data) { summary = data; },
    get here() { return here; },
  };
})();
