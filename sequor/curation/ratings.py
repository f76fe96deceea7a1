"""Candidates -> questions to judges and answering models -> votes -> percentages (paper, section 2). Pure.

1. Satisfiability: each constraint with tasks of its own, four rubrics, no answer.
2. Triviality: answers to one set of tasks WITHOUT any constraint, the task alone as the prompt; every constraint is
   judged on every one of them. The tasks are shared out among the answering models in turn.
3. Subjectivity: answers to each constraint with tasks of its own, shared out likewise; judged as in a run.
4. An answer that was cut counts as one; a question without an answer has no vote.
5. Keys are parts between bars. A constraint's part holds a hash of its text, so that no vote outlives a change of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from cluster.conversation import Conversation
from sequor.curation import rubrics
from sequor.curation.candidates import Candidate
from sequor.curation.samples import Tasks
from sequor.curation.votes import NO, Ballot, Count
from sequor.parsing import DEFAULT_PARSER, PARSERS
from sequor.prompts.render import render
from sequor.records import ReplyRecord

VERDICTS = ("Final verdict: yes", "Final verdict: no")
PLAIN, WITH = "plain", "with"
"""Answers without a constraint, and with one."""


class Plan(Struct, frozen=True):
    """What is rated, and with what."""

    candidates: tuple[Candidate, ...]
    tasks: Tasks
    count: int
    """Tasks for each."""
    seed: int
    judges: tuple[str, ...]
    answerers: tuple[str, ...]

    def drawn(self, purpose: str, thing: str = "") -> tuple[str, ...]:
        return self.tasks.draw(self.seed, purpose, thing, self.count)

    def shared_out(self, tasks: Sequence[str], answerer: str) -> list[str]:
        """Those of the tasks that this model answers."""
        at = self.answerers.index(answerer)
        return [task for number, task in enumerate(tasks) if number % len(self.answerers) == at]


def thing_of(candidate: Candidate) -> str:
    """Its part of a key (rule 5)."""
    return f"{candidate.id}:{sha256(candidate.constraint.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def mark_of(*texts: str) -> str:
    """For the lines around a text: made from it, so that no text can close itself."""
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def satisfiability_questions(plan: Plan, judge: str) -> Iterator[Conversation]:
    for candidate in plan.candidates:
        thing, text = thing_of(candidate), candidate.constraint
        for task in plan.drawn("satisfiability", thing):
            prompt = plan.tasks.prompts[task]
            asked = render("rubrics", constraint=text, task=prompt, mark=mark_of(text, prompt))
            yield Conversation(f"{thing}|{task}|{judge}", (asked,))


def answer_questions(plan: Plan, answerer: str) -> Iterator[Conversation]:
    """Rules 2 and 3."""
    for task in plan.shared_out(plan.drawn("triviality"), answerer):
        yield Conversation(f"{PLAIN}|{task}|{answerer}", (plan.tasks.prompts[task],))
    for candidate in plan.candidates:
        thing = thing_of(candidate)
        for task in plan.shared_out(plan.drawn("subjectivity", thing), answerer):
            prompt = render("constrained", task=plan.tasks.prompts[task], constraints=[candidate.constraint])
            yield Conversation(f"{WITH}|{thing}|{task}|{answerer}", (prompt,))


def verdict_questions(plan: Plan, answers: Iterable[ReplyRecord], judge: str) -> Iterator[Conversation]:
    """About answers as they lie on disk: all constraints about a plain one, its own about another."""
    texts = {thing_of(candidate): candidate.constraint for candidate in plan.candidates}
    plain = set(plan.drawn("triviality"))
    for answer in answers:
        kind, *parts = answer.key.split("|")
        if answer.reply is None:
            continue
        if kind == PLAIN:
            if parts[0] in plain:
                for thing, text in texts.items():
                    yield verdict_question(f"{answer.key}|{thing}|{judge}", answer.reply, text)
        elif parts[0] in texts and parts[1] in plan.drawn("subjectivity", parts[0]):
            yield verdict_question(f"{answer.key}|{judge}", answer.reply, texts[parts[0]])


def verdict_question(key: str, answer: str, constraint: str) -> Conversation:
    """As the judge of a run is asked (judging.py)."""
    prompt = render("judge", answer=answer, mark=mark_of(answer), constraint=constraint)
    return Conversation(key, (prompt,))


def vote_of(record: ReplyRecord) -> bool | None:
    """Of a final verdict. None: unreadable; so is a reply that was cut."""
    if record.reply is None or record.truncated:
        return None
    return {"satisfied": True, "violated": False}.get(PARSERS[DEFAULT_PARSER](record.reply))


def rubric_vote_of(record: ReplyRecord) -> bool | None:
    return rubrics.satisfiable(record.reply, record.truncated)


class Votes:
    """All votes of a plan, one measure after the other, from the records."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self._at = {thing_of(candidate): at for at, candidate in enumerate(plan.candidates)}
        shape = plan.judges, len(plan.candidates), plan.count
        self.satisfiability, self.triviality, self.subjectivity = (Ballot(*shape) for _ in range(3))

    def take_rubrics(self, records: Iterable[ReplyRecord]) -> None:
        for record in records:
            thing, task, judge = record.key.split("|")
            self._cast(self.satisfiability, "satisfiability", judge, thing, task, rubric_vote_of(record), thing)

    def take_verdicts(self, records: Iterable[ReplyRecord]) -> None:
        for record in records:
            kind, *parts = record.key.split("|")
            if kind == PLAIN:
                task, _, thing, judge = parts
                self._cast(self.triviality, "triviality", judge, thing, task, vote_of(record), "")
            else:
                thing, task, _, judge = parts
                self._cast(self.subjectivity, "subjectivity", judge, thing, task, vote_of(record), thing)

    def _cast(
        self, ballot: Ballot, purpose: str, judge: str, thing: str, task: str, vote: bool | None, drawn_for: str
    ) -> None:
        """What belongs to no judge, constraint or task of the plan is passed over: the folder may hold more."""
        at = self._at.get(thing)
        if at is None or judge not in self.plan.judges:
            return
        drawn = self.plan.drawn(purpose, drawn_for)
        if task in drawn:
            ballot.cast(judge, at, drawn.index(task), vote)

    def counts(self, at: int) -> dict[str, Count]:
        """By measure, of candidate number `at`. Triviality counts the votes that an answer does NOT follow it."""
        return {
            "satisfiability": self.satisfiability.count(at),
            "triviality": self.triviality.count(at, yes=NO),
            "subjectivity": self.subjectivity.count(at),
        }


def percents(counts: Mapping[str, Count]) -> dict[str, float | None]:
    """One number a measure: the judge's who finds it lowest; of subjectivity the share on which all agree."""
    return {
        measure: count.all_agree.percent if measure == "subjectivity" else count.lowest
        for measure, count in counts.items()
    }


def votes_behind(counts: Mapping[str, Count]) -> dict[str, int]:
    return {
        measure: count.all_agree.n if measure == "subjectivity" else count.fewest for measure, count in counts.items()
    }
