"""From a judge's reply to a verdict. Parsers are named and versioned, because a verdict depends on them.

`strict`, version 1:
1. Only the last "final verdict" of the reply is looked at, never an earlier one.
2. It must go on with yes or no, upper or lower case, perhaps in bold, quotes or brackets, on its line or the next.
3. What follows on that line must not take it back: another yes, no or not makes it unreadable, and so does a reply
   that ends in the middle of the word.
Everything else is unreadable, which is an outcome of its own and neither yes nor no.
"""

import re
from collections.abc import Callable

from sequor.types import Verdict

_ANNOUNCED = re.compile(r"final[\s_*`]+verdict", re.IGNORECASE)
_DECORATION = r"[\s*_`\"'“”‘’(\[<>#=~|-]*"
_VERDICT = re.compile(
    rf"{_DECORATION}(?:is{_DECORATION})?[:：]?{_DECORATION}(yes|no)(?![\w'’/-])([^\n]*)", re.IGNORECASE
)
_TAKEN_BACK = re.compile(r"\b(?:yes|no|not|n't)\b", re.IGNORECASE)


def strict(reply: str) -> Verdict:
    announced = list(_ANNOUNCED.finditer(reply))
    if not announced:
        return "unreadable"
    verdict = _VERDICT.match(reply, announced[-1].end())
    if verdict is None or _TAKEN_BACK.search(verdict[2]):
        return "unreadable"
    return "satisfied" if verdict[1].lower() == "yes" else "violated"


PARSERS: dict[str, Callable[[str], Verdict]] = {"strict/1": strict}
DEFAULT_PARSER = "strict/1"
