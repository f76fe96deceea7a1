"""Personas from JSON lines: {"persona": text}, as Persona Hub has them, with an "id" where there is one."""

from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from sequor.errors import BadInput
from sequor.jsonl import rows
from sequor.types import Persona

LONGEST_NAME = 200
"""Bytes; file systems take 255, with an ending and what a file that is being written is called."""


class _PersonaRow(Struct, frozen=True):
    persona: str | None = None
    text: str | None = None
    id: str | int | None = None


def load_personas(path: Path) -> list[Persona]:
    """Each text once. Without an id a persona is named after its text. Raises BadInput: a persona without text, an id
    that stands for two texts or that is no file name, an empty file."""
    found: dict[str, Persona] = {}
    for number, row in rows(path, _PersonaRow):
        text = (row.persona or row.text or "").strip()
        if not text:
            raise BadInput(f"{path}:{number}: a persona without text (key `persona`)")
        name = str(row.id) if row.id is not None else f"persona_{sha256(text.encode()).hexdigest()[:10]}"
        if not set("/\0").isdisjoint(name) or name.startswith(".") or len(name.encode()) > LONGEST_NAME:
            raise BadInput(f"{path}:{number}: id {name!r} cannot be a file's name")
        if found.setdefault(name, Persona(name, text)).text != text:
            raise BadInput(f"{path}:{number}: id {name!r} stands for two personas")
    if not found:
        raise BadInput(f"{path}: holds no persona")
    return list(found.values())
