"""A JSON array in a reply, as models write them: behind a few words, in a fence, with a comma too many, broken off.

1. It opens on a line of its own or behind a colon, with a string or an object; a bracket within a sentence is none.
2. A string is an item. Of an object it is `question`, where there is one, or else its texts joined by " - ".
3. What is whole is taken up to the first thing that is not; the rest is handed back.
4. JSON can name half a character (\\ud83d alone), which no file can hold: it becomes the replacement character.
"""

import json
import re

from msgspec import Struct

from cluster.texts import whole

_OPENING = re.compile(r'(?:^|:)[ \t]*\[\s*(?=["{])', re.MULTILINE)
FENCES = ("```", "~~~")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder(strict=False)


class Array(Struct, frozen=True):
    texts: list[str]
    before: str
    """The reply up to the array."""
    rest: str
    """Of an array that is broken or not closed: from the first thing on that is no whole item."""


def find(reply: str) -> Array | None:
    """The array in which a list stands. None when there is none, or one of other things than texts."""
    reply = _without_fence(reply)
    opening = _OPENING.search(reply)
    if opening is None:
        return None
    texts: list[str] = []
    at, before = opening.end(), reply[: opening.start()]
    while at < len(reply) and reply[at] != "]":
        value, end = _value(reply, at)
        if value is None:
            return Array(texts, before, reply[at:].strip())
        text = _text(value)
        if text is None:
            return None
        texts.append(whole(text))
        at = _skip(reply, end)
    return Array(texts, before, "")


def _without_fence(reply: str) -> str:
    """Without a fence that closes at its end."""
    text = reply.rstrip()
    return text[: -len(FENCES[0])].rstrip() if text.endswith(FENCES) else reply


def _value(reply: str, at: int) -> tuple[object, int]:
    """The value at this place and where it ends. None when it is not whole: what follows is no comma and no end."""
    try:
        value, end = _DECODER.raw_decode(reply, at)
    except (ValueError, RecursionError):
        return None, at
    behind = _SPACE.match(reply, end).end()
    return (value, end) if reply[behind : behind + 1] in ("", ",", "]") else (None, at)


def _skip(reply: str, at: int) -> int:
    while at < len(reply) and (reply[at].isspace() or reply[at] == ","):
        at += 1
    return at


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("question"), str):
        return value["question"]
    return " - ".join(text for text in value.values() if isinstance(text, str)) or None
