"""Candidates: constraints on their way into the pool, as JSON lines. The release's own pool file reads as one too."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from sequor.errors import BadInput
from sequor.jsonl import rows

CATEGORIES = ("linguistic guidelines", "style rules", "format specifications", "number limitations")
"""The four of the paper (appendix C.1, after Qin et al. 2024)."""


class Candidate(Struct, frozen=True, omit_defaults=True):
    id: str
    constraint: str
    category: str | None = None
    """One of CATEGORIES; None where the model named none of them."""
    category_said: str | None = None
    """What the model called it, where that is no category."""
    conversation: str | None = None
    """Where it comes from: the conversation's id, and which of its user turns, counted from 1."""
    turn: int | None = None


class _Row(Struct, frozen=True):
    constraint: str
    id: str | int | None = None
    category: str | None = None
    category_said: str | None = None
    conversation: str | None = None
    turn: int | None = None


def read_candidates(path: Path) -> Iterator[Candidate]:
    """One that has no id is named by its line. Raises BadInput with file and line, and when the file holds none."""
    source = path / "candidates.jsonl" if path.is_dir() else path
    seen: set[str] = set()
    for number, row in rows(source, _Row):
        name = f"c{number:07d}" if row.id is None else str(row.id)
        where = f"{source}:{number}"
        if name in seen:
            raise BadInput(f"{where}: id {name} stands here for the second time")
        if not row.constraint.strip():
            raise BadInput(f"{where}: constraint {name} is empty")
        if fault := id_fault(name):
            raise BadInput(f"{where}: id {name!r}: {fault}")
        seen.add(name)
        text = " ".join(row.constraint.split())
        yield Candidate(name, text, row.category, row.category_said, row.conversation, row.turn)
    if not seen:
        raise BadInput(f"{source}: holds no constraint")


def id_fault(name: str) -> str | None:
    """Why this cannot be an id: it becomes a part of keys, whose parts are set off by bars."""
    return "an id has no white space and no |" if not name or "|" in name or any(map(str.isspace, name)) else None
