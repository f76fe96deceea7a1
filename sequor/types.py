"""The nouns of the benchmark: constraints, tasks, dialogues, questions to the judge and their answers.

Numbers of turns and positions count from 1 wherever a person reads them (records, tables) and in this file.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct


class Regime(StrEnum):
    """How constraints come and go over a dialogue (paper, section 3.1)."""

    SINGLE = "single"
    TUPLES = "tuples"
    REPLACE = "replace"
    ADD = "add"
    EVERYTHING = "everything"


TEST_SETS = ("single", "tuples_3", "replace_5", "replace_10", "add_5", "add_10", "everything")
"""The seven test sets of the release, in the order of every table."""


class Constraint(Struct, frozen=True):
    id: str
    text: str
    category: str | None = None


class ConstraintTuple(Struct, frozen=True):
    """Constraints that one answer can satisfy together."""

    id: str
    constraints: tuple[Constraint, ...]


class Persona(Struct, frozen=True):
    id: str
    text: str


class Task(Struct, frozen=True):
    """A question that the persona asks while busy with the activity."""

    persona: str
    activity: str
    prompt: str


class UserTurn(Struct, frozen=True):
    """What the user says, and the constraints in force when the answer is given."""

    prompt: str
    in_force: tuple[Constraint, ...]


class Dialogue(Struct, frozen=True):
    test_set: str
    id: str
    turns: tuple[UserTurn, ...]

    @property
    def key(self) -> str:
        return f"{self.test_set}/{self.id}"


class TestSet(Struct, frozen=True):
    __test__ = False  # no test class, whatever pytest thinks of the name

    name: str
    dialogues: tuple[Dialogue, ...]


TASK_COMPLETION = "task_completion"
"""Stands where a constraint's id does, for the question whether the answer does its task. The released benchmark asks
it too."""


class Question(Struct, frozen=True):
    """One constraint to be judged on one answer: the key of a judgement, and what the judge is asked."""

    test_set: str
    dialogue: str
    turn: int
    constraint: str
    """Its id, or TASK_COMPLETION."""
    judge: str
    prompt: str
    attempt: int = 1
    """How often it has been asked, this time included."""

    @property
    def key(self) -> str:
        """Without the attempt: what is to be known."""
        return f"{self.test_set}/{self.dialogue}/{self.turn}/{self.constraint}/{self.judge}"


Verdict = Literal["satisfied", "violated", "unreadable"]
JudgementStatus = Literal["satisfied", "violated", "unreadable", "judge_error"]
