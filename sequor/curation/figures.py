"""The curation's figures (paper, figures 12 to 17 and 20 to 22) as CSV, and as PDF and PNG: the same numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sequor.report.plot import FAINT, canvas, save
from sequor.tables import write_csv

BLUE = "#2f6f9f"
WIDTH, HEIGHT = 4.2, 2.7
"""Inches."""


def kept_against_threshold(
    folder: Path, number: int, what: str, thresholds: Sequence[float], counts: Sequence[int], chosen: float
) -> None:
    """`what`: who is counted, for the axis. `chosen`: the threshold in use, as a mark."""
    rows = [[f"{threshold:g}", str(count)] for threshold, count in zip(thresholds, counts, strict=True)]
    write_csv(folder / f"figure_{number}.csv", ["threshold", "kept"], rows)

    def draw() -> Any:
        figure, [[axes]] = canvas(width=WIDTH, height=HEIGHT)
        axes.plot(thresholds, counts, color=BLUE)
        axes.axvline(chosen, color=FAINT, linewidth=0.8, linestyle=(0, (1.5, 1.5)))
        if chosen in thresholds:
            _mark(axes, chosen, counts[list(thresholds).index(chosen)])
        axes.set_xlim(min(thresholds), max(thresholds))
        axes.set_ylim(0, max([*counts, 1]) * 1.08)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("in at least this share of the tasks, %")
        axes.set_ylabel(what)
        return figure

    save(draw, folder / f"figure_{number}")


def _mark(axes: Any, threshold: float, count: int) -> None:
    axes.plot([threshold], [count], "o", color=BLUE)
    side = ("right", -7) if threshold > 50 else ("left", 7)
    axes.annotate(
        f"{count:,} at {threshold:g}%",
        (threshold, count),
        xytext=(side[1], -12),
        textcoords="offset points",
        ha=side[0],
        fontsize=7.5,
    )


def distribution(folder: Path, number: int, what: str, bins: Sequence[tuple[int, int, int]]) -> None:
    """`bins`: from, to, count."""
    rows = [[str(low), str(high), str(count)] for low, high, count in bins]
    write_csv(folder / f"figure_{number}.csv", ["from", "to", "count"], rows)

    def draw() -> Any:
        figure, [[axes]] = canvas(width=WIDTH, height=HEIGHT)
        lows, highs, counts = zip(*bins, strict=True)
        widths = [high - low for low, high in zip(lows, highs, strict=True)]
        axes.bar(lows, counts, width=widths, align="edge", color=BLUE, edgecolor="white", linewidth=0.6)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, max([*counts, 1]) * 1.08)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("share of the tasks, %")
        axes.set_ylabel(what)
        return figure

    save(draw, folder / f"figure_{number}")


def categories(folder: Path, number: int, parts: Mapping[str, Mapping[str, int]]) -> None:
    """Figure 22. `parts`: "constraints", "in tuples" -> category -> count."""
    rows = [
        [part, category, str(count), f"{100 * count / max(1, sum(counts.values())):.2f}"]
        for part, counts in parts.items()
        for category, count in counts.items()
    ]
    write_csv(folder / f"figure_{number}.csv", ["part", "category", "count", "percent"], rows)

    def draw() -> Any:
        figure, [line] = canvas(columns=len(parts), width=WIDTH * len(parts), height=2.2)
        for axes, (part, counts) in zip(line, parts.items(), strict=True):
            total = sum(counts.values())
            named = {category: count for category, count in counts.items() if count or category != "none"}
            shares = [100 * count / max(1, total) for count in named.values()]
            bars = axes.barh(list(named), shares, color=BLUE, height=0.7)
            axes.bar_label(bars, [f"{share:.0f}%" for share in shares], padding=3, fontsize=7.5)
            axes.invert_yaxis()
            axes.grid(False, axis="y")
            axes.set_xlim(0, max([*shares, 1]) * 1.15)
            axes.set_xlabel("%")
            axes.set_title(f"{part} ({total:,})")
        return figure

    save(draw, folder / f"figure_{number}")
