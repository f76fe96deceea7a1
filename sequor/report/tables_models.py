"""Tables of models: the main table, ranks, the paper's tables 5, 6 and 7, differences, judges, outcomes."""

from collections.abc import Mapping

import numpy as np

from sequor.report import groups, paper
from sequor.report.analysis import Analysis
from sequor.report.colours import set_title
from sequor.report.frame import STATUSES, VERDICTS, Run, SetFrame
from sequor.report.statistics import UNKNOWN, Estimate
from sequor.report.tables import Cell, Column, Table

POINTS = "Points; brackets: 95% bootstrap interval over dialogues."


def main(analysis: Analysis) -> Table:
    percent = "percent"
    columns = (
        Column("model"),
        Column("test set"),
        Column("dialogues", "count"),
        Column("mean", percent, True),
        Column("first", percent),
        Column("last", percent),
        Column("last − first", "points", True),
        Column("worst − best", "points"),
        Column("coverage", percent),
        Column("lower", percent),
        Column("upper", percent),
    )
    rows: list[list[Cell]] = []
    for m in analysis.judged:
        for name in analysis.sets:
            if (m, name) in analysis.cells:
                s = analysis.cells[m, name].score
                o = s.overall
                row: list[Cell] = [analysis.labels[m], set_title(name), s.dialogues, analysis.mean(m, name)]
                rest = [s.turns[0].accuracy, s.turns[-1].accuracy, analysis.drop(m, name), s.worst_minus_best]
                row += [None] * len(rest) if analysis.low(m, name) else rest
                rows.append([*row, o.coverage, o.lower, o.upper])
    note = (
        "Per-turn accuracy in percent: passed / (passed + failed), mean over turns. Coverage: share of turns decided; "
        "lower and upper: all that is undecided failed, or passed. Brackets: 95% bootstrap interval over dialogues."
    )
    return Table("main", "Accuracy by model and test set", columns, rows, note)


def overview(analysis: Analysis) -> Table:
    """A row a model: the mean on each set, and its rank."""
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    columns = (
        Column("model"),
        *(Column(set_title(s), "percent") for s in sets),
        Column("Borda points", "number", True),
        Column("rank", "number", True),
        Column("first in", "percent"),
        Column("tied with"),
    )
    rows: list[list[Cell]] = []
    for m in analysis.judged:
        means: list[Cell] = [analysis.cells[m, s].score.mean if m in analysis.with_headline(s) else None for s in sets]
        place = analysis.ranking.get(m)
        ties = ", ".join(analysis.labels[other] for other in analysis.ties(m)) or "–"
        ranked = [place.points, place.rank, place.first] if place else [UNKNOWN, UNKNOWN, None]
        rows.append([analysis.labels[m], *means, *ranked, ties])
    over = ", ".join(map(set_title, analysis.common)) or "no set, for the models share none"
    note = (
        f"Mean per-turn accuracy in percent. Borda points over {over}; first in: percent of resamples with the most "
        "points. Tied: the 95% interval of the paired difference of the means over these sets holds zero."
    )
    return Table("ranking", "Models over the test sets", columns, rows, note)


def change(analysis: Analysis, what: str, name: str, title: str) -> Table:
    """Tables 5 and 6, with the sets that the paper leaves out."""
    sets = [s for s in analysis.sets if analysis.models_of(s)]
    rows: list[list[Cell]] = [
        [analysis.labels[m], *(getattr(analysis, what)(m, s) if (m, s) in analysis.cells else None for s in sets)]
        for m in analysis.judged
    ]
    if len(rows) > 1:
        rows.append(["Average", *(analysis.average(what, s) for s in sets)])
    return Table(name, title, (Column("model"), *(Column(set_title(s), "points", True) for s in sets)), rows, POINTS)


def pairs(analysis: Analysis) -> Table:
    columns = (
        Column("model"),
        Column("against"),
        Column("test set"),
        Column("dialogues", "count"),
        Column("difference", "points", True),
        Column("p (Holm)", "text"),
        Column("verdict"),
    )
    rows: list[list[Cell]] = []
    for p in analysis.pairs:
        name = "all" if p.test_set == "all" else set_title(p.test_set)
        better = p.first if p.difference.value > 0 else p.second
        sure = "is" if p.p < 0.05 else "may be"
        verdict = "tie" if p.tied else f"{analysis.labels[better]} {sure} better"
        chance = "< 0.001" if p.p < 0.001 else f"{p.p:.3f}"
        names: list[Cell] = [analysis.labels[p.first], analysis.labels[p.second], name]
        rows.append([*names, p.dialogues, p.difference, chance, verdict])
    note = (
        "Mean accuracy of the first minus the second on the dialogues that both played, in points, with its 95% paired "
        "bootstrap interval. A tie: the interval holds zero. p: two-sided, corrected for all pairs of the test set; "
        "where it is 0.05 or more, one model only may be better."
    )
    return Table("differences", "Models against each other", columns, rows, note)


def completion(analysis: Analysis) -> Table | None:
    """Answers by two questions: is the task done, are all constraints kept."""
    rows: list[list[Cell]] = []
    for m in analysis.judged:
        crosses = [
            found[1] for s in analysis.sets if (m, s) in analysis.cells and (found := groups.completion(analysis, m, s))
        ]
        if crosses:
            cross = np.sum(crosses, axis=0)
            whole = int(cross.sum())
            shares = [
                float(cross[task, kept] / whole) if whole else None for task, kept in ((1, 1), (1, 0), (0, 1), (0, 0))
            ]
            rows.append([analysis.labels[m], whole, *shares])
    if not rows:
        return None
    titles = ("both", "task alone", "constraints alone", "neither")
    columns = (Column("model"), Column("turns", "count"), *(Column(title, "percent") for title in titles))
    return Table(
        "task-completion", "The task and the constraints", columns, rows, "Percent of turns decided in both respects."
    )


def truth(analysis: Analysis) -> Table | None:
    """How far each judge can be trusted, by the constraints that a program decides."""
    columns = (
        Column("model"),
        Column("judge"),
        Column("checked verdicts", "count"),
        Column("right", "percent", True),
        Column("violations", "count"),
        Column("of them seen", "percent", True),
        Column("kept", "count"),
        Column("of them accepted", "percent", True),
        Column("unreadable", "count"),
    )
    rows: list[list[Cell]] = []
    for m in analysis.judged:
        for judge in analysis.runs[m].judges:
            found, unreadable = groups.against_truth(analysis, m, judge)
            if not found.count[2]:
                continue
            sides = (found.curve.value, found.curve.low, found.curve.high)
            broken, kept, right = (Estimate(*(float(side[at]) for side in sides)) for at in range(3))
            counts = [int(count) for count in found.count]
            row = [analysis.labels[m], judge, counts[2], right, counts[0], broken, counts[1], kept, unreadable]
            rows.append(row)
    note = (
        "Only constraints that a program can decide: lengths, bullets, first and last words, languages and the like. "
        "They are no sample of all constraints; a judge may be better or worse on the others."
    )
    return Table("judge-against-truth", "The judge against the truth", columns, rows, note) if rows else None


def judges(analysis: Analysis) -> Table | None:
    found = groups.agreements(analysis)
    if not found:
        return None
    columns = (
        Column("model"),
        Column("judge"),
        Column("other judge"),
        Column("verdicts of both", "count"),
        Column("agree", "percent"),
        Column("kappa", "number"),
        Column("judge says yes", "percent"),
        Column("other says yes", "percent"),
        Column("accuracy by judge", "percent"),
        Column("by the other", "percent"),
        Column("unreadable", "percent"),
        Column("unreadable, other", "percent"),
    )
    rows: list[list[Cell]] = [
        [
            analysis.labels[a.run],
            a.first,
            a.second,
            a.both,
            a.same,
            round(a.kappa, 3),
            a.first_yes,
            a.second_yes,
            *a.accuracy,
            *a.unreadable,
        ]
        for a in found
    ]
    note = (
        "Verdicts on the same answer and constraint that both judges gave readably; accuracy over turns decided "
        "by both. Kappa is Cohen's."
    )
    return Table("judges", "One judge and another", columns, rows, note)


def beside_paper(
    analysis: Analysis, what: str, numbers: Mapping[str, tuple[float, ...]], name: str, title: str
) -> Table:
    """Two rows a model that the paper has: ours, and the paper's."""
    rows: list[list[Cell]] = []
    missing = []
    for m in analysis.judged:
        known = paper.find(analysis.runs[m].model)
        if known is None:
            missing.append(analysis.labels[m])
        ours: list[Cell] = [getattr(analysis, what)(m, s) if (m, s) in analysis.cells else None for s in paper.COLUMNS]
        rows.append([analysis.labels[m], "this run", *ours])
        if known:
            rows.append([known, "paper", *(Estimate(v / 100, float("nan"), float("nan")) for v in numbers[known])])
    rows.append(
        ["Average of 11 models", "paper", *(Estimate(v / 100, float("nan"), float("nan")) for v in numbers["Average"])]
    )
    columns = (Column("model"), Column("source"), *(Column(set_title(s), "points", True) for s in paper.COLUMNS))
    note = f"{POINTS} Paper: over 50 turns of 200 dialogues a set; this report: over {analysis.turns} turns."
    note += f" The paper has no {', '.join(missing)}." if missing else ""
    return Table(name, f"{title}, beside the paper", columns, rows, note)


def tokens(frame: SetFrame) -> np.ndarray:
    """Tokens of each conversation without reasoning (paper, table 7), from what the engine counted; NaN for a dialogue
    that is not at its end.

    The last prompt from which the window dropped nothing holds all turns before it. What comes after is added: answers
    by their own tokens (reasoning taken out by its share of the text), user turns by their characters, at as many
    tokens a character as the first prompt had.
    """
    t = frame.turns
    text = np.maximum(t.answer_size + t.reasoning_size, 1)
    answers = t.output_tokens * (t.answer_size / text)
    per_character = np.minimum(t.prompt_tokens[:, :1] / np.maximum(t.user_size[:, :1], 1), 1.0)
    users = t.user_size * per_character
    turns = np.arange(frame.length)
    whole = (t.dropped == 0) & (t.prompt_tokens > 0)
    last = np.where(whole.any(axis=1), frame.length - 1 - whole[:, ::-1].argmax(axis=1), 0)
    base = np.take_along_axis(t.prompt_tokens, last[:, None], axis=1)[:, 0]
    after = np.where(turns >= last[:, None], answers, 0).sum(axis=1) + np.where(turns > last[:, None], users, 0).sum(
        axis=1
    )
    return np.where((t.status > 0).all(axis=1) & whole.any(axis=1), base + after, np.nan)


def token_counts(analysis: Analysis) -> Table:
    rows: list[list[Cell]] = []
    for run in analysis.runs:
        rows.append([run.label, *(_spread(tokens(run.sets[s])) if s in run.sets else None for s in analysis.sets)])
    if len(rows) > 1:
        everyone = {s: np.concatenate([tokens(r.sets[s]) for r in analysis.runs if s in r.sets]) for s in analysis.sets}
        rows.append(["Average", *(_spread(everyone[s]) for s in analysis.sets)])
    note = (
        f"Thousands of tokens over {analysis.turns} turns, mean ± standard deviation over finished dialogues, by each "
        "model's own tokenizer and template, without reasoning. Turns behind the window's edge are estimated."
    )
    columns = (Column("model"), *(Column(set_title(s)) for s in analysis.sets))
    return Table("table-7-tokens", "Tokens in a conversation", columns, rows, note)


def _spread(values: np.ndarray) -> Cell:
    known = values[np.isfinite(values) & (values > 0)] / 1000
    if not len(known):
        return None
    digits = 0 if known.mean() >= 10 else 1
    return f"{known.mean():.{digits}f} ± {known.std(ddof=1) if len(known) > 1 else 0:.{digits}f}"


def outcomes(analysis: Analysis) -> Table:
    """How turns and verdicts ended."""

    def counts(run: Run) -> list[Cell]:
        turns = np.bincount(
            np.concatenate([f.turns.status.ravel() for f in run.sets.values()]), minlength=len(STATUSES)
        )
        codes = [f.verdicts[run.judge] for f in run.sets.values()] if run.judge else [np.zeros(0, np.int8)]
        verdicts = np.bincount(np.concatenate(codes), minlength=len(VERDICTS))
        return [*map(int, turns[1:]), int(turns[0]), *map(int, verdicts)]

    columns = [Column("model"), Column("judge")]
    columns += [Column(f"turn {name.replace('_', ' ')}", "count") for name in (*STATUSES[1:], "missing")]
    columns += [Column(name.replace("_", " "), "count") for name in VERDICTS]
    rows: list[list[Cell]] = [[run.label, run.judge or "–", *counts(run)] for run in analysis.runs]
    columns, rows = _without_empty(columns, rows)
    return Table("outcomes", "How turns and verdicts ended", tuple(columns), rows)


def _without_empty(columns: list[Column], rows: list[list[Cell]]) -> tuple[list[Column], list[list[Cell]]]:
    """Without the columns that are all zero."""
    keep = [at for at, column in enumerate(columns) if column.kind != "count" or any(row[at] for row in rows)]
    return [columns[at] for at in keep], [[row[at] for at in keep] for row in rows]
