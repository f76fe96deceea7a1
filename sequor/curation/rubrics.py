"""A judge's reply to the four rubrics (paper, figure 3) -> satisfiable, or not, or unreadable. Pure.

1. Satisfiable: yes, no, yes, yes.
2. A JSON object with the numbers as keys ("1", "rubric 1", "q1"), whose values are yes and no, true and false, or
   objects that hold one of these; or an array of four such values. The last one of the reply counts.
3. Otherwise lines that begin with a number from 1 to 4 and go on with yes or no.
4. Each of the four must be answered, and no two answers to one may differ. Everything else is unreadable; so is a reply
   that was cut off.
"""

import json
import re
from itertools import product
from typing import Any

PARSER = "rubrics/1"
WANTED = (True, False, True, True)
CHOICES = tuple(json.dumps(dict(zip("1234", votes, strict=True))) for votes in product(("yes", "no"), repeat=4))
"""Every readable reply, for a judge who is made to choose."""

MOST_STARTS = 200
"""Brackets at which JSON may begin. A model that is stuck says them by the thousand."""

_DECODER = json.JSONDecoder(strict=False)
_NUMBER = re.compile(r"\D*([1-4])\D*")
_WORD = re.compile(r"\W*(yes|no|true|false)(?!\w)", re.IGNORECASE)
_LINE = re.compile(
    r"^[ \t*_>#-]*(?:(?:rubric|question|q)\s*)?([1-4])\s*[.):*_-]*(?:\s*\(?[\w ]{0,40}\)?\s*[:=])?"
    r"[\s*_\"'`-]*(yes|no)(?![\w'’-])",
    re.IGNORECASE | re.MULTILINE,
)


def satisfiable(reply: str | None, truncated: bool = False) -> bool | None:
    """None: unreadable."""
    votes = None if reply is None or truncated else rubrics(reply)
    return None if votes is None else votes == WANTED


def rubrics(reply: str) -> tuple[bool, ...] | None:
    """The four answers; None: unreadable."""
    for start in reversed([match.start() for match in re.finditer(r"[{\[]", reply)][-MOST_STARTS:]):
        try:
            value, _ = _DECODER.raw_decode(reply, start)
        except (ValueError, RecursionError):
            continue
        if votes := _of(value):
            return votes
    found: dict[int, bool] = {}
    for number, word in _LINE.findall(reply):
        vote = word.lower() == "yes"
        if found.setdefault(int(number), vote) != vote:
            return None
    return _four(found)


def _of(value: Any) -> tuple[bool, ...] | None:
    if isinstance(value, list):
        votes = [_vote(item) for item in value]
        return tuple(votes) if len(votes) == 4 and None not in votes else None
    if not isinstance(value, dict):
        return None
    found: dict[int, bool] = {}
    for key, item in value.items():
        number, vote = _NUMBER.fullmatch(key), _vote(item)
        if number and vote is not None and found.setdefault(int(number[1]), vote) != vote:
            return None
    return _four(found)


def _vote(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = _WORD.match(value)
        return word[1].lower() in ("yes", "true") if word else None
    if isinstance(value, dict):
        votes = {vote for item in value.values() if (vote := _vote(item)) is not None}
        return votes.pop() if len(votes) == 1 else None
    return None


def _four(found: dict[int, bool]) -> tuple[bool, ...] | None:
    return tuple(found[number] for number in range(1, 5)) if len(found) == 4 else None
