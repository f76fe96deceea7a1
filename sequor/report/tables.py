"""Tables of the report: made once, written as Markdown, CSV and LaTeX from the same cells.

1. A cell is a text, a count, a share or an estimate (a share with its interval); how many decimals it gets is its
   column's. Points are differences of shares and carry their sign.
2. CSV has plain numbers, an estimate in three columns. Markdown and LaTeX show the interval in brackets.
3. What a model or a user wrote is escaped in each.
"""

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from sequor.report.statistics import Estimate

Kind = Literal["text", "count", "percent", "points", "number"]
Cell = str | int | float | Estimate | None


class Column(Struct, frozen=True):
    title: str
    kind: Kind = "text"
    interval: bool = False
    """Whether its cells are estimates."""


class Table(Struct, frozen=True):
    name: str
    """File name without ending."""
    title: str
    columns: tuple[Column, ...]
    rows: list[list[Cell]]
    note: str = ""

    def markdown(self) -> str:
        head = [_md(column.title) for column in self.columns]
        rule = [":--" if column.kind == "text" else "--:" for column in self.columns]
        body = [[_md(text) for text in self._shown(row)] for row in self.rows]
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]
        return f"**{_md(self.title)}**\n\n" + "\n".join(lines) + (f"\n\n{_md(self.note)}" if self.note else "") + "\n"

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        head: list[str] = []
        for column in self.columns:
            name = column.title
            head += [name, f"{name} low", f"{name} high"] if column.interval else [name]
        writer.writerow(head)
        writer.writerows(
            [part for column, cell in self._cells(row) for part in _plain(column, cell)] for row in self.rows
        )
        return text.getvalue()

    def latex(self) -> str:
        spec = "".join("l" if column.kind == "text" else "r" for column in self.columns)
        body = [" & ".join(_tex(text) for text in self._shown(row)) + r" \\" for row in self.rows]
        lines = [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_tex(self.title)}.{' ' + _tex(self.note) if self.note else ''}}}",
            rf"  \label{{tab:{self.name}}}",
            rf"  \begin{{tabular}}{{{spec}}}",
            r"    \toprule",
            "    " + " & ".join(_tex(column.title) for column in self.columns) + r" \\",
            r"    \midrule",
            *("    " + row for row in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def _cells(self, row: list[Cell]) -> Iterable[tuple[Column, Cell]]:
        return zip(self.columns, row, strict=True)

    def shown(self) -> list[list[str]]:
        return [self._shown(row) for row in self.rows]

    def _shown(self, row: list[Cell]) -> list[str]:
        return [show(column.kind, cell) for column, cell in self._cells(row)]


def show(kind: Kind, cell: Cell) -> str:
    """As a person reads it."""
    if isinstance(cell, Estimate):
        if not cell.known:
            return "–"
        value, low, high = (show(kind, side) for side in (cell.value, cell.low, cell.high))
        return value if not math.isfinite(cell.low) else f"{value} [{low}, {high}]"
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return "–"
    if isinstance(cell, str):
        return cell
    if kind == "percent":
        return f"{100 * cell:.1f}"
    if kind == "points":
        return f"{round(100 * cell, 1) + 0.0:+.1f}".replace("-", "−").replace("+0.0", "0.0")
    return f"{cell:,}" if kind == "count" else f"{cell:.2f}".rstrip("0").rstrip(".")


def _plain(column: Column, cell: Cell) -> list[Any]:
    if column.interval:
        sides = (cell.value, cell.low, cell.high) if isinstance(cell, Estimate) else (cell, None, None)
        return [_number(column.kind, side) for side in sides]
    return [_number(column.kind, cell.value if isinstance(cell, Estimate) else cell)]


def _number(kind: Kind, cell: str | int | float | None) -> Any:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if not math.isfinite(cell):
        return ""
    return round(100 * cell, 4) + 0.0 if kind in ("percent", "points") else round(cell, 6)


def _md(text: str) -> str:
    return re.sub(r"([\\`*_|<>\[\]~#])", r"\\\1", " ".join(text.split())) if not _is_number(text) else text


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[−+\d.,\[\] –%]*", text) is not None


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
}
_TEX |= {c: "\\" + c for c in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in " ".join(text.split()))
