"""How constraints are lost: which broke first, whether it is ever kept again, how long dialogues last. Pure.

1. A spell (one constraint over the turns it is in force) is read in the order of its readable verdicts; what is
   unreadable or missing is passed over.
2. Each violation is one of: `never` (not satisfied at any earlier turn of its spell), `broke` (its first violation
   after being satisfied), `again` (satisfied at the last reading, but violated before), `stays` (violated at the last
   reading, satisfied at an earlier one).
3. A failed turn takes the newest of the kinds of its violations: broke, again, stays, never, in this order.
4. Survival is Kaplan and Meier's: the event is the first failed turn; a dialogue leaves the sample at its first
   undecided turn, because what happened there is not known.
5. A spell is broken from its first violation on; it recovers when a later reading of it is satisfied. Spells whose
   first violation is their last reading say nothing about recovery and are left out of its share.
"""

import numpy as np
from msgspec import Struct

from sequor.metrics import FAILED, UNDECIDED
from sequor.report.frame import SATISFIED, VIOLATED, Slots

KINDS = ("broke", "again", "stays", "never")
NONE = -1


class Spells(Struct, frozen=True):
    """One value a spell that has a violation and a reading after it (rule 5)."""

    dialogue: np.ndarray
    broken_at: np.ndarray
    """Turns since the constraint was given, at the first violation."""
    recovers: np.ndarray
    """Whether it is satisfied at any later reading."""
    next_satisfied: np.ndarray
    """Whether it is satisfied at the very next reading."""


def violation_kinds(slots: Slots, verdicts: np.ndarray) -> np.ndarray:
    """Rule 2: an index into KINDS for each violated slot, NONE for the others. int8, one a slot."""
    order, start, satisfied = _readings(slots, verdicts)
    kinds = np.full(len(slots), NONE, np.int8)
    if not len(order):
        return kinds
    ever_satisfied = _before(satisfied, start)
    ever_violated = _before(~satisfied, start)
    previous = np.concatenate([[False], satisfied[:-1]])
    kind = np.select(
        [~ever_satisfied, ~previous, ever_violated], [KINDS.index("never"), KINDS.index("stays"), KINDS.index("again")]
    ).astype(np.int8)  # otherwise 0: broke
    kinds[order] = np.where(satisfied, NONE, kind)
    return kinds


def failed_turn_kinds(slots: Slots, verdicts: np.ndarray, results: np.ndarray) -> np.ndarray:
    """Rule 3: an index into KINDS for each failed turn, NONE for the others. Shape of `results`."""
    kinds = violation_kinds(slots, verdicts)
    violated = kinds != NONE
    newest = np.full(results.shape, len(KINDS), np.int8)
    np.minimum.at(newest, (slots.dialogue[violated], slots.turn[violated]), kinds[violated])
    return np.where(results == FAILED, newest, NONE).astype(np.int8)


def broken_spells(slots: Slots, verdicts: np.ndarray) -> Spells:
    """Rule 5."""
    order, start, satisfied = _readings(slots, verdicts)
    if not len(order):
        empty = np.zeros(0, np.int32)
        return Spells(empty, empty, empty.astype(bool), empty.astype(bool))
    spell = np.cumsum(start) - 1
    first = ~satisfied & ~_before(~satisfied, start)
    last = np.concatenate([start[1:], [True]])
    at = np.flatnonzero(first & ~last)
    broken_before = _before(~satisfied, start)
    recovered = np.bincount(spell, weights=satisfied & broken_before, minlength=spell[-1] + 1) > 0
    return Spells(
        dialogue=slots.dialogue[order[at]],
        broken_at=slots.age[order[at]],
        recovers=recovered[spell[at]],
        next_satisfied=satisfied[at + 1],
    )


def first_breaks(slots: Slots, verdicts: np.ndarray, results: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which positions were violated at the first failed turn of each dialogue.

    Returns (positions violated, in force there): counts, shape (dialogues, most in force) and (dialogues,); zero for a
    dialogue that never fails.
    """
    turn = first_failure(results)
    most = int(slots.count.max(initial=1))
    here = slots.turn == turn[slots.dialogue]
    positions = np.zeros((len(results), most), np.int32)
    hit = here & (verdicts == VIOLATED)
    np.add.at(positions, (slots.dialogue[hit], slots.position[hit]), 1)
    count = np.zeros(len(results), np.int32)
    count[slots.dialogue[here]] = slots.count[here]
    return positions, count


def first_failure(results: np.ndarray) -> np.ndarray:
    """Turn (from 0) of the first failed turn, NONE for a dialogue without one."""
    failed = results == FAILED
    return np.where(failed.any(axis=1), failed.argmax(axis=1), NONE)


def events_and_risks(results: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rule 4, per dialogue and turn: whether it fails for the first time here, and whether it was still followed."""
    failed, lost = results == FAILED, results == UNDECIDED
    over = np.cumsum(failed | lost, axis=1)
    followed = (over - (failed | lost) == 0) & ~lost
    return failed & followed, followed


def survival(drawn: np.ndarray, results: np.ndarray) -> np.ndarray:
    """Share of dialogues without a failed turn up to each turn; drawn as in `statistics`. (resamples, turns); NaN from
    the turn on at which nobody is followed any more."""
    events, risks = events_and_risks(results)
    failed, followed = drawn @ events.astype(np.float32), drawn @ risks.astype(np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        hazard = np.where(followed > 0, failed / followed, 0)
    curve = np.cumprod(1 - hazard, axis=1)
    gone = np.cumsum(followed > 0, axis=1)[:, -1:] <= np.arange(results.shape[1])
    return np.where(gone & (curve > 0), np.nan, curve)


def _readings(slots: Slots, verdicts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Readable slots by spell and turn: their indices, where a spell starts, whether satisfied."""
    readable = np.flatnonzero((verdicts == SATISFIED) | (verdicts == VIOLATED))
    keys = (slots.turn, slots.given, slots.constraint, slots.dialogue)
    order = readable[np.lexsort([key[readable] for key in keys])]
    spell = np.stack([slots.dialogue[order], slots.constraint[order], slots.given[order]])
    start = np.ones(len(order), bool)
    start[1:] = (spell[:, 1:] != spell[:, :-1]).any(axis=0)
    return order, start, verdicts[order] == SATISFIED


def _before(flags: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Whether any earlier entry of the same spell is true."""
    running = np.cumsum(flags) - flags
    base = np.maximum.accumulate(np.where(start, np.arange(len(flags)), 0))
    return running > running[base]
