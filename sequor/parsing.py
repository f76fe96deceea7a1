"""From a judge's reply to a verdict. Parsers are named and versioned, because a verdict depends on them.

`strict`, version 2:
1. Only the last "final verdict" of the reply is looked at, never an earlier one, and its line must hold no other.
2. It must go on with yes or no, upper or lower case, perhaps in bold, quotes or brackets, on its line or the next.
3. There the reply must end: only white space, marks and a full stop may follow. Whatever else stands behind it may
   take it back, or show that it was a quotation.
Everything else is unreadable, which is an outcome of its own and neither yes nor no.

`released`, version 1, does what the released benchmark's parser is known to do, for comparison alone: the announced yes
anywhere in the reply wins, then the announced no, and else the last "yes" or "no" in it, be it within a word ("not",
"eyes"). It seldom finds a reply unreadable, and reads some that say nothing.
"""

import re
from collections.abc import Callable

from sequor.types import Verdict

_ANNOUNCED = re.compile(r"final[\s_*`]+verdict", re.IGNORECASE)
_DECORATION = r"[\s*_`\"'“”‘’«»(\[<>#=~|-]*"
_END = r"[\s*_`\"'“”‘’«»)\]<>#=~|.!。！-]*"
_VERDICT = re.compile(
    rf"{_DECORATION}(?:is{_DECORATION})?[:：]?{_DECORATION}(yes|no)(?![\w'’/-]){_END}\Z", re.IGNORECASE
)


def strict(reply: str) -> Verdict:
    announced = list(_ANNOUNCED.finditer(reply))
    if not announced:
        return "unreadable"
    *earlier, last = announced
    if earlier and "\n" not in reply[earlier[-1].end() : last.start()]:
        return "unreadable"
    verdict = _VERDICT.match(reply, last.end())
    if verdict is None:
        return "unreadable"
    return "satisfied" if verdict[1].lower() == "yes" else "violated"


def released(reply: str) -> Verdict:
    for phrase, verdict in (("Final verdict: yes", "satisfied"), ("Final verdict: no", "violated")):
        if phrase in reply:
            return verdict
    found = re.findall("yes|no", reply, re.IGNORECASE)
    if not found:
        return "unreadable"
    return "satisfied" if found[-1].lower() == "yes" else "violated"


PARSERS: dict[str, Callable[[str], Verdict]] = {"strict/2": strict, "released/1": released}
DEFAULT_PARSER = "strict/2"
