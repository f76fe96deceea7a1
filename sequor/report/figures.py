"""The paper's figures 5, 6, 7 and 25-30, each as what is drawn and the rows behind it (paper, section 4, appendix F).

A figure that has nothing to show (a set that no run has, nothing judged) is not made.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sequor.report import colours, plot
from sequor.report.analysis import Analysis, Curve
from sequor.report.colours import set_title
from sequor.report.figure_parts import Figure, curve_rows, percent
from sequor.report.statistics import mean_of_known

NUMBERS = {"single": 25, "tuples_3": 26, "replace_5": 27, "replace_10": 28, "add_5": 29, "add_10": 30}
"""Test set -> number of its heatmap in the paper."""


def paper_figures(analysis: Analysis) -> Iterator[Figure]:
    if not analysis.judged:
        return
    yield accuracy_per_turn(analysis)
    yield first_and_last(analysis)
    if "everything" in analysis.sets and analysis.models_of("everything"):
        yield everything(analysis)
    for name in analysis.sets:
        if analysis.models_of(name):
            yield heatmap(analysis, name)


def accuracy_per_turn(analysis: Analysis) -> Figure:
    """Figure 5: mean over models, and the best model by Borda count."""
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    count, best = len(analysis.judged), analysis.best
    panels: list[tuple[str, dict[str, Curve]]] = []
    if count > 1:
        numbers = sorted({len(analysis.with_headline(s) or analysis.models_of(s)) for s in sets})
        said = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
        panels.append((f"Mean of {said} models", {s: analysis.mean_curve(s) for s in sets}))
    lead = best if best is not None else analysis.judged[0]
    if count == 1 or best is not None:
        title = f"{'Best model: ' if count > 1 else ''}{analysis.labels[lead]}"
        panels.append((title, {s: analysis.curve(lead, s) for s in sets if (lead, s) in analysis.cells}))

    def draw() -> Any:
        figure, axes = plot.canvas(1, len(panels), width=3.6 * len(panels) + 0.4, height=3.3, sharey=True)
        for at, (title, curves) in enumerate(panels):
            for name, curve in curves.items():
                plot.line(
                    axes[0, at], range(1, len(curve.value) + 1), curve, colours.of_set(name, sets), set_title(name)
                )
            axes[0, at].set_title(title, parse_math=False)
            plot.turns_axis(axes[0, at], analysis.turns)
            plot.percent_axis(axes[0, at], "accuracy, %" if at == 0 else "")
        plot.below(figure, axes[0, 0], 4 if len(panels) == 1 else 7)
        return figure

    rows = [row for title, curves in panels for s, c in curves.items() for row in curve_rows([title, s], c)]
    caption = "Per-turn accuracy across regimes; bands are 95% bootstrap intervals over dialogues."
    return Figure(
        "figure-05-accuracy-per-turn",
        "Accuracy per turn",
        caption,
        ["panel", "test_set", "turn", "accuracy", "low", "high"],
        rows,
        draw,
    )


def first_and_last(analysis: Analysis) -> Figure:
    """Figure 6: from the first turn to the last, one line a model, the mean in colour."""
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    there = {s: analysis.with_headline(s) or analysis.models_of(s) for s in sets}
    ends = {s: np.array([[analysis.cells[m, s].accuracy[turn] for turn in (0, -1)] for m in there[s]]) for s in sets}

    def draw() -> Any:
        figure, axes = plot.canvas(1, len(sets), width=1.15 * len(sets) + 0.9, height=2.9, sharey=True)
        for axis, name in zip(axes[0], sets, strict=True):
            style, mean = colours.of_set(name, sets), mean_of_known(ends[name], axis=0)
            for pair in ends[name] if len(ends[name]) > 1 else []:
                axis.plot([0, 1], 100 * pair, color="#b9b9b9", linewidth=0.8)
            axis.plot([0, 1], 100 * mean, color=style.colour, linewidth=2.6, marker="o", markersize=4.5)
            for x, value in ((x, value) for x, value in enumerate(mean) if np.isfinite(value)):
                above = 5 if value == np.nanmax(mean) else -12
                axis.annotate(
                    f"{100 * value:.0f}",
                    (x, 100 * value),
                    (0, above),
                    textcoords="offset points",
                    ha="center",
                    color=style.colour,
                    fontweight="bold",
                    fontsize=8,
                )
            axis.set_xticks([0, 1], ["1", str(analysis.turns)])
            axis.set_xlim(-0.35, 1.35)
            axis.set_title(set_title(name), fontsize=8.5)
            plot.percent_axis(axis, "accuracy, %" if name == sets[0] else "")
            axis.set_ylim(-8, 110)
        figure.supxlabel("turn", fontsize=8)
        return figure

    rows = [
        [
            analysis.labels[m],
            s,
            *(percent(v) for v in (e.value, e.low, e.high, f.value, f.low, f.high, d.value, d.low, d.high)),
        ]
        for s in sets
        for m in analysis.models_of(s)
        for e, f, d in [(analysis.at(m, s, 0), analysis.at(m, s, -1), analysis.drop(m, s))]
    ]
    columns = "model test_set first first_low first_high last last_low last_high drop drop_low drop_high".split()
    caption = "Accuracy at the first and at the last turn. Grey: one model; colour: their mean."
    return Figure("figure-06-first-and-last-turn", "First turn and last turn", caption, columns, rows, draw)


def everything(analysis: Analysis) -> Figure:
    """Figure 7: all models in Everything, every five turns."""
    name, models = "everything", analysis.models_of("everything")
    steps = np.array(sorted({1, *range(5, analysis.turns + 1, 5), analysis.turns}))
    curves = {m: analysis.curve(m, name) for m in models}
    styles = colours.of_models(analysis.labels)

    def draw() -> Any:
        figure, axes = plot.canvas(width=6.6, height=3.8)
        axis = axes[0, 0]
        for m, curve in curves.items():
            there = Curve(*(side[steps - 1] for side in (curve.value, curve.low, curve.high)))
            plot.line(axis, steps, there, styles[m], marker=styles[m].marker, markersize=4)
        ends = [(100 * c.value[-1], analysis.label_on(m, name), styles[m].colour) for m, c in curves.items()]
        plot.turns_axis(axis, analysis.turns)
        plot.label_ends(axis, analysis.turns, ends)
        plot.percent_axis(axis)
        return figure

    rows = [
        [analysis.labels[m], turn, *(percent(side[turn - 1]) for side in (c.value, c.low, c.high))]
        for m, c in curves.items()
        for turn in steps.tolist()
    ]
    caption = "Per-turn accuracy of every model in Everything, every five turns; bands are 95% bootstrap intervals."
    return Figure(
        "figure-07-everything",
        "All models in Everything",
        caption,
        ["model", "turn", "accuracy", "low", "high"],
        rows,
        draw,
    )


def heatmap(analysis: Analysis, name: str) -> Figure:
    """Figures 25-30: turn by model. Everything, which the paper shows as figure 7, has its own here."""
    models = analysis.models_of(name)
    shares = np.stack([analysis.cells[m, name].accuracy for m in models])
    turns = shares.shape[1]

    def draw() -> Any:
        figure, axes = plot.canvas(width=min(11.0, 2.0 + 0.19 * turns), height=0.75 + 0.24 * len(models))
        image = plot.heatmap(axes[0, 0], shares, [analysis.label_on(m, name) for m in models])
        plot.turns_axis(axes[0, 0], turns)
        axes[0, 0].set_xticks([t - 1 for t in axes[0, 0].get_xticks()], [f"{t:.0f}" for t in axes[0, 0].get_xticks()])
        axes[0, 0].set_xlim(-0.5, turns - 0.5)
        plot.plain(axes[0, 0])
        bar = figure.colorbar(image, ax=axes[0, 0], pad=0.01, aspect=12, shrink=0.9)
        bar.outline.set_visible(False)
        bar.set_label("%")
        return figure

    rows = [row for m in models for row in curve_rows([analysis.labels[m]], analysis.curve(m, name))]
    number = NUMBERS.get(name)
    file = f"figure-{number}-heatmap-{name}" if number else f"more-heatmap-{name}"
    caption = f"Per-turn accuracy of every model in {set_title(name)}, in percent; grey where nothing was decided."
    return Figure(
        file, f"Every turn in {set_title(name)}", caption, ["model", "turn", "accuracy", "low", "high"], rows, draw
    )
