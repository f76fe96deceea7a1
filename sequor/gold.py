"""Gold answers, written to satisfy a constraint or to violate it, and what judges make of them (paper, table 1). Pure.

1. A pair is a constraint with a task of its own; both are drawn by seed, none of them twice.
2. Each writing model answers each pair twice: told to satisfy the constraint (gold yes), and told to violate it while
   doing the task (gold no).
3. The label is what the writer was told, not what it did. Where a program can decide the constraint (checkable.py) the
   two are held against each other: no judge can agree with the labels more than they agree with the truth.
4. An answer that was cut is none: it may have been cut before the rule was followed, or broken.
5. A verdict is correct, incorrect or unreadable, in percent of the gold answers that were judged. Intervals are
   bootstrapped over pairs, since the answers to one pair hang together; judges are resampled together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from random import Random
from typing import Literal

import numpy as np
from msgspec import Struct

from cluster.conversation import Conversation
from sequor.checkable import Detect, holds, recognise
from sequor.curation.candidates import id_fault
from sequor.curation.ratings import verdict_question, vote_of
from sequor.curation.samples import Tasks
from sequor.errors import BadInput
from sequor.prompts.render import render
from sequor.records import ReplyRecord
from sequor.report import statistics
from sequor.report.statistics import Estimate
from sequor.types import Constraint

Label = Literal["yes", "no"]
LABELS: tuple[Label, ...] = ("yes", "no")
RESULTS = ("correct", "incorrect", "unreadable")


class Pair(Struct, frozen=True):
    id: str
    constraint: Constraint
    task: str


class GoldAnswer(Struct, frozen=True, kw_only=True):
    """A line of gold.jsonl. Key: (pair, gold, writer)."""

    pair: str
    writer: str
    gold: Label
    """yes: told to satisfy the constraint; no: told to violate it."""
    constraint_id: str = ""
    constraint: str
    category: str | None = None
    task: str = ""
    answer: str

    @property
    def key(self) -> str:
        return f"{self.pair}|{self.gold}|{self.writer}"


def pairs(constraints: Sequence[Constraint], tasks: Tasks, count: int, seed: int) -> tuple[Pair, ...]:
    """Rule 1. Raises BadInput where there are too few of either."""
    if count > len(constraints):
        raise BadInput(f"count: {count} pairs wanted, and there are {len(constraints)} constraints")
    if faulty := next((c.id for c in constraints if id_fault(c.id)), None):
        raise BadInput(f"constraints: id {faulty!r} {id_fault(faulty)}")
    drawn = Random(f"{seed}/gold").sample(sorted(constraints, key=lambda c: c.id), count)
    ids = tasks.draw(seed, "gold", "", count)
    return tuple(
        Pair(f"{c.id}:{_digest(c.text)}|{task}", c, tasks.prompts[task]) for c, task in zip(drawn, ids, strict=True)
    )


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def writing(drawn: Iterable[Pair], writer: str) -> Iterator[Conversation]:
    """Rule 2."""
    for pair in drawn:
        for label in LABELS:
            prompt = render("gold", task=pair.task, constraint=pair.constraint.text, satisfy=label == "yes")
            yield Conversation(f"{pair.id}|{label}|{writer}", (prompt,))


def written(drawn: Iterable[Pair], records: Iterable[ReplyRecord]) -> tuple[list[GoldAnswer], dict[str, int]]:
    """The answers in the order of pairs and writers, and reason -> how many were left out (rule 4)."""
    by_id = {pair.id: pair for pair in drawn}
    found: dict[str, GoldAnswer] = {}
    dropped: dict[str, int] = {}
    for record in records:
        id, label, writer = record.key.rsplit("|", 2)
        pair = by_id.get(id)
        if pair is None:
            continue  # of an earlier, larger draw
        if record.reply is None or record.truncated:
            dropped[record.status] = dropped.get(record.status, 0) + 1
            continue
        c = pair.constraint
        gold = GoldAnswer(
            pair=id,
            writer=writer,
            gold=label,  # type: ignore[arg-type]
            constraint_id=c.id,
            constraint=c.text,
            category=c.category,
            task=pair.task,
            answer=record.reply,
        )
        found[gold.key] = gold
    order = {id: at for at, id in enumerate(by_id)}
    return sorted(found.values(), key=lambda g: (order[g.pair], g.writer, g.gold != "yes")), dropped


class Truth(Struct):
    """How often gold labels are true, where a program can tell. Counts of answers."""

    right: int = 0
    wrong: int = 0

    @property
    def share(self) -> float | None:
        checked = self.right + self.wrong
        return self.right / checked if checked else None


def truth(answers: Iterable[GoldAnswer], detect: Detect) -> dict[tuple[str, Label], Truth]:
    """(writer, label) -> rule 3."""
    found: dict[tuple[str, Label], Truth] = {}
    for gold in answers:
        check = recognise(gold.constraint)
        held = None if check is None else holds(check, gold.answer, detect)
        if held is None:
            continue
        counts = found.setdefault((gold.writer, gold.gold), Truth())
        if held == (gold.gold == "yes"):
            counts.right += 1
        else:
            counts.wrong += 1
    return found


def judging(answers: Iterable[GoldAnswer], judge: str) -> Iterator[Conversation]:
    """As in a run: the answer alone and the rule, never the task."""
    for gold in answers:
        yield verdict_question(f"{gold.key}|{judge}", gold.answer, gold.constraint)


class Judged(Struct, frozen=True):
    """All verdicts of some judges on one gold set."""

    pairs: tuple[str, ...]
    writers: tuple[str, ...]
    counts: Mapping[str, np.ndarray]
    """Judge -> int32, shape (pairs, writers, labels, results): 1 where the verdict is that."""

    def estimates(self, judge: str, writer: str | None = None) -> dict[str, dict[str, Estimate]]:
        """yes, no and overall -> result -> share of the verdicts (rule 5)."""
        counts = self._of(judge, writer)
        drawn = statistics.weights(self.pairs)
        found = {}
        for name, part in (("yes", counts[:, :1]), ("no", counts[:, 1:]), ("overall", counts)):
            hits = part.sum(axis=1)
            tries = np.repeat(hits.sum(axis=1, keepdims=True), len(RESULTS), axis=1)
            values, samples = statistics.ratio(hits, tries), statistics.ratios(drawn, hits, tries)
            found[name] = {
                result: statistics.estimate(float(values[at]), samples[:, at]) for at, result in enumerate(RESULTS)
            }
        return found

    def difference(self, judge: str, other: str) -> Estimate:
        """Of the shares of correct verdicts, on the pairs that both have judged."""
        drawn, sides = statistics.weights(self.pairs), []
        for name in (judge, other):
            counts = self._of(name, None).sum(axis=1)
            sides.append((counts[:, 0], counts.sum(axis=1)))
        values = [float(statistics.ratio(hits, tries)) for hits, tries in sides]
        samples = [statistics.ratios(drawn, hits, tries) for hits, tries in sides]
        return statistics.estimate(values[0] - values[1], samples[0] - samples[1])

    def judged(self, judge: str) -> int:
        return int(self.counts[judge].sum())

    def _of(self, judge: str, writer: str | None) -> np.ndarray:
        """Shape (pairs, labels, results)."""
        counts = self.counts[judge]
        return counts.sum(axis=1) if writer is None else counts[:, self.writers.index(writer)]


def judged(answers: Sequence[GoldAnswer], records: Iterable[ReplyRecord], judges: Sequence[str]) -> Judged:
    """What belongs to no answer or no judge is passed over."""
    ids, writers = tuple(dict.fromkeys(g.pair for g in answers)), tuple(sorted({g.writer for g in answers}))
    row = {id: at for at, id in enumerate(ids)}
    place = {g.key: (row[g.pair], writers.index(g.writer), LABELS.index(g.gold)) for g in answers}
    shape = len(ids), len(writers), len(LABELS), len(RESULTS)
    counts = {judge: np.zeros(shape, np.int32) for judge in judges}
    for record in records:
        key, _, judge = record.key.rpartition("|")
        if judge not in counts or key not in place:
            continue
        vote, label = vote_of(record), LABELS[place[key][2]]
        result = "unreadable" if vote is None else "correct" if vote == (label == "yes") else "incorrect"
        counts[judge][(*place[key], RESULTS.index(result))] = 1
    return Judged(ids, writers, counts)
