"""Every reader and parser under whatever may come. A test takes a moment; this takes as long as it is told to:

    python tests/fuzzing.py --minutes 60 [--only strict,released,...]

A target gets something that hypothesis makes and may return a value or raise BadInput, whose message is one line;
anything else is a fault, and hypothesis shows the smallest input for it. Texts are made of what breaks parsers: marks,
quotes, tags, numbers, line ends of every kind, half surrogates, long repetitions.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cluster.conversation import Exchange, Failure
from cluster.window import fit
from jobs import config
from sequor import checkable, introductions, jsonlist, listing, parsing, released
from sequor.curation import chats, extract, rubrics, select
from sequor.errors import BadInput
from sequor.gold import GoldAnswer
from sequor.jsonl import rows
from sequor.personas import load_personas
from sequor.records import Journal, JudgementRecord, ReplyRecord, TurnRecord

PIECES = (
    *(
        "Final verdict",
        "final **verdict**",
        ":",
        "yes",
        "no",
        "not",
        "*",
        "_",
        "`",
        "```json",
        '"',
        "'",
        "“",
        "(",
        "[",
        "{",
    ),
    *(
        "}",
        "]",
        ")",
        "\n",
        "\r\n",
        "\u2028",
        "\x00",
        "\x85",
        "\ufeff",
        "\ud800",
        "\U0001f600",
        "\u202e",
        "1.",
        "2)",
        "- ",
        "#",
    ),
    *(
        "at least",
        "at most",
        "words",
        "sentences",
        "bullet points",
        "Write in French",
        "exactly",
        "three",
        "12",
        "Rubric 1:",
    ),
    *(
        "<think>",
        "</think>",
        "\\",
        "\\u",
        ",",
        "null",
        "true",
        "1e999",
        "NaN",
        '{"constraint": "',
        '"category": ',
        " ",
        "  ",
    ),
    *("\n\n\n", "{constraints}", "{{", "%}", "|", "/", "a", "É", "ß", "Start your answer with", "Do not use the word"),
)
TEXT = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=40).map("".join)
LONG = st.builds(lambda piece, times, tail: piece * times + tail, st.sampled_from(PIECES), st.integers(1, 3000), TEXT)
ANY = TEXT | LONG
NAMES = """prompt constraints_data id text constraint constraint_ids constraints persona activity conversation
    conversations role content from value turns question_id test_set dialogue turn status key judge parser pair writer
    gold answer votes n satisfiability""".split()
"""Keys that some reader knows."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
LINE = (
    JSON.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
    | ANY.map(lambda text: text.encode("utf-8", "surrogatepass"))
)
FILE = st.builds(
    lambda start, lines, end: start + end.join(lines),
    st.sampled_from((b"", b"\xef\xbb\xbf", b"\xff\xfe")),
    st.lists(LINE, max_size=6),
    st.sampled_from((b"\n", b"\r\n", b"\n\n", b" ")),
)


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """A reader of files as a function of their bytes."""

    def target(content: bytes) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            read(path)

    return target


def journal(kind: type) -> Callable[[Path], Any]:
    """Read, mend the tail, append, read again: what was readable stays so."""

    def read(path: Path) -> None:
        book = Journal(path, kind)
        before = list(book)
        book.open()
        book.close()
        assert list(book) == before

    return read


def window(drawn: tuple[list[tuple[str, str | None]], str, int]) -> None:
    turns, user, room = drawn
    history = tuple(Exchange(*turn) for turn in turns)
    count = lambda messages: sum(len(m.content) + 3 for m in messages)  # noqa: E731
    found = fit(None, history, user, room, count)
    if isinstance(found, Failure):
        assert len(user) + 3 > room
    else:
        assert count(found.messages) <= room and found.messages[-1].content.endswith(user)


def decide(text: str) -> None:
    check = checkable.recognise(text)
    if check is not None:
        checkable.holds(check, text, lambda _: "en")


def overridden(word: str) -> None:
    raw: dict[str, Any] = {"candidate": {"model": "m"}}
    config.override(raw, word)
    config.convert(raw, "command line")


def listed(text: str) -> None:
    found, dropped = listing.items(text)
    assert all(item.strip() for item in found) and all(loss.reason for loss in dropped)


YAML = FILE | ANY.map(lambda text: text.encode("utf-8", "replace"))
TARGETS: dict[str, tuple[st.SearchStrategy, Callable[[Any], Any]]] = {
    "strict": (ANY, parsing.strict),
    "released": (ANY, parsing.released),
    "rubrics": (ANY, rubrics.rubrics),
    "listing": (ANY, listed),
    "jsonlist": (ANY, jsonlist.find),
    "extract": (ANY, lambda text: extract.reading(ReplyRecord(key="c|d|2", status="ok", reply=text))),
    "checkable": (ANY, decide),
    "introductions": (ANY, lambda text: introductions.read(text, introductions.load(), frozenset(("a", "words")))),
    "override": (ANY.map(lambda text: f"candidate.{text}"), overridden),
    "config": (
        FILE | ANY.map(lambda t: t.encode("utf-8", "replace")),
        in_file("c.yaml", lambda p: config.load_all(p, [])),
    ),
    "constraints": (FILE, in_file("single.jsonl", released.load_constraints)),
    "tuples": (FILE, in_file("3.jsonl", released.load_tuples)),
    "tasks": (FILE, in_file("tasks/p.jsonl", lambda path: released.load_tasks(path.parent))),
    "dialogue": (FILE, in_file("d.jsonl", lambda path: released.load_dialogue(path, "single", None, {}))),
    "personas": (FILE, in_file("p.jsonl", load_personas)),
    "ratings": (FILE, in_file("ratings.jsonl", select.read_ratings)),
    "gold": (FILE, in_file("gold.jsonl", lambda path: list(rows(path, GoldAnswer)))),
    "templates": (FILE, in_file("introductions.yaml", introductions.load)),
    "chats-jsonl": (FILE, in_file("c.jsonl", lambda path: list(chats.read_chats(path)))),
    "chats-json": (FILE, in_file("c.json", lambda path: list(chats.read_chats(path)))),
    "chats-parquet": (FILE, in_file("c.parquet", lambda path: list(chats.read_chats(path)))),
    "turns": (FILE, in_file("turns.jsonl", journal(TurnRecord))),
    "judgements": (FILE, in_file("judgements.jsonl", journal(JudgementRecord))),
    "window": (
        st.tuples(st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=12), TEXT, st.integers(-5, 400)),
        window,
    ),
}


def fuzz(name: str, examples: int, start: int) -> None:
    """Raises what a target must not raise, with hypothesis's smallest input for it."""
    strategy, target = TARGETS[name]

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(strategy)
    def run(value: Any) -> None:
        try:
            target(value)
        except BadInput as error:
            assert str(error) and "\n" not in str(error), str(error)

    run()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--only", default=",".join(TARGETS))
    chosen = arguments.parse_args()
    names, counts, slowest = chosen.only.split(","), dict.fromkeys(TARGETS, 0), dict.fromkeys(TARGETS, 0.0)
    end, start = time.monotonic() + 60 * chosen.minutes, random.randrange(2**32)
    print(f"seed {start}", flush=True)
    while time.monotonic() < end:
        for name in names:
            began = time.monotonic()
            fuzz(name, 500, start)
            counts[name] += 500
            slowest[name] = max(slowest[name], time.monotonic() - began)
        start += 1
    print(msgspec.json.format(msgspec.json.encode({name: counts[name] for name in names})).decode())
    worst = max(slowest, key=lambda name: slowest[name])
    print(f"slowest: {worst}, {slowest[worst]:.1f} s for 500; inputs={sum(counts.values())} faults=0")


if __name__ == "__main__":
    main()
