"""Ratings -> pool: thresholds, and what other thresholds would leave. Pure; no model is asked.

1. A constraint stays when each of its three percentages is at least its threshold: 70 is kept, 69.9 is not.
2. A percentage is that of the judge who finds it lowest (satisfiability, triviality), or the share of tasks in which
   all judges agree (subjectivity): the release's names, all of which say how good a constraint is, not how bad.
3. What was not rated, or got too few readable votes, does not stay.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from sequor.curation.candidates import CATEGORIES
from sequor.errors import BadInput
from sequor.jsonl import rows
from sequor.metrics import MIN_COVERAGE
from sequor.types import Constraint

MEASURES = ("satisfiability", "triviality", "subjectivity")
FIGURES = {"satisfiability": (12, 13), "triviality": (14, 15), "subjectivity": (16, 17)}
"""The paper's figures: kept against the threshold, and the distribution (appendix A.2)."""
THRESHOLD = 70.0
"""Paper, section 2."""
BIN = 5
"""Percent in a bin of the distributions."""


class Rated(Struct, frozen=True):
    """A constraint with its percentages, 0 to 100; None: no readable vote."""

    constraint: str
    id: str
    satisfiability: float | None = None
    triviality: float | None = None
    subjectivity: float | None = None
    category: str | None = None
    n: dict[str, int] | None = None
    """Measure -> readable votes of the judge with fewest."""


def read_ratings(path: Path) -> list[Rated]:
    """Of `rate`, or the release's pool. Raises BadInput with file and line."""
    source = path / "ratings.jsonl" if path.is_dir() else path
    found: dict[str, Rated] = {}
    for number, row in rows(source, Rated):
        where = f"{source}:{number}"
        if row.id in found:
            raise BadInput(f"{where}: id {row.id} stands here for the second time")
        for measure in MEASURES:
            value = getattr(row, measure)
            if value is not None and not 0 <= value <= 100:
                raise BadInput(f"{where}: {measure} {value} is no percentage")
        found[row.id] = row
    if not found:
        raise BadInput(f"{source}: holds no constraint")
    if not any(getattr(row, measure) is not None for row in found.values() for measure in MEASURES):
        raise BadInput(f"{source}: none of its constraints has {', '.join(MEASURES)}; is this a file of `rate`?")
    return list(found.values())


def losses(row: Rated, thresholds: Mapping[str, float], votes: int = 1) -> list[str]:
    """Why it does not stay; empty: it does. `votes`: readable ones that each judge must have given."""
    found = []
    for measure in MEASURES:
        value, n = getattr(row, measure), (row.n or {}).get(measure)
        if value is None:
            found.append(f"{measure}: no rating")
        elif n is not None and n < votes:
            found.append(f"{measure}: {n} readable votes, {votes} wanted")
        elif value < thresholds[measure]:
            found.append(f"{measure}: {value:g} below {thresholds[measure]:g}")
    return found


def thin(rated: Iterable[Rated], kept: Iterable[Rated]) -> tuple[int, int]:
    """How many of the kept rest, in some measure, on less than MIN_COVERAGE of the votes that the best known one has
    there: a hundred percent of few. And the least votes that would be enough in every measure."""
    most = Counter[str]()
    for row in rated:
        most |= Counter(row.n or {})
    enough = {measure: math.ceil(MIN_COVERAGE * count) for measure, count in most.items()}
    few = [row for row in kept if any(count < enough[measure] for measure, count in (row.n or {}).items())]
    return len(few), max(enough.values(), default=0)


def constraint_of(row: Rated) -> Constraint:
    return Constraint(row.id, row.constraint, row.category)


def kept_at(values: Iterable[float | None], thresholds: Sequence[float]) -> list[int]:
    """How many are at least each threshold."""
    known = [value for value in values if value is not None]
    return [sum(value >= threshold for value in known) for threshold in thresholds]


def bins(values: Iterable[float | None]) -> list[tuple[int, int, int]]:
    """From, to (percent), count: [0, 5), [5, 10) ... [95, 100], the last one with its end."""
    counts = Counter(min(int(value // BIN), 100 // BIN - 1) for value in values if value is not None)
    return [(at * BIN, (at + 1) * BIN, counts[at]) for at in range(100 // BIN)]


def sweep(rated: Sequence[Rated], thresholds: Sequence[float]) -> list[tuple[float, ...]]:
    """Threshold, kept by each measure alone, kept by all three."""
    alone = [kept_at([getattr(row, measure) for row in rated], thresholds) for measure in MEASURES]
    worst = [_worst(row) for row in rated]
    return list(zip(thresholds, *alone, kept_at(worst, thresholds), strict=True))


def _worst(row: Rated) -> float | None:
    values = [getattr(row, measure) for measure in MEASURES]
    return None if None in values else min(values)


def category_counts(categories: Iterable[str | None]) -> dict[str, int]:
    """Figure 22: the four, and `none` for what belongs to none of them."""
    counts = Counter(category if category in CATEGORIES else "none" for category in categories)
    return {category: counts[category] for category in (*CATEGORIES, "none")}
