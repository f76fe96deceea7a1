"""From a reply that should be a list to its items. Models decorate, introduce, fence and break off; this reads on.

1. A JSON array of strings, alone or within the reply, is the list.
2. Otherwise an item begins at a marked line: a number, a letter or a bullet, or a time of day; bold marks, quotes and
   code fences are taken off. Lines right below belong to their item.
3. What stands before the first item, or after a blank line behind one, is no item.
4. Without any mark every line is an item, unless there is only one.
5. The last item of a reply that was cut off is dropped: its end is missing.
"""

import json
import re

from msgspec import Struct

_MARK = re.compile(
    r"^\s*(?:[*_#>]+\s*)?(?:\(?\d{1,3}\s*[.):](?!\d)|\(?[a-zA-Z][.)](?=\s)|[-*•–—·+](?=\s)|(?=\d{1,2}[:.]\d{2}))\s*"
)
_FENCE = re.compile(r"^\s*(?:```|~~~)\w*\s*$")
_OUTER = re.compile(r"^[\s*_`\"“”]+|[\s*_`\"“”]+$")


class Dropped(Struct, frozen=True):
    """Something that a reply held and that was not taken."""

    text: str
    reason: str


def items(reply: str, cut: bool = False) -> tuple[list[str], list[Dropped]]:
    """The items in their order, and what was left out with its reason. `cut`: the reply hit its token limit."""
    found = _json_array(reply)
    dropped: list[Dropped] = []
    if found is None:
        found = _marked(reply.splitlines(), dropped)
    if cut and found:
        dropped.append(Dropped(found.pop(), "cut off by the token limit"))
    texts = [text for text in (_bare(item) for item in found) if text]
    return texts, dropped


def _json_array(reply: str) -> list[str] | None:
    start, end = reply.find("["), reply.rfind("]")
    if start < 0 or end < start:
        return None
    try:
        found = json.loads(reply[start : end + 1])
    except ValueError:
        return None
    return found if found and all(isinstance(item, str) for item in found) else None


def _marked(lines: list[str], dropped: list[Dropped]) -> list[str]:
    lines = [line for line in lines if not _FENCE.match(line)]
    if not any(_MARK.match(line) for line in lines):
        plain = [line for line in lines if line.strip()]
        if len(plain) < 2:
            dropped += [Dropped(line.strip(), "no list") for line in plain]
            return []
        return plain
    found: list[str] = []
    open_item = False
    for line in lines:
        if mark := _MARK.match(line):
            found.append(line[mark.end() :])
            open_item = True
        elif not line.strip():
            open_item = False
        elif open_item:
            found[-1] += " " + line.strip()
        else:
            dropped.append(Dropped(line.strip(), "behind the list" if found else "before the list"))
    return found


def _bare(item: str) -> str:
    """Without outer quotes and bold, also where bold covers a part: `**7:00 - Tea**: ...`."""
    return _OUTER.sub("", " ".join(item.replace("**", "").split()))
