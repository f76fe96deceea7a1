"""A run as conversations: what is left to play, what to write down, what to ask the judge next. No I/O, no engine.

1. What is in the records is done: a dialogue continues behind its last saved turn, and only a missing judgement is
   asked. Records are the only memory, so a resumed run is a run that has more records.
2. A saved answer is queued for judging at once, and a question becomes a prompt only when the judges have room
   (`questions`), so that a hundred thousand prompts never wait in memory.
3. Failures of the machinery are handed back apart from the records: they are asked again by the next run.
4. Of several records of one turn the first counts. A turn whose predecessor has no record was built on answers that
   are lost: such a folder is refused.
5. A question that is to be asked again (judging.py, rule 5) is open until the second reply is in. `again` opens every
   question whose verdict cannot be read, whatever became of it.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from cluster.conversation import Conversation, Exchange, Failure, Turn
from sequor.errors import BadInput
from sequor.judging import Judge, asked_of, conversation, judgement, questions, to_be_asked_again
from sequor.metrics import ANSWERED, READABLE
from sequor.records import FailureRecord, JudgementRecord, TurnRecord, turn_record
from sequor.types import TASK_COMPLETION, Dialogue, Question, TestSet


class _Bench:
    """What one judge has done and has to do."""

    def __init__(self, judge: Judge):
        self.judge = judge
        self.backlog: deque[tuple[Dialogue, int, str]] = deque()
        """Answers that questions are still to be made of."""
        self.once_more: deque[Question] = deque()
        self.asked: dict[str, Question] = {}
        """By the conversation's key."""
        self.judged: set[str] = set()
        self.attempts: dict[str, int] = {}
        """Of questions that are open and were asked before."""
        self.askable = 0
        """Questions about the answers that are there."""
        self.unjudgeable = 0
        """Questions that will never be asked, because their turn has no answer."""

    def expects(self, dialogue: Dialogue, turn: int) -> int:
        return len(asked_of(dialogue, turn, self.judge.completion))

    def take(self, dialogue: Dialogue, turn: int, answer: str | None) -> None:
        if answer is None:
            self.unjudgeable += self.expects(dialogue, turn)
        else:
            self.askable += self.expects(dialogue, turn)
            self.backlog.append((dialogue, turn, answer))

    @property
    def idle(self) -> bool:
        return len(self.judged) == self.askable

    def remember(self, record: JudgementRecord, again: bool) -> None:
        """`again`: rule 5."""
        if record.constraint == TASK_COMPLETION and not self.judge.completion:
            return
        if record.status in READABLE or not (again or to_be_asked_again(record)):
            self.judged.add(record.key)
        elif record.key not in self.judged:
            self.attempts[record.key] = max(record.attempt, self.attempts.get(record.key, 0))

    def next(self, room: int) -> list[Conversation]:
        """At least `room` questions where there are as many, whole answers at a time."""
        found: list[Question] = []
        while len(found) < room and (self.once_more or self.backlog):
            if self.once_more:
                found.append(self.once_more.popleft())
                continue
            dialogue, turn, answer = self.backlog.popleft()
            asked = questions(dialogue, turn, answer, self.judge.model, self.judge.completion)
            found += [
                replace(question, attempt=self.attempts.get(question.key, 0) + 1)
                for question in asked
                if question.key not in self.judged
            ]
        conversations = [conversation(question, self.judge.sampling) for question in found]
        self.asked |= {made.key: question for made, question in zip(conversations, found, strict=True)}
        return conversations

    def replied(self, question: Question, turn: Turn) -> JudgementRecord:
        record = judgement(question, turn.outcome, self.judge.parser)
        if to_be_asked_again(record):
            self.once_more.append(replace(question, attempt=question.attempt + 1))
        else:
            self.judged.add(record.key)
        return record


class Evaluation:
    """State of one candidate's run against its judges."""

    def __init__(
        self,
        test_sets: Iterable[TestSet],
        turns: Iterable[TurnRecord],
        judgements: Iterable[JudgementRecord],
        judges: Mapping[str, Judge],
        again: bool = False,
        keeps_reasoning: bool = False,
    ):
        """`judges`: by the role that they have; none: answers are only collected. `again`: rule 5. `keeps_reasoning`:
        dialogues go on with what the candidate thought. Raises BadInput (rule 4)."""
        self._keeps_reasoning = keeps_reasoning
        self._dialogues = {d.key: d for test_set in test_sets for d in test_set.dialogues}
        self._saved: dict[str, list[Exchange]] = {key: [] for key in self._dialogues}
        self._benches = {role: _Bench(judge) for role, judge in judges.items()}
        by_model = {bench.judge.model: bench for bench in self._benches.values()}
        for judged in judgements:
            if judged.judge in by_model:
                by_model[judged.judge].remember(judged, again)
        self.turns_total = sum(len(d.turns) for d in self._dialogues.values())
        self.judgements_total = sum(
            bench.expects(dialogue, turn)
            for dialogue in self._dialogues.values()
            for turn in range(1, len(dialogue.turns) + 1)
            for bench in self._benches.values()
        )
        self.turns_done = 0
        for record in sorted(turns, key=lambda record: record.turn):
            self._resume(record)

    def _resume(self, record: TurnRecord) -> None:
        """Rule 4."""
        key = f"{record.test_set}/{record.dialogue}"
        if key not in self._dialogues:
            raise BadInput(f"turns.jsonl: {record.key}: no such dialogue in dialogues.jsonl")
        saved, prompts = self._saved[key], self._dialogues[key].turns
        if record.turn <= len(saved):
            return
        if record.turn != len(saved) + 1 or record.turn > len(prompts):
            raise BadInput(f"turns.jsonl: {record.key}: the turn before it is not there; the file has lost lines")
        self._remember(record)
        thought = record.reasoning if self._keeps_reasoning and record.answer is not None else None
        saved.append(Exchange(prompts[record.turn - 1].prompt, record.answer, thought))

    def _remember(self, record: TurnRecord) -> Dialogue:
        dialogue = self._dialogues[f"{record.test_set}/{record.dialogue}"]
        self.turns_done += 1
        answer = record.answer if record.status in ANSWERED else None
        for bench in self._benches.values():
            bench.take(dialogue, record.turn, answer)
        return dialogue

    @property
    def unjudgeable(self) -> int:
        """Questions that will never be asked, because their turn has no answer."""
        return sum(bench.unjudgeable for bench in self._benches.values())

    @property
    def judgements_done(self) -> int:
        """Questions that will not be asked any more."""
        return sum(len(bench.judged) for bench in self._benches.values())

    @property
    def answered(self) -> bool:
        """Every turn has a final outcome."""
        return self.turns_done == self.turns_total

    @property
    def judged(self) -> bool:
        """Every question about the answers that are there has an outcome."""
        return all(bench.idle for bench in self._benches.values())

    @property
    def complete(self) -> bool:
        return self.answered and self.judged

    def dialogues(self) -> list[Conversation]:
        """Every dialogue that is not at its end, behind its saved turns. To be called once: it takes the texts."""
        saved, self._saved = self._saved, {}
        return [
            Conversation(
                key=key,
                user_turns=tuple(turn.prompt for turn in dialogue.turns),
                finished=tuple(saved[key]),
                keeps_reasoning=self._keeps_reasoning,
            )
            for key, dialogue in self._dialogues.items()
            if len(saved[key]) < len(dialogue.turns)
        ]

    def judged_by(self, role: str) -> bool:
        """The judge of that role has nothing open about the answers that are there."""
        return self._benches[role].idle

    def questions(self, role: str, most: int) -> list[Conversation]:
        """The next questions for the judge of that role, so that about `most` are with it."""
        bench = self._benches[role]
        return bench.next(most - len(bench.asked))

    def finished(self, turn: Turn, now: float) -> TurnRecord | JudgementRecord | FailureRecord:
        """What to write down for a turn that a pool has finished, a dialogue's or a question's. `now`: Unix time."""
        bench = next((bench for bench in self._benches.values() if turn.key in bench.asked), None)
        question = bench.asked.pop(turn.key) if bench else None
        if isinstance(turn.outcome, Failure) and turn.outcome.retryable:
            return FailureRecord(
                key=turn.key if bench else f"{turn.key}/{turn.index + 1}",
                status=turn.outcome.status,
                detail=turn.outcome.detail,
                replica=turn.replica,
                time=round(now, 3),
            )
        if bench and question:
            return bench.replied(question, turn)
        dialogue = self._dialogues[turn.key]
        record = turn_record(dialogue.test_set, dialogue.id, turn)
        self._remember(record)
        return record
