"""JSON lines that somebody else has written, read into structs. What a run writes itself is read by records.py.

Bytes are split at \\n alone (U+2028 stands in texts); a byte order mark and \\r\\n are taken as well. What cannot be
used is a BadInput of one line, which names file and line; non-UTF-8 names the byte.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from sequor.errors import NOT_JSON, BadInput

BOM = b"\xef\xbb\xbf"

Row = TypeVar("Row")


def rows(path: Path, kind: type[Row], limit: int | None = None) -> Iterator[tuple[int, Row]]:
    """Line number and row, of the first `limit` lines that are not blank."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    decoder = msgspec.json.Decoder(kind)
    taken = 0
    for number, line in enumerate(raw.removeprefix(BOM).split(b"\n"), 1):
        if taken == limit:
            return
        if line.strip():
            taken += 1
            try:
                yield number, decoder.decode(line)
            except NOT_JSON as error:
                raise BadInput(_fault(path, number, raw, error)) from error


def _fault(path: Path, number: int, raw: bytes, error: Exception) -> str:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as unicode_error:
        start = unicode_error.start
        if raw.count(b"\n", 0, start) + 1 == number:
            return f"{path}:{number}: not UTF-8: byte {start} of the file is 0x{raw[start]:02x}"
    what = "" if isinstance(error, msgspec.ValidationError) else "no valid JSON: "
    return f"{path}:{number}: {what}{' '.join(str(error).split())}"
