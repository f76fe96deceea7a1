"""Chat logs that others wrote, as they come, one conversation at a time, however large the file.

    *.parquet   lmsys-chat-1m: conversation_id, language, conversation = [{role, content}]
    *.jsonl     {"conversation": [{role, content}]}, or as one of the next two, a conversation a line
    *.json      an array of ShareGPT's {"id", "conversations": [{from, value}]}, or of the others
                {"question_id", "turns": [text]}: user turns alone, as MT-bench has them

1. Only what the user says is taken. A conversation in which the user says nothing is skipped, and counted.
2. A line or object that is no conversation is skipped and counted too; a file that holds not one is a BadInput.
3. Ids become parts of keys: white space, bars and slashes in them are made underscores; a conversation without an id is
   named by its content.
"""

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cluster.texts import whole
from sequor.errors import NOT_JSON, BadInput
from sequor.jsonl import BOM

USERS = frozenset({"user", "human", "prompter"})
ENDINGS = (".parquet", ".jsonl", ".json")
BATCH = 256
"""Rows of a Parquet file in memory at a time."""
CHUNK = 1 << 20
"""Characters of a JSON file read at a time."""

_NOT_IN_IDS = re.compile(r"[\s|/]+")


class Chat(Struct, frozen=True):
    id: str
    user_turns: tuple[str, ...]
    language: str | None = None
    """As the file says; None where it says nothing."""


class Skipped(Struct, frozen=True):
    where: str
    reason: str


def chat_files(inputs: Iterable[str]) -> list[Path]:
    """The files named, and those in the folders named. Raises BadInput."""
    found: list[Path] = []
    for name in inputs:
        path = Path(name).expanduser()
        inside = sorted(p for p in path.rglob("*") if p.suffix in ENDINGS and p.is_file()) if path.is_dir() else [path]
        if not path.exists():
            raise BadInput(f"{name}: no such file or folder")
        if not inside or inside[0].suffix not in ENDINGS:
            raise BadInput(f"{name}: no conversations that can be read: {', '.join('*' + e for e in ENDINGS)}")
        found += inside
    if not found:
        raise BadInput("inputs: name a file or folder of conversations")
    return found


def read_chats(path: Path) -> Iterator[Chat | Skipped]:
    """Raises BadInput: a file that cannot be read, or holds no conversation at all (rule 2)."""
    found = False
    for where, row in _rows(path):
        chat = row if isinstance(row, Skipped) else _chat(where, row)
        found = found or isinstance(chat, Chat) or chat.reason == NO_USER
        yield chat
    if not found:
        raise BadInput(f"{path}: holds no conversation: conversation, conversations or turns is wanted in each row")


NO_USER = "no user turn"


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Where it stands, and the row as plain values or why it is none."""
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix == ".jsonl":
            yield from _lines(path)
        else:
            yield from _array(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from None


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    broken = pyarrow.ArrowException, ValueError, OverflowError  # the second for names and texts that are no UTF-8
    try:
        file = ParquetFile(path)
    except broken as error:
        raise BadInput(f"{path}: no Parquet file: {error}") from None
    names = file.schema_arrow.names
    if not {"conversation", "conversations", "turns"} & set(names):
        raise BadInput(f"{path}: no column `conversation`; there are {', '.join(names)}")
    wanted = [n for n in ("conversation_id", "id", "language", "conversation", "conversations", "turns") if n in names]
    number = 0
    try:
        for batch in file.iter_batches(BATCH, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except broken as error:
        raise BadInput(f"{path}: damaged behind row {number}: {error}") from None


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line.removeprefix(BOM) if number == 1 else line
            where = f"{path}:{number}"
            if line.strip():
                try:
                    yield where, msgspec.json.decode(line)
                except NOT_JSON:
                    yield where, Skipped(where, "no JSON")


def _array(path: Path) -> Iterator[tuple[str, Any]]:
    """Object by object, so that the file may be larger than the memory. Raises BadInput where it stops being JSON."""
    decoder, number, text, at = json.JSONDecoder(), 0, "", 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        while True:
            while at < len(text) and (text[at].isspace() or text[at] in "[,"):
                at += 1
            if at < len(text) and text[at] == "]":
                return
            try:
                row, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                more = file.read(max(CHUNK, len(text) - at))  # doubles: an object that is long is tried few times
                if not more:
                    if at >= len(text) and number:
                        return
                    raise BadInput(f"{path}: object {number + 1}: no JSON: {error.msg}") from None
                text, at = text[at:] + more, 0
                continue
            except (RecursionError, ValueError) as error:  # a number of thousands of digits
                what = "nested without end" if isinstance(error, RecursionError) else error
                raise BadInput(f"{path}: object {number + 1}: {what}") from None
            number += 1
            yield f"{path}: object {number}", row


def _chat(where: str, row: Any) -> Chat | Skipped:
    if not isinstance(row, dict):
        return Skipped(where, "no conversation")
    turns = _user_turns(row)
    if turns is None:
        return Skipped(where, "no conversation")
    if not turns:
        return Skipped(where, NO_USER)
    named = next((row[key] for key in ("conversation_id", "id", "question_id") if row.get(key) is not None), None)
    id = whole(_NOT_IN_IDS.sub("_", str(named))) if named is not None and str(named).strip() else content_id(turns)
    language = row.get("language")
    return Chat(id, turns, whole(language) if isinstance(language, str) and language.strip() else None)


def _user_turns(row: dict[str, Any]) -> tuple[str, ...] | None:
    """None when there are no turns at all to be found."""
    for key, role, text in (("conversation", "role", "content"), ("conversations", "from", "value")):
        if isinstance(row.get(key), list):
            messages = [m for m in row[key] if isinstance(m, dict)]
            said = [m.get(text) for m in messages if str(m.get(role, "")).casefold() in USERS]
            return tuple(whole(t.strip()) for t in said if isinstance(t, str) and t.strip())
    if isinstance(row.get("turns"), list):
        return tuple(whole(t.strip()) for t in row["turns"] if isinstance(t, str) and t.strip())
    return None


def content_id(turns: Iterable[str]) -> str:
    return sha256("\0".join(turns).encode("utf-8", "surrogatepass")).hexdigest()[:12]
