"""score: what sequor.scoring found, as a table."""

from collections import Counter

from rich.console import Console
from rich.table import Table

from sequor.metrics import SetScore
from sequor.scoring import Tally
from sequor.tables import percent


def show(scores: list[SetScore], tally: Tally, console: Console) -> None:
    how = " (choice mode)" if tally.chosen else ""
    judges = sorted({s.judge for s in scores})
    for judge in judges:
        table = Table(
            title=f"per-turn accuracy in %, judged by {judge}{how}", title_justify="left", box=None, pad_edge=False
        )
        table.add_column("test set")
        rows = [s for s in scores if s.judge == judge]
        columns = ("dialogues", "turns", "mean", "turn 1", "last", "drop", "coverage", "lower", "upper")
        completion = any(s.completion for s in rows)
        for column in (*columns, "task done") if completion else columns:
            table.add_column(column, justify="right")
        for s in rows:
            headline = (judge, s.test_set) not in tally.low
            cells = [*_cells(s, headline), *_completion(s) * completion]
            table.add_row(s.test_set, str(s.dialogues), str(len(s.turns)), *cells)
        console.print(table)
    if tally.low:
        sets = ", ".join(f"{name} ({judge})" if len(judges) > 1 else name for judge, name in tally.low)
        least = f"less than {100 * tally.min_coverage:g}% of their turns are decided (min_coverage)"
        console.print(f"WARNING: no headline for {sets}: {least}; the bounds hold all the same")
    totals: Counter[str] = sum(tally.outcomes.values(), Counter())
    console.print("outcomes: " + ", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())))


def _completion(s: SetScore) -> list[str]:
    return [(percent(s.completion.accuracy) if s.completion else "") or "-"]


def _cells(s: SetScore, headline: bool) -> list[str]:
    rate = s.overall
    head = (s.mean, s.turns[0].accuracy, s.turns[-1].accuracy, s.drop) if headline else (None,) * 4
    return [percent(share) or "-" for share in (*head, rate.coverage, rate.lower, rate.upper)]
