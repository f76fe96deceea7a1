"""Pool -> tuples of constraints that one answer can follow together (paper, section 3.1 and appendix B). Pure.

1. Tuple number i depends on the seed and i alone: more of them are the same ones and then some. None holds two
   constraints that are near each other, none is there twice.
2. Compatible: the share of tasks in which every judge says so is at least the threshold (70).
3. Answered: each compatible tuple with new tasks, one answer of each model. An answer is good when every judge finds it
   to follow every constraint, bad when one finds one violated, undecided otherwise. In a task an answer is found when
   one is good, not found when all are bad; a task without either is left out and counted.
4. Kept: found in at least the threshold's share of the tasks (70).
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from math import sqrt
from random import Random

import numpy as np
from msgspec import Struct

from cluster.conversation import Conversation
from sequor.curation.filters import grams, jaccard
from sequor.curation.ratings import mark_of, verdict_question, vote_of
from sequor.curation.samples import Tasks
from sequor.curation.votes import Ballot, Count, Tally
from sequor.errors import BadInput
from sequor.prompts.render import render
from sequor.records import ReplyRecord
from sequor.types import Constraint

ATTEMPTS = 1000
"""Draws for one tuple before the pool is taken to be too small or too uniform."""


class Drawn(Struct, frozen=True):
    """A tuple that was sampled. `key`: its part of keys, from the ids and texts of its constraints."""

    key: str
    constraints: tuple[Constraint, ...]


class Plan(Struct, frozen=True):
    tuples: tuple[Drawn, ...]
    tasks: Tasks
    count: int
    seed: int
    judges: tuple[str, ...]
    answerers: tuple[str, ...]

    def drawn(self, purpose: str, key: str) -> tuple[str, ...]:
        return self.tasks.draw(self.seed, purpose, key, self.count)


def sample(pool: Sequence[Constraint], size: int, count: int, near: float, seed: int) -> tuple[Drawn, ...]:
    """Rule 1. Raises BadInput when the pool does not hold so many."""
    if len(pool) < size:
        raise BadInput(f"the pool holds {len(pool)} constraints; tuples of {size} are wanted")
    shingles = {c.id: grams(c.text) for c in pool}
    found: dict[frozenset[str], Drawn] = {}
    for number in range(count):
        rng = Random(f"{seed}/tuple{size}/{number}")
        for _ in range(ATTEMPTS):
            members = rng.sample(pool, size)
            ids = frozenset(c.id for c in members)
            if ids not in found and not _near(members, shingles, near):
                found[ids] = Drawn(_key(members), tuple(members))
                break
        else:
            raise BadInput(f"the pool gives no more than {number} different tuples without near-duplicates")
    return tuple(found.values())


def _near(members: Sequence[Constraint], shingles: dict[str, set[str]], near: float) -> bool:
    sets = [shingles[c.id] for c in members]
    return any(jaccard(a, b) >= near for at, a in enumerate(sets) for b in sets[at + 1 :])


def _key(members: Sequence[Constraint]) -> str:
    text = "\0".join(c.text for c in members)
    return "+".join(c.id for c in members) + ":" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def compatibility_questions(plan: Plan, judge: str) -> Iterator[Conversation]:
    for drawn in plan.tuples:
        texts = [c.text for c in drawn.constraints]
        for task in plan.drawn("compatibility", drawn.key):
            prompt = plan.tasks.prompts[task]
            asked = render("compatible", constraints=texts, task=prompt, mark=mark_of(*texts, prompt))
            yield Conversation(f"{drawn.key}|{task}|{judge}", (asked,))


def answer_questions(plan: Plan, answerer: str) -> Iterator[Conversation]:
    for drawn in plan.tuples:
        texts = [c.text for c in drawn.constraints]
        for task in plan.drawn("answers", drawn.key):
            prompt = render("constrained", task=plan.tasks.prompts[task], constraints=texts)
            yield Conversation(f"{drawn.key}|{task}|{answerer}", (prompt,))


def verdict_questions(plan: Plan, answers: Iterable[ReplyRecord], judge: str) -> Iterator[Conversation]:
    """About answers as they lie on disk, each constraint alone."""
    by_key = {drawn.key: drawn for drawn in plan.tuples}
    for answer in answers:
        key, task, answerer = answer.key.split("|")
        drawn = by_key.get(key)
        if answer.reply is None or drawn is None or answerer not in plan.answerers:
            continue
        if task in plan.drawn("answers", key):
            for constraint in drawn.constraints:
                yield verdict_question(f"{answer.key}|{constraint.id}|{judge}", answer.reply, constraint.text)


def compatibility(plan: Plan, records: Iterable[ReplyRecord]) -> list[Count]:
    """Of each tuple."""
    at = {drawn.key: number for number, drawn in enumerate(plan.tuples)}
    ballot = Ballot(plan.judges, len(plan.tuples), plan.count)
    for record in records:
        key, task, judge = record.key.split("|")
        if key in at and judge in plan.judges and task in (tasks := plan.drawn("compatibility", key)):
            ballot.cast(judge, at[key], tasks.index(task), vote_of(record))
    return [ballot.count(number) for number in range(len(plan.tuples))]


def answered(plan: Plan, records: Iterable[ReplyRecord]) -> list[Tally]:
    """Of each tuple: tasks with an answer found, tasks that are decided, tasks that are not (rule 3)."""
    at = {drawn.key: number for number, drawn in enumerate(plan.tuples)}
    shape = len(plan.tuples), plan.count, len(plan.answerers)
    satisfied, violated = np.zeros(shape, dtype=np.uint16), np.zeros(shape, dtype=np.uint16)
    for record in records:
        key, task, answerer, _, judge = record.key.split("|")
        vote = vote_of(record)
        if key not in at or judge not in plan.judges or answerer not in plan.answerers or vote is None:
            continue
        if task in (tasks := plan.drawn("answers", key)):
            place = at[key], tasks.index(task), plan.answerers.index(answerer)
            (satisfied if vote else violated)[place] += 1
    return [_found(drawn, satisfied[n], violated[n], len(plan.judges)) for n, drawn in enumerate(plan.tuples)]


def _found(drawn: Drawn, satisfied: np.ndarray, violated: np.ndarray, judges: int) -> Tally:
    """`satisfied`, `violated`: votes on each [task, answer]."""
    good = satisfied == judges * len(drawn.constraints)
    found, lost = good.any(axis=1), (violated > 0).all(axis=1)
    decided = int((found | lost).sum())
    return Tally(int(found.sum()), decided, len(found) - decided)


def needed(sampled: int, kept: int, wanted: int) -> tuple[int | None, int, int | None]:
    """How many tuples are to be sampled so that `wanted` are kept: the estimate, and what the 95% interval of the
    share (Wilson) makes of it, low and high. None: there is no saying."""
    if not sampled:
        return None, wanted, None
    z, share = 1.96, kept / sampled
    centre = (share + z * z / (2 * sampled)) / (1 + z * z / sampled)
    half = z * sqrt(share * (1 - share) / sampled + z * z / (4 * sampled * sampled)) / (1 + z * z / sampled)
    low, high = max(0.0, centre - half) if kept else 0.0, min(1.0, centre + half)
    return round(wanted / share) if kept else None, round(wanted / high), round(wanted / low) if low else None
