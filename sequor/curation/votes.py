"""Votes of judges over contexts -> percentages. Pure.

1. A vote is yes, no, or unreadable. An unreadable one is no vote: it is counted apart and enters no percentage; neither
   does one that has not been given.
2. A judge's percentage is its own yes over its own readable votes. Judges are never pooled.
3. All together: over the contexts in which every judge has a readable vote; `yes` where all say yes, `agree` where all
   say the same.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

MISSING, NO, YES, UNREADABLE = -1, 0, 1, 2


class Tally(Struct, frozen=True):
    yes: int
    n: int
    """Readable votes, or contexts in which all have one."""
    unreadable: int = 0

    @property
    def percent(self) -> float | None:
        """Exact where it is a round number: 7 of 10 are 70.0."""
        return 100 * self.yes / self.n if self.n else None


class Count(Struct, frozen=True):
    """One constraint's votes in one measure."""

    judges: dict[str, Tally]
    all_yes: Tally
    all_agree: Tally

    @property
    def lowest(self) -> float | None:
        """Of the judge who says yes least; None when one has no readable vote."""
        percents = [tally.percent for tally in self.judges.values()]
        return None if None in percents or not percents else min(percents)

    @property
    def fewest(self) -> int:
        """Readable votes of the judge with fewest."""
        return min((tally.n for tally in self.judges.values()), default=0)


class Ballot:
    """The votes on many things at once: one byte each, [judge, thing, context]."""

    def __init__(self, judges: Sequence[str], things: int, contexts: int):
        self.judges = list(judges)
        self._at = {judge: at for at, judge in enumerate(self.judges)}
        self._votes = np.full((len(self.judges), things, contexts), MISSING, dtype=np.int8)

    def cast(self, judge: str, thing: int, context: int, vote: bool | None) -> None:
        """`vote` None: unreadable."""
        self._votes[self._at[judge], thing, context] = UNREADABLE if vote is None else int(vote)

    def count(self, thing: int, yes: int = YES) -> Count:
        """`yes`: the vote that is counted: triviality counts those who find an answer NOT satisfying."""
        votes = self._votes[:, thing, :]
        readable = (votes == YES) | (votes == NO)
        judges = {
            judge: Tally(int((votes[at] == yes).sum()), int(readable[at].sum()), int((votes[at] == UNREADABLE).sum()))
            for judge, at in self._at.items()
        }
        shared = readable.all(axis=0)
        unshared = int(((votes != MISSING).all(axis=0) & ~shared).sum())
        n = int(shared.sum())
        all_yes = int(((votes == yes).all(axis=0) & shared).sum())
        agree = int(((votes == votes[:1]).all(axis=0) & shared).sum())
        return Count(judges, Tally(all_yes, n, unshared), Tally(agree, n, unshared))

    def all_yes(self, thing: int) -> np.ndarray:
        """For each context whether every judge says yes; an unreadable or missing vote is none."""
        return (self._votes[:, thing, :] == YES).all(axis=0)
