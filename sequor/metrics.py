"""From records to per-turn accuracy, with its coverage and its bounds. Pure.

One definition, used by every table and figure:
1. A turn is `passed` when every constraint in force has a readable verdict and all are satisfied, `failed` as soon as
   one readable verdict is a violation, and `undecided` otherwise: no answer, an unreadable or a missing verdict.
2. accuracy = passed / (passed + failed): the share among what was decided (paper, section 4.1: per-turn accuracy, the
   share of successful answers at turn t over dialogues). None when nothing was decided.
3. coverage = (passed + failed) / dialogues. The denominator is every dialogue that the run set out to play.
4. lower = passed / dialogues and upper = (passed + undecided) / dialogues: the accuracy if everything undecided had
   failed, or had passed.
   A mean over a set of which too little is decided (`MIN_COVERAGE`) is no result: what is undecided is seldom so by
   chance.
5. Of several attempts at one judgement the first readable one counts.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sequor.records import JudgementRecord
from sequor.types import TASK_COMPLETION, TEST_SETS, Dialogue, TestSet

TurnResult = Literal["passed", "failed", "undecided"]
ANSWERED = frozenset({"ok", "truncated"})
READABLE = frozenset({"satisfied", "violated"})
MIN_COVERAGE = 0.9
"""Of a set, below which it has no headline; a run's setting."""
PASSED, FAILED, UNDECIDED = 0, 1, 2
RESULTS: tuple[TurnResult, ...] = ("passed", "failed", "undecided")

Verdicts = Mapping[tuple[str, str, int], Mapping[str, str]]
"""(test set, dialogue, turn) -> constraint id -> status of its judgement."""


class Rate(Struct, frozen=True):
    """Counts of turns, and what follows from them. Shares between 0 and 1."""

    passed: int
    failed: int
    undecided: int

    @property
    def dialogues(self) -> int:
        return self.passed + self.failed + self.undecided

    @property
    def accuracy(self) -> float | None:
        decided = self.passed + self.failed
        return self.passed / decided if decided else None

    @property
    def coverage(self) -> float:
        return (self.passed + self.failed) / self.dialogues

    @property
    def lower(self) -> float:
        return self.passed / self.dialogues

    @property
    def upper(self) -> float:
        return (self.passed + self.undecided) / self.dialogues


class SetScore(Struct, frozen=True):
    """One test set under one judge. `turns` holds the rate of turn 1, 2, ...; `overall` the sum over all turns."""

    test_set: str
    judge: str
    dialogues: int
    turns: tuple[Rate, ...]
    overall: Rate
    completion: Rate | None = None
    """Over all turns, whether the answer does its task; None where it was not asked."""

    @property
    def mean(self) -> float | None:
        """Mean of the per-turn accuracies, over turns that have one."""
        decided = [rate.accuracy for rate in self.turns if rate.accuracy is not None]
        return sum(decided) / len(decided) if decided else None

    @property
    def drop(self) -> float | None:
        """Last turn minus first turn (paper, table 5)."""
        first, last = self.turns[0].accuracy, self.turns[-1].accuracy
        return None if first is None or last is None else last - first

    @property
    def worst_minus_best(self) -> float | None:
        """Worst turn minus best turn (paper, table 6)."""
        decided = [rate.accuracy for rate in self.turns if rate.accuracy is not None]
        return min(decided) - max(decided) if decided else None


def turn_result(in_force: Iterable[str], verdicts: Mapping[str, str]) -> TurnResult:
    """Rule 1. `verdicts`: constraint id -> judgement status; one that is not there is missing."""
    statuses = [verdicts.get(constraint) for constraint in in_force]
    if "violated" in statuses:
        return "failed"
    return "passed" if all(status == "satisfied" for status in statuses) else "undecided"


def better(status: str | None, other: str) -> str:
    """Rule 5. `status`: of the attempts before, None where there is none; `other`: of the next one."""
    return other if status is None or (status not in READABLE and other in READABLE) else status


def verdicts_by_turn(judgements: Iterable[JudgementRecord], judge: str) -> dict[tuple[str, str, int], dict[str, str]]:
    found: dict[tuple[str, str, int], dict[str, str]] = {}
    for record in judgements:
        if record.judge == judge:
            statuses = found.setdefault((record.test_set, record.dialogue, record.turn), {})
            statuses[record.constraint] = better(statuses.get(record.constraint), record.status)
    return found


def results(dialogues: Iterable[Dialogue], verdicts: Verdicts, turns: int) -> np.ndarray:
    """Codes PASSED, FAILED, UNDECIDED; int8, shape (dialogues, turns)."""
    rows = [
        [
            RESULTS.index(
                turn_result(
                    [constraint.id for constraint in turn.in_force],
                    verdicts.get((dialogue.test_set, dialogue.id, number), {}),
                )
            )
            for number, turn in enumerate(dialogue.turns[:turns], 1)
        ]
        for dialogue in dialogues
    ]
    return np.array(rows, dtype=np.int8).reshape(len(rows), turns)


def score(test_set: TestSet, verdicts: Verdicts, judge: str) -> SetScore:
    turns = len(test_set.dialogues[0].turns)
    scored = score_results(test_set.name, judge, results(test_set.dialogues, verdicts, turns))
    return replace(scored, completion=completion(test_set, verdicts))


def completion(test_set: TestSet, verdicts: Verdicts) -> Rate | None:
    """Rule 1 for task completion alone."""
    keys = [(d.test_set, d.id, number) for d in test_set.dialogues for number in range(1, len(d.turns) + 1)]
    statuses = [verdicts.get(key, {}).get(TASK_COMPLETION) for key in keys]
    passed, failed = statuses.count("satisfied"), statuses.count("violated")
    asked = len(statuses) - statuses.count(None)
    return Rate(passed, failed, len(statuses) - passed - failed) if asked else None


def score_results(test_set: str, judge: str, codes: np.ndarray) -> SetScore:
    """`codes`: PASSED, FAILED, UNDECIDED; shape (dialogues, turns)."""
    return SetScore(
        test_set=test_set,
        judge=judge,
        dialogues=len(codes),
        turns=tuple(_rate(codes[:, turn]) for turn in range(codes.shape[1])),
        overall=_rate(codes.ravel()),
    )


def _rate(codes: np.ndarray) -> Rate:
    passed, failed, undecided = np.bincount(codes, minlength=3)[:3].tolist()
    return Rate(passed, failed, undecided)


def in_table_order(names: Iterable[str]) -> list[str]:
    """The release's sets as in the paper's tables, others after them by name."""
    return sorted(names, key=lambda name: (TEST_SETS.index(name) if name in TEST_SETS else len(TEST_SETS), name))
