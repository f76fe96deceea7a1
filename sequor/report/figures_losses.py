"""Figures of how constraints are lost: turns until the first failure, kinds of failure, recovery."""

from typing import Any

import numpy as np

from sequor.metrics import PASSED, UNDECIDED
from sequor.report import colours, decomposition, groups, plot
from sequor.report.analysis import Analysis, Curve
from sequor.report.colours import set_title
from sequor.report.decomposition import KINDS
from sequor.report.figure_parts import Figure, curve_rows, dots, flat_axes, grid, of_group, percent, three
from sequor.report.statistics import Estimate, interval

READ_AS = {
    "passed": "passed",
    "broke": "lost for the first time",
    "again": "lost again",
    "stays": "still lost",
    "never": "never followed",
    "undecided": "undecided",
}


def survival(analysis: Analysis) -> Figure:
    styles = colours.of_models(analysis.labels)
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    curves = {(m, s): survival_curve(analysis, m, s) for s in sets for m in analysis.models_of(s)}

    def draw() -> Any:
        rows, columns = grid(len(sets))
        figure, axes = plot.canvas(rows, columns, width=1.85 * columns + 0.6, height=1.9 * rows + 0.6, sharey=True)
        for axis, name in zip(flat_axes(axes, len(sets)), sets, strict=True):
            for m in analysis.models_of(name):
                plot.line(
                    axis,
                    range(1, analysis.turns + 1),
                    curves[m, name],
                    styles[m],
                    analysis.labels[m],
                    drawstyle="steps-post",
                )
            axis.set_title(set_title(name))
            plot.turns_axis(axis, analysis.turns)
            plot.percent_axis(axis, "without a failure, %" if axis in axes[:, 0] else "")
        most = max(sets, key=lambda s: len(analysis.models_of(s)))
        plot.below(figure, axes.flat[sets.index(most)], 4)
        plot.plain(figure)
        return figure

    rows = [row for (m, s), c in curves.items() for row in curve_rows([analysis.labels[m], s], c)]
    caption = (
        "Share of dialogues without a failed turn so far (Kaplan-Meier; a dialogue leaves at its first undecided turn)."
    )
    return Figure(
        "more-08-survival",
        "Turns until the first failure",
        caption,
        ["model", "test_set", "turn", "percent", "low", "high"],
        rows,
        draw,
    )


def survival_curve(analysis: Analysis, m: int, test_set: str) -> Curve:
    cell = analysis.cells[m, test_set]
    value = decomposition.survival(np.ones((1, len(cell.results)), np.float32), cell.results)[0]
    return Curve(value, *interval(decomposition.survival(cell.drawn, cell.results)))


def kinds_per_turn(analysis: Analysis, m: int, test_set: str) -> dict[str, np.ndarray]:
    """Counts of turns per turn number: passed, the kinds of failure, undecided."""
    cell, run = analysis.cells[m, test_set], analysis.runs[m]
    kinds = decomposition.failed_turn_kinds(cell.frame.slots, cell.frame.verdicts[run.judge or ""], cell.results)
    counts = {"passed": (cell.results == PASSED).sum(axis=0)}
    counts |= {kind: (kinds == code).sum(axis=0) for code, kind in enumerate(KINDS)}
    return counts | {"undecided": (cell.results == UNDECIDED).sum(axis=0)}


def failures(analysis: Analysis) -> Figure:
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    counts = {(m, s): kinds_per_turn(analysis, m, s) for s in sets for m in analysis.models_of(s)}

    def draw() -> Any:
        rows, columns = grid(len(sets))
        figure, axes = plot.canvas(rows, columns, width=1.85 * columns + 0.6, height=1.9 * rows + 0.6, sharey=True)
        for axis, name in zip(flat_axes(axes, len(sets)), sets, strict=True):
            total = {kind: sum(counts[m, name][kind] for m in analysis.models_of(name)) for kind in READ_AS}
            whole = sum(total.values())
            axis.stackplot(
                range(1, analysis.turns + 1),
                *(100 * total[kind] / whole for kind in READ_AS),
                colors=[colours.KINDS[kind] for kind in READ_AS],
                labels=READ_AS.values(),
                linewidth=0,
            )
            axis.set_title(set_title(name))
            plot.turns_axis(axis, analysis.turns)
            plot.percent_axis(axis, "turns, %" if axis in axes[:, 0] else "")
            axis.set_xlim(1, max(analysis.turns, 2))
            axis.set_ylim(0, 100)
        plot.below(figure, axes.flat[0], 6)
        return figure

    rows = [
        [analysis.labels[m], s, turn + 1, *(int(found[kind][turn]) for kind in READ_AS)]
        for (m, s), found in counts.items()
        for turn in range(analysis.turns)
    ]
    caption = (
        "What becomes of a turn, all models together. A failed turn counts as the newest of its violations: lost "
        "for the first time, lost again after it was followed once more, still lost from the turn before, never "
        "followed since it was given."
    )
    return Figure(
        "more-09-failures", "How constraints are lost", caption, ["model", "test_set", "turn", *READ_AS], rows, draw
    )


def recovery_of(analysis: Analysis, m: int) -> tuple[Estimate, Estimate, int]:
    """Broken spells that are kept at the very next reading; at any later one; how many there are."""
    run = analysis.runs[m]
    everyone = groups.clusters(run)
    sides = groups.Tally(everyone, 1), groups.Tally(everyone, 1)
    for frame in run.sets.values():
        spells = decomposition.broken_spells(frame.slots, frame.verdicts[run.judge or ""])
        for tally, hit in zip(sides, (spells.next_satisfied, spells.recovers), strict=True):
            tally.add(frame.dialogues, spells.dialogue, np.zeros(len(spells.dialogue), int), hit)
    soon, ever = (of_group(side.result(analysis), 0) for side in sides)
    return soon, ever, int(sides[0].tries.sum())


def recovery(analysis: Analysis) -> Figure:
    found = {m: recovery_of(analysis, m) for m in analysis.judged}

    def draw() -> Any:
        soon, ever = colours.NEUTRAL[:2]
        values = [[(a, soon, "at the next turn"), (b, ever, "at any later turn")] for a, b, _ in found.values()]
        return dots(
            [analysis.labels[m] for m in found], values, "lost constraints that are followed again, %", scale=0.4
        )

    rows = [[analysis.labels[m], *map(percent, (*three(a), *three(b))), n] for m, (a, b, n) in found.items()]
    columns = ["model", "next", "next_low", "next_high", "ever", "ever_low", "ever_high", "constraints"]
    caption = (
        "Constraints that were violated once: how many are satisfied again at the next turn, and at any later "
        "turn while they are in force."
    )
    return Figure("more-10-recovery", "Is it ever followed again?", caption, columns, rows, draw)
