"""Constraints whose truth a program can decide: which those are, by careful patterns, and what the truth is. Pure.

A pattern takes a whole constraint or nothing: every word in front of and behind what it understands must be one that
changes nothing (`BEFORE`, `BEHIND`), so that "Summarize each chapter in 3 sentences" is not taken for three sentences
in all. What is vague ("about", "preferably", "short"), about a part of the answer or about several things is left to
the judges. Better a constraint too few than one too many.

How things are counted: words are runs of letters, digits, apostrophes and hyphens; sentences end in `.`, `!`, `?` or
their like before white space or the end; paragraphs stand between blank lines; bullets are lines that begin with a mark
or a number; characters are all of them, outer white space aside.
"""

import json
import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "words", "characters", "sentences", "paragraphs", "bullets", "lines",
    "start", "end", "without", "json", "code_block", "language", "emoji", "letters",
]  # fmt: skip

NUMBERS = {word: n for n, word in enumerate("zero one two three four five six seven eight nine ten".split())}
NUMBERS |= {"a": 1, "single": 1, "twelve": 12, "fifteen": 15, "twenty": 20}

BEFORE = frozenset(
    """always just please only must should answer answers respond response responses reply replies write use give
    provide generate produce create keep limit limited limiting summarize summarise explain describe make fit have
    rephrase reword select present outline display say return output outputs result text message messages generation
    summary statement
    the your my all it is are be to in into of with within that will this ai assistant's and not do does exceed using
    total complete length word count character you a""".split()
)
BEHIND = frozenset("long in length only total maximum max limit or less please".split())

_NUMBER = rf"(?:\d[\d,]*|{'|'.join(NUMBERS)})"
_MOST = (
    r"up to|at most|no more than|not (?:exceed|exceeding|more than)|do not exceed|(?:a )?max(?:imum)?(?: of)?|maximally"
)
_UNDER = r"under|below|less than|fewer than|within"
_LEAST = r"at least|(?:a )?min(?:imum)?(?: of)?|no (?:less|fewer) than"
_OVER = r"over|more than"
_COUNT = re.compile(
    rf"(?:\b(?P<most>{_MOST})\s+|\b(?P<under>{_UNDER})\s+|\b(?P<least>{_LEAST})\s+|\b(?P<over>{_OVER})\s+"
    rf"|\b(?P<exactly>exactly|only|just)\s+|\b(?P<between>between)\s+)?"
    rf"(?<![\w.-])(?P<low>{_NUMBER})(?:\s*(?:-|–|to|or|and)\s*(?P<high>{_NUMBER}))?[\s-]+"
    rf"(?:(?:complete|full|cohesive|well-written|numbered)\s+)?"
    rf"(?P<unit>words?|characters?|sentences?|paragraphs?|bullet points?|bullets?|lines?)\b"
    rf"(?:\s+or\s+(?P<or>less|fewer|more))?",
    re.IGNORECASE,
)
_OPENS, _CLOSES = "\"'“‘‛`", "\"'”’`"
_QUOTED = rf"[{_OPENS}](?P<text>[^\"“”]+?)[{_CLOSES}]"
_WHOSE = r"(?:(?:your|the|each|every|all|any)\s+)?(?:answers?|responses?|repl(?:y|ies)|outputs?|messages?)"
_WHAT = r"(?:the\s+(?:word|words|phrase|string|sentence|text):?\s+)?"
_START = re.compile(
    rf"(?:(?:always|assistant will|you will)\s+)?"
    rf"(?:(?:start|begin|prefix|preface|prepend)(?:\s+{_WHOSE})?(?:\s+by\s+saying,?)?"
    rf"|(?:answer|respond|reply)\s+starting|{_WHOSE}\s+must\s+(?:start|begin)|beginning)"
    rf"(?:\s+with:?)?\s+{_WHAT}{_QUOTED}[.]?",
    re.IGNORECASE,
)
_END = re.compile(
    rf"(?:always\s+)?(?:(?:end|finish|conclude|close)(?:\s+{_WHOSE})?\s+(?:with|by saying)|say)\s+{_WHAT}{_QUOTED}"
    rf"(?P<tail>\s+at the end)?[.]?",
    re.IGNORECASE,
)
_WITHOUT = re.compile(
    rf"(?:do not|don't|never|avoid)\s+us(?:e|ing)\s+the\s+words?:?\s+"
    rf"(?P<list>{_QUOTED}(?:\s*(?:,|or|and)\s*[{_OPENS}][^\"“”]+?[{_CLOSES}])*)[.]?",
    re.IGNORECASE,
)
_LANGUAGES = {
    "arabic": "ar", "chinese": "zh", "dutch": "nl", "english": "en", "french": "fr", "german": "de", "italian": "it",
    "japanese": "ja", "korean": "ko", "polish": "pl", "portuguese": "pt", "russian": "ru", "spanish": "es",
    "turkish": "tr",
}  # fmt: skip
_LANGUAGE = re.compile(
    rf"(?:(?:always|only|please)\s+)?(?:(?:answer|respond|reply|speak|talk|write|communicate|response|output|use|switch)"
    rf"(?:\s+(?:the question|queries|all output|to me|by typing|completely|entirely|only|language))*"
    rf"|(?:give|generate|write)\s+(?:the\s+|all\s+)?(?:answers?|responses?|output)(?:\s+(?:entirely|only))?)"
    rf"(?:\s+(?:in|to))?\s+(?P<language>{'|'.join(_LANGUAGES)})(?:\s+(?:language|only|from now on))*[.!]?",
    re.IGNORECASE,
)
_JSON = re.compile(
    r"(?:(?:extract|output|answer|respond|reply|return|format|present|express)\s+)?"
    r"(?:(?:all|the|your|everything|it|them)\s+)*"
    r"(?:(?:output|answers?|responses?|results?|key insights|obtained)\s+)*"
    r"(?:(?:must|should)\s+be\s+)?(?:(?:in|into|as|to)\s+)?"
    r"(?:a\s+|the\s+)?(?:valid\s+)?json(?:\s+format|\s+object)?[.!]?",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"(?:output|put|present|write|give|return)\s+(?:(?:the|your|all)\s+)?(?:results?|markdown|answers?|code|output)?\s*"
    r"(?:must be\s+)?(?:in|as|within|inside)\s+(?:a\s+|an?\s+)?(?:markdown\s+)?code\s+blocks?[.]?",
    re.IGNORECASE,
)
_EMOJI = re.compile(
    r"(?:always\s+)?(?:include|use|add|insert)\s+(?:some\s+)?emojis?"
    r"(?:\s+in your (?:answers?|responses?))?[.!]?",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"(?:use only words|every word must|each word must)\s+start(?:ing)?\s+with\s+(?:the\s+)?letter\s+(?P<letter>\w)\.?",
    re.IGNORECASE,
)
_FACES = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")

_WORD = re.compile(r"\w[\w'’-]*")
_SENTENCE_END = re.compile(r"[.!?…。！？]+[\"'”’)\]*_]*(?=\s|$)")
_BULLET = re.compile(r"^\s*(?:[-*•–·]|\d{1,3}[.)])\s+\S", re.MULTILINE)
_FENCED = re.compile(r"^\s*```\w*\n(?P<inside>.*?)\n?```\s*$", re.DOTALL)

Detect = Callable[[str], str]
"""A text's language as a two-letter code."""


class Check(Struct, frozen=True):
    """What a constraint says, so that a program understands it."""

    kind: Kind
    low: int = 0
    high: int | None = None
    """Of a count, both ends included; None: no upper end."""
    texts: tuple[str, ...] = ()
    """Phrases, words, a letter or a language."""


def recognise(constraint: str) -> Check | None:
    """What a program can decide, or None where it cannot, or not for certain."""
    text = " ".join(constraint.split())
    return _phrases(text) or _counted(text)


def holds(check: Check, answer: str, detect: Detect | None = None) -> bool | None:
    """Whether the answer follows the constraint. None where that cannot be told: a language without `detect`."""
    text = answer.strip()
    if check.kind in COUNTERS:
        count = COUNTERS[check.kind](text)
        return check.low <= count and (check.high is None or count <= check.high)
    match check.kind:
        case "start":
            return _plain(text).startswith(_plain(check.texts[0]))
        case "end":
            return _plain(text).rstrip(".!").endswith(_plain(check.texts[0]).rstrip(".!"))
        case "without":
            return not set(map(str.casefold, _WORD.findall(text))) & set(check.texts)
        case "letters":
            return all(word[0].casefold() == check.texts[0] for word in _WORD.findall(text))
        case "emoji":
            return bool(_FACES.search(text))
        case "code_block":
            return "```" in text
        case "json":
            return _is_json(text)
        case "language":
            return None if detect is None else detect(text) == check.texts[0]
    raise AssertionError(check.kind)


def _phrases(text: str) -> Check | None:
    if found := _START.fullmatch(text):
        return Check("start", texts=(found["text"].strip(),))
    if found := _END.fullmatch(text):
        says = text.casefold().lstrip().startswith(("say", "always say"))
        return Check("end", texts=(found["text"].strip(),)) if bool(found["tail"]) == says else None
    if found := _WITHOUT.fullmatch(text):
        words = re.findall(rf"[{_OPENS}](.+?)[{_CLOSES}]", found["list"])
        return Check("without", texts=tuple(w.casefold() for w in words)) if all(map(_WORD.fullmatch, words)) else None
    if found := _LANGUAGE.fullmatch(text):
        return Check("language", texts=(_LANGUAGES[found["language"].casefold()],))
    if found := _FIRST.fullmatch(text):
        return Check("letters", texts=(found["letter"].casefold(),))
    if _EMOJI.fullmatch(text):
        return Check("emoji")
    if _BLOCK.fullmatch(text):
        return Check("code_block")
    return Check("json") if _JSON.fullmatch(text) else None


def _counted(text: str) -> Check | None:
    found = _COUNT.search(text)
    if found is None or _COUNT.search(text, found.end()):
        return None
    before, behind = (_WORD.findall(part.casefold()) for part in (text[: found.start()], text[found.end() :]))
    if not set(before) <= BEFORE or not set(behind) <= BEHIND:
        return None
    low, high = _number(found["low"]), _number(found["high"] or found["low"])
    if low > high:
        return None
    limits = (
        "limit" in before or "limited" in before or "limiting" in before or {"limit", "max", "maximum"} & set(behind)
    )
    negated = "not" in before
    at_most = found["most"] or found["or"] in ("less", "fewer") or "less" in behind or "exceed" in before or limits
    if negated and not (found["most"] or "exceed" in before):
        return None
    if found["least"] or found["or"] == "more":
        low, high = low, None
    elif found["over"]:
        low, high = low + 1, None
    elif found["under"]:
        low, high = 0, high if found["under"].casefold() == "within" else high - 1
    elif at_most and not found["exactly"] and not found["high"]:
        low = 0
    unit = found["unit"].casefold()
    kind = "bullets" if unit.startswith("bullet") else unit.rstrip("s") + "s"
    return Check(kind, low, high)


MOST_DIGITS = 12
"""Python refuses integers of some thousands; what is so large is never reached in any case."""


def _number(text: str) -> int:
    word = text.casefold()
    return NUMBERS[word] if word in NUMBERS else int(text.replace(",", "")[:MOST_DIGITS])


def _plain(text: str) -> str:
    """Without bold marks, and with one kind of quotes and white space."""
    return " ".join(re.sub(r"[‘’‛]", "'", re.sub(r"[“”]", '"', text)).replace("**", "").casefold().split()).strip(
        "\"' "
    )


def _sentences(text: str) -> int:
    if not text:
        return 0
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return len(ends) + bool(_WORD.search(text[ends[-1] if ends else 0 :]))


def _is_json(text: str) -> bool:
    fenced = _FENCED.match(text)
    try:
        json.loads(fenced["inside"] if fenced else text)
    except ValueError:
        return False
    return True


COUNTERS: dict[str, Callable[[str], int]] = {
    "words": lambda text: len(_WORD.findall(text)),
    "characters": len,
    "sentences": _sentences,
    "paragraphs": lambda text: len([part for part in re.split(r"\n\s*\n", text) if part.strip()]),
    "bullets": lambda text: len(_BULLET.findall(text)),
    "lines": lambda text: len([line for line in text.splitlines() if line.strip()]),
}
