"""Persona -> agenda -> activities -> questions -> tasks (paper, appendix E), as conversations. No I/O, no engine.

1. One conversation asks for a persona's agenda; one for each activity asks for questions. Keys come from content, so
   that a record belongs to what was asked, wherever it stands.
2. A persona's tasks are its questions in the order of the day. A question that is too short or too long, or that
   repeats an earlier one of the same persona, exactly or nearly, is dropped with its reason.
3. Nearly: the words' 3-grams of the two have a Jaccard similarity of at least `near`.
4. A reply that holds no item is asked for again, under a key of its own (`.../2`), `attempts` times in all.
5. Replies are the only memory: what was derived from them is derived again.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain, count, takewhile
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cluster.conversation import Conversation
from sequor.listing import Dropped, items
from sequor.prompts.render import digest, render
from sequor.records import ReplyRecord
from sequor.types import Persona, Task

WORDS = range(4, 101)
"""Words that a question may have. Of scripts without spaces each character counts as one."""

_SPACELESS = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai and Lao, kana, ideographs
_WORD = re.compile(rf"[{_SPACELESS}]|(?:(?![{_SPACELESS}])[\w'’-])+")

Positive = Annotated[int, Meta(ge=1)]

Replies = Mapping[str, ReplyRecord]
"""By key."""


class Synthesis(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is asked for. Ten activities of twelve questions are the paper's 120 tasks a persona."""

    activities: Positive = 10
    questions: Positive = 14
    """For each activity: some more than are needed, as some are dropped."""
    tasks: Positive = 120
    """Tasks kept of each persona, the first of the day."""
    near: Annotated[float, Meta(gt=0, le=1)] = 0.7
    """Rule 3's threshold; 1 drops only questions of the same 3-grams."""
    attempts: Positive = 3

    @property
    def most(self) -> int:
        """Questions that are asked for, of one persona."""
        return self.activities * self.questions


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
    return [_about(persona, activity, synthesis) for activity in activities_in(agenda, synthesis)[0]]


def following(persona: Persona, record: ReplyRecord, replies: Replies, synthesis: Synthesis) -> list[Conversation]:
    """What is to be asked after this reply: about each activity of an agenda, or the same once more (rule 4)."""
    key, attempt = _first_key(record.key)
    is_agenda = key == f"{persona.id}/agenda"
    if items(record.reply or "", record.truncated)[0]:
        return questions_of(persona, record, synthesis) if is_agenda else []
    if attempt >= synthesis.attempts:
        return []
    agenda = agenda_of(persona, synthesis)
    asked = [agenda] if is_agenda else questions_of(persona, _attempts(agenda.key, replies)[-1], synthesis)
    return [replace(c, key=f"{key}/{attempt + 1}") for c in asked if c.key == key]


def yield_of(persona: Persona, replies: Replies, synthesis: Synthesis) -> Yield:
    """What the replies so far come to."""
    agendas = _attempts(f"{persona.id}/agenda", replies)
    if not agendas:
        return Yield(persona, (), (), 0, 0)
    dropped = [(agenda.key, d) for agenda in agendas for d in activities_in(agenda, synthesis)[1]]
    activities = activities_in(agendas[-1], synthesis)[0]
    tasks: list[Task] = []
    seen: list[tuple[str, frozenset[tuple[str, ...]]]] = []
    asked, usable = len(agendas), int(bool(activities))
    for activity in activities:
        for reply in _attempts(_question_key(persona, activity), replies):
            found, left_out = items(reply.reply or "", reply.truncated)
            asked, usable = asked + 1, usable + bool(found)
            dropped += [(reply.key, d) for d in left_out]
            for question in found:
                if reason := _fault(question, seen, synthesis.near):
                    dropped.append((reply.key, Dropped(question, reason)))
                    continue
                seen.append((question, _grams(question)))
                tasks.append(Task(persona.text, activity, question))
    dropped += [(f"{persona.id}/tasks", Dropped(task.prompt, "one task too many")) for task in tasks[synthesis.tasks :]]
    return Yield(persona, tuple(tasks[: synthesis.tasks]), tuple(dropped), asked, usable)


def _about(persona: Persona, activity: str, synthesis: Synthesis) -> Conversation:
    prompt = render("questions", persona=persona.text, activity=activity, questions=synthesis.questions)
    return Conversation(_question_key(persona, activity), (prompt,), group=persona.id)


def _question_key(persona: Persona, activity: str) -> str:
    return f"{persona.id}/questions/{sha256(activity.encode()).hexdigest()[:12]}"


def _first_key(key: str) -> tuple[str, int]:
    """The first attempt's key, and the number of this one."""
    parts = key.split("/")
    own = 2 if parts[1] == "agenda" else 3
    return "/".join(parts[:own]), int(parts[own]) if parts[own:] else 1


def _attempts(key: str, replies: Replies) -> list[ReplyRecord]:
    """The replies to a question, from the first attempt to the last that was made."""
    keys = chain([key], (f"{key}/{attempt}" for attempt in count(2)))
    return list(takewhile(lambda reply: reply is not None, map(replies.get, keys)))


def _fault(question: str, seen: Iterable[tuple[str, frozenset]], near: float) -> str | None:
    words = len(_WORD.findall(question))
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
    words = _WORD.findall(text.casefold())
    return frozenset(tuple(words[at : at + 3]) for at in range(max(1, len(words) - 2)))
