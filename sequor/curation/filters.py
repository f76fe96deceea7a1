"""What a candidate must be to stay, word for word: rules and similarity. Pure; pipeline.py runs them over millions.

1. Language: the probability of English is at least the threshold, 0.65 (paper, section 2).
2. Bad words match as whole words, in any case; bad sequences match anywhere, in any case.
3. Near: two texts are compared by the 3-grams of their words, without case, punctuation or accents, all numbers alike,
   as datatrove's MinHash does. A text of fewer than three words is one gram of its own, its numbers kept: so exact
   repetitions of short ones are found (datatrove leaves them all in), and "300 characters" is not "500 characters".
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from sequor.errors import BadInput

ENGLISH_AT_LEAST = 0.65
NGRAM = 3
BUCKETS, HASHES_PER_BUCKET = 50, 4
"""MinHash (paper, section 2): two texts of similarity s meet with probability 1 - (1 - s^4)^50; half do at s = 0.34."""

WORD_LIST = "https://raw.githubusercontent.com/LDNOOBW/List-of-Dirty-Naughty-Obscene-and-Otherwise-Bad-Words/master/en"

_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:[.,،٫]\d+)?")


class Loss(Struct, frozen=True):
    """Why a candidate goes. `score`: of its reason: probability of English, or similarity to the one that stays."""

    reason: str
    detail: str
    score: float | None = None


class BadWords:
    """Rule 2. Raises nothing; empty lists match nothing."""

    def __init__(self, words: Iterable[str] = (), sequences: Iterable[str] = ()):
        self.words, self.sequences = _clean(words), _clean(sequences)
        self._pattern = None
        if self.words:
            longest_first = sorted(self.words, key=len, reverse=True)
            inner = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in longest_first)
            self._pattern = re.compile(rf"(?<!\w)(?:{inner})(?!\w)")

    def loss(self, text: str) -> Loss | None:
        folded = text.casefold()
        found = self._pattern.search(folded) if self._pattern else None
        if found:
            return Loss("bad word", found[0])
        for sequence in self.sequences:
            if sequence in folded:
                return Loss("bad sequence", sequence)
        return None


def _clean(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(folded for line in lines if (folded := line.strip().casefold())))


def read_list(path: Path) -> list[str]:
    """A word or sequence a line. Raises BadInput."""
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    if not any(line.strip() for line in lines):
        raise BadInput(f"{path}: holds no word")
    return lines


def grams(text: str) -> set[str]:
    """Rule 3."""
    found = words(_NUMBER.sub("0", text.lower()))
    if len(found) < NGRAM:
        found = words(text.lower())
        return {" ".join(found)} if found else set()
    return {" ".join(found[at : at + NGRAM]) for at in range(len(found) - NGRAM + 1)}


def words(lowered: str) -> list[str]:
    bare = "".join(c for c in unicodedata.normalize("NFD", lowered) if unicodedata.category(c) != "Mn")
    return _WORD.findall(bare.replace("_", " "))


def similarity(a: str, b: str) -> float:
    """Jaccard similarity of two texts' grams, 0 to 1."""
    return jaccard(grams(a), grams(b))


def jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 0.0
