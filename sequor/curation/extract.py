"""A conversation's user turns -> one question to a model -> candidates. Pure.

1. A question shows all user turns, numbered, up to `longest` characters; a longer conversation is cut at its end.
2. A reply is read as models write them: in a fence, behind a few words or before some, as an array, as one object, as
   objects one after the other, or broken off; whole objects are taken up to the first thing that is none.
3. `[]` is a reply without constraints. One in which nothing can be read is kept and counted: `no JSON`.
4. A category is one of the four in any case, number or punctuation, or by its first word; otherwise it stays None and
   what the model said is kept beside it.
5. Keys come from content: the conversation's id, a hash of what is shown, and the number of user turns.
"""

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import Any

from msgspec import Struct

from cluster.conversation import Conversation
from cluster.texts import whole
from sequor.curation.candidates import CATEGORIES, Candidate
from sequor.curation.chats import Chat
from sequor.prompts.render import render
from sequor.records import ReplyRecord

PARSER = "extract/1"
"""Names rules 2 to 4 in a fingerprint."""

LONGEST_CONSTRAINT = 500
"""Characters. What is longer is no constraint but a copy of the conversation."""

_DECODER = json.JSONDecoder(strict=False)
_TEXT_KEYS = ("constraint", "text", "rule", "instruction")
_TURN_KEYS = ("message", "turn", "message_number", "turn_number")
_LETTERS = re.compile(r"[^a-z]+")


class Reading(Struct, frozen=True):
    """What one reply holds. `status`: ok, none (no constraint in it), no JSON, no answer."""

    status: str
    candidates: tuple[Candidate, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()
    """Text and reason."""


def question(chat: Chat, longest: int) -> tuple[Conversation, bool]:
    """And whether the conversation was cut."""
    turns, left = [], longest
    for turn in chat.user_turns:
        if left <= 0:
            break
        turns.append(turn[:left])
        left -= len(turn)
    mark = sha256("\0".join(turns).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    prompt = render("extract", turns=turns, mark=mark)
    return Conversation(f"{chat.id}|{mark}|{len(turns)}", (prompt,)), left < 0 or len(turns) < len(chat.user_turns)


def reading(record: ReplyRecord) -> Reading:
    """The candidates of one reply, each once."""
    conversation, _, turns = record.key.rsplit("|", 2)
    if record.reply is None:
        return Reading("no answer")
    found = objects(record.reply)
    if found is None:
        return Reading("no JSON")
    candidates: list[Candidate] = []
    dropped: list[tuple[str, str]] = []
    seen: set[str] = set()
    for item in found:
        text = _text(item)
        if reason := _fault(text, seen):
            dropped.append((text, reason))
            continue
        seen.add(text.casefold())
        said = item.get("category", item.get("type")) if isinstance(item, dict) else None
        category = category_of(said)
        name = f"{conversation}.{len(candidates) + 1}"
        turn = _turn(item, int(turns))
        unknown = None if category or said is None else whole(str(said)[:80])
        candidates.append(Candidate(name, text, category, unknown, conversation, turn))
    return Reading("ok" if candidates else "none", tuple(candidates), tuple(dropped))


MOST_STARTS = 200
"""Brackets at which JSON may begin. A model that is stuck says them by the thousand."""


def objects(reply: str) -> list[Any] | None:
    """The items of a reply (rule 2); None when there is no JSON in it that could be a list of constraints."""
    for start in (m.start() for m in islice(re.finditer(r"[\[{]", reply), MOST_STARTS)):
        value = _decoded(reply, start)
        if isinstance(value, dict):
            inner = next((v for v in value.values() if isinstance(v, list)), None)
            if inner is not None and not any(key in value for key in _TEXT_KEYS):
                return inner  # {"constraints": [...]}
            if any(key in value for key in _TEXT_KEYS):
                return list(_sequence(reply, start))
        elif isinstance(value, list):
            if not value or all(_is_item(item) for item in value):
                return value
        elif reply[start] == "[" and (broken := list(_sequence(reply, start + 1))):
            return broken
    return None


def _decoded(reply: str, start: int) -> Any:
    try:
        return _DECODER.raw_decode(reply, start)[0]
    except ValueError:
        return None
    except RecursionError:  # thousands of brackets
        return None


def _sequence(reply: str, at: int) -> Iterator[Any]:
    """Whole objects one after the other, with white space, commas or brackets between."""
    while at < len(reply):
        if reply[at].isspace() or reply[at] in ",[]":
            at += 1
            continue
        if reply[at] != "{":
            return
        try:
            value, at = _DECODER.raw_decode(reply, at)
        except (ValueError, RecursionError):
            return
        if not _is_item(value):
            return
        yield value


def _is_item(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, dict) and any(isinstance(value.get(key), str) for key in _TEXT_KEYS)


def _text(item: Any) -> str:
    if isinstance(item, dict):
        item = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")
    return whole(" ".join(item.split()))


def _fault(text: str, seen: Iterable[str]) -> str | None:
    if sum(c.isalpha() for c in text) < 2:
        return "no words"
    if len(text) > LONGEST_CONSTRAINT:
        return f"{len(text)} characters: too long"
    return "repeats one of the same conversation" if text.casefold() in seen else None


def category_of(said: Any) -> str | None:
    """Rule 4."""
    if not isinstance(said, str):
        return None
    words = _LETTERS.sub(" ", said.casefold()).split()
    for category in CATEGORIES:
        if words and _singular(words) in (_singular(category.split()), _singular(category.split()[:1])):
            return category
    return None


def _singular(words: list[str]) -> list[str]:
    return [word.rstrip("s") for word in words]


def _turn(item: Any, turns: int) -> int | None:
    """The number that the model gives, when there is such a turn; the only turn there is; else None."""
    for key in _TURN_KEYS if isinstance(item, dict) else ():
        value = item.get(key)
        if isinstance(value, str) and value.strip().isdecimal():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= turns:
            return value
    return 1 if turns == 1 else None
