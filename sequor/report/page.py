"""The folder of pages: what the summary needs in one script, the assets beside it (sequor/report/assets)."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sequor.report import colours, groups
from sequor.report.analysis import Analysis, Curve
from sequor.report.colours import set_title
from sequor.report.figure_parts import Figure
from sequor.report.figures_losses import READ_AS, kinds_per_turn, survival_curve
from sequor.report.frame import VIOLATED
from sequor.report.statistics import Estimate
from sequor.report.tables import Table
from sequor.report.transcripts import put

ASSETS = ("index.html", "report.css", "core.js", "chart.js", "summary.js", "browse.js", "transcript.js", "start.js")
FEWEST = 20
"""Verdicts below which a point of a curve over constraints is left out."""
HARDEST, FEWEST_DIALOGUES = 6, 5


def write_page(
    out: Path, analysis: Analysis, keys: list[str], figures: list[Figure], tables: list[Table], title: str
) -> None:
    """`keys`: the folder below data/ of each model's transcripts."""
    for name in ASSETS:
        (out / name).write_bytes((files("sequor.report") / "assets" / name).read_bytes())
    styles = colours.of_models(analysis.labels)
    summary = {
        "title": title,
        "turns": analysis.turns,
        "notes": analysis.notes,
        "sequence": colours.SEQUENCE,
        "kinds": [[kind, text, colours.KINDS[kind]] for kind, text in READ_AS.items()],
        "sets": [{"name": s, "title": set_title(s)} for s in analysis.sets],
        "models": [_model(analysis, m, keys[m], styles[m]) for m in range(len(analysis.runs))],
        "cells": [[_cell(analysis, m, s) for s in analysis.sets] for m in range(len(analysis.runs))],
        "mean": [_curve(analysis.mean_curve(s)) if analysis.models_of(s) else None for s in analysis.sets],
        "common": [set_title(s) for s in analysis.common],
        "age": [_age(analysis, m) for m in range(len(analysis.runs))],
        "count": _counts(analysis),
        "hardest": _hardest(analysis, keys),
        "figures": [{"name": f.name, "title": f.title, "caption": f.caption} for f in figures],
        "tables": [_table(table) for table in tables],
    }
    put(out / "data" / "summary.js", "summary", summary)


def _model(analysis: Analysis, m: int, key: str, style: colours.Style) -> dict[str, Any]:
    run, place = analysis.runs[m], analysis.ranking.get(m)
    return {
        "key": key,
        "label": run.label,
        "model": run.model,
        "path": run.path,
        "judge": run.judge,
        "judges": run.judges,
        "colour": style.colour,
        "dash": style.dash,
        "sets": list(run.sets),
        "played": _number(run.played),
        "judged": _number(run.judged),
        "dialogues": sum(len(frame.dialogues) for frame in run.sets.values()),
        "points": _estimate(place.points) if place else None,
        "rank": _estimate(place.rank) if place else None,
        "ties": [analysis.labels[other] for other in analysis.ties(m)] if place else [],
    }


def _cell(analysis: Analysis, m: int, name: str) -> dict[str, Any] | None:
    if (m, name) not in analysis.cells:
        return None
    cell = analysis.cells[m, name]
    kinds = kinds_per_turn(analysis, m, name)
    return _curve(analysis.curve(m, name)) | {
        "mean": _estimate(analysis.mean(m, name)),
        "drop": _estimate(analysis.drop(m, name)),
        "coverage": _number(cell.score.overall.coverage),
        "label": analysis.label_on(m, name),
        "faint": analysis.low(m, name),
        "bounds": [_number(cell.score.overall.lower), _number(cell.score.overall.upper)],
        "dialogues": len(cell.results),
        "survival": _curve(survival_curve(analysis, m, name)),
        "kinds": [kinds[kind].tolist() for kind in READ_AS],
    }


def _age(analysis: Analysis, m: int) -> dict[str, Any] | None:
    if m not in analysis.judged:
        return None
    found = groups.of_constraints(analysis, m, "age", analysis.turns)
    few = found.count < FEWEST
    return _curve(
        Curve(*(np.where(few, np.nan, side) for side in (found.curve.value, found.curve.low, found.curve.high)))
    )


def _counts(analysis: Analysis) -> list[dict[str, Any] | None]:
    """Turns passed by the number of constraints in force."""
    slots = [f.slots.count.max(initial=1) for m in analysis.judged for f in analysis.runs[m].sets.values()]
    most = int(max(slots, default=1))
    return [
        _curve(groups.of_turns_by_count(analysis, m, most).curve) if m in analysis.judged else None
        for m in range(len(analysis.runs))
    ]


def _hardest(analysis: Analysis, keys: list[str]) -> list[dict[str, Any]]:
    """The hardest constraints of some weight, each with a model and a test set in which it fails."""
    found = []
    for c in [c for c in groups.hardness(analysis, {}) if c.dialogues >= FEWEST_DIALOGUES][:HARDEST]:
        where = _worst(analysis, c.id, keys)
        if where:
            found.append(
                {"id": c.id, "text": c.text, "satisfied": _number(c.satisfied), "verdicts": c.verdicts} | where
            )
    return found


def _worst(analysis: Analysis, constraint: str, keys: list[str]) -> dict[str, str] | None:
    """Run and test set with most violations of the constraint."""
    most, where = 0, None
    for m in analysis.judged:
        run = analysis.runs[m]
        number = next((at for at, c in enumerate(run.constraints) if c.id == constraint), None)
        for name, frame in run.sets.items() if number is not None else ():
            count = int(((frame.slots.constraint == number) & (frame.verdicts[run.judge or ""] == VIOLATED)).sum())
            if count > most:
                most, where = count, (m, name)
    return {"run": keys[where[0]], "set": where[1]} if where else None


def _table(table: Table) -> dict[str, Any]:
    columns = [[column.title, column.kind != "text"] for column in table.columns]
    return {"name": table.name, "title": table.title, "note": table.note, "columns": columns, "rows": table.shown()}


def _curve(curve: Curve) -> dict[str, Any]:
    sides = (("value", curve.value), ("low", curve.low), ("high", curve.high))
    return {name: [_number(share) for share in side.tolist()] for name, side in sides}


def _estimate(found: Estimate) -> list[float | None]:
    return [_number(side) for side in (found.value, found.low, found.high)]


def _number(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None
