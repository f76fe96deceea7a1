"""Persona -> agenda -> activities -> questions -> tasks (paper, appendix E), as conversations. No I/O, no engine.

1. One conversation asks for a persona's agenda; one for each activity asks for questions. Keys come from content, so
   that a record belongs to what was asked, wherever it stands.
2. A persona's tasks are its questions in the order of the day. A question that is too short or too long, or that
   repeats an earlier one of the same persona, exactly or nearly, is dropped with its reason.
3. Nearly: the words' 3-grams of the two have a Jaccard similarity of at least `near`.
4. Replies are the only memory: what was derived from them is derived again.
"""

import re
from collections.abc import Iterable
from hashlib import sha256

from msgspec import Struct

from cluster.conversation import Conversation
from sequor.listing import Dropped, items
from sequor.prompts.render import digest, render
from sequor.records import ReplyRecord
from sequor.types import Persona, Task

WORDS = range(4, 101)
"""Words that a question may have."""


class Synthesis(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is asked for. Ten activities of twelve questions are the paper's 120 tasks a persona."""

    activities: int = 10
    questions: int = 14
    """For each activity: some more than are needed, as some are dropped."""
    tasks: int = 120
    """Tasks kept of each persona, the first of the day."""
    near: float = 0.7


class Yield(Struct, frozen=True):
    """What came of one persona. `usable`: replies from which at least one item was taken."""

    persona: Persona
    tasks: tuple[Task, ...]
    dropped: tuple[tuple[str, Dropped], ...]
    """With the key of the reply."""
    replies: int
    usable: int


def prompts_digest() -> str:
    return f"{digest('agenda')} {digest('questions')}"


def agenda_of(persona: Persona, synthesis: Synthesis) -> Conversation:
    prompt = render("agenda", persona=persona.text, activities=synthesis.activities)
    return Conversation(f"{persona.id}/agenda", (prompt,))


def activities_in(agenda: ReplyRecord, synthesis: Synthesis) -> tuple[list[str], list[Dropped]]:
    """The first `activities` of an agenda's items, each once."""
    found, dropped = items(agenda.reply or "", agenda.truncated)
    unique = list(dict.fromkeys(found))
    kept, spare = unique[: synthesis.activities], unique[synthesis.activities :]
    return kept, dropped + [Dropped(text, "one activity too many") for text in spare]


def questions_of(persona: Persona, agenda: ReplyRecord, synthesis: Synthesis) -> list[Conversation]:
    """A conversation for each activity of the agenda."""
    return [
        Conversation(
            _question_key(persona, activity),
            (render("questions", persona=persona.text, activity=activity, questions=synthesis.questions),),
            group=persona.id,
        )
        for activity in activities_in(agenda, synthesis)[0]
    ]


def yield_of(persona: Persona, replies: dict[str, ReplyRecord], synthesis: Synthesis) -> Yield:
    """What the replies so far, by key, come to."""
    agenda = replies.get(f"{persona.id}/agenda")
    if agenda is None:
        return Yield(persona, (), (), 0, 0)
    activities, left_out = activities_in(agenda, synthesis)
    dropped = [(agenda.key, d) for d in left_out]
    tasks: list[Task] = []
    seen: list[tuple[str, frozenset[tuple[str, ...]]]] = []
    count, usable = 1, int(bool(activities))
    for activity in activities:
        reply = replies.get(_question_key(persona, activity))
        if reply is None:
            continue
        found, left_out = items(reply.reply or "", reply.truncated)
        count, usable = count + 1, usable + bool(found)
        dropped += [(reply.key, d) for d in left_out]
        for question in found:
            if reason := _fault(question, seen, synthesis.near):
                dropped.append((reply.key, Dropped(question, reason)))
                continue
            seen.append((question, _grams(question)))
            tasks.append(Task(persona.text, activity, question))
    dropped += [(f"{persona.id}/tasks", Dropped(task.prompt, "one task too many")) for task in tasks[synthesis.tasks :]]
    return Yield(persona, tuple(tasks[: synthesis.tasks]), tuple(dropped), count, usable)


def _question_key(persona: Persona, activity: str) -> str:
    return f"{persona.id}/questions/{sha256(activity.encode()).hexdigest()[:12]}"


def _fault(question: str, seen: Iterable[tuple[str, frozenset]], near: float) -> str | None:
    words = len(question.split())
    if words not in WORDS:
        return f"{words} words: too {'short' if words < WORDS.start else 'long'}"
    grams = _grams(question)
    for earlier, others in seen:
        if question.casefold() == earlier.casefold():
            return "repeats an earlier question"
        similarity = len(grams & others) / len(grams | others)
        if similarity >= near:
            return f"near an earlier question ({similarity:.2f}): {earlier}"
    return None


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    words = re.findall(r"\w+", text.casefold())
    return frozenset(tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2)))
