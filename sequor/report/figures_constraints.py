"""Figures of what surrounds a constraint: how many are in force, its age, its kind, the window, how hard it is."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sequor.report import colours, groups, plot
from sequor.report.analysis import Analysis, Curve
from sequor.report.figure_parts import (
    Figure,
    dots,
    enough,
    group_rows,
    of_group,
    percent,
    three,
)
from sequor.report.groups import CATEGORIES

LISTED = 15
"""Constraints at each end of the ranking."""
FEWEST_DIALOGUES = 5
"""Dialogues below which a constraint is not drawn in the ranking: an interval over fewer says nothing."""


def by_count(analysis: Analysis) -> Figure:
    styles = colours.of_models(analysis.labels)
    most = max(int(f.slots.count.max(initial=1)) for m in analysis.judged for f in analysis.runs[m].sets.values())
    of_turns = {m: groups.of_turns_by_count(analysis, m, most) for m in analysis.judged}
    alone = {m: groups.of_constraints(analysis, m, "count", most + 1) for m in analysis.judged}
    steps = np.arange(1, most + 1)

    def draw() -> Any:
        figure, axes = plot.canvas(1, 2, width=6.8, height=3.5, sharey=True)
        for axis, title, found in ((axes[0, 0], "All are kept", of_turns), (axes[0, 1], "A single one is kept", alone)):
            for m, g in found.items():
                curve = enough(g)
                curve = curve if found is of_turns else Curve(curve.value[1:], curve.low[1:], curve.high[1:])
                plot.line(axis, steps, curve, styles[m], analysis.labels[m], marker=styles[m].marker)
            axis.set_title(title)
            axis.set_xticks(steps)
            axis.set_xlim(0.7, most + 0.3)
            axis.set_xlabel("constraints in force")
            plot.percent_axis(axis, "%" if axis is axes[0, 0] else "")
        plot.below(figure, axes[0, 0], 4)
        plot.plain(figure)
        return figure

    rows = []
    for m in analysis.judged:
        rows += group_rows(of_turns[m], [analysis.labels[m], "turns passed"], steps.tolist())
        rows += group_rows(alone[m], [analysis.labels[m], "constraints satisfied"], [0, *steps.tolist()])[1:]
    caption = (
        "Left: turns at which every constraint in force is satisfied. Right: constraints satisfied, each by "
        "itself, while so many are in force. All sets together."
    )
    return Figure(
        "more-04-constraints-in-force",
        "Number of constraints in force",
        caption,
        ["model", "rate", "in_force", "percent", "low", "high", "count"],
        rows,
        draw,
    )


def by_age(analysis: Analysis) -> Figure:
    styles = colours.of_models(analysis.labels)
    found = {m: groups.of_constraints(analysis, m, "age", analysis.turns) for m in analysis.judged}

    def draw() -> Any:
        figure, axes = plot.canvas(width=6.6, height=3.8)
        ends = []
        for m, g in found.items():
            curve = enough(g)
            plot.line(axes[0, 0], range(analysis.turns), curve, styles[m])
            known = np.flatnonzero(np.isfinite(curve.value))
            ends += [(100 * curve.value[known[-1]], analysis.labels[m], styles[m].colour)] if len(known) else []
        plot.turns_axis(axes[0, 0], analysis.turns, "turns since the constraint was given", first=0)
        plot.label_ends(axes[0, 0], analysis.turns - 1, ends)
        plot.percent_axis(axes[0, 0], "constraints satisfied, %")
        return figure

    rows = [
        row for m, g in found.items() for row in group_rows(g, [analysis.labels[m], "all"], list(range(analysis.turns)))
    ]
    for name in analysis.sets:
        for m in analysis.models_of(name):
            g = groups.of_constraints(analysis, m, "age", analysis.turns, name)
            rows += [row for row in group_rows(g, [analysis.labels[m], name], list(range(analysis.turns))) if row[-1]]
    caption = "Constraints satisfied, each by itself, by the turns since it was given; all sets together."
    return Figure(
        "more-05-turns-since-given",
        "Turns since a constraint was given",
        caption,
        ["model", "test_set", "turns_since", "percent", "low", "high", "count"],
        rows,
        draw,
    )


def by_category(analysis: Analysis, categories: Mapping[str, str]) -> Figure | None:
    styles = colours.of_models(analysis.labels)
    found = {m: groups.of_categories(analysis, m, categories) for m in analysis.judged}
    if not any(g.count.any() for g in found.values()):
        return None
    names = [name.replace("_", " ") for name in CATEGORIES]

    def draw() -> Any:
        values = [
            [(of_group(g, at), styles[m], analysis.labels[m]) for m, g in found.items()] for at in range(len(names))
        ]
        return dots(names, values, "constraints satisfied, %", scale=0.5)

    rows = [row for m, g in found.items() for row in group_rows(g, [analysis.labels[m]], list(CATEGORIES))]
    caption = "Constraints satisfied, each by itself, by category (paper, appendix C.1); 95% bootstrap intervals."
    return Figure(
        "more-06-category",
        "Kind of constraint",
        caption,
        ["model", "category", "percent", "low", "high", "count"],
        rows,
        draw,
    )


def by_window(analysis: Analysis) -> Figure | None:
    """In context against out of it; only models whose window dropped a constraint."""
    found = {m: groups.of_constraints(analysis, m, "window", 2) for m in analysis.judged}
    found = {m: g for m, g in found.items() if g.count[1]}
    if not found:
        return None
    alike = {m: groups.in_context_at_these_ages(analysis, m) for m in found}
    inside, outside, matched = colours.NEUTRAL[:3]

    def draw() -> Any:
        values = [
            [
                (of_group(g, 0), inside, "in context"),
                (alike[m], matched, "in context, at the same ages"),
                (of_group(g, 1), outside, "dropped"),
            ]
            for m, g in found.items()
        ]
        return dots([analysis.labels[m] for m in found], values, "constraints satisfied, %", scale=0.45)

    rows = [
        row for m, g in found.items() for row in group_rows(g, [analysis.labels[m]], ["in_context", "out_of_window"])
    ]
    rows += [[analysis.labels[m], "in_context_same_ages", *map(percent, three(e)), ""] for m, e in alike.items()]
    caption = (
        "Constraints satisfied while the turn that gave them was in the prompt, the same weighted to the ages of "
        "those that the sliding window had dropped, and after it had dropped them."
    )
    return Figure(
        "more-07-window",
        "What the window dropped",
        caption,
        ["model", "constraint", "percent", "low", "high", "count"],
        rows,
        draw,
    )


def difficulty(analysis: Analysis, categories: Mapping[str, str]) -> Figure | None:
    ranked = groups.hardness(analysis, categories)
    sure = [row for row in ranked if row.dialogues >= FEWEST_DIALOGUES]
    if not sure:
        return None
    shown = sure if len(sure) <= 2 * LISTED else [*sure[:LISTED], *sure[-LISTED:]]

    def draw() -> Any:
        figure, axes = plot.canvas(width=7.4, height=0.9 + 0.19 * len(shown))
        axis = axes[0, 0]
        for at, row in enumerate(shown):
            y = at + (1 if len(shown) < len(sure) and at >= LISTED else 0)
            plot.dot(axis, y, row.satisfied, row.low, row.high, colours.NEUTRAL[1 if at < len(shown) / 2 else 0])
        gap = 1 if len(shown) < len(sure) else 0
        places = [at + (gap if at >= LISTED else 0) for at in range(len(shown))]
        axis.set_yticks(places, [_short(row.text) for row in shown], fontsize=6.5)
        axis.set_ylim(places[-1] + 0.6, -0.6)
        axis.set_xlim(-2, 102)
        axis.set_xlabel("satisfied, % of readable verdicts")
        plot.plain(axis)
        return figure

    rows = [
        [h.id, h.text, h.category or "", h.dialogues, h.verdicts, *map(percent, (h.satisfied, h.low, h.high))]
        for h in ranked
    ]
    columns = ["constraint", "text", "category", "dialogues", "verdicts", "satisfied", "low", "high"]
    caption = (
        f"The hardest and the easiest constraints given in at least {FEWEST_DIALOGUES} dialogues, over all models "
        "and sets; all are in the CSV."
    )
    return Figure("more-11-difficulty", "Hard and easy constraints", caption, columns, rows, draw)


def _short(text: str, most: int = 64) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"
