"""A run as columns: what every figure and table of the report is made from. No text of a model is in it.

1. A slot is one constraint in force at one turn of one dialogue: what a judge is asked. Slots stand in the order of
   dialogue, turn, and position in force (the order in which the constraints were given).
2. Codes of verdicts: SATISFIED, VIOLATED, UNREADABLE, JUDGE_ERROR, MISSING (never asked, or not yet). Whether a turn
   passed follows from its slots by rule 1 of `sequor.metrics`; `turn_results` is the same rule on columns.
3. Turns count from 0 in arrays and from 1 wherever a person reads them.
4. A constraint's spell is the stretch of turns over which it is in force; `given` is the turn that began it.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sequor.metrics import FAILED, MIN_COVERAGE, PASSED, UNDECIDED
from sequor.types import Constraint

SATISFIED, VIOLATED, UNREADABLE, JUDGE_ERROR, MISSING = range(5)
VERDICTS = ("satisfied", "violated", "unreadable", "judge_error", "missing")
UNTOLD, BROKEN, HOLDS = -1, 0, 1
"""What a program finds of a constraint on an answer; UNTOLD where it cannot tell."""
STATUSES = (
    "missing",
    "ok",
    "truncated",
    "empty",
    "reasoning_unfinished",
    "context_overflow",
    "template_error",
    "other",
)
"""Codes of turns, by position."""


class Turns(Struct, frozen=True):
    """Arrays of shape (dialogues, turns)."""

    status: np.ndarray
    """Codes of STATUSES, int8."""
    dropped: np.ndarray
    """Earliest turns that the sliding window left out of this turn's prompt."""
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    """Reasoning included."""
    answer_size: np.ndarray
    """Bytes of the answer as JSON, quotes included."""
    reasoning_size: np.ndarray
    user_size: np.ndarray
    """Characters of the user's turn."""
    digest: np.ndarray
    """uint64: hash of the user's turns and constraints from the first turn to this one."""


class Slots(Struct, frozen=True):
    """Arrays of one length; rule 1."""

    dialogue: np.ndarray
    turn: np.ndarray
    constraint: np.ndarray
    """Index into `Run.constraints`."""
    position: np.ndarray
    """0 for the constraint that was given first among those in force."""
    count: np.ndarray
    """Constraints in force at that turn."""
    given: np.ndarray
    """Turn at which its spell began."""

    def __len__(self) -> int:
        return len(self.turn)

    @property
    def age(self) -> np.ndarray:
        """Turns since the constraint was given; 0 at that turn."""
        return self.turn - self.given


class SetFrame(Struct, frozen=True):
    name: str
    dialogues: tuple[str, ...]
    turns: Turns
    slots: Slots
    verdicts: dict[str, np.ndarray]
    """Judge -> codes, one a slot, int8."""
    completion: dict[str, np.ndarray]
    """Judge -> codes of the verdicts on task completion, shape (dialogues, turns). Empty where it was not asked."""
    truth: np.ndarray
    """UNTOLD, BROKEN or HOLDS, one a slot, int8."""

    @property
    def length(self) -> int:
        """Turns of a dialogue."""
        return self.turns.status.shape[1]

    def cut(self, turns: int) -> "SetFrame":
        """The first `turns` turns."""
        if turns >= self.length:
            return self
        keep = self.slots.turn < turns
        of_turns = Turns(*(getattr(self.turns, f)[:, :turns] for f in Turns.__struct_fields__))
        of_slots = Slots(*(getattr(self.slots, f)[keep] for f in Slots.__struct_fields__))
        verdicts = {judge: codes[keep] for judge, codes in self.verdicts.items()}
        completion = {judge: codes[:, :turns] for judge, codes in self.completion.items()}
        return replace(
            self, turns=of_turns, slots=of_slots, verdicts=verdicts, completion=completion, truth=self.truth[keep]
        )

    def checked(self, judge: str) -> np.ndarray:
        """Slots with a readable verdict of this judge that a program can check."""
        return (self.truth != UNTOLD) & (self.verdicts[judge] <= VIOLATED)

    def results(self, judge: str) -> np.ndarray:
        return turn_results(self.slots, self.verdicts[judge], len(self.dialogues), self.length)

    @property
    def out_of_window(self) -> np.ndarray:
        """Per slot: whether the turn that gave the constraint had left the prompt."""
        return self.slots.given < self.turns.dropped[self.slots.dialogue, self.slots.turn]


class Run(Struct, frozen=True):
    """One run folder, read."""

    path: str
    label: str
    model: str
    judge: str | None
    """The judge that the report goes by; None when nothing was judged."""
    judges: tuple[str, ...]
    sets: dict[str, SetFrame]
    constraints: tuple[Constraint, ...]
    repeated: int = 0
    """Records of a key that was there already; the first counts."""
    chosen: bool = False
    """The judge was made to choose a verdict; it could not leave one out, nor reason."""
    min_coverage: float = MIN_COVERAGE
    """Of a test set, below which it has no headline."""

    @property
    def length(self) -> int:
        return max(frame.length for frame in self.sets.values())

    @property
    def played(self) -> float:
        """Share of the turns that have a record."""
        status = [frame.turns.status.ravel() for frame in self.sets.values()]
        return float(np.mean(np.concatenate(status) != 0))

    @property
    def judged(self) -> float:
        """Share of the slots of answered turns that have a record of the main judge."""
        asked = done = 0
        for frame in self.sets.values() if self.judge else ():
            status = frame.turns.status[frame.slots.dialogue, frame.slots.turn]
            answered = (status == 1) | (status == 2)
            asked += int(answered.sum())
            done += int((frame.verdicts[self.judge][answered] != MISSING).sum())
        return done / asked if asked else 0.0

    @property
    def complete(self) -> bool:
        return self.played == 1.0 and self.judged == 1.0


def turn_results(slots: Slots, verdicts: np.ndarray, dialogues: int, turns: int) -> np.ndarray:
    """Codes of `sequor.metrics`; int8, shape (dialogues, turns)."""
    cell = slots.dialogue.astype(np.int64) * turns + slots.turn
    asked = np.bincount(cell, minlength=dialogues * turns)
    violated = np.bincount(cell, weights=verdicts == VIOLATED, minlength=dialogues * turns)
    satisfied = np.bincount(cell, weights=verdicts == SATISFIED, minlength=dialogues * turns)
    codes = np.full(dialogues * turns, UNDECIDED, np.int8)
    codes[satisfied == asked] = PASSED
    codes[violated > 0] = FAILED
    return codes.reshape(dialogues, turns)
