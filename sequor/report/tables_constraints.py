"""Tables of constraints: how many are in force, kinds, the window, recovery, what breaks first, what is hard."""

from collections.abc import Mapping

import numpy as np

from sequor.report import decomposition, groups
from sequor.report.analysis import Analysis
from sequor.report.figures_losses import recovery_of
from sequor.report.frame import SetFrame
from sequor.report.groups import CATEGORIES, Groups
from sequor.report.statistics import UNKNOWN, Estimate
from sequor.report.tables import Cell, Column, Table

LISTED = 20
"""Constraints at each end of the printed ranking."""


def by_count(analysis: Analysis) -> Table:
    most = max(int(f.slots.count.max(initial=1)) for m in analysis.judged for f in analysis.runs[m].sets.values())
    columns = (Column("model"), *(Column(f"{n} in force", "percent", True) for n in range(1, most + 1)))
    rows: list[list[Cell]] = [
        [analysis.labels[m], *_estimates(groups.of_turns_by_count(analysis, m, most))] for m in analysis.judged
    ]
    return Table(
        "constraints-in-force",
        "Turns passed by the number of constraints in force",
        columns,
        rows,
        "Percent of decided turns, all sets together.",
    )


def _estimates(found: Groups) -> list[Cell]:
    sides = zip(found.curve.value.tolist(), found.curve.low.tolist(), found.curve.high.tolist(), strict=True)
    return [Estimate(*side) for side in sides]


def by_category(analysis: Analysis, categories: Mapping[str, str]) -> Table | None:
    found = {m: groups.of_categories(analysis, m, categories) for m in analysis.judged}
    if not any(g.count.any() for g in found.values()):
        return None
    columns = (Column("model"), *(Column(name.replace("_", " "), "percent", True) for name in CATEGORIES))
    rows: list[list[Cell]] = [[analysis.labels[m], *_estimates(g)] for m, g in found.items()]
    return Table(
        "category",
        "Constraints satisfied by category",
        columns,
        rows,
        "Percent of readable verdicts, all sets together.",
    )


def window(analysis: Analysis) -> Table | None:
    """Constraints and turns, apart by whether the turn that gave the constraint was still in the prompt."""
    found = {m: groups.of_constraints(analysis, m, "window", 2) for m in analysis.judged}
    if not any(g.count[1] for g in found.values()):
        return None
    columns = (
        Column("model"),
        Column("verdicts in context", "count"),
        Column("satisfied in context", "percent", True),
        Column("at the same ages", "percent", True),
        Column("verdicts out of it", "count"),
        Column("satisfied out of it", "percent", True),
        Column("turns with one out of it", "count"),
    )
    rows: list[list[Cell]] = []
    for m, g in found.items():
        inside, outside = _estimates(g)
        turns = sum(_turns_out(f) for f in analysis.runs[m].sets.values())
        alike = groups.in_context_at_these_ages(analysis, m) if g.count[1] else UNKNOWN
        rows.append([analysis.labels[m], int(g.count[0]), inside, alike, int(g.count[1]), outside, turns])
    note = (
        "A constraint is out of context when the sliding window has dropped the turn that gave it. Such constraints "
        "are old; at the same ages: the rate in context, weighted to the ages that those out of it have."
    )
    return Table("window", "Constraints that the window dropped", columns, rows, note)


def _turns_out(frame: SetFrame) -> int:
    out = frame.out_of_window
    return len(np.unique(frame.slots.dialogue[out].astype(np.int64) * frame.length + frame.slots.turn[out]))


def recovery(analysis: Analysis) -> Table:
    columns = (
        Column("model"),
        Column("lost constraints", "count"),
        Column("followed at the next turn", "percent", True),
        Column("at any later turn", "percent", True),
    )
    rows: list[list[Cell]] = [
        [analysis.labels[m], n, soon, ever] for m in analysis.judged for soon, ever, n in [recovery_of(analysis, m)]
    ]
    note = "Constraints violated at least once and judged again later while in force."
    return Table("recovery", "Whether a lost constraint is ever followed again", columns, rows, note)


def first_break(analysis: Analysis) -> Table:
    """Among first failures with several constraints in force, which was violated: by the order in which they came."""
    most = max(int(f.slots.count.max(initial=1)) for m in analysis.judged for f in analysis.runs[m].sets.values())
    columns = (
        Column("model"),
        Column("dialogues that fail", "count"),
        Column("of them with several in force", "count"),
        *(Column(f"constraint {n} violated", "percent", True) for n in range(1, most + 1)),
    )
    rows: list[list[Cell]] = []
    for m in analysis.judged:
        tally, failing, several = groups.Tally(groups.clusters(analysis.runs[m]), most), 0, 0
        for name, frame in analysis.runs[m].sets.items():
            judge, results = analysis.runs[m].judge or "", analysis.cells[m, name].results
            positions, count = decomposition.first_breaks(frame.slots, frame.verdicts[judge], results)
            failing, several = failing + int((count > 0).sum()), several + int((count > 1).sum())
            row, position = np.nonzero((count[:, None] > 1) & (np.arange(positions.shape[1]) < count[:, None]))
            tally.add(frame.dialogues, row, position, positions[row, position] > 0)
        rows.append([analysis.labels[m], failing, several, *_estimates(tally.result(analysis))])
    note = (
        "At the first failed turn of a dialogue with two or more constraints in force: percent of those at which the "
        "first, second, third given was violated; several can be at once."
    )
    return Table("first-break", "Which constraint breaks first", columns, rows, note)


def hardness(analysis: Analysis, categories: Mapping[str, str]) -> Table:
    ranked = groups.hardness(analysis, categories)
    shown = ranked if len(ranked) <= 2 * LISTED else [*ranked[:LISTED], *ranked[-LISTED:]]
    columns = (
        Column("constraint"),
        Column("text"),
        Column("category"),
        Column("dialogues", "count"),
        Column("verdicts", "count"),
        Column("satisfied", "percent", True),
    )
    rows: list[list[Cell]] = [
        [
            h.id,
            h.text,
            (h.category or "–").replace("_", " "),
            h.dialogues,
            h.verdicts,
            Estimate(h.satisfied, h.low, h.high),
        ]
        for h in shown
    ]
    note = f"Hardest first; {len(shown)} of {len(ranked)}. All are in the CSV of the figure more-11-difficulty."
    return Table("difficulty", "Constraints by how often they are satisfied", columns, rows, note)
