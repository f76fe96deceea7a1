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
            table.add_row(s.test_set, str(s.dialogues), str(len(s.turns)), *_cells(s), *_completion(s) * completion)
        console.print(table)
    totals: Counter[str] = sum(tally.outcomes.values(), Counter())
    console.print(
        "outcomes: " + ", ".join(f"{name} {count:,}" for name, count in sorted(totals.items())), soft_wrap=True
    )


def _completion(s: SetScore) -> list[str]:
    return [(percent(s.completion.accuracy) if s.completion else "") or "-"]


def _cells(s: SetScore) -> list[str]:
    rate = s.overall
    shares = (s.mean, s.turns[0].accuracy, s.turns[-1].accuracy, s.drop, rate.coverage, rate.lower, rate.upper)
    return [percent(share) or "-" for share in shares]
