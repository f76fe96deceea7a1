"""How often a judge agrees with the truth, where a program can tell it (checkable.py). From a run's folder alone."""

from collections.abc import Iterable

from msgspec import Struct

from sequor.checkable import Check, Detect, holds, recognise
from sequor.metrics import better
from sequor.records import JudgementRecord, TurnRecord
from sequor.types import Dialogue


class Agreement(Struct):
    """Of one judge on one kind of constraint. Counts of judgements."""

    followed_yes: int = 0
    """The answer follows the constraint, and the judge says so."""
    followed_no: int = 0
    broken_yes: int = 0
    """The answer breaks the constraint, and the judge says that it follows it."""
    broken_no: int = 0
    unreadable: int = 0

    @property
    def read(self) -> int:
        return self.followed_yes + self.followed_no + self.broken_yes + self.broken_no

    @property
    def share(self) -> float | None:
        """Of the readable verdicts, those that are right."""
        return (self.followed_yes + self.broken_no) / self.read if self.read else None

    def add(self, other: "Agreement") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def agreements(
    dialogues: Iterable[Dialogue], turns: Iterable[TurnRecord], judgements: Iterable[JudgementRecord], detect: Detect
) -> dict[str, dict[str, Agreement]]:
    """Judge -> kind -> agreement, over all judgements of checkable constraints on answers."""
    checks: dict[str, Check | None] = {}
    for dialogue in dialogues:
        for turn in dialogue.turns:
            for constraint in turn.in_force:
                if constraint.id not in checks:
                    checks[constraint.id] = recognise(constraint.text)
    statuses: dict[tuple[str, tuple[str, str, int], str], str] = {}
    for record in judgements:
        if checks.get(record.constraint) is not None:
            key = record.judge, (record.test_set, record.dialogue, record.turn), record.constraint
            statuses[key] = better(statuses.get(key), record.status)
    answers = {(t.test_set, t.dialogue, t.turn): t.answer for t in turns if t.answer is not None}
    found: dict[str, dict[str, Agreement]] = {}
    for (judge, turn, constraint), status in statuses.items():
        check, answer = checks[constraint], answers.get(turn)
        if check is None or answer is None or status == "judge_error":
            continue
        truth = holds(check, answer, detect)
        if truth is not None:
            kind = found.setdefault(judge, {}).setdefault(check.kind, Agreement())
            _count(kind, truth, status)
    return found


def total(kinds: dict[str, Agreement]) -> Agreement:
    added = Agreement()
    for agreement in kinds.values():
        added.add(agreement)
    return added


def _count(agreement: Agreement, truth: bool, status: str) -> None:
    if status == "unreadable":
        agreement.unreadable += 1
        return
    name = f"{'followed' if truth else 'broken'}_{'yes' if status == 'satisfied' else 'no'}"
    setattr(agreement, name, getattr(agreement, name) + 1)
