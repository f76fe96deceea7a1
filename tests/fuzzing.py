"""Every reader and parser under whatever may come. A test takes a moment; this takes as long as it is told to:

    python tests/fuzzing.py --minutes 60 [--only strict,released,...]

Ends with `minutes=N inputs=N faults=N`, minutes of CPU time; exit status 1 where there was a fault.

A target gets something that hypothesis makes and may return a value or raise BadInput, whose message is one line;
anything else is a fault, and hypothesis shows the smallest input for it. So is a value that no file of ours can hold,
made of a text that one can. Texts are made of what breaks parsers: marks, quotes, tags, numbers, line ends of every
kind, half surrogates, long repetitions.
"""

import argparse
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from madeup import write_run

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
from sequor.report import reading
from sequor.run_folder import RunFolder
from sequor.scoring import score

EXAMPLES = 500
"""Inputs that a target gets in a row."""
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
    *('["a \\ud83d b"]', '\\udc00"', "[" * 50),
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

    def target(content: bytes) -> Any:
        with TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            return read(path)

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


def listed(text: str) -> Any:
    found, dropped = listing.items(text)
    assert all(item.strip() for item in found) and all(loss.reason for loss in dropped)
    return found


@cache
def parquet() -> bytes:
    """A whole file of chats, to be damaged."""
    said = [{"role": "user", "content": f"say {n} \U0001f600"} for n in range(5)]
    columns = {"conversation_id": ["a", "b"], "language": ["English", None], "conversation": [said, said[:1]]}
    file = BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def damaged(hits: list[tuple[int, int]]) -> bytes:
    content = bytearray(parquet())
    for at, byte in hits:
        content[at % len(content)] = byte
    return bytes(content)


CHANGES = ("drop", "double", "cut", "swap", "change")


def changed_run(changes: list[tuple[str, str, int, bytes]]) -> None:
    """A run's records, damaged: scores and report refuse them or find the same in them, line for line."""
    with TemporaryDirectory() as folder:
        run = write_run(Path(folder) / "run", {"single": {"a": "s v us", "b": "s - sv"}, "add_5": {"a": "s s s."}})
        for name, what, number, content in changes:
            path = run / f"{name}.jsonl"
            lines = path.read_bytes().split(b"\n")
            path.write_bytes(b"\n".join(_changed(lines, what, number % len(lines), content)))
        try:
            read = reading.read(run, "run").run
        except BadInput:
            return
        try:
            scores, tally = score(run)
        except BadInput:
            return
    assert read.repeated == tally.repeated
    for found in scores:
        codes = read.sets[found.test_set].results(found.judge)
        counts = Counter(codes.ravel().tolist())
        overall = found.overall
        assert [counts[n] for n in range(3)] == [overall.passed, overall.failed, overall.undecided]


def _changed(lines: list[bytes], what: str, at: int, content: bytes) -> list[bytes]:
    match what:
        case "drop":
            return lines[:at] + lines[at + 1 :]
        case "double":
            return [*lines[:at], lines[at], *lines[at:]]
        case "cut":
            return [*lines[:at], lines[at][: len(lines[at]) // 2]]
        case "swap":
            return [*lines[at:], *lines[:at]]
    return [*lines[:at], content, *lines[at + 1 :]]


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
    "chats-damaged": (
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6).map(damaged),
        in_file("c.parquet", lambda path: list(chats.read_chats(path))),
    ),
    "run-file": (FILE, in_file("run.json", lambda path: RunFolder(path.parent).read())),
    "run": (
        st.lists(
            st.tuples(
                st.sampled_from(("turns", "judgements", "dialogues")),
                st.sampled_from(CHANGES),
                st.integers(0, 40),
                LINE.filter(lambda line: b"\n" not in line),
            ),
            max_size=3,
        ),
        changed_run,
    ),
    "turns": (FILE, in_file("turns.jsonl", journal(TurnRecord))),
    "judgements": (FILE, in_file("judgements.jsonl", journal(JudgementRecord))),
    "window": (
        st.tuples(st.lists(st.tuples(TEXT, st.none() | TEXT), max_size=12), TEXT, st.integers(-5, 400)),
        window,
    ),
}


def utf8(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def text_of(found: Any) -> str:
    """All text that is in a value."""
    if isinstance(found, str):
        return found
    if isinstance(found, msgspec.Struct):
        found = [getattr(found, name) for name in found.__struct_fields__]
    elif isinstance(found, dict):
        found = [*found, *found.values()]
    return "".join(map(text_of, found)) if isinstance(found, list | tuple | set | frozenset) else ""


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
            found = target(value)
        except BadInput as error:
            assert str(error) and "\n" not in str(error), str(error)
            return
        if not isinstance(value, str) or utf8(value):
            assert utf8(text_of(found)), found

    run()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=60, help="Of CPU time.")
    arguments.add_argument("--only", default=",".join(TARGETS))
    chosen = arguments.parse_args()
    names = chosen.only.split(",")
    counts, slowest, faulty = dict.fromkeys(names, 0), dict.fromkeys(names, 0.0), []
    start = random.randrange(2**32)
    print(f"seed {start}", flush=True)
    while names and time.process_time() < 60 * chosen.minutes:
        for name in list(names):
            began = time.process_time()
            try:
                fuzz(name, EXAMPLES, start)
            except Exception:
                print(f"FAULT in {name}, seed {start}")
                traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
                names.remove(name)  # it would find the same again
                faulty.append(name)
            counts[name] += EXAMPLES
            slowest[name] = max(slowest[name], time.process_time() - began)
        start += 1
    print(msgspec.json.format(msgspec.json.encode(counts)).decode())
    worst = max(slowest, key=lambda name: slowest[name])
    print(f"slowest: {worst}, {slowest[worst]:.1f} s of CPU for {EXAMPLES}")
    print(f"minutes={time.process_time() / 60:.1f} inputs={sum(counts.values())} faults={len(faulty)}")
    sys.exit(bool(faulty))


if __name__ == "__main__":
    main()
