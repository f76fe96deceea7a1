"""Accuracy apart by what surrounds a constraint: its category, how many are in force, its age, the window. Pure.

1. A rate of constraints is satisfied / (satisfied + violated) over slots; what is unreadable or missing is in neither.
2. Groups are compared over all sets of a run, or over one. Clusters of the bootstrap are dialogue ids: the persona's
   dialogues in all seven sets are drawn together.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from sequor.metrics import FAILED, PASSED
from sequor.report.analysis import Analysis, Curve
from sequor.report.frame import HOLDS, MISSING, SATISFIED, UNTOLD, VIOLATED, Run, SetFrame
from sequor.report.statistics import UNKNOWN, Estimate, estimate, interval, kappa, ratio, ratios

CATEGORIES = ("linguistic_guidelines", "style_rules", "format_specifications", "number_limitations")


class Groups(Struct, frozen=True):
    """One entry a group."""

    curve: Curve
    count: np.ndarray
    """Readable verdicts (or decided turns) behind each."""


class Hardness(Struct, frozen=True):
    """One constraint over all models and sets."""

    id: str
    text: str
    category: str | None
    dialogues: int
    verdicts: int
    satisfied: float
    low: float
    high: float


class Agreement(Struct, frozen=True):
    """Two judges on the same answers."""

    run: int
    first: str
    second: str
    both: int
    """Constraints on which both have a readable verdict."""
    same: float
    kappa: float
    first_yes: float
    second_yes: float
    accuracy: tuple[float, float]
    """Share of turns passed among those decided by both."""
    unreadable: tuple[float, float]


class Tally:
    """Hits and tries by cluster and group, added up over sets."""

    def __init__(self, clusters: Iterable[str], groups: int):
        self.clusters = tuple(clusters)
        self.rows = {id: row for row, id in enumerate(self.clusters)}
        self.groups = groups
        self.hits = np.zeros((len(self.clusters), groups))
        self.tries = np.zeros((len(self.clusters), groups))

    def add(self, ids: tuple[str, ...], dialogue: np.ndarray, group: np.ndarray, hit: np.ndarray) -> None:
        """`dialogue`: positions in `ids`, one an observation, as are `group` and `hit`."""
        cluster = np.array([self.rows[id] for id in ids], np.int64)[dialogue]
        cell = cluster * self.groups + group
        size = self.hits.size
        self.hits += np.bincount(cell, weights=hit, minlength=size).reshape(self.hits.shape)
        self.tries += np.bincount(cell, minlength=size).reshape(self.tries.shape)

    def result(self, analysis: Analysis) -> Groups:
        samples = ratios(analysis.drawn(self.clusters), self.hits, self.tries)
        return Groups(Curve(ratio(self.hits, self.tries), *interval(samples)), self.tries.sum(axis=0).astype(int))


def frames(run: Run, test_set: str | None = None) -> list[SetFrame]:
    return [frame for name, frame in run.sets.items() if test_set in (None, name)]


def clusters(run: Run) -> tuple[str, ...]:
    """Dialogue ids of all sets, each once, in their order."""
    return tuple(dict.fromkeys(id for frame in run.sets.values() for id in frame.dialogues))


def of_constraints(analysis: Analysis, m: int, key: str, groups: int, test_set: str | None = None) -> Groups:
    """Rate of satisfied constraints by `key`: `age`, `count`, or `window` (0 in context, 1 out of it)."""
    run, tally = analysis.runs[m], Tally(clusters(analysis.runs[m]), groups)
    for frame in frames(run, test_set):
        codes = frame.verdicts[run.judge or ""]
        read = codes <= VIOLATED
        group = frame.out_of_window.astype(int) if key == "window" else getattr(frame.slots, key)
        tally.add(
            frame.dialogues, frame.slots.dialogue[read], np.minimum(group[read], groups - 1), codes[read] == SATISFIED
        )
    return tally.result(analysis)


def in_context_at_these_ages(analysis: Analysis, m: int) -> Estimate:
    """What the rate in context would be if constraints in context were as old as those out of it are: the rates of the
    single ages, weighted by how many verdicts out of context have that age (direct standardisation). Unknown when less
    than half of those have their like in context."""
    run, turns = analysis.runs[m], analysis.turns
    tally = Tally(clusters(run), 2 * turns)
    for frame in run.sets.values():
        codes = frame.verdicts[run.judge or ""]
        read = codes <= VIOLATED
        group = frame.slots.age + turns * frame.out_of_window
        tally.add(frame.dialogues, frame.slots.dialogue[read], group[read], codes[read] == SATISFIED)
    weight = tally.tries[:, turns:].sum(axis=0)
    rates = ratio(tally.hits, tally.tries)[:turns]
    samples = ratios(analysis.drawn(tally.clusters), tally.hits, tally.tries)[:, :turns]
    shared = np.isfinite(rates) & (weight > 0)
    if weight[shared].sum() < 0.5 * max(1, weight.sum()):
        return UNKNOWN
    drawn, weight = samples[:, shared], weight[shared]
    there = np.isfinite(drawn)
    means = np.where(there, drawn, 0) @ weight / np.maximum(there @ weight, 1e-9)
    return estimate(float(rates[shared] @ weight / weight.sum()), means)


def of_turns_by_count(analysis: Analysis, m: int, most: int) -> Groups:
    """Per-turn accuracy by the number of constraints in force (index 0: one)."""
    run, tally = analysis.runs[m], Tally(clusters(analysis.runs[m]), most)
    for frame in frames(run):
        codes = analysis.cells[m, frame.name].results
        count = np.zeros(codes.shape, int)
        count[frame.slots.dialogue, frame.slots.turn] = frame.slots.count
        rows, turns = np.nonzero((codes <= FAILED) & (count > 0))
        tally.add(frame.dialogues, rows, np.minimum(count[rows, turns], most) - 1, codes[rows, turns] == PASSED)
    return tally.result(analysis)


def of_categories(analysis: Analysis, m: int, categories: Mapping[str, str]) -> Groups:
    """In the order of CATEGORIES; constraints without a known category are left out."""
    run, tally = analysis.runs[m], Tally(clusters(analysis.runs[m]), len(CATEGORIES))
    names = [category_of(c.id, c.category, categories) for c in run.constraints]
    known = np.array([CATEGORIES.index(name) if name in CATEGORIES else -1 for name in names])
    for frame in frames(run):
        codes, group = frame.verdicts[run.judge or ""], known[frame.slots.constraint]
        read = (codes <= VIOLATED) & (group >= 0)
        tally.add(frame.dialogues, frame.slots.dialogue[read], group[read], codes[read] == SATISFIED)
    return tally.result(analysis)


def category_of(id: str, own: str | None, categories: Mapping[str, str]) -> str | None:
    """As CATEGORIES writes them: "Style rules" and "style-rules" are style_rules."""
    name = own or categories.get(id)
    return name.strip().lower().replace(" ", "_").replace("-", "_") if name else None


def hardness(analysis: Analysis, categories: Mapping[str, str]) -> list[Hardness]:
    """Hardest first. The bootstrap draws personas, over all models together."""
    if not analysis.judged:
        return []
    known = {c.id: c for m in analysis.judged for c in analysis.runs[m].constraints}
    numbers = {id: number for number, id in enumerate(known)}
    everyone = tuple(dict.fromkeys(id for m in analysis.judged for id in clusters(analysis.runs[m])))
    tally = Tally(everyone, len(known))
    played: list[set[tuple[str, str]]] = [set() for _ in known]
    for m in analysis.judged:
        run = analysis.runs[m]
        mine = np.array([numbers[c.id] for c in run.constraints])
        for frame in run.sets.values():
            codes = frame.verdicts[run.judge or ""]
            read = codes <= VIOLATED
            group = mine[frame.slots.constraint[read]]
            tally.add(frame.dialogues, frame.slots.dialogue[read], group, codes[read] == SATISFIED)
            for at, row in np.unique(np.stack([group, frame.slots.dialogue[read]]), axis=1).T.tolist():
                played[at].add((frame.name, frame.dialogues[row]))
    found = tally.result(analysis)
    rows = [
        Hardness(
            c.id,
            c.text,
            category_of(c.id, c.category, categories),
            len(played[n]),
            int(found.count[n]),
            *(float(side[n]) for side in (found.curve.value, found.curve.low, found.curve.high)),
        )
        for n, c in enumerate(known.values())
        if found.count[n]
    ]
    return sorted(rows, key=lambda row: (row.satisfied, -row.verdicts, row.id))


def completion(analysis: Analysis, m: int, test_set: str) -> tuple[Curve, np.ndarray] | None:
    """Share of answers that do the task, per turn, and the table of (does the task, keeps the constraints): counts of
    turns decided in both, shape (2, 2), index 1 for yes. None where it was not asked."""
    run, cell = analysis.runs[m], analysis.cells[m, test_set]
    codes = cell.frame.completion.get(run.judge or "")
    if codes is None or not (codes <= VIOLATED).any():
        return None
    done, read = codes == SATISFIED, codes <= VIOLATED
    samples = ratios(cell.drawn, done, read)
    both = read & (cell.results <= FAILED)
    cross = np.bincount(2 * done[both] + (cell.results[both] == PASSED), minlength=4).reshape(2, 2)
    return Curve(ratio(done, read), *interval(samples)), cross


def against_truth(analysis: Analysis, m: int, judge: str) -> tuple[Groups, int]:
    """How often the judge is right where a program can tell: on broken constraints, on followed ones, on all; and how
    many of its verdicts on them cannot be read."""
    run, unreadable = analysis.runs[m], 0
    tally = Tally(clusters(run), 3)
    for frame in run.sets.values():
        codes, told = frame.verdicts[judge], frame.truth != UNTOLD
        unreadable += int((told & (codes > VIOLATED) & (codes != MISSING)).sum())
        read = frame.checked(judge)
        right = (codes[read] == SATISFIED) == (frame.truth[read] == HOLDS)
        for group in (frame.truth[read], np.full(int(read.sum()), 2)):
            tally.add(frame.dialogues, frame.slots.dialogue[read], group, right)
    return tally.result(analysis), unreadable


def agreements(analysis: Analysis) -> list[Agreement]:
    """Of every two judges of one run."""
    found = []
    for m in analysis.judged:
        judges = analysis.runs[m].judges
        for i, first in enumerate(judges):
            found += [a for second in judges[i + 1 :] if (a := _agreement(analysis.runs[m], m, first, second))]
    return found


def _agreement(run: Run, m: int, first: str, second: str) -> Agreement | None:
    one, other, passed = [], [], ([], [])
    for frame in run.sets.values():
        one.append(frame.verdicts[first])
        other.append(frame.verdicts[second])
        codes = [frame.results(judge) for judge in (first, second)]
        decided = (codes[0] <= FAILED) & (codes[1] <= FAILED)
        for side, code in zip(passed, codes, strict=True):
            side.append(code[decided] == PASSED)
    a, b = np.concatenate(one), np.concatenate(other)
    both = (a <= VIOLATED) & (b <= VIOLATED)
    if not both.any():
        return None
    yes, too = a[both] == SATISFIED, b[both] == SATISFIED
    accuracy = [float(np.concatenate(side).mean()) if sum(map(len, side)) else float("nan") for side in passed]
    unreadable = [
        float(((codes != MISSING) & (codes > VIOLATED)).sum() / max(1, (codes != MISSING).sum())) for codes in (a, b)
    ]
    return Agreement(
        run=m,
        first=first,
        second=second,
        both=int(both.sum()),
        same=float((yes == too).mean()),
        kappa=kappa(yes, too),
        first_yes=float(yes.mean()),
        second_yes=float(too.mean()),
        accuracy=(accuracy[0], accuracy[1]),
        unreadable=(unreadable[0], unreadable[1]),
    )
