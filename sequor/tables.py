"""Scores as files. Numbers have a fixed number of decimals: same records, same bytes."""

import csv
import io
from collections.abc import Collection, Iterable
from pathlib import Path

from sequor.metrics import Rate, SetScore
from sequor.run_folder import write_atomically

SHARES = ["accuracy", "coverage", "lower", "upper"]
TURN_COLUMNS = ["test_set", "judge", "turn", "dialogues", "passed", "failed", "undecided", *SHARES]
COMPLETION = ["task_completion", "task_completion_coverage"]
HEADLINE = ["mean", "first", "last", "drop", "worst_minus_best"]
SET_COLUMNS = ["test_set", "judge", "dialogues", *HEADLINE, *SHARES[1:], *COMPLETION]


def percent(share: float | None) -> str:
    """Two decimals, in percent; empty where there is none."""
    return "" if share is None else f"{100 * share:.2f}"


def turn_rows(scores: Iterable[SetScore]) -> list[list[str]]:
    return [
        [s.test_set, s.judge, str(turn), *map(str, (r.dialogues, r.passed, r.failed, r.undecided)), *_shares(r)]
        for s in scores
        for turn, r in enumerate(s.turns, 1)
    ]


def set_rows(scores: Iterable[SetScore], low: Collection[tuple[str, str]] = ()) -> list[list[str]]:
    """`low`: (judge, test set) without a headline."""
    return [
        [
            s.test_set,
            s.judge,
            str(s.dialogues),
            *([""] * len(HEADLINE) if (s.judge, s.test_set) in low else map(percent, _headline(s))),
            *_shares(s.overall)[1:],
            *map(percent, (s.completion.accuracy, s.completion.coverage) if s.completion else (None, None)),
        ]
        for s in scores
    ]


def _headline(s: SetScore) -> tuple[float | None, ...]:
    return s.mean, s.turns[0].accuracy, s.turns[-1].accuracy, s.drop, s.worst_minus_best


def _shares(rate: Rate) -> list[str]:
    return [percent(share) for share in (rate.accuracy, rate.coverage, rate.lower, rate.upper)]


def write_csv(path: Path, columns: list[str], rows: Iterable[Iterable[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())
