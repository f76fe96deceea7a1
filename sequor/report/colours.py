"""Colours, the same in figures and pages. Pure.

1. A model has one colour, marker and dash in everything that a report draws, by the order of the models' names; past
   twelve they come round with another dash. Neighbours in the palette differ in lightness as well as in hue, so that
   they stay apart for colour-blind eyes and in grey print.
2. A regime has one colour; its second set (replace 10, add 10) is dashed.
3. Shares run from pale to dark (the ColorBrewer sequence YlGnBu), so that the order survives print.
"""

from msgspec import Struct

from sequor.errors import BadInput
from sequor.regimes import parse_name

PALETTE = (
    "#0072B2",
    "#E69F00",
    "#882255",
    "#009E73",
    "#CC79A7",
    "#6F4FC4",
    "#D55E00",
    "#56B4E9",
    "#8C6D1F",
    "#44AA99",
    "#777777",
    "#B4501E",
)
"""Okabe and Ito's, with some of Paul Tol's; all can be told from white and from a dark page."""
MARKERS = "osD^vP*Xph<>"
DASHES = ("", "5 2", "1.5 1.5")
"""As SVG writes them; empty for solid."""

REGIMES = {"single": "#0072B2", "tuples": "#E69F00", "replace": "#009E73", "add": "#D55E00", "everything": "#6F4FC4"}
SEQUENCE = ("#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58")
UNKNOWN = "#d9d9d9"
KINDS = {
    "passed": "#7fb7a3",
    "never": "#4a3b6b",
    "broke": "#f2b25c",
    "stays": "#b3492d",
    "again": "#dd8452",
    "undecided": "#d9d9d9",
}


class Style(Struct, frozen=True):
    colour: str
    marker: str = "o"
    dash: str = ""


NEUTRAL = (Style("#3a3a3a", "o"), Style("#b3492d", "s"), Style("#4a3b6b", "D"), Style("#8a8a8a", "^"))
"""For what is no model: judges, in and out of context."""


def of_models(labels: list[str]) -> list[Style]:
    """Rule 1; in the order of `labels`."""
    place = {label: number for number, label in enumerate(sorted(set(labels)))}
    return [
        Style(
            PALETTE[place[label] % len(PALETTE)],
            MARKERS[place[label] % len(MARKERS)],
            DASHES[place[label] // len(PALETTE) % 3],
        )
        for label in labels
    ]


def of_set(name: str, sets: list[str]) -> Style:
    """Rule 2. `sets`: all that are drawn."""
    regime = _regime(name)
    alike = [other for other in sets if _regime(other) == regime]
    return Style(REGIMES.get(regime, "#777777"), dash=DASHES[alike.index(name) % 3 if name in alike else 0])


def _regime(name: str) -> str:
    try:
        return str(parse_name(name)[0].value)
    except BadInput:
        return name


def set_title(name: str) -> str:
    """As the paper writes it: `replace_10` is Replace 10, `tuples_3` Tuples."""
    return {"tuples_3": "Tuples"}.get(name, name.replace("_", " ").capitalize())
