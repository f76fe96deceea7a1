"""A dialogue's answer -> questions to the judge -> judgements.

1. Every constraint in force is judged alone, on that turn's answer alone (paper, section 3.2).
2. The answer stands first in the prompt and the constraint last, so that the questions about one answer share their
   beginning in the engine's prefix cache; they form one group.
3. The answer is set off by a mark made from its own hash: no text can contain its own mark, so none can close it.
4. Only what is an answer is judged (ok, truncated). A reply without a readable verdict is `unreadable`; no reply at
   all is `judge_error`. Neither is a violation.
"""

from hashlib import sha256

from cluster.conversation import Conversation, Outcome, Response
from cluster.settings import Sampling
from sequor.parsing import DEFAULT_PARSER, PARSERS
from sequor.prompts.render import render
from sequor.records import JudgementRecord
from sequor.types import Dialogue, JudgementStatus, Question


def questions(dialogue: Dialogue, turn: int, answer: str, judge: str) -> list[Question]:
    """One question for each constraint in force at `turn` (from 1)."""
    mark = sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return [
        Question(
            test_set=dialogue.test_set,
            dialogue=dialogue.id,
            turn=turn,
            constraint=constraint.id,
            judge=judge,
            prompt=render("judge", answer=answer, mark=mark, constraint=constraint.text),
        )
        for constraint in dialogue.turns[turn - 1].in_force
    ]


def conversation(question: Question, sampling: Sampling | None = None) -> Conversation:
    """The question as a conversation of one turn, beside those about the same answer."""
    return Conversation(
        key=question.key,
        user_turns=(question.prompt,),
        group=f"{question.test_set}/{question.dialogue}/{question.turn}",
        urgent=True,
        sampling=sampling,
    )


def judgement(question: Question, outcome: Outcome, parser: str = DEFAULT_PARSER) -> JudgementRecord:
    answered = isinstance(outcome, Response)
    return JudgementRecord(
        test_set=question.test_set,
        dialogue=question.dialogue,
        turn=question.turn,
        constraint=question.constraint,
        judge=question.judge,
        status=_verdict(outcome.text, outcome.truncated, parser) if answered else "judge_error",
        parser=parser,
        reply=outcome.text if answered else None,
        reasoning=outcome.reasoning,
        truncated=answered and outcome.truncated,
        detail=None if answered else f"{outcome.status}: {outcome.detail}",
        prompt_tokens=outcome.usage.prompt_tokens,
        cached_tokens=outcome.usage.cached_tokens,
        output_tokens=outcome.usage.output_tokens,
    )


def read_again(record: JudgementRecord, parser: str) -> JudgementStatus:
    """What this parser makes of a saved reply. Where there was none, nothing changes."""
    return record.status if record.reply is None else _verdict(record.reply, record.truncated, parser)


def _verdict(reply: str, truncated: bool, parser: str) -> JudgementStatus:
    """A reply that was cut may have been cut within its verdict: "no" of "not at all". `released` minds nothing."""
    return "unreadable" if truncated and not parser.startswith("released/") else PARSERS[parser](reply)
