// The first page: who follows the rules how long. And the pages of printed figures and of tables.
"use strict";

(() => {
  const { h, address, go, percent, points, range } = sequor;

  const failedAt = (model, set, turn) => go("browse", { run: model.key, set, show: "failed", turn });

  sequor.page("summary", (values, here) => {
    const data = sequor.summary, judged = data.models.map((_, m) => m).filter((m) => data.cells[m].some(Boolean));
    const shown = data.sets.map((_, s) => s).filter((s) => judged.some((m) => data.cells[m][s]));
    const title = data.models.length === 1 ? `Does ${data.models[0].label} still follow the rules at turn ${data.turns}?` : `Who still follows the rules at turn ${data.turns}?`;
    const head = [h("h1", {}, title), h("p", { class: "quiet" }, describe(data)), notes(data)];
    if (!judged.length) return [...head, h("p", {}, "Nothing was judged yet. The ", h("a", { href: "#/browse" }, "transcripts"), " and the ", h("a", { href: "#/tables" }, "tables"), " of tokens and outcomes are there.")];
    let set = Math.max(0, data.sets.findIndex((s) => s.name === values.set));
    if (!shown.includes(set)) set = shown[0];
    let measure = values.measure === "survival" ? "survival" : "accuracy";
    const board = h("div", {}), curves = h("div", {}), heat = h("div", {}), lost = h("div", {});
    const only = { model: "" };

    const choose = (next) => { set = next; sequor.refine("summary", { set: data.sets[set].name, measure: measure === "accuracy" ? "" : measure }); draw(); };
    const tabs = () => h("div", { class: "tabs", role: "group", "aria-label": "Test set" }, shown.map((s) => h("button", { type: "button", "aria-pressed": String(s === set), onclick: () => choose(s) }, data.sets[s].title)));

    function draw() {
      const models = judged.filter((m) => data.cells[m][set]), name = data.sets[set].name;
      const series = models.map((m) => ({ ...pick(data.cells[m][set]), label: data.cells[m][set].label, faint: data.cells[m][set].faint, colour: data.models[m].colour, dash: data.models[m].dash, model: data.models[m] }));
      board.replaceChildren(leaders(data, judged, shown, set, choose));
      curves.replaceChildren(
        h("header", {}, h("h2", {}, measure === "accuracy" ? "Accuracy at each turn" : "Dialogues without a failure so far"), h("span", { class: "grow" }),
          h("div", { class: "tabs", role: "group", "aria-label": "What is shown" }, [["accuracy", "each turn"], ["survival", "until the first failure"]].map(([id, text]) => h("button", { type: "button", "aria-pressed": String(id === measure), onclick: () => { measure = id; choose(set); } }, text)))),
        tabs(),
        charts.lines({ series, title: `${data.sets[set].title}: ${measure} in percent`, stepped: measure === "survival", opens: (s, turn) => failedAt(s.model, name, turn) }),
        h("p", { class: "quiet small" }, `Bands: 95% bootstrap intervals over dialogues. A point opens the transcripts that fail at that turn.${series.some((s) => s.faint) ? " Faint: too little is decided to compare it." : ""}`));
      heat.replaceChildren(h("header", {}, h("h2", {}, `Every turn in ${data.sets[set].title}`), h("span", { class: "grow" }), charts.ramp()),
        charts.heat({ title: "accuracy per turn", rows: models.map((m) => ({ label: data.cells[m][set].label, colour: data.models[m].colour, value: data.cells[m][set].value, model: data.models[m] })), opens: (row, turn) => failedAt(row.model, name, turn) }));
      lost.replaceChildren(...losses(data, models, set, only, draw).filter(Boolean));
    }
    const pick = (cell) => (measure === "accuracy" ? { value: cell.value, low: cell.low, high: cell.high } : cell.survival);
    draw();
    const few = (curves, extra) => {
      const series = judged.filter((m) => curves[m]).map((m) => ({ ...curves[m], label: data.models[m].label, colour: data.models[m].colour, dash: data.models[m].dash }));
      return series.some((s) => s.value.some((share) => share !== null)) ? charts.lines({ series, height: 300, ...extra }) : h("p", { class: "quiet" }, "Too few verdicts for a curve.");
    };
    return [...head, h("section", { class: "card" }, board), h("section", { class: "card" }, curves), h("section", { class: "card" }, heat),
      h("div", { class: "pair" }, h("section", { class: "card" }, lost),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Turns since the constraint was given")), few(data.age, { first: 0, xlabel: "turns since", title: "Constraints satisfied, by turns since given" }), h("p", { class: "quiet small" }, "Single constraints satisfied, in percent, all test sets together.")),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, "Constraints in force")), few(data.count, { xlabel: "in force", title: "Turns passed, by constraints in force" }), h("p", { class: "quiet small" }, "Turns at which all are satisfied, in percent, all test sets together.")),
        h("section", { class: "card" }, h("header", {}, h("h2", {}, data.hardest.length ? "The hardest constraints" : "More")), hardest(data), more(data)))];
  });

  function describe(data) {
    const judges = [...new Set(data.models.map((m) => m.judge).filter(Boolean))];
    const counts = [...new Set(data.models.map((m) => m.dialogues))];
    return [`${data.models.length} model${data.models.length > 1 ? "s" : ""}`, `${data.sets.length} test set${data.sets.length > 1 ? "s" : ""}`, `${counts.map((n) => n.toLocaleString("en")).join(" or ")} dialogues a model`, `${data.turns} turns`, judges.length ? `judged by ${judges.join(", ")}` : "not judged"].join(" · ");
  }

  const notes = (data) => (data.notes.length ? h("aside", { class: "notes" }, h("b", {}, "Read this first"), h("ul", {}, data.notes.map((note) => h("li", {}, note)))) : null);

  function leaders(data, judged, shown, set, choose) {
    const ranked = judged.length > 1 && judged.some((m) => data.models[m].points);
    return h("div", { class: "scroll" }, h("table", { class: "leader" },
      h("thead", {}, h("tr", {}, h("th", {}, "model"), ranked ? h("th", { class: "right" }, "Borda") : null, shown.map((s) => h("th", { style: { "text-align": "center" } }, data.sets[s].title)), h("th", { class: "right" }, "coverage"))),
      h("tbody", {}, judged.map((m) => {
        const model = data.models[m], cells = data.cells[m].filter(Boolean);
        return h("tr", {}, h("td", {}, h("span", { class: "dot", style: { "--c": model.colour } }), h("b", {}, model.label), model.played < 1 ? [" ", h("span", { class: "badge", title: "an unfinished run" }, `${percent(model.played, 0)}% played`)] : null, model.ties.length ? h("span", { class: "sub" }, `ties with ${model.ties.join(", ")}`) : null),
          ranked ? h("td", { class: "right" }, model.points ? model.points[0] : "–", h("span", { class: "sub" }, model.points ? `${model.points[1]}–${model.points[2]}` : "")) : null,
          shown.map((s) => {
            const cell = data.cells[m][s];
            if (!cell) return h("td", { class: "share quiet", style: { "text-align": "center" } }, "–");
            const [fill, on] = charts.shade(cell.mean[0]);
            return h("td", { class: "share" }, h("button", { type: "button", "aria-pressed": String(s === set), style: { "--fill": fill, "--on": on }, onclick: () => choose(s),
              title: `${data.sets[s].title}: mean ${range(cell.mean)}, last minus first ${range(cell.drop, points)}, bounds ${percent(cell.bounds[0])} to ${percent(cell.bounds[1])}, ${cell.dialogues} dialogues` },
              percent(cell.mean[0]), h("span", { class: "visually-hidden" }, ` percent, ${data.sets[s].title}`)));
          }),
          h("td", { class: "right" }, percent(cells.reduce((sum, cell) => sum + cell.coverage, 0) / cells.length)));
      }))), h("p", { class: "quiet small" }, `Mean per-turn accuracy in percent; a cell chooses the test set below.${ranked ? ` Borda count over ${data.common.join(", ")}.` : ""}`));
  }

  function losses(data, models, set, only, draw) {
    const picked = models.includes(Number(only.model)) && only.model !== "" ? [Number(only.model)] : models;
    const layers = data.kinds.map(([, label, colour], k) => ({ label, colour, counts: data.cells[models[0]][set].kinds[0].map((_, turn) => picked.reduce((sum, m) => sum + data.cells[m][set].kinds[k][turn], 0)) }));
    return [h("header", {}, h("h2", {}, `How constraints are lost in ${data.sets[set].title}`)),
      models.length > 1 ? h("select", { "aria-label": "Model", onchange: (event) => { only.model = event.currentTarget.value; draw(); } }, h("option", { value: "" }, "all models"), models.map((m) => h("option", { value: m, selected: String(m) === only.model }, data.models[m].label))) : null,
      charts.areas({ layers, title: "Turns by outcome, stacked to 100 percent" })];
  }

  function hardest(data) {
    return data.hardest.length ? h("table", {}, h("tbody", {}, data.hardest.map((c) => h("tr", {}, h("td", { class: "text" }, h("a", { href: address("browse", { run: c.run, set: c.set, rule: c.id, show: "failed" }), title: "Where it fails" }, sequor.browse.short(c.text))), h("td", { class: "right", title: `satisfied, of ${c.verdicts} verdicts` }, percent(c.satisfied)))))) : null;
  }

  function more(data) {
    const link = (href, text, what) => h("p", {}, h("a", { href }, text), h("span", { class: "quiet small" }, ` ${what}`));
    return [link("#/figures", `${data.figures.length} figures`, "as PDF, PNG and CSV: the paper's, and what it does not show"),
      link("#/tables", `${data.tables.length} tables`, "as Markdown, CSV and LaTeX"),
      link("#/browse", "Transcripts", "every turn, every verdict, with the judge's words")];
  }

  sequor.page("figures", () => [h("h1", {}, "Figures"), h("p", { class: "quiet" }, "Each as PDF and PNG, with the numbers behind it."),
    h("div", { class: "gallery" }, sequor.summary.figures.map((f) => h("figure", {}, h("h3", {}, f.title), h("a", { class: "paper", href: `figures/${f.name}.png` }, h("img", { src: `figures/${f.name}.png`, alt: f.caption, loading: "lazy" })),
      h("figcaption", { class: "small" }, f.caption), h("div", { class: "small" }, ["pdf", "png", "csv"].map((ending) => [h("a", { href: `figures/${f.name}.${ending}` }, ending.toUpperCase()), " "])))))]);

  sequor.page("tables", (values, here) => {
    here.shown = () => { const at = values.table && document.getElementById(`table-${values.table}`); if (at) at.scrollIntoView(); };
    return [h("h1", {}, "Tables"), h("p", { class: "controls" }, sequor.summary.tables.map((t) => h("a", { href: address("tables", { table: t.name }) }, t.title))),
      sequor.summary.tables.map((t) => h("section", { class: "card", id: `table-${t.name}` }, h("header", {}, h("h2", {}, t.title), h("span", { class: "grow" }), h("span", { class: "small" }, [["md", "Markdown"], ["csv", "CSV"], ["tex", "LaTeX"]].map(([ending, text]) => [h("a", { href: `tables/${t.name}.${ending}` }, text), " "]))),
        h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, t.columns.map(([name, right]) => h("th", { class: right ? "right" : null }, name)))),
          h("tbody", {}, t.rows.map((row) => h("tr", {}, row.map((cell, n) => h("td", { class: t.columns[n][1] ? "right" : cell.length > 40 ? "text" : null }, cell))))))),
        t.note ? h("p", { class: "quiet small" }, t.note) : null))];
  });
})();
