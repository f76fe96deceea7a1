"""From a reply that should be a list to its items. Models decorate, introduce, fence and break off; this reads on.

1. A JSON array of strings or objects, alone or within the reply, closed or not, is the list (sequor/jsonlist.py).
2. Otherwise an item begins at a marked line: a number, a time of day, a letter or a bullet. The list's own mark is the
   first of these that at least two of the least indented marked lines have; a bullet before a number is the number's.
3. Lines of another mark, and lines further in, belong to the item above them; so do unmarked lines right below one.
4. What stands before the first item, or after a blank line behind one, is no item, and neither is a heading. A last
   line glued to the last item, whose sentence had ended, is taken for a farewell when no other item has such a line.
5. Without any mark every line is an item, unless there is only one; a first line that ends in a colon is none.
6. The last item of a reply that was cut off is dropped: its end is missing.
7. Bold marks, outer quotes and code fences are taken off; stars and quotes within an item stay.
"""

import re
from collections import Counter

from msgspec import Struct

from sequor import jsonlist

PARSER = "list/2"
"""Names these rules in a fingerprint. Another number when they read a reply otherwise."""

MARKS = ("number", "time", "letter", "bullet")
"""The stronger first."""

_BULLET = re.compile(r"[-*•–—·+]\s+")
_NUMBER = re.compile(
    r"[*_#>\s]*(?:(?:question|activity|item|step|q)\s*#?)?[(\[]?\d{1,3}(?:\s*(?:\\?[.)\]:](?!\d)|[、．）])|\s+[-–—](?=\s))\s*",
    re.IGNORECASE,
)
_TIME = re.compile(r"[*_#>\s]*\d{1,2}(?:[:.]\d{2}(?!\d)|\s?[ap]\.?m\b)", re.IGNORECASE)
_LETTER = re.compile(r"[*_#>\s]*\(?[a-zA-Z][.)]\s+")
_HEADING = re.compile(r"#{1,6}\s.*|\*\*[^*]+\*\*:?|__[^_]+__:?")
_IGNORED = re.compile(r"\s*(?:(?:```|~~~)\w*|[-*_=]{3,})\s*$")
_BOLD = re.compile(r"(?<![\w*])\*\*\s*([^*\s](?:.*?\S)??)\s*\*\*(?![\w*])")
_PAIRS = {'"': '"', "“": "”", "„": "“", "«": "»", "`": "`"}


class Dropped(Struct, frozen=True):
    """Something that a reply held and that was not taken."""

    text: str
    reason: str


class _Line(Struct):
    indent: int
    mark: str | None
    text: str
    """Without its mark."""


class _Item(Struct):
    text: str
    tail: list[str]
    """Unmarked lines right below it, not further in."""


def items(reply: str, cut: bool = False) -> tuple[list[str], list[Dropped]]:
    """The items in their order, and what was left out with its reason. `cut`: the reply hit its token limit."""
    array = jsonlist.find(reply)
    if array is not None and not any(_line(line).mark for line in array.before.splitlines()):
        dropped = [Dropped(array.rest, "no whole item of the JSON list")] if array.rest else []
        found = [_without_number(text) for text in array.texts]
    else:
        dropped = []
        found = _listed([_line(raw) for raw in reply.splitlines() if not _IGNORED.match(raw)], dropped)
        if cut and found:
            dropped.append(Dropped(found.pop(), "cut off by the token limit"))
    return [text for text in map(_bare, found) if text], dropped


def _line(raw: str) -> _Line:
    raw = raw.expandtabs(4).rstrip()
    text = raw.lstrip()
    indent = len(raw) - len(text)
    bullet = _BULLET.match(text)
    rest = text[bullet.end() :] if bullet else text
    if number := _NUMBER.match(rest):
        return _Line(indent, "number", _after(rest, number))
    if bullet:
        return _Line(indent, "bullet", rest)
    if _TIME.match(text):
        return _Line(indent, "time", text)
    if letter := _LETTER.match(text):
        return _Line(indent, "letter", _after(text, letter))
    return _Line(indent, None, text)


def _after(text: str, mark: re.Match) -> str:
    """What follows a mark. Bold that opened within the mark stays open: `**1. Tea** - hot` is `**Tea** - hot`."""
    return ("**" if mark.group().count("**") % 2 else "") + text[mark.end() :]


def _listed(lines: list[_Line], dropped: list[Dropped]) -> list[str]:
    marked = [line for line in lines if line.mark]
    if not marked:
        return _plain([line.text for line in lines if line.text], dropped)
    # a reply's first line has lost its indent wherever replies are stripped: its next of kin tell what it was
    kin = [line for line in marked[1:] if line.mark == marked[0].mark] or marked[:1]
    margin = min(line.indent for line in kin) + 2
    own = _own_mark([line.mark for line in marked if line.indent < margin])
    found: list[_Item] = []
    below = False  # whether this line stands right below an item's
    for line in lines:
        outer = line.indent < margin
        if line.mark == own and outer:
            found.append(_Item(line.text, []))
            below = True
        elif not line.text:
            below = False
        elif outer and not line.mark and _HEADING.fullmatch(line.text):
            dropped.append(Dropped(line.text, "a heading"))
            below = False
        elif found and (below or not outer):
            _continue(found[-1], line, outer)
        else:
            dropped.append(Dropped(line.text, "behind the list" if found else "before the list"))
    return _with_tails(found, dropped)


def _own_mark(marks: list[str]) -> str:
    counts = Counter(marks)
    often = [mark for mark in MARKS if counts[mark] > 1]
    return (often or [mark for mark in MARKS if counts[mark]])[0]


def _continue(item: _Item, line: _Line, outer: bool) -> None:
    if outer and not line.mark:
        item.tail.append(line.text)
        return
    ended = _bare(item.text).endswith((".", "?", "!", ":", ";", ","))
    item.text += (" " if ended or not line.mark else "; ") + _bare(line.text)


def _with_tails(found: list[_Item], dropped: list[Dropped]) -> list[str]:
    """Rule 4's farewell."""
    *others, last = found or [_Item("", [])]
    if last.tail and others and not any(item.tail for item in others) and _bare(last.text).endswith((".", "?", "!")):
        dropped.append(Dropped(" ".join(last.tail), "behind the list"))
        last.tail = []
    return [" ".join([item.text, *item.tail]) for item in found]


def _plain(texts: list[str], dropped: list[Dropped]) -> list[str]:
    if len(texts) > 2 and texts[0].rstrip("*_ ").endswith((":", "：")):
        dropped.append(Dropped(texts.pop(0), "before the list"))
    if len(texts) < 2:
        dropped += [Dropped(text, "no list") for text in texts]
        return []
    return texts


def _without_number(text: str) -> str:
    number = _NUMBER.match(text)
    return _after(text, number) if number else text


def _bare(item: str) -> str:
    """Without bold, also where it covers a part (`**7:00 - Tea**: ...`), and without quotes around the whole."""
    text = _BOLD.sub(r"\1", " ".join(item.split())).strip(" *_")
    while len(text) > 1 and _PAIRS.get(text[0]) == text[-1] and not set(text[1:-1]) & {text[0], text[-1]}:
        text = text[1:-1].strip(" *_")
    return text
