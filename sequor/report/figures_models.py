"""Figures of models and judges: ranks, differences, bounds, task completion."""

from typing import Any

import numpy as np

from sequor.metrics import FAILED, PASSED
from sequor.report import colours, groups, plot
from sequor.report.analysis import Analysis, Curve
from sequor.report.colours import Style, set_title
from sequor.report.figure_parts import (
    Figure,
    curve_rows,
    dots,
    flat_axes,
    grid,
    percent,
    three,
)
from sequor.report.statistics import Estimate, estimate, mean_of_known, ratio, ratios


def ranking(analysis: Analysis) -> Figure:
    styles = colours.of_models(analysis.labels)
    models = list(analysis.ranking)

    def draw() -> Any:
        row = [
            [(Estimate(*(v / 100 for v in (r.value, r.low, r.high))), styles[m], "")]
            for m in models
            for r in [analysis.ranking[m].points]
        ]
        return dots([analysis.labels[m] for m in models], row, f"Borda points over {len(analysis.common)} test sets")

    rows = [
        [
            analysis.labels[m],
            r.points.value,
            r.points.low,
            r.points.high,
            r.rank.value,
            r.rank.low,
            r.rank.high,
            percent(r.first),
        ]
        for m, r in analysis.ranking.items()
    ]
    columns = ["model", "points", "points_low", "points_high", "rank", "rank_low", "rank_high", "first_percent"]
    caption = "Borda count over the test sets that every run has, by mean accuracy, with 95% bootstrap intervals."
    return Figure("more-01-ranking", "Ranking of the models", caption, columns, rows, draw)


def differences(analysis: Analysis) -> Figure:
    """Every two models over the common sets; pale where they tie."""
    pairs = [p for p in analysis.pairs if p.test_set == "all"]
    models = sorted({m for p in pairs for m in (p.first, p.second)})
    place = {m: at for at, m in enumerate(models)}

    def draw() -> Any:
        table = np.full((len(models), len(models)), np.nan)
        for p in pairs:
            table[place[p.first], place[p.second]] = 100 * p.difference.value
            table[place[p.second], place[p.first]] = -100 * p.difference.value
        width = 2.2 + 0.5 * len(models)
        figure, axes = plot.canvas(width=width, height=width * 0.72)
        axis, most = axes[0, 0], max(5.0, float(np.nanmax(np.abs(table))))
        axis.imshow(table, cmap=plot.DIFFERENCES, vmin=-most, vmax=most)
        for p in pairs:
            for a, b, sign in ((p.first, p.second, 1), (p.second, p.first, -1)):
                value = sign * 100 * p.difference.value
                ink = "white" if abs(value) > 0.62 * most else plot.INK
                text = f"{value:+.1f}" if not p.tied else f"({value:+.1f})"
                axis.text(place[b], place[a], text, ha="center", va="center", fontsize=6.5, color=ink)
        axis.set_xticks(range(len(models)), [analysis.labels[m] for m in models], rotation=40, ha="right")
        axis.set_yticks(range(len(models)), [analysis.labels[m] for m in models])
        axis.grid(False)
        axis.tick_params(length=0)
        plot.plain(axis)
        return figure

    rows = [
        [
            analysis.labels[p.first],
            analysis.labels[p.second],
            p.test_set,
            p.dialogues,
            *map(percent, three(p.difference)),
            round(p.p, 5),
            p.tied,
        ]
        for p in analysis.pairs
    ]
    columns = ["model", "against", "test_set", "dialogues", "difference", "low", "high", "p_holm", "tied"]
    caption = (
        "Row minus column, in points of mean accuracy over the common test sets; in brackets where the 95% "
        "interval of the paired difference holds zero."
    )
    return Figure("more-02-differences", "Differences between the models", caption, columns, rows, draw)


def bounds(analysis: Analysis) -> Figure:
    """What the undecided turns could change."""
    styles = colours.of_models(analysis.labels)
    sets = [s for s in analysis.sets if analysis.models_of(s)]

    def draw() -> Any:
        def row(name: str) -> list[tuple[Estimate, Style, str]]:
            found = []
            for m in analysis.models_of(name):
                rate = analysis.cells[m, name].score.overall
                accuracy = rate.accuracy if rate.accuracy is not None else float("nan")
                found.append((Estimate(accuracy, rate.lower, rate.upper), styles[m], analysis.labels[m]))
            return found

        figure = dots([set_title(s) for s in sets], [row(s) for s in sets], "turns passed, %")
        figure.axes[0].set_xlim(-2, 102)
        return figure

    rows = [
        [
            analysis.labels[m],
            s,
            *(percent(v) for v in (r.accuracy if r.accuracy is not None else np.nan, r.lower, r.upper, r.coverage)),
        ]
        for s in sets
        for m in analysis.models_of(s)
        for r in [analysis.cells[m, s].score.overall]
    ]
    caption = (
        "Share of passed turns among those decided (mark), and between what bounds it lies: all undecided failed,"
        " all undecided passed (bar)."
    )
    return Figure(
        "more-03-bounds",
        "What undecided turns could change",
        caption,
        ["model", "test_set", "accuracy", "lower", "upper", "coverage"],
        rows,
        draw,
    )


def completion(analysis: Analysis) -> Figure | None:
    """The task done, beside the constraints kept, per turn over all sets."""
    found = {m: curves for m in analysis.judged if (curves := completion_curves(analysis, m))}
    if not found:
        return None

    def draw() -> Any:
        rows, columns = grid(len(found))
        figure, axes = plot.canvas(rows, columns, width=1.95 * columns + 0.8, height=1.9 * rows + 0.6, sharey=True)
        for axis, (m, curves) in zip(flat_axes(axes, len(found)), found.items(), strict=True):
            for curve, style, label in zip(
                curves, colours.NEUTRAL[:2], ("does the task", "keeps all constraints"), strict=True
            ):
                plot.line(axis, range(1, analysis.turns + 1), curve, style, label)
            axis.set_title(analysis.labels[m], parse_math=False)
            plot.turns_axis(axis, analysis.turns)
            plot.percent_axis(axis, "answers, %" if axis in axes[:, 0] else "")
        plot.below(figure, axes.flat[0], 2)
        return figure

    rows = []
    for m, (done, kept) in found.items():
        rows += curve_rows([analysis.labels[m], "task"], done)
        rows += curve_rows([analysis.labels[m], "constraints"], kept)
    caption = (
        "Answers that do what the user asked, judged without the constraints, beside answers that keep every "
        "constraint; all sets together."
    )
    return Figure(
        "more-12-task-completion",
        "The task and the constraints",
        caption,
        ["model", "rate", "turn", "percent", "low", "high"],
        rows,
        draw,
    )


def completion_curves(analysis: Analysis, m: int) -> tuple[Curve, Curve] | None:
    run = analysis.runs[m]
    frames = [f for f in run.sets.values() if run.judge in f.completion]
    if not frames:
        return None
    sides = groups.Tally(groups.clusters(run), analysis.turns), groups.Tally(groups.clusters(run), analysis.turns)
    for frame in frames:
        for tally, codes in zip(
            sides, (frame.completion[run.judge or ""], analysis.cells[m, frame.name].results), strict=True
        ):
            rows, turns = np.nonzero(codes <= FAILED)  # satisfied and violated have the codes of passed and failed
            tally.add(frame.dialogues, rows, turns, codes[rows, turns] == PASSED)
    done, kept = (side.result(analysis).curve for side in sides)
    return done, kept


def judges(analysis: Analysis) -> Figure | None:
    names = sorted({judge for m in analysis.judged for judge in analysis.runs[m].judges})
    if len(names) < 2:
        return None
    styles = {name: colours.NEUTRAL[at % len(colours.NEUTRAL)] for at, name in enumerate(names)}
    found = {(m, j): judge_mean(analysis, m, j) for m in analysis.judged for j in analysis.runs[m].judges}

    def draw() -> Any:
        values = [[(found[m, j], styles[j], j) for j in analysis.runs[m].judges] for m in analysis.judged]
        return dots([analysis.labels[m] for m in analysis.judged], values, "mean accuracy over the sets, %", scale=0.4)

    rows = [[analysis.labels[m], j, *map(percent, three(e))] for (m, j), e in found.items()]
    caption = "Mean accuracy by judge, on the same answers; 95% bootstrap intervals."
    return Figure(
        "more-13-judges", "One judge and another", caption, ["model", "judge", "accuracy", "low", "high"], rows, draw
    )


def judge_mean(analysis: Analysis, m: int, judge: str) -> Estimate:
    """Mean over the run's sets of the mean per-turn accuracy by this judge."""
    values, samples = [], []
    for frame in analysis.runs[m].sets.values():
        codes = frame.results(judge)
        values.append(mean_of_known(ratio(codes == PASSED, codes <= FAILED)))
        samples.append(mean_of_known(ratios(analysis.drawn(frame.dialogues), codes == PASSED, codes <= FAILED)))
    return estimate(float(mean_of_known(np.stack(values))), mean_of_known(np.stack(samples), axis=0))
