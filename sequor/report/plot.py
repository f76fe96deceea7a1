"""The canvas: the only matplotlib of the report. What is drawn on it stands in `figures.py` and `figures_more.py`.

1. A figure is drawn once and saved as PDF and as PNG; nothing in either tells when, so that the same numbers are the
   same bytes.
2. Text that a model or a user wrote is never read as mathematics.
"""

import io
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from sequor.report import colours
from sequor.report.analysis import Curve
from sequor.report.colours import Style

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import LinearSegmentedColormap  # noqa: E402

INK, FAINT = "#222222", "#8a8a8a"
LINES = {"": "-", "5 2": (0, (5, 2)), "1.5 1.5": (0, (1.5, 1.5))}
SHARES = LinearSegmentedColormap.from_list("shares", colours.SEQUENCE).with_extremes(bad=colours.UNKNOWN)
DIFFERENCES = "PuOr"
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.hashsalt": "sequor",
}


def canvas(rows: int = 1, columns: int = 1, width: float = 7.0, height: float = 3.0, **more: Any) -> tuple[Any, Any]:
    """A figure and its axes, shape (rows, columns). Width and height in inches."""
    with plt.rc_context(STYLE):
        return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained", **more)


def save(draw: Callable[[], Any], path: Path) -> None:
    """Draws, and writes `path` with .pdf and .png."""
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with warnings.catch_warnings(), plt.rc_context(STYLE):
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = draw()
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(figure, path.with_suffix(".pdf"), metadata={"CreationDate": None, "Producer": "Sequor"})
        figure.set_layout_engine("none")  # what was laid out for one file stands for the other
        _write(figure, path.with_suffix(".png"), dpi=200, metadata={"Software": "Sequor"})
        plt.close(figure)


def _write(figure: Any, path: Path, **how: Any) -> None:
    """By way of the memory: on a full disk matplotlib fails with an error of its own."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], **how)
    path.write_bytes(drawn.getvalue())


def plain(axes: Any) -> None:
    """Rule 2, for all text there is."""
    for text in axes.findobj(lambda thing: hasattr(thing, "set_parse_math")):
        text.set_parse_math(False)


def line(axes: Any, x: Sequence[float] | np.ndarray, curve: Curve, style: Style, label: str = "", **more: Any) -> None:
    """A curve in percent with its band."""
    axes.fill_between(x, 100 * curve.low, 100 * curve.high, color=style.colour, alpha=0.13, linewidth=0)
    axes.plot(x, 100 * curve.value, color=style.colour, linestyle=LINES[style.dash], label=label, **more)


def turns_axis(axes: Any, turns: int, label: str = "turn", first: int = 1) -> None:
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if turns / step <= 8)
    ticks = sorted({first, *range(step, turns + 1, step)})
    if len(ticks) > 1 and ticks[1] - ticks[0] < step / 2:
        ticks.pop(1)
    axes.set_xticks([t for t in ticks if t <= turns + first - 1] or [first])
    axes.set_xlim(first - 0.5, max(turns, 1) + first - 0.5)
    axes.set_xlabel(label)


def percent_axis(axes: Any, label: str = "accuracy, %") -> None:
    axes.set_ylim(-2, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel(label)


def below(figure: Any, axes: Any, columns: int) -> None:
    """One legend for all, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.4, columnspacing=1.4)


def label_ends(axes: Any, x: float, ends: Sequence[tuple[float, str, str]], gap: float = 4.6) -> None:
    """Names (y in percent, name, colour) beside the right ends of lines, moved apart where they would overlap."""
    known = sorted((y, name, colour) for y, name, colour in ends if np.isfinite(y))
    places = _apart([y for y, _, _ in known], gap)
    for place, (y, name, colour) in zip(places, known, strict=True):
        axes.annotate(
            name,
            xy=(x, y),
            xytext=(x * 1.04 + 0.6, place),
            color=colour,
            fontsize=7.5,
            va="center",
            annotation_clip=False,
            parse_math=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 1, "shrinkB": 1},
        )


def _apart(values: list[float], gap: float, low: float = 0, high: float = 102) -> list[float]:
    """Sorted values, at least `gap` apart, each as near to its own as that allows, within bounds where they fit."""
    blocks: list[list[float]] = []  # [sum of wishes, size]
    for number, value in enumerate(values):
        blocks.append([value - number * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, size = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += size
    base = [total / size for total, size in blocks for _ in range(int(size))]
    room = max(high - gap * (len(values) - 1), low)
    return [min(max(at, low), room) + number * gap for number, at in enumerate(base)]


def heatmap(axes: Any, shares: np.ndarray, rows: list[str]) -> Any:
    """Models by turns, each cell with its percent."""
    image = axes.imshow(100 * shares, cmap=SHARES, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
    axes.grid(False)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    if shares.shape[1] <= 60:
        for (row, column), share in np.ndenumerate(shares):
            if np.isfinite(share):
                ink = "white" if share > 0.55 else INK
                said = axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=5.2, color=ink)
                said.set_in_layout(False)
    return image


def dot(axes: Any, y: float, value: float, low: float, high: float, style: Style, label: str = "") -> None:
    """A value with its interval, in percent, lying."""
    axes.plot([100 * low, 100 * high], [y, y], color=style.colour, linewidth=1.6, alpha=0.55, solid_capstyle="round")
    axes.plot([100 * value], [y], marker=style.marker, color=style.colour, linestyle="", markersize=5, label=label)
