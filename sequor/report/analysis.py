"""Several runs beside each other: what is compared, and the numbers behind the figures and tables. No drawing, no I/O.

1. Runs of different lengths are compared over the turns that all have; whatever is left out of a comparison is said in
   `notes`, in plain words.
2. Ranks and averages over sets are over the sets that every judged run has; a pair of models is compared on the
   dialogues that both played, word for word the same up to the last turn compared.
3. Averages over models hold the models fixed: their intervals come from the dialogues alone.
4. Models stand in the order of their Borda points, then of their mean accuracy, then of their names.
5. A model has no headline on a set of which too little is decided (sequor/metrics.py): no mean, no change, no part in
   averages and pairs there, and without a headline on every common set no rank. What is undecided is seldom so by
   chance, and the one survivor of a crash would come first.
"""

from collections import Counter
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sequor.metrics import FAILED, PASSED, SetScore, in_table_order, score_results
from sequor.report import statistics
from sequor.report.frame import BROKEN, HOLDS, SATISFIED, Run, SetFrame
from sequor.report.statistics import RESAMPLES, UNKNOWN, Estimate, estimate, interval, mean_of_known


class Curve(Struct, frozen=True):
    """Values and intervals over turns (or other steps); shares, NaN where nothing is known."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Cell(Struct, frozen=True):
    """One model on one test set."""

    frame: SetFrame
    results: np.ndarray
    """Codes of `sequor.metrics`, (dialogues, turns)."""
    score: SetScore
    drawn: np.ndarray
    samples: np.ndarray
    """Per-turn accuracy in each resample, (resamples, turns)."""

    @property
    def accuracy(self) -> np.ndarray:
        return statistics.ratio(self.results == PASSED, self.results <= FAILED)


class Pair(Struct, frozen=True):
    """Mean accuracy of `first` minus that of `second`."""

    first: int
    second: int
    test_set: str
    """Or `all`: the mean over the common sets."""
    dialogues: int
    difference: Estimate
    p: float
    """Two-sided, from the bootstrap, corrected for all pairs on this test set (Holm)."""

    @property
    def tied(self) -> bool:
        return bool(self.difference.low <= 0 <= self.difference.high)


class Ranking(Struct, frozen=True):
    points: Estimate
    rank: Estimate
    first: float
    """Share of the resamples in which nobody has more points."""


class Analysis:
    """Rows and columns by number: model `m` is `runs[m]`."""

    def __init__(self, runs: list[Run], resamples: int = RESAMPLES, seed: int = 0):
        self.turns = min(run.length for run in runs)
        self.resamples, self.seed = resamples, seed
        self._drawn: dict[tuple[str, ...], np.ndarray] = {}
        self.notes = _notes(runs, self.turns)
        self.runs = [_cut(run, self.turns) for run in runs]
        self.sets = in_table_order({name for run in runs for name in run.sets})
        self.cells = {
            (m, name): self._cell(run, frame)
            for m, run in enumerate(self.runs)
            for name, frame in run.sets.items()
            if run.judge is not None
        }
        self.judged = [m for m, run in enumerate(self.runs) if run.judge is not None]
        self.common = [s for s in self.sets if self.judged and all((m, s) in self.cells for m in self.judged)]
        self._put_in_order()
        self.notes += _low_coverage(self) + _of_judges(self.runs)

    def drawn(self, dialogues: tuple[str, ...]) -> np.ndarray:
        if dialogues not in self._drawn:
            self._drawn[dialogues] = statistics.weights(dialogues, self.resamples, self.seed)
        return self._drawn[dialogues]

    def _cell(self, run: Run, frame: SetFrame) -> Cell:
        assert run.judge is not None
        codes, drawn = frame.results(run.judge), self.drawn(frame.dialogues)
        samples = statistics.ratios(drawn, codes == PASSED, codes <= FAILED).astype(np.float32)
        return Cell(frame, codes, score_results(frame.name, run.judge, codes), drawn, samples)

    def _put_in_order(self) -> None:
        """Rule 4."""
        points = {m: self.ranking[m].points.value if m in self.ranking else -0.5 for m in self.judged}
        means = {
            m: float(np.mean([self.cells[m, s].score.mean or 0 for s in self.sets if (m, s) in self.cells] or [0]))
            for m in points
        }
        order = sorted(
            range(len(self.runs)), key=lambda m: (-points.get(m, -1.0), -means.get(m, 0.0), self.runs[m].label)
        )
        place = {old: new for new, old in enumerate(order)}
        self.runs = [self.runs[m] for m in order]
        self.cells = {(place[m], s): cell for (m, s), cell in self.cells.items()}
        self.judged = sorted(place[m] for m in self.judged)
        for name in ("ranking", "pairs"):
            self.__dict__.pop(name, None)

    @property
    def labels(self) -> list[str]:
        return [run.label for run in self.runs]

    def models_of(self, test_set: str) -> list[int]:
        return [m for m in self.judged if (m, test_set) in self.cells]

    def low(self, m: int, test_set: str) -> bool:
        """Rule 5: no headline."""
        return self.cells[m, test_set].score.overall.coverage < self.runs[m].min_coverage

    def with_headline(self, test_set: str) -> list[int]:
        """Models with a headline on this set."""
        return [m for m in self.models_of(test_set) if not self.low(m, test_set)]

    def label_on(self, m: int, test_set: str) -> str:
        """With what is decided, where that is too little."""
        decided = self.cells[m, test_set].score.overall.coverage
        return f"{self.labels[m]} ({decided:.0%} decided)" if self.low(m, test_set) else self.labels[m]

    def curve(self, m: int, test_set: str) -> Curve:
        cell = self.cells[m, test_set]
        return Curve(cell.accuracy, *interval(cell.samples))

    def mean_curve(self, test_set: str) -> Curve:
        """Over the models that have a headline on the set, or, where none has, all that have the set; rule 3."""
        models = self.with_headline(test_set) or self.models_of(test_set)
        value = mean_of_known(np.stack([self.cells[m, test_set].accuracy for m in models]), axis=0)
        samples = mean_of_known(np.stack([self.cells[m, test_set].samples for m in models]), axis=0)
        return Curve(value, *interval(samples))

    def mean(self, m: int, test_set: str) -> Estimate:
        cell = self.cells[m, test_set]
        return UNKNOWN if self.low(m, test_set) else _estimate(cell.score.mean, mean_of_known(cell.samples))

    def at(self, m: int, test_set: str, turn: int) -> Estimate:
        """Accuracy at one turn; -1 for the last."""
        if self.low(m, test_set):
            return UNKNOWN
        cell = self.cells[m, test_set]
        return _estimate(cell.score.turns[turn].accuracy, cell.samples[:, turn])

    def drop(self, m: int, test_set: str) -> Estimate:
        """Last minus first turn (paper, table 5)."""
        if self.low(m, test_set):
            return UNKNOWN
        cell = self.cells[m, test_set]
        return _estimate(cell.score.drop, cell.samples[:, -1] - cell.samples[:, 0])

    def worst_minus_best(self, m: int, test_set: str) -> Estimate:
        """Paper, table 6. The extremes of a resample lie further apart than those of the truth, so the interval leans
        downwards."""
        if self.low(m, test_set):
            return UNKNOWN
        cell = self.cells[m, test_set]
        known = ~np.isnan(cell.samples).all(axis=1)
        worst, best = np.nanmin(cell.samples[known], axis=1), np.nanmax(cell.samples[known], axis=1)
        return _estimate(cell.score.worst_minus_best, worst - best)

    def average(self, what: str, test_set: str) -> Estimate:
        """Of `drop`, `worst_minus_best` or `mean` over models; rule 3 (no interval: see the models' own)."""
        values = [getattr(self, what)(m, test_set).value for m in self.with_headline(test_set)]
        return Estimate(float(mean_of_known(np.array(values))), float("nan"), float("nan")) if values else UNKNOWN

    @cached_property
    def ranking(self) -> dict[int, Ranking]:
        """Borda count over the common sets, by mean per-turn accuracy (paper, section 4.2); rule 5."""
        ranked = [m for m in self.judged if self.common and not any(self.low(m, s) for s in self.common)]
        if not ranked:
            return {}
        means = np.array([[self.mean(m, s).value for s in self.common] for m in ranked])
        drawn = np.stack(
            [np.stack([mean_of_known(self.cells[m, s].samples) for s in self.common], axis=-1) for m in ranked],
            axis=1,
        )  # (resamples, models, sets)
        points, resampled = statistics.borda(means), statistics.borda(drawn)
        rank, ranks = statistics.ranks(points), statistics.ranks(resampled)
        return {
            m: Ranking(
                points=estimate(points[row], resampled[:, row]),
                rank=estimate(float(rank[row]), ranks[:, row].astype(float)),
                first=float((ranks[:, row] == 1).mean()),
            )
            for row, m in enumerate(ranked)
        }

    @property
    def best(self) -> int | None:
        """The model with most Borda points."""
        return min(self.ranking, default=None)

    @cached_property
    def pairs(self) -> list[Pair]:
        """Every two judged models, on every set that both have, and over the common sets (`all`); rule 5."""
        found = []
        for name in [*self.sets, "all"]:
            sets = self.common if name == "all" else [name]
            rows = []
            for a in self.judged:
                for b in self.judged:
                    if a < b and sets and all(m in self.with_headline(s) for m in (a, b) for s in sets):
                        rows.append((a, b, *self._difference(a, b, sets)))
            rows = [row for row in rows if row[4] is not None]
            adjusted = statistics.holm([statistics.two_sided(samples) for *_, samples in rows])
            for (a, b, count, value, samples), p in zip(rows, adjusted, strict=True):
                found.append(Pair(a, b, name, count, estimate(value, samples), p))
        return found

    def _difference(self, a: int, b: int, sets: list[str]) -> tuple[int, float, np.ndarray | None]:
        """Dialogues compared, value, samples (None when the two have no two dialogues in common on one of the sets)."""
        values, samples, count = [], [], 0
        for name in sets:
            one, other = self.cells[a, name], self.cells[b, name]
            shared = _shared(one.frame, other.frame)
            if len(shared) < 2:
                return 0, float("nan"), None
            count += len(shared)
            means = []
            for cell in (one, other):
                means.append(self._mean_on(cell, shared))
            values.append(means[0][0] - means[1][0])
            samples.append(means[0][1] - means[1][1])
        return count, float(mean_of_known(np.array(values))), mean_of_known(np.stack(samples), axis=0)

    def _mean_on(self, cell: Cell, dialogues: tuple[str, ...]) -> tuple[float, np.ndarray]:
        if dialogues == cell.frame.dialogues:
            return float(mean_of_known(cell.accuracy)), mean_of_known(cell.samples)
        rows = [cell.frame.dialogues.index(d) for d in dialogues]
        codes = cell.results[rows]
        samples = statistics.ratios(self.drawn(dialogues), codes == PASSED, codes <= FAILED)
        return float(mean_of_known(statistics.ratio(codes == PASSED, codes <= FAILED))), mean_of_known(samples)

    def ties(self, m: int) -> list[int]:
        """Models whose mean over the common sets cannot be told from this one's."""
        tied = [(p.first, p.second) for p in self.pairs if p.test_set == "all" and p.tied]
        return [b if a == m else a for a, b in tied if m in (a, b)]


def _estimate(value: float | None, samples: np.ndarray) -> Estimate:
    return UNKNOWN if value is None else estimate(value, samples)


def _shared(one: SetFrame, other: SetFrame) -> tuple[str, ...]:
    """Dialogues that are the same in both to the last turn; in the order of `one`."""
    last = dict(zip(other.dialogues, other.turns.digest[:, -1].tolist(), strict=True))
    mine = zip(one.dialogues, one.turns.digest[:, -1].tolist(), strict=True)
    return tuple(id for id, digest in mine if last.get(id) == digest)


def _cut(run: Run, turns: int) -> Run:
    return replace(run, sets={name: frame.cut(turns) for name, frame in run.sets.items()})


def _low_coverage(analysis: "Analysis") -> list[str]:
    found = []
    for m in analysis.judged:
        low = [s for s in analysis.sets if (m, s) in analysis.cells and analysis.low(m, s)]
        if low:
            sets, least = ", ".join(low), f"less than {analysis.runs[m].min_coverage:.0%}"
            found.append(f"{analysis.labels[m]}: no headline, for {least} of the turns are decided in {sets}.")
    return found


def _of_judges(runs: list[Run]) -> list[str]:
    """How far the judges that count can be trusted (`groups.against_truth`, with intervals, in a table)."""
    right, of = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for run in runs:
        for frame in run.sets.values() if run.judge is not None else ():
            checked = frame.checked(run.judge)
            said, truth = frame.verdicts[run.judge][checked] == SATISFIED, frame.truth[checked]
            for found in (BROKEN, HOLDS):
                of[run.judge, found] += int((truth == found).sum())
                right[run.judge, found] += int(((truth == found) & (said == (found == HOLDS))).sum())
    return [
        f"Judge {judge}, where a program can tell: saw {right[judge, BROKEN]:,} of {of[judge, BROKEN]:,} violations, "
        f"accepted {right[judge, HOLDS]:,} of {of[judge, HOLDS]:,} constraints that were kept."
        for judge in dict.fromkeys(judge for judge, _ in of)
        if of[judge, BROKEN] + of[judge, HOLDS]
    ]


def _notes(runs: list[Run], turns: int) -> list[str]:
    """What a reader of a comparison must know."""
    notes = []
    lengths = {run.label: run.length for run in runs}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{label} {length}" for label, length in lengths.items())
        notes.append(f"The runs have different numbers of turns ({said}); the first {turns} are compared.")
    for run in runs:
        if run.judge is None:
            notes.append(f"{run.label}: nothing was judged yet, so its accuracy is not known.")
        if run.played < 1:
            notes.append(f"{run.label}: an unfinished run, {run.played:.1%} of its turns are there.")
        if run.judge is not None and run.judged < 1:
            notes.append(f"{run.label}: {run.judged:.1%} of its answers' constraints have a record of {run.judge}.")
        if run.chosen:
            notes.append(f"{run.label}: its judge was made to choose a verdict, without words of its own.")
        if run.repeated:
            notes.append(f"{run.label}: {run.repeated:,} records repeat an earlier one; the first counts.")
    judges = sorted({run.judge for run in runs if run.judge})
    if len(judges) > 1:
        notes.append(f"The runs go by different judges ({', '.join(judges)}): differences may be the judges'.")
    return notes + _differences_of_sets(runs)


def _differences_of_sets(runs: list[Run]) -> list[str]:
    notes = []
    names = in_table_order({name for run in runs for name in run.sets})
    for run in runs:
        missing = [name for name in names if name not in run.sets]
        if missing:
            notes.append(f"{run.label} has no {', '.join(missing)}; ranks and overall means leave out such sets.")
    for name in names:
        frames = [(run.label, run.sets[name]) for run in runs if name in run.sets]
        last = min(frame.length for _, frame in frames)
        digests = [(label, frozenset(frame.turns.digest[:, last - 1].tolist())) for label, frame in frames]
        odd = [label for label, digest in digests[1:] if digest != digests[0][1]]
        if odd:
            which = ", ".join(odd)
            notes.append(f"{name}: not the same dialogues as {digests[0][0]}'s in {which}; pairs share what both have.")
    return notes
