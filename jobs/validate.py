"""validate: the facts of a folder of test sets as a table, and its faults, a line each: `file:line: what`."""

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sequor import released
from sequor.errors import BadInput
from sequor.regimes import is_name
from sequor.replay import Finding
from sequor.validation import Report, SetFacts, validate

SHOWN = 40
"""Findings of one kind that are printed; the rest is counted."""


def show(root: Path, turns: int, console: Console) -> None:
    """Raises BadInput when the folder is not there or has faults."""
    if not root.is_dir():
        raise BadInput(f"{root}: no such folder")
    report = validate(root, turns)
    console.print(_sets(report))
    console.print(_gaps(report))
    for what, findings in (("warning", report.warnings), ("fault", report.faults)):
        for finding in findings[:SHOWN]:
            console.print(f"{what}: {_line(root, finding)}")
        if findings[SHOWN:]:
            console.print(f"... and {len(findings) - SHOWN:,} more {what}s")
    pool = f"{report.constraints:,} constraints, {report.tuples:,} tuples"
    console.print(f"{pool}, {len(report.warnings)} warnings, {len(report.faults)} faults")
    if report.faults:
        raise BadInput(f"{root}: {len(report.faults)} faults; the first: {_line(root, report.faults[0])}")


def _line(root: Path, finding: Finding) -> str:
    """A dialogue by its file, a turn by its line there."""
    if finding.what.startswith(finding.where):  # what could not be read names its file and line itself
        return finding.what
    dialogue = re.fullmatch(r"(\w+)/(.+?)(?:: turn (\d+))?", finding.where)
    if dialogue and is_name(dialogue[1]):
        name, id, turn = dialogue.groups()
        file = released.folder_of(root, name) / f"{id}.jsonl"
        return f"{file}{f':{turn}' if turn else ''}: {finding.what}"
    return f"{finding.where}: {finding.what}"


def _sets(report: Report) -> Table:
    table = _table(f"over turns 1 to {report.turns}; lengths, templates and introductions over all turns")
    columns = ("dialogues", "turns", "in force 1/2/3", "replaced", "added", "introductions", "templates", "repeated")
    for column in ("test set", *columns):
        table.add_column(column, justify="left" if column == "test set" else "right")
    for facts in report.sets:
        table.add_row(facts.name, *_row(facts))
    return table


def _row(facts: SetFacts) -> list[str]:
    counts = "/".join(str(facts.in_force.get(number, 0)) for number in range(1, max(3, *facts.in_force) + 1))
    lengths = f"{facts.shortest}-{facts.longest} (mean {facts.mean_length:.1f})"
    templates = "+".join(str(count) for count in facts.templates.values())
    numbers = (facts.replacements, facts.additions, facts.introductions)
    return [str(facts.dialogues), lengths, counts, *map(str, numbers), templates, str(facts.repeated)]


def _gaps(report: Report) -> Table:
    table = _table("turns between two changes, how often")
    table.add_column("test set")
    table.add_column("gap:count")
    for facts in report.sets:
        if facts.gaps:
            table.add_row(facts.name, " ".join(f"{gap}:{count}" for gap, count in facts.gaps.items()))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=None, pad_edge=False)
