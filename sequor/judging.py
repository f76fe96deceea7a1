"""A dialogue's answer -> questions to the judges -> judgements.

1. Every constraint in force is judged alone, on that turn's answer alone (paper, section 3.2).
2. The answer stands first in the prompt and the constraint last, so that the questions about one answer share their
   beginning in the engine's prefix cache; they form one group.
3. The answer is set off by a mark made from its own hash: no text can contain its own mark, so none can close it.
4. Only what is an answer is judged (ok, truncated). A reply without a readable verdict is `unreadable`, also one whose
   reasoning used the budget up; no reply at all is `judge_error`. Neither is a violation.
5. A reply that was cut before its verdict is asked for once more, with twice the room; both are written down.
6. Task completion, where it is asked, is a question of its own: the task without its constraints, and the answer.
"""

from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from cluster.conversation import Conversation, Outcome, Response
from cluster.settings import Sampling
from sequor import introductions
from sequor.parsing import DEFAULT_PARSER, PARSERS
from sequor.prompts.render import render
from sequor.records import JudgementRecord
from sequor.types import TASK_COMPLETION, Dialogue, JudgementStatus, Question

ATTEMPTS_WHEN_CUT = 2
ROOM = 2
"""Rule 5: times the budget."""


class Judge(Struct, frozen=True):
    """Who judges, what, and how the replies are read."""

    model: str
    parser: str = DEFAULT_PARSER
    sampling: Sampling = Sampling()
    completion: bool = False
    """Whether the answer does the task is asked as well."""


def questions(dialogue: Dialogue, turn: int, answer: str, judge: str, completion: bool = False) -> list[Question]:
    """One question for each constraint in force at `turn` (from 1), and rule 6."""
    mark = sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    user = dialogue.turns[turn - 1]
    prompts = {c.id: render("judge", answer=answer, mark=mark, constraint=c.text) for c in user.in_force}
    if completion:
        _, task = introductions.split(user.prompt)
        prompts[TASK_COMPLETION] = render("completion", answer=answer, mark=mark, task=task)
    return [
        Question(
            test_set=dialogue.test_set, dialogue=dialogue.id, turn=turn, constraint=about, judge=judge, prompt=prompt
        )
        for about, prompt in prompts.items()
    ]


def asked_of(dialogue: Dialogue, turn: int, completion: bool) -> list[str]:
    """What `questions` asks about: constraint ids, and TASK_COMPLETION."""
    return [c.id for c in dialogue.turns[turn - 1].in_force] + [TASK_COMPLETION] * completion


def conversation(question: Question, sampling: Sampling) -> Conversation:
    """The question as a conversation of one turn, beside those about the same answer."""
    again = question.attempt > 1
    return Conversation(
        key=f"{question.key}#{question.attempt}" if again else question.key,
        user_turns=(question.prompt,),
        group=f"{question.test_set}/{question.dialogue}/{question.turn}",
        urgent=True,
        sampling=replace(sampling, max_tokens=sampling.max_tokens * ROOM) if again else sampling,
    )


def judgement(question: Question, outcome: Outcome, parser: str = DEFAULT_PARSER) -> JudgementRecord:
    answered = isinstance(outcome, Response)
    cut = outcome.truncated if answered else outcome.status == "reasoning_unfinished"
    if answered:
        status, detail = _verdict(outcome.text, cut, parser), None
    else:
        status, detail = "unreadable" if cut else "judge_error", f"{outcome.status}: {outcome.detail}"
    return JudgementRecord(
        test_set=question.test_set,
        dialogue=question.dialogue,
        turn=question.turn,
        constraint=question.constraint,
        judge=question.judge,
        attempt=question.attempt,
        status=status,
        parser=parser,
        reply=outcome.text if answered else None,
        reasoning=outcome.reasoning,
        truncated=cut,
        detail=detail,
        prompt_tokens=outcome.usage.prompt_tokens,
        cached_tokens=outcome.usage.cached_tokens,
        output_tokens=outcome.usage.output_tokens,
    )


def to_be_asked_again(record: JudgementRecord) -> bool:
    """Rule 5."""
    return record.status == "unreadable" and record.truncated and record.attempt < ATTEMPTS_WHEN_CUT


def read_again(record: JudgementRecord, parser: str) -> JudgementStatus:
    """What this parser makes of a saved reply. Where there was none, nothing changes."""
    return record.status if record.reply is None else _verdict(record.reply, record.truncated, parser)


def _verdict(reply: str, truncated: bool, parser: str) -> JudgementStatus:
    """A reply that was cut may have been cut within its verdict: "no" of "not at all". `released` minds nothing."""
    return "unreadable" if truncated and not parser.startswith("released/") else PARSERS[parser](reply)
