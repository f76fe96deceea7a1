"""A run as conversations: what is left to play, what to write down, what to ask the judge next. No I/O, no engine.

1. What is in the records is done: a dialogue continues behind its last saved turn, and only a missing judgement is
   asked. Records are the only memory, so a resumed run is a run that has more records.
2. A saved answer is queued for judging at once, and a question becomes a prompt only when the judges have room
   (`questions`), so that a hundred thousand prompts never wait in memory.
3. Failures of the machinery are handed back apart from the records: they are asked again by the next run.
4. Of several records of one turn the first counts. A turn whose predecessor has no record was built on answers that
   are lost: such a folder is refused.
"""

from collections import deque
from collections.abc import Iterable

from cluster.conversation import Conversation, Exchange, Failure, Turn
from cluster.settings import Sampling
from sequor.errors import BadInput
from sequor.judging import conversation, judgement, questions
from sequor.metrics import ANSWERED
from sequor.parsing import DEFAULT_PARSER
from sequor.records import FailureRecord, JudgementRecord, TurnRecord, turn_record
from sequor.types import Dialogue, Question, TestSet


class Evaluation:
    """State of one candidate's run against one judge."""

    def __init__(
        self,
        test_sets: Iterable[TestSet],
        turns: Iterable[TurnRecord],
        judgements: Iterable[JudgementRecord],
        judge: str | None,
        parser: str = DEFAULT_PARSER,
        judge_sampling: Sampling | None = None,
    ):
        """`judge` None: answers are only collected. Raises BadInput (rule 4)."""
        self.judge = judge
        self.parser = parser
        self._judge_sampling = judge_sampling
        self._dialogues = {d.key: d for test_set in test_sets for d in test_set.dialogues}
        self._saved: dict[str, list[Exchange]] = {key: [] for key in self._dialogues}
        self._backlog: deque[tuple[Dialogue, int, str]] = deque()
        self._asked: dict[str, Question] = {}
        self._judged = {record.key for record in judgements if judge is not None and record.judge == judge}
        self.turns_total = sum(len(d.turns) for d in self._dialogues.values())
        self.judgements_total = sum(len(t.in_force) for d in self._dialogues.values() for t in d.turns)
        self.turns_done = 0
        self.judgements_done = len(self._judged)
        self.unjudgeable = 0
        """Questions that will never be asked, because their turn has no answer."""
        self._askable = 0
        """Questions about turns that are done, the unjudgeable ones included."""
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
        saved.append(Exchange(prompts[record.turn - 1].prompt, record.answer))

    def _remember(self, record: TurnRecord) -> Dialogue:
        dialogue = self._dialogues[f"{record.test_set}/{record.dialogue}"]
        self.turns_done += 1
        self._askable += len(dialogue.turns[record.turn - 1].in_force)
        if record.status in ANSWERED and record.answer is not None:
            self._backlog.append((dialogue, record.turn, record.answer))
        else:
            self.unjudgeable += len(dialogue.turns[record.turn - 1].in_force)
        return dialogue

    @property
    def answered(self) -> bool:
        """Every turn has a final outcome."""
        return self.turns_done == self.turns_total

    @property
    def judged(self) -> bool:
        """Every question about the turns that are done has an outcome, or cannot be asked."""
        return self.judge is None or self.judgements_done + self.unjudgeable == self._askable

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
            )
            for key, dialogue in self._dialogues.items()
            if len(saved[key]) < len(dialogue.turns)
        ]

    def questions(self, room: int) -> list[Conversation]:
        """The next questions for the judges: at least `room` where there are as many, whole answers at a time."""
        asked: list[Conversation] = []
        while self.judge is not None and self._backlog and len(asked) < room:
            dialogue, turn, answer = self._backlog.popleft()
            for question in questions(dialogue, turn, answer, self.judge):
                if question.key not in self._judged:
                    self._asked[question.key] = question
                    asked.append(conversation(question, self._judge_sampling))
        return asked

    @property
    def asked(self) -> int:
        """Questions that are with the judges now."""
        return len(self._asked)

    def finished(self, turn: Turn, now: float) -> TurnRecord | JudgementRecord | FailureRecord:
        """What to write down for a turn that a pool has finished, a dialogue's or a question's. `now`: Unix time."""
        question = self._asked.pop(turn.key, None)
        if isinstance(turn.outcome, Failure) and turn.outcome.retryable:
            return FailureRecord(
                key=turn.key if question else f"{turn.key}/{turn.index + 1}",
                status=turn.outcome.status,
                detail=turn.outcome.detail,
                replica=turn.replica,
                time=round(now, 3),
            )
        if question is not None:
            self._judged.add(question.key)
            self.judgements_done += 1
            return judgement(question, turn.outcome, self.parser)
        dialogue = self._dialogues[turn.key]
        record = turn_record(dialogue.test_set, dialogue.id, turn)
        self._remember(record)
        return record
