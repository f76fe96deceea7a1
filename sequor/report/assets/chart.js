// Curves with bands, areas and heatmaps, as SVG and canvas. A chart is looked at with a pointer or with the arrow keys.
"use strict";

const charts = (() => {
  const { h, percent } = sequor;
  const H = 360, LEFT = 40, RIGHT = 12, TOP = 10, BOTTOM = 38;

  /** Draws again whenever the width changes, so that text and lines keep their size. */
  function fitted(draw) {
    const box = h("div", { class: "chart" });
    let width = 0;
    new ResizeObserver(([entry]) => {
      const now = Math.round(entry.contentRect.width);
      if (now && now !== width) { width = now; draw(box, Math.max(240, now)); }
    }).observe(box);
    return box;
  }

  const ticks = (first, last, W) => {
    const span = last - first, step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((s) => span / s <= Math.min(12, W / 55)) || 1000;
    const found = [first];
    for (let at = Math.ceil((first + 0.6 * step) / step) * step; at <= last; at += step) if (at > first) found.push(at);
    return found;
  };

  /** series: [{label, colour, dash, value, low, high}]; first: number of the first step; opens(series, step) on click or
   * Enter. Under the pointer, or by the arrow keys, one step and the line nearest to it are told in full. */
  function lines({ series, first = 1, xlabel = "turn", title, opens, stepped = false, height = H }) {
    const steps = Math.max(...series.map((s) => s.value.length), 1), last = first + steps - 1;
    const hidden = new Set(), now = { at: null, which: null, mark() {}, focus() {} };
    const shown = () => series.map((_, n) => n).filter((n) => !hidden.has(n) && typeof series[n].value[now.at - first] === "number")
      .sort((a, b) => series[b].value[now.at - first] - series[a].value[now.at - first]);

    const box = fitted((box, W) => {
      const X = (at) => LEFT + (steps > 1 ? ((at - first) / (last - first)) * (W - LEFT - RIGHT) : (W - LEFT - RIGHT) / 2);
      const Y = (share) => TOP + (1 - share) * (height - TOP - BOTTOM);
      const svg = frame(W, height, X, Y, { first, last, xlabel, opens, label: `${title}. Arrow keys move over ${xlabel} and line${opens ? ", Enter opens what failed there" : ""}.` });
      const groups = series.map((s) => h("svg:g", { class: s.faint ? "faint" : null, style: { "--c": s.colour } },
        bands(s, first, X, Y).map((d) => h("svg:path", { class: "band", d })),
        h("svg:path", { class: "series", d: path(s.value, first, X, Y, stepped), "stroke-dasharray": s.dash || null })));
      const cursor = h("svg:line", { class: "cursor", y1: TOP, y2: height - BOTTOM }), point = h("svg:circle", { class: "point", r: 5.5 });
      const tip = h("div", { class: "tip", role: "status" });
      svg.append(...groups, cursor, point);
      box.replaceChildren(svg, tip);
      box.classList.toggle("opens", Boolean(opens));

      now.focus = (n) => groups.forEach((group, m) => group.classList.toggle("dim", hidden.has(m) || (n !== null && n !== m)));
      now.mark = () => {
        const { at, which } = now, share = at === null || which === null ? null : series[which].value[at - first];
        cursor.setAttribute("visibility", at === null ? "hidden" : "visible");
        point.setAttribute("visibility", typeof share === "number" ? "visible" : "hidden");
        tip.hidden = at === null;
        now.focus(series.length > 1 ? which : null);
        if (at === null) return;
        cursor.setAttribute("x1", X(at)); cursor.setAttribute("x2", X(at));
        if (typeof share === "number") { point.setAttribute("cx", X(at)); point.setAttribute("cy", Y(share)); point.style.setProperty("--c", series[which].colour); }
        tip.replaceChildren(...told(series, shown(), at - first, which, `${xlabel} ${at}`, opens));
        beside(tip, X(at), W);
      };
      const nearest = (event) => {
        const area = svg.getBoundingClientRect(), x = event.clientX - area.left, y = event.clientY - area.top;
        now.at = Math.min(last, Math.max(first, Math.round(first + ((x - LEFT) / (W - LEFT - RIGHT)) * (last - first)) || first));
        const far = (n) => Math.abs(Y(series[n].value[now.at - first]) - y);
        now.which = shown().reduce((best, n) => (far(n) < 60 && (best === null || far(n) < far(best)) ? n : best), null);
        now.mark();
      };
      const leave = () => { now.at = now.which = null; now.mark(); };
      svg.addEventListener("pointermove", nearest);
      svg.addEventListener("pointerleave", leave);
      svg.addEventListener("blur", leave);
      if (opens) svg.addEventListener("click", (event) => { nearest(event); if (now.which !== null) opens(series[now.which], now.at); });
      svg.addEventListener("keydown", (event) => {
        const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-steps, 0], End: [steps, 0] }[event.key];
        if (move) {
          event.preventDefault(); event.stopPropagation();
          now.at = now.at === null ? first : Math.min(last, Math.max(first, now.at + move[0]));
          const order = shown(), place = Math.max(0, order.indexOf(now.which)) + (now.which === null ? 0 : move[1]);
          now.which = order.length ? order[Math.min(order.length - 1, Math.max(0, place))] : null;
          now.mark();
        } else if (event.key === "Enter" && opens && now.at !== null && now.which !== null) { event.preventDefault(); opens(series[now.which], now.at); }
        else if (event.key === "Escape") leave();
      });
      now.mark();
    });
    const toggle = (n) => (event) => { if (!hidden.delete(n)) hidden.add(n); event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(n))); now.focus(null); };
    const legend = series.length > 1 ? h("div", { class: "legend", role: "group", "aria-label": "Lines shown" }, series.map((s, n) => h("button", { type: "button", "aria-pressed": "true", onclick: toggle(n), onpointerenter: () => now.focus(n), onpointerleave: () => now.focus(null) },
      h("span", { class: "dot", style: { "--c": s.colour } }), s.label))) : null;
    return h("div", {}, legend, box);
  }

  /** Grid, scales and their names. */
  function frame(W, height, X, Y, { first, last, xlabel, opens, label, shares = [0, 0.2, 0.4, 0.6, 0.8, 1], look = { role: "application", tabindex: 0 } }) {
    const svg = h("svg:svg", { viewBox: `0 0 ${W} ${height}`, width: W, height, ...look, "aria-label": label });
    for (const share of shares) {
      svg.append(h("svg:line", { class: "gridline", x1: LEFT, x2: W - RIGHT, y1: Y(share), y2: Y(share) }));
      svg.append(h("svg:text", { x: LEFT - 7, y: Y(share) + 4, "text-anchor": "end" }, Math.round(100 * share)));
    }
    for (const at of ticks(first, last, W)) svg.append(h("svg:text", { x: X(at), y: height - BOTTOM + 18, "text-anchor": "middle" }, at));
    svg.append(h("svg:text", { x: (LEFT + W - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, xlabel));
    return svg;
  }

  function told(series, order, step, which, head, opens) {
    const bounds = (s) => (s.low && typeof s.low[step] === "number" ? `${percent(s.low[step], 0)}–${percent(s.high[step], 0)}` : "");
    return [h("b", {}, head), h("table", {}, order.map((n) => h("tr", { class: n === which ? "on" : null },
      h("td", {}, h("span", { class: "dot", style: { "--c": series[n].colour } }), series[n].label), h("td", { class: "right" }, percent(series[n].value[step])), h("td", { class: "quiet number" }, bounds(series[n]))))),
      ...(opens && which !== null ? [h("div", { class: "quiet small" }, "click: what failed here")] : [])];
  }

  function beside(tip, x, W) {
    const right = x < 0.55 * W;
    tip.style.left = right ? `${x + 14}px` : "auto";
    tip.style.right = right ? "auto" : `${W - x + 14}px`;
    tip.style.top = "6px";
  }

  /** A value without neighbours is a small ring. */
  function path(values, first, X, Y, stepped) {
    let d = "", pen = false, before = null;
    values.forEach((share, n) => {
      if (typeof share !== "number") { pen = false; return; }
      if (pen && stepped) d += `H${X(first + n).toFixed(1)}`;
      d += `${pen ? "L" : "M"}${X(first + n).toFixed(1)} ${Y(share).toFixed(1)}`;
      if (!pen && typeof values[n + 1] !== "number") d += "m-1.5 0a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0";
      pen = true; before = n;
    });
    return before === null ? "" : d;
  }

  function bands(s, first, X, Y) {
    if (!s.low) return [];
    const found = [];
    let run = [];
    const close = () => { if (run.length) found.push("M" + run.map((n) => `${X(first + n).toFixed(1)} ${Y(s.high[n]).toFixed(1)}`).join("L") + "L" + run.slice().reverse().map((n) => `${X(first + n).toFixed(1)} ${Y(s.low[n]).toFixed(1)}`).join("L") + "Z"); run = []; };
    s.value.forEach((_, n) => { if (typeof s.low[n] === "number" && typeof s.high[n] === "number") run.push(n); else close(); });
    close();
    return found;
  }

  /** layers: [{label, colour, counts}], stacked to 100%. */
  function areas({ layers, xlabel = "turn", title, height = 300 }) {
    const steps = layers[0].counts.length, total = layers[0].counts.map((_, n) => layers.reduce((sum, layer) => sum + layer.counts[n], 0) || 1);
    const box = fitted((box, W) => {
      const X = (at) => LEFT + (steps > 1 ? ((at - 1) / (steps - 1)) * (W - LEFT - RIGHT) : (W - LEFT - RIGHT) / 2), Y = (share) => TOP + (1 - share) * (height - TOP - BOTTOM);
      const svg = frame(W, height, X, Y, { first: 1, last: steps, xlabel, label: title, shares: [0, 0.5, 1], look: { role: "img" } });
      let under = new Array(steps).fill(0);
      const edge = (shares) => shares.map((share, n) => `${X(n + 1).toFixed(1)} ${Y(share).toFixed(1)}`);
      for (const layer of layers) {
        const over = under.map((share, n) => share + layer.counts[n] / total[n]);
        svg.append(h("svg:path", { d: `M${edge(over).join("L")}L${edge(under).reverse().join("L")}Z`, fill: layer.colour }));
        under = over;
      }
      const tip = h("div", { class: "tip", hidden: true });
      svg.addEventListener("pointermove", (event) => {
        const n = Math.min(steps - 1, Math.max(0, Math.round(((event.clientX - svg.getBoundingClientRect().left - LEFT) / (W - LEFT - RIGHT)) * (steps - 1)) || 0));
        tip.replaceChildren(h("b", {}, `${xlabel} ${n + 1}`), h("table", {}, layers.map((layer) => h("tr", {}, h("td", {}, h("span", { class: "swatch", style: { "--c": layer.colour } }), layer.label), h("td", { class: "right" }, percent(layer.counts[n] / total[n]))))));
        tip.hidden = false;
        beside(tip, X(n + 1), W);
      });
      svg.addEventListener("pointerleave", () => { tip.hidden = true; });
      box.replaceChildren(svg, tip);
    });
    return h("div", {}, h("div", { class: "legend" }, layers.map((layer) => h("span", { class: "plain" }, h("span", { class: "swatch", style: { "--c": layer.colour } }), layer.label))), box);
  }

  /** Colour of a share, as in the printed heatmaps, and the ink that is read on it. */
  function shade(share) {
    const stops = sequor.summary.sequence;
    if (typeof share !== "number") return ["#d9d9d9", "#333"];
    const at = share * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at)), part = at - low;
    const rgb = (hex) => [1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16));
    const [a, b] = [rgb(stops[low]), rgb(stops[low + 1])];
    return [`rgb(${a.map((from, n) => Math.round(from + (b[n] - from) * part)).join(" ")})`, share > 0.55 ? "#fff" : "#16202b"];
  }

  /** rows: [{label, colour, value}]; opens(row, turn). */
  function heat({ rows, opens, title }) {
    const box = h("div", { class: "heat chart", role: "group", "aria-label": title, style: { "grid-template-columns": "max-content minmax(0, 1fr)" } });
    const tip = h("div", { class: "tip", hidden: true });
    for (const row of rows) {
      const canvas = h("canvas", { width: row.value.length, height: 1, "aria-label": `${row.label}, ${title}` });
      const paint = canvas.getContext("2d");
      row.value.forEach((share, n) => { paint.fillStyle = shade(share)[0]; paint.fillRect(n, 0, 1, 1); });
      const turn = (event) => Math.min(row.value.length, 1 + Math.floor((event.offsetX / canvas.clientWidth) * row.value.length));
      canvas.addEventListener("click", (event) => opens(row, turn(event)));
      canvas.addEventListener("pointermove", (event) => {
        const at = turn(event);
        tip.replaceChildren(h("b", {}, row.label), ` · turn ${at} · ${percent(row.value[at - 1])}%`);
        tip.hidden = false;
        tip.style.left = `min(${canvas.offsetLeft + event.offsetX + 12}px, calc(100% - 15rem))`; tip.style.top = `${canvas.offsetTop + 26}px`;
      });
      canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
      box.append(h("div", { class: "name" }, h("span", { class: "dot", style: { "--c": row.colour } }), row.label), canvas);
    }
    box.append(tip);
    return box;
  }

  const ramp = () => h("span", { class: "quiet small" }, "0%", h("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${sequor.summary.sequence.join(",")})` } }), "100%");

  /** One letter a turn as a strip of cells. */
  function strip(letters, marks) {
    const canvas = h("canvas", { class: "strip", width: letters.length * 6, height: 16, "aria-hidden": "true" });
    const paint = canvas.getContext("2d");
    const tones = { p: sequor.colour("--cell-pass"), f: sequor.colour("--cell-fail"), u: sequor.colour("--cell-none") };
    [...letters].forEach((letter, n) => {
      paint.fillStyle = tones[letter];
      const top = { p: 4, f: 0, u: 11 }[letter]; // told apart by height as well as by colour
      paint.fillRect(6 * n, top, 5, 16 - top);
      if (marks && marks.has(n)) { paint.fillStyle = sequor.colour("--ink"); paint.fillRect(6 * n, 0, 5, 2); }
    });
    return canvas;
  }

  return { lines, areas, heat, shade, ramp, strip };
})();
