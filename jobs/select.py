"""select: ratings and thresholds -> the pool in the release's format, with the sweeps of figures 12 to 17. No model."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from sequor import released
from sequor.curation import figures
from sequor.curation.select import (
    FIGURES,
    MEASURES,
    Rated,
    bins,
    category_counts,
    constraint_of,
    kept_at,
    losses,
    read_ratings,
    sweep,
    thin,
)
from sequor.metrics import MIN_COVERAGE
from sequor.run_folder import write_atomically
from sequor.tables import write_csv

THRESHOLDS = tuple(float(percent) for percent in range(101))
SHOWN = tuple(range(70, 101, 5))
NAMES = {"satisfiability": "satisfiable", "triviality": "non-trivial", "subjectivity": "objective"}


def select(ratings: Path, out: Path, thresholds: Mapping[str, float], votes: int, console: Console) -> None:
    """Raises BadInput before anything is written."""
    rated = read_ratings(ratings)
    reasons = {row.id: losses(row, thresholds, votes) for row in rated}
    kept = [row for row in rated if not reasons[row.id]]
    _write(out, rated, kept, reasons)
    _figures(out / "figures", rated, kept, thresholds)
    table = Table(box=None, pad_edge=False, title="kept at", title_justify="left")
    for column in ("threshold", *MEASURES, "all three"):
        table.add_column(column, justify="right")
    for row in sweep(rated, SHOWN):
        table.add_row(*(f"{value:,}" for value in row))
    console.print(table)
    lost = {
        measure: sum(any(r.startswith(measure) for r in found) for found in reasons.values()) for measure in MEASURES
    }
    few, enough = thin(rated, kept)
    if few:
        share = f"less than {100 * MIN_COVERAGE:g}% of the votes that others have"
        console.print(f"WARNING: {few:,} of the kept rest on {share} (--votes {enough} leaves them out)")
    console.print(f"{out}: constraints/single.jsonl, dropped.jsonl, sweep.csv, figures/")
    lost_words = " ".join(f"{measure}={count}" for measure, count in lost.items())
    console.print(f"in={len(rated)} {lost_words} kept={len(kept)}")


def _write(out: Path, rated: list[Rated], kept: list[Rated], reasons: Mapping[str, list[str]]) -> None:
    percents = {row.id: {m: getattr(row, m) for m in ("satisfiability", "subjectivity", "triviality")} for row in kept}
    released.write_constraints(out, map(constraint_of, kept), percents)
    dropped = [msgspec.to_builtins(row) | {"reasons": reasons[row.id]} for row in rated if reasons[row.id]]
    write_atomically(out / "dropped.jsonl", msgspec.json.Encoder().encode_lines(dropped))
    rows = [[f"{row[0]:g}", *map(str, row[1:])] for row in sweep(rated, THRESHOLDS)]
    write_csv(out / "sweep.csv", ["threshold", *MEASURES, "all"], rows)


def _figures(folder: Path, rated: list[Rated], kept: list[Rated], thresholds: Mapping[str, float]) -> None:
    for measure, (sweep_number, bins_number) in FIGURES.items():
        values = [getattr(row, measure) for row in rated]
        what = f"{NAMES[measure]} constraints"
        counts = kept_at(values, THRESHOLDS)
        figures.kept_against_threshold(folder, sweep_number, what, THRESHOLDS, counts, thresholds[measure])
        figures.distribution(folder, bins_number, "constraints", bins(values))
    figures.categories(folder, 22, {"constraints": category_counts(row.category for row in kept)})
