// One dialogue, turn by turn: what was said, what was in force, what each judge found, in his own words.
"use strict";

(() => {
  const { h, load, address, refine } = sequor;
  const LONG = 4000; // characters beyond which an answer is folded; all of it is in the page
  const RESULT = { p: "passed", f: "failed", u: "undecided" };
  const SIGN = { satisfied: "✓", violated: "✗", unreadable: "?", judge_error: "!" };
  const TURNS = [["", "all turns"], ["failed", "failed turns"], ["unreadable", "turns with an unreadable verdict"], ["changes", "turns that give constraints"]];

  sequor.page("transcript", async (values, here) => {
    const model = sequor.browse.modelOf(values.run), { at, index } = await sequor.browse.indexOf(model, values.set);
    const row = index.ids.indexOf(values.dialogue);
    if (row < 0) throw new Error(`There is no such dialogue in this report: ${values.dialogue}`);
    const found = await load(`${model.key}/${at}/${row}`, `data/${model.key}/${at}/${row}.js`);
    const judge = sequor.browse.judgeOf(index, values), results = judge ? judge.results[row] : "u".repeat(index.turns);
    const order = sequor.browse.chosen(index, values), place = order.indexOf(row);
    const state = { ...values };
    let current = Math.min(index.turns, Math.max(1, Number(values.turn) || 1)), unfolded = false;

    const turns = found.turns.map((turn, n) => article(turn, n, results[n], model, index, found, state));
    const bar = h("nav", { class: "turnbar", "aria-label": "Turns" }, found.turns.map((_, n) => h("a", { class: results[n], href: address("transcript", { ...state, turn: n + 1 }), title: `turn ${n + 1}: ${RESULT[results[n]]}`, onclick: (event) => { event.preventDefault(); move(n + 1); } }, n + 1)));
    const visible = (n) => !turns[n - 1].hidden;

    function move(turn, quiet) {
      current = turn;
      turns.forEach((element, n) => element.classList.toggle("at", n + 1 === turn));
      [...bar.children].forEach((link, n) => { if (n + 1 === turn) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current"); });
      state.turn = String(turn);
      refine("transcript", state);
      if (!quiet) turns[turn - 1].scrollIntoView({ block: "start" });
    }
    const step = (by, wanted = () => true) => { for (let n = current + by; n >= 1 && n <= turns.length; n += by) if (visible(n) && wanted(n)) { move(n); return; } };
    const open = (by) => { const next = place < 0 ? null : order[place + by]; if (next !== undefined && next !== null) sequor.go("transcript", { ...without(state, "turn"), dialogue: index.ids[next] }); };
    const list = address("browse", { ...without(state, "dialogue"), turn: values.show === "failed" ? values.turn : "" });
    function filter() {
      const rule = state.rule ? index.constraints.findIndex((c) => c.id === state.rule) : -1;
      found.turns.forEach((turn, n) => {
        const unreadable = turn.rules.some((r) => r.verdicts.some((v) => v.status === "unreadable" || v.status === "judge_error"));
        const broken = rule >= 0 ? turn.rules.some((r) => r.id === state.rule && r.verdicts.some((v) => v.status === "violated")) : results[n] === "f";
        const keep = { "": true, failed: broken, unreadable, changes: changes(found.turns, n) }[state.only || ""] && (rule < 0 || turn.rules.some((r) => r.id === state.rule));
        turns[n].hidden = !keep;
        bar.children[n].classList.toggle("hidden", !keep);
      });
      const shown = turns.filter((t) => !t.hidden).length;
      said.textContent = shown === turns.length ? "" : `${shown} of ${turns.length} turns are shown`;
    }
    const said = h("p", { class: "quiet", role: "status" });
    const pick = (name) => (event) => { if (event.currentTarget.value) state[name] = event.currentTarget.value; else delete state[name]; refine("transcript", state); filter(); };
    Object.assign(here.keys, {
      j: () => step(1), k: () => step(-1), n: () => step(1, (n) => results[n - 1] === "f"), p: () => step(-1, (n) => results[n - 1] === "f"),
      "]": () => open(1), "[": () => open(-1), u: () => { location.hash = list; }, Escape: () => { location.hash = list; },
      r: () => { unfolded = !unfolded; for (const d of document.querySelectorAll(".turn details")) d.open = unfolded; setTimeout(() => turns[current - 1].scrollIntoView({ block: "start" }), 60); },
    });
    here.shown = () => { filter(); if (values.turn) move(current); else { move(current, true); window.scrollTo(0, 0); } };
    const rules = index.constraints.filter((c) => found.turns.some((t) => t.rules.some((r) => r.id === c.id)));
    const failures = [...results].filter((r) => r === "f").length;
    const title = (sequor.summary.sets.find((s) => s.name === values.set) || { title: values.set }).title;
    return [h("p", { class: "screen" }, h("a", { href: list }, "← all dialogues")),
      h("h1", { style: { "overflow-wrap": "anywhere" } }, found.id),
      h("p", { class: "quiet" }, h("span", { class: "dot", style: { "--c": model.colour } }), `${model.label} · ${title} · ${failures ? `${failures} of ${index.turns} turns failed, the first at turn ${results.indexOf("f") + 1}` : results.includes("p") ? "no failed turn" : "nothing decided"}${judge ? ` · judged by ${judge.judge}` : ""}`),
      h("div", { class: "controls" },
        h("button", { type: "button", disabled: place <= 0, onclick: () => open(-1) }, "‹ previous"), h("button", { type: "button", disabled: place < 0 || place >= order.length - 1, onclick: () => open(1) }, "next ›"),
        h("label", {}, "Turns", h("select", { name: "only", onchange: pick("only") }, TURNS.map(([id, text]) => h("option", { value: id, selected: id === (state.only || "") }, text)))),
        h("label", { style: { "max-width": "26rem" } }, "Constraint", h("select", { name: "rule", onchange: pick("rule") }, h("option", { value: "" }, "any"), rules.map((c) => h("option", { value: c.id, selected: c.id === state.rule }, sequor.browse.short(c.text))))),
        index.judges.length > 1 ? h("label", {}, "Judge", h("select", { onchange: (event) => sequor.go("transcript", { ...state, judge: event.currentTarget.value }) }, index.judges.map((j) => h("option", { value: j.judge, selected: j === judge }, j.judge)))) : null),
      bar, said, ...turns];
  });

  const without = (values, name) => { const rest = { ...values }; delete rest[name]; return rest; };
  const changes = (turns, n) => n === 0 || turns[n].rules.map((r) => r.id).join("\n") !== turns[n - 1].rules.map((r) => r.id).join("\n");

  function article(turn, n, result, model, index, found, state) {
    const given = (id) => { let from = n; while (from > 0 && found.turns[from - 1].rules.some((r) => r.id === id)) from--; return from + 1; };
    return h("article", { class: "turn", id: `turn-${n + 1}`, "aria-label": `Turn ${n + 1}, ${RESULT[result]}` },
      h("header", {}, h("a", { href: address("transcript", { ...state, turn: n + 1 }), title: "Link to this turn" }, `Turn ${n + 1}`), h("span", { class: `badge ${result}` }, RESULT[result]),
        turn.status !== "ok" ? h("span", { class: "badge" }, turn.status.replaceAll("_", " ")) : null,
        turn.dropped ? h("span", { class: "badge", title: "The sliding window left the earliest turns out of this prompt" }, `first ${turn.dropped} turn${turn.dropped > 1 ? "s" : ""} out of context`) : null,
        turn.tokens ? h("span", { class: "quiet small number" }, `${turn.tokens[0].toLocaleString("en")} tokens in, ${turn.tokens[2].toLocaleString("en")} out`) : null),
      h("div", {}, user(turn.user), answer(turn)),
      h("div", {}, h("div", { class: "who" }, turn.rules.length === 1 ? "in force" : `${turn.rules.length} in force`),
        turn.rules.map((r) => rule(r, given(r.id), n + 1, turn.dropped, index)),
        turn.task ? h("div", { class: "rule" }, h("div", { class: "what" }, "Does the answer do the task?"), turn.task.map((v) => verdict(v, index))) : null));
  }

  function user(text) {
    const cut = text.indexOf("\n\n\n");
    return h("div", { class: "bubble user" }, h("div", { class: "who" }, "user"), cut > 0 ? [h("div", { class: "say intro", dir: "auto" }, text.slice(0, cut)), h("div", { class: "say", dir: "auto" }, text.slice(cut + 3))] : h("div", { class: "say", dir: "auto" }, text));
  }

  function answer(turn) {
    if (turn.status === "missing") return h("p", { class: "quiet" }, "This turn was not played yet.");
    return h("div", { class: "bubble answer" }, h("div", { class: "who" }, "answer"), turn.reasoning ? folded("reasoning", turn.reasoning) : null,
      turn.answer === null ? h("p", { class: "quiet" }, `No answer: ${turn.status.replaceAll("_", " ")}.`, turn.detail ? h("span", { class: "say" }, ` ${turn.detail}`) : null) : say(turn.answer));
  }

  function say(text) {
    const body = h("div", { class: `say${text.length > LONG ? " long" : ""}`, dir: "auto" }, text);
    if (text.length <= LONG) return body;
    const all = `Show all ${text.length.toLocaleString("en")} characters`;
    const toggle = (event) => { event.currentTarget.textContent = body.classList.toggle("long") ? all : "Show less"; };
    return [body, h("button", { type: "button", class: "more", onclick: toggle }, all)];
  }

  function rule(r, given, turn, dropped, index) {
    const bad = r.verdicts.some((v) => v.status === "violated");
    const since = turn === given ? "given here" : `given at turn ${given}`;
    return h("div", { class: `rule${bad ? " violated" : ""}` }, h("div", { class: "what", dir: "auto" }, r.text), h("div", { class: "quiet small" }, since, given <= (dropped || 0) ? ", out of context" : ""),
      r.verdicts.length ? r.verdicts.map((v) => verdict(v, index)) : h("div", { class: "quiet small" }, "no verdict"));
  }

  /** The verdict is the heading; unfolded, what the judge said and thought. */
  function verdict(v, index) {
    const name = index.judges[v.judge] ? index.judges[v.judge].judge : "judge";
    const head = [h("span", { class: `badge ${v.status}` }, `${SIGN[v.status] || "?"} ${v.status.replaceAll("_", " ")}`), h("span", { class: "quiet small" }, name)];
    const texts = [v.reply, v.detail, v.reasoning ? `Its reasoning:\n${v.reasoning}` : null].filter(Boolean);
    if (!texts.length) return h("div", { class: "verdict bare" }, head);
    const box = h("details", { class: "verdict" }, h("summary", { title: "The judge's words" }, head));
    box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) box.append(...texts.flatMap((text) => say(text))); });
    return box;
  }

  /** The text comes into the page when it is unfolded. */
  function folded(title, text) {
    const box = h("details", {}, h("summary", {}, title));
    box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) box.append(...[say(text)].flat()); });
    return box;
  }
})();
