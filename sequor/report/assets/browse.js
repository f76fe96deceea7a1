// Choosing a dialogue: a strip of turns for each, filtered by what happened in it.
"use strict";

(() => {
  const { h, load, address, refine } = sequor;

  const SHOW = [["", "all dialogues"], ["failed", "with a failed turn"], ["passed", "without a failed turn"], ["unreadable", "with an unreadable verdict"], ["unanswered", "with a turn without an answer"]];
  const SORT = [["", "by name"], ["first", "first failure first"], ["most", "most failures first"], ["late", "first failure last"]];

  const collator = new Intl.Collator("en", { numeric: true });
  const modelOf = (key) => sequor.summary.models.find((m) => m.key === key) || sequor.summary.models[0];

  async function indexOf(model, set) {
    const at = model.sets.indexOf(set);
    if (at < 0) throw new Error(`There is no such test set in this run: ${set}`);
    return { at, index: await load(`${model.key}/${at}`, `data/${model.key}/${at}/index.js`) };
  }

  /** Positions of the dialogues that the values ask for, in the order asked for. */
  function chosen(index, values) {
    const judge = judgeOf(index, values), turn = Number(values.turn) || 0, rule = values.rule ? index.constraints.findIndex((c) => c.id === values.rule) : -1;
    const text = (values.text || "").toLowerCase(), kept = [];
    index.ids.forEach((id, row) => {
      const results = judge ? judge.results[row] : "u".repeat(index.turns), marks = judge ? judge.marks[row] : [];
      if (text && !id.toLowerCase().includes(text)) return;
      const mine = values.rule ? marks.filter(([c]) => c === rule) : marks;
      if (values.rule && !mine.length) return;
      const looked = turn ? [turn - 1] : [...results].map((_, n) => n);
      const failed = (n) => (values.rule ? mine.some(([, m]) => m[n] === "v") : results[n] === "f");
      const show = values.show || "";
      if (show === "failed" && !looked.some(failed)) return;
      if (show === "passed" && (values.rule ? looked.some(failed) : looked.some((n) => results[n] === "f"))) return;
      if (show === "unreadable" && !looked.some((n) => mine.some(([, m]) => m[n] === "u"))) return;
      if (show === "unanswered" && !looked.some((n) => !"12".includes(index.status[row][n]))) return;
      if (values.rule && turn && !mine.some(([, m]) => m[turn - 1] !== ".")) return;
      kept.push(row);
    });
    kept.sort((a, b) => collator.compare(index.ids[a], index.ids[b]));
    const place = new Map(kept.map((row, at) => [row, at]));
    const first = (row) => { const at = judge ? judge.results[row].indexOf("f") : -1; return at < 0 ? Infinity : at; };
    const count = (row) => (judge ? [...judge.results[row]].filter((r) => r === "f").length : 0);
    if (values.sort === "first") kept.sort((a, b) => first(a) - first(b) || place.get(a) - place.get(b));
    if (values.sort === "late") kept.sort((a, b) => first(b) - first(a) || place.get(a) - place.get(b));
    if (values.sort === "most") kept.sort((a, b) => count(b) - count(a) || place.get(a) - place.get(b));
    return kept;
  }

  const judgeOf = (index, values) => index.judges.find((j) => j.judge === values.judge) || index.judges.find((j) => j.judge === modelOf(values.run).judge) || index.judges[0];

  sequor.page("browse", async (values, here) => {
    const data = sequor.summary, model = modelOf(values.run), set = model.sets.includes(values.set) ? values.set : model.sets[0];
    const { index } = await indexOf(model, set);
    const asked = { ...values, run: model.key, set };
    const list = h("ol", { class: "list", start: 1 }), said = h("p", { class: "quiet", role: "status" });
    const titleOf = (name) => (data.sets.find((s) => s.name === name) || { title: name }).title;
    const change = (name, value) => { if (value === "") delete asked[name]; else asked[name] = value; refine("browse", asked); fill(); };
    const anew = (name, value) => sequor.go("browse", { ...asked, [name]: value });
    const select = (label, name, options, value, act = change) => h("label", {}, label, h("select", { name, onchange: (event) => act(name, event.currentTarget.value) }, options.map(([id, text]) => h("option", { value: id, selected: id === (value || "") }, text))));

    function fill() {
      const rows = chosen(index, asked), judge = judgeOf(index, asked);
      said.textContent = `${rows.length} of ${index.ids.length} dialogues${asked.turn ? `, looked at turn ${asked.turn}` : ""}`;
      list.replaceChildren(...rows.map((row) => {
        const results = judge ? judge.results[row] : "u".repeat(index.turns);
        const first = results.indexOf("f"), failures = [...results].filter((r) => r === "f").length;
        const turn = asked.turn || (asked.rule ? (1 + firstOf(judge, index, row, asked.rule)) || "" : first >= 0 ? first + 1 : "");
        const what = failures ? `${failures} failed, first at ${first + 1}` : results.includes("p") ? "no failure" : "undecided";
        return h("li", {}, h("a", { href: address("transcript", { ...asked, dialogue: index.ids[row], turn }) }, h("span", { class: "id", title: index.ids[row] }, index.ids[row]),
          charts.strip(results, asked.rule ? marked(judge, index, row, asked.rule) : null), h("span", { class: "said" }, what)));
      }));
    }
    const links = () => [...list.querySelectorAll("a")];
    const step = (by) => { const all = links(), at = all.indexOf(document.activeElement); const next = all[Math.min(all.length - 1, Math.max(0, at + by))]; if (next) next.focus(); };
    Object.assign(here.keys, { j: () => step(1), k: () => step(-1), "/": () => document.querySelector("input[name=text]").focus() });
    fill();
    const used = index.constraints.map((c) => [c.id, short(c.text)]).sort((a, b) => a[1].localeCompare(b[1]));
    return [h("h1", {}, "Transcripts"), h("div", { class: "controls" },
      select("Model", "run", data.models.map((m) => [m.key, m.label]), model.key, anew),
      select("Test set", "set", model.sets.map((name) => [name, titleOf(name)]), set, anew),
      index.judges.length > 1 ? select("Judge", "judge", index.judges.map((j) => [j.judge, j.judge]), (judgeOf(index, asked) || {}).judge) : null,
      select("Show", "show", SHOW, asked.show),
      h("label", {}, "At turn", h("input", { type: "number", name: "turn", min: 1, max: index.turns, placeholder: "any", value: asked.turn || null, style: { width: "5.5rem" }, oninput: (event) => change("turn", event.currentTarget.value) })),
      h("label", { style: { "max-width": "22rem" } }, "Constraint", h("select", { name: "rule", onchange: (event) => change("rule", event.currentTarget.value) }, h("option", { value: "" }, "any"), used.map(([id, text]) => h("option", { value: id, selected: id === asked.rule }, text)))),
      select("Order", "sort", SORT, asked.sort),
      h("label", {}, "Name", h("input", { type: "search", name: "text", placeholder: "part of it", value: asked.text || null, style: { width: "9rem" }, oninput: (event) => change("text", event.currentTarget.value) }))),
      h("div", { class: "key" }, [["p", "passed"], ["f", "failed"], ["u", "undecided"]].map(([letter, text]) => h("span", {}, h("span", { style: { display: "inline-block", width: "1.2em", "margin-right": ".4em", "vertical-align": "-3px" } }, charts.strip(letter)), text)), asked.rule ? h("span", {}, "bar above: the chosen constraint is in force") : null),
      said, list];
  });

  const firstOf = (judge, index, row, id) => { const c = index.constraints.findIndex((x) => x.id === id), mine = judge && judge.marks[row].find(([at]) => at === c); return mine ? Math.max(mine[1].indexOf("v"), mine[1].indexOf("v") < 0 ? mine[1].search(/[^.]/) : -1) : -1; };
  const marked = (judge, index, row, id) => { const c = index.constraints.findIndex((x) => x.id === id), mine = judge && judge.marks[row].find(([at]) => at === c); return new Set(mine ? [...mine[1]].flatMap((m, n) => (m === "." ? [] : [n])) : []); };
  const short = (text) => { const line = text.replace(/\s+/g, " ").trim(); return line.length > 70 ? line.slice(0, 69) + "…" : line; };

  sequor.browse = { modelOf, indexOf, chosen, judgeOf, short };
})();
