"""Readers and parsers under whatever may come (fuzzing.py, which runs for as long as it is told)."""

import pytest
from fuzzing import FILE, TARGETS, fuzz

from jobs.config import load_all
from sequor.checkable import holds, recognise
from sequor.curation import extract, rubrics
from sequor.errors import BadInput
from sequor.introductions import load, read
from sequor.jsonlist import find
from sequor.listing import items
from sequor.parsing import released, strict
from sequor.records import ReplyRecord


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_is_read_or_refused_in_one_line(name):
    fuzz(name, 40, 1)


HEAVY = (
    "*",
    "_",
    " ",
    "\n",
    "final verdict ",
    "final verdict: ",
    "Final verdict: yes ",
    "(",
    "{",
    "[",
    '"',
    "1. ",
    "- ",
)
HEAVY += ("a", "a ", ", ", "1", "at least 1 ", "words ", "\\", '{"a": ', "[1, ", "“", "```")


@pytest.mark.parametrize("piece", HEAVY)
def test_no_pattern_takes_longer_than_its_text_deserves(piece):
    """100,000 characters of one thing: a pattern that tries every way to split them would never come back."""
    text = piece * (100_000 // len(piece))
    for whole in (
        text,
        f"Final verdict: {text}",
        f"{text} yes",
        f"Write in at most {text} words",
        f"Start with {text}",
    ):
        strict(whole)
        released(whole)
        rubrics.rubrics(whole[:20_000])
        items(whole)
        find(whole)
        extract.reading(ReplyRecord(key="c|d|2", status="ok", reply=whole[:20_000]))
        if (check := recognise(whole)) is not None:
            holds(check, whole)
        read(whole, load(), frozenset())


NO_YAML = ("[" * 5000, "turns: 2026-13-45", "a: \ud800", "? [a]\n: b", "turns: !!python/object:os.system x")


@pytest.mark.parametrize("text", NO_YAML)
def test_yaml_that_no_loader_takes_is_refused_in_one_line(tmp_path, text):
    """Found by fuzzing: nesting without end, a date that is none, half a character."""
    path = tmp_path / "c.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(BadInput) as refused:
        load_all(path, [])
    assert str(refused.value).isprintable()
    with pytest.raises(BadInput):
        load(path)


@pytest.mark.parametrize("name", [name for name in TARGETS if TARGETS[name][0] is FILE])
def test_json_nested_without_end_is_refused_or_skipped(name):
    try:
        TARGETS[name][1](b"[" * 100_000 + b"\n" + b'{"a":' * 100_000)
    except BadInput as error:
        assert str(error).isprintable()
