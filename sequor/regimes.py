"""Which constraints are given, and which are in force, at each turn of a dialogue (paper, section 3.1).

1. Pure: decks of constraints and a `random.Random` come in, a plan goes out: its changes, in the order of turns.
2. A plan begins with a start at turn 1. An add keeps what is in force; a replace drops all of it.
3. In force is never nothing and never more than `limit`: one constraint alone, or members of one compatible tuple.
   What is added therefore always comes from the tuple that is in force.
4. A replace never gives a constraint that it drops; within a Replace dialogue no constraint comes twice.

The process behind Everything, recovered from the release (200 dialogues, all their turns; 2,987 draws, 1,180 adds):
  - when everything drawn so far has been given, the next change draws anew and replaces: with equal odds one
    constraint from the pool of singles or one compatible tuple;
  - while members of the tuple have not been given, the next change adds: 1, 2, ... or all of them, with equal odds,
    and in the tuple's order (this holds for the start and for the replace that opens the tuple, too).
So two in force are always followed by an add, three by a replace, one by an add a quarter of the time.
In Add, unlike there, the release gives a tuple's members in random order.
"""

import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from sequor.errors import BadInput
from sequor.types import Constraint, ConstraintTuple, Regime

ChangeKind = Literal["start", "add", "replace"]
Rhythm = Literal["paper", "release"]
"""When Everything changes its constraints: after each random step of 1 to 5 turns (`paper`), or first after one and
then at every second of them (`release`, what the released dialogues do)."""


class Change(Struct, frozen=True):
    turn: int
    """Counts from 1."""
    kind: ChangeKind
    given: tuple[Constraint, ...]


Plan = tuple[Change, ...]
T = TypeVar("T", Constraint, ConstraintTuple)


class Deck(Generic[T]):
    """Cards in random order, none twice until all were dealt or none of the rest fits; then all are shuffled again."""

    def __init__(self, cards: Iterable[T], rng: Random):
        self.cards: list[T] = list(cards)
        self._rng = rng
        self._left: list[T] = []

    def draw(self, fits: Callable[[T], bool] = lambda card: True) -> T | None:
        """The next card that fits; those that do not stay where they are. None when no card of the whole deck fits."""
        return self._take(fits) or self._shuffled()._take(fits)

    def _take(self, fits: Callable[[T], bool]) -> T | None:
        for position in range(len(self._left) - 1, -1, -1):
            if fits(self._left[position]):
                return self._left.pop(position)
        return None

    def _shuffled(self) -> "Deck[T]":
        self._left = self._rng.sample(self.cards, len(self.cards))
        return self


def parse_name(name: str) -> tuple[Regime, int]:
    """A test set's regime and its number: the step of Replace and Add, the tuples' size; 0 where there is none.

    The seven names of the release are `types.TEST_SETS`; other steps and sizes are read in the same way.
    """
    if not is_name(name):
        raise BadInput(f"{name!r} is no test set: single, tuples_3, replace_STEP, add_STEP, everything")
    regime, _, number = name.partition("_")
    return Regime(regime), int(number or 0)


def is_name(name: str) -> bool:
    return re.fullmatch(r"single|everything|(tuples|replace|add)_[1-9][0-9]{0,5}", name) is not None


def change_turns(turns: int, step: int) -> list[int]:
    """Turns of a regular rhythm: 1, 1 + step, 1 + 2 step ..."""
    return list(range(1, turns + 1, step))


def random_change_turns(turns: int, longest: int, rhythm: Rhythm, rng: Random) -> list[int]:
    """Turn 1 and the turns after random steps of 1 to `longest` turns; in the release's rhythm every second of them."""
    found, turn = [1], 1
    while True:
        turn += rng.randint(1, longest)
        if rhythm == "release" and len(found) > 1:
            turn += rng.randint(1, longest)
        if turn > turns:
            return found
        found.append(turn)


def plan_single(singles: Deck[Constraint]) -> Plan:
    return (Change(1, "start", (_drawn(singles.draw(), "Single", "constraint"),)),)


def plan_tuples(tuples: Deck[ConstraintTuple]) -> Plan:
    return (Change(1, "start", _drawn(tuples.draw(), "Tuples", "tuple").constraints),)


def plan_replace(singles: Deck[Constraint], turns: int, step: int) -> Plan:
    changes: list[Change] = []
    used: set[str] = set()
    for turn in change_turns(turns, step):
        constraint = _drawn(singles.draw(lambda card: card.id not in used), "Replace", "further constraint")
        used.add(constraint.id)
        changes.append(Change(turn, "replace" if changes else "start", (constraint,)))
    return tuple(changes)


def plan_add(tuples: Deck[ConstraintTuple], turns: int, step: int, limit: int, rng: Random) -> Plan:
    drawn = _drawn(tuples.draw(), "Add", "tuple").constraints
    order = rng.sample(drawn, min(limit, len(drawn)))
    return tuple(
        Change(turn, "add" if turn > 1 else "start", (constraint,))
        for turn, constraint in zip(change_turns(turns, step), order, strict=False)
    )


def plan_everything(
    singles: Deck[Constraint],
    tuples: Deck[ConstraintTuple],
    turns: int,
    rng: Random,
    *,
    longest: int = 5,
    limit: int = 3,
    rhythm: Rhythm = "release",
) -> Plan:
    changes: list[Change] = []
    given: tuple[Constraint, ...] = ()
    waiting: tuple[Constraint, ...] = ()
    for turn in random_change_turns(turns, longest, rhythm, rng):
        kind: ChangeKind = "add" if waiting else "replace" if changes else "start"
        if not waiting:
            waiting = _draw_anew(singles, tuples, frozenset(c.id for c in given), limit, rng)
            given = ()
        count = rng.randint(1, len(waiting))
        changes.append(Change(turn, kind, waiting[:count]))
        given, waiting = given + waiting[:count], waiting[count:]
    return tuple(changes)


def _draw_anew(
    singles: Deck[Constraint], tuples: Deck[ConstraintTuple], dropped: frozenset[str], limit: int, rng: Random
) -> tuple[Constraint, ...]:
    """One constraint or the members of one tuple, none of them dropped by the same change."""
    from_singles = rng.random() < 0.5
    for turn_to_singles in (from_singles, not from_singles):  # the other source, when this one has nothing that fits
        if turn_to_singles:
            single = singles.draw(lambda card: card.id not in dropped)
            if single:
                return (single,)
        else:
            drawn = tuples.draw(lambda card: dropped.isdisjoint(c.id for c in card.constraints))
            if drawn:
                return _at_most(limit, drawn.constraints, rng)
    raise BadInput("Everything: no constraint and no tuple in the pool to replace those in force; give it more")


def _at_most(limit: int, constraints: tuple[Constraint, ...], rng: Random) -> tuple[Constraint, ...]:
    kept = sorted(rng.sample(range(len(constraints)), min(limit, len(constraints))))
    return tuple(constraints[position] for position in kept)


def _drawn(card: T | None, regime: str, what: str) -> T:
    if card is None:
        raise BadInput(f"{regime}: the pool has no {what} to give")
    return card


def in_force(plan: Plan, turns: int) -> list[tuple[Constraint, ...]]:
    """For each of the turns the constraints in force, in the order in which they were given."""
    changes = {change.turn: change for change in plan}
    found: list[tuple[Constraint, ...]] = []
    now: tuple[Constraint, ...] = ()
    for turn in range(1, turns + 1):
        if change := changes.get(turn):
            now = now + change.given if change.kind == "add" else change.given
        found.append(now)
    return found
