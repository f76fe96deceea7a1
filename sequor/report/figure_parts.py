"""What figures are made of: the figure itself, the rows behind it, panels, and dots with their intervals."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from sequor.report import plot
from sequor.report.analysis import Curve
from sequor.report.colours import Style
from sequor.report.groups import Groups
from sequor.report.statistics import Estimate

FEWEST = 20
"""Readable verdicts below which a point is not drawn (it stays in the CSV)."""


class Figure(Struct, frozen=True):
    name: str
    """File name without ending."""
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Any]]
    """Behind it, for the CSV: shares in percent, None where nothing is known."""
    draw: Callable[[], Any]


def curve_rows(head: list[Any], curve: Curve, first: int = 1) -> Iterator[list[Any]]:
    for step, values in enumerate(zip(curve.value, curve.low, curve.high, strict=True), first):
        yield [*head, step, *map(percent, values)]


def percent(share: float) -> float | None:
    return round(100 * float(share), 3) if np.isfinite(share) else None


def grid(count: int) -> tuple[int, int]:
    """Rows and columns of `count` small panels."""
    columns = min(count, 4)
    return -(-count // columns), columns


def flat_axes(axes: Any, count: int) -> list[Any]:
    """The first `count` panels; the rest are hidden."""
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return list(axes.flat[:count])


def dots(labels: list[str], values: list[list[tuple[Estimate, Style, str]]], xlabel: str, scale: float = 0.3) -> Any:
    """One row a label, one or several dots in it."""
    most = max(len(row) for row in values)
    figure, axes = plot.canvas(width=6.2, height=0.95 + len(labels) * max(scale, 0.085 * most + 0.16))
    axis, seen = axes[0, 0], set()
    for at, row in enumerate(values):
        for number, (found, style, name) in enumerate(row):
            y = at + (number - (len(row) - 1) / 2) * 0.72 / max(most, 1)
            if found.known:
                plot.dot(axis, y, found.value, found.low, found.high, style, "" if name in seen else name)
                seen.add(name)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlabel(xlabel)
    axis.grid(axis="y", visible=False)
    plot.plain(axis)
    if seen - {""}:
        plot.below(figure, axis, 4)
    return figure


def group_rows(found: Groups, head: list[Any], names: list[Any]) -> list[list[Any]]:
    return [
        [
            *head,
            name,
            *(percent(side[at]) for side in (found.curve.value, found.curve.low, found.curve.high)),
            int(found.count[at]),
        ]
        for at, name in enumerate(names)
    ]


def enough(found: Groups) -> Curve:
    return Curve(
        *(
            np.where(found.count >= FEWEST, side, np.nan)
            for side in (found.curve.value, found.curve.low, found.curve.high)
        )
    )


def of_group(found: Groups, at: int) -> Estimate:
    c = found.curve
    return Estimate(float(c.value[at]), float(c.low[at]), float(c.high[at]))


def three(found: Estimate) -> tuple[float, float, float]:
    return found.value, found.low, found.high
