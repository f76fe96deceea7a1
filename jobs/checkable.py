"""checkable: which constraints a program can decide; of a run, how often its judge agrees with the truth."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from sequor import released
from sequor.agreement import Agreement, agreements, total
from sequor.checkable import Check, recognise
from sequor.curation.language import COMPRESSED, Language, model_file
from sequor.run_folder import RunFolder


def show(path: Path, console: Console) -> None:
    """`path`: a pool of constraints, a data folder, or a run's folder. Raises BadInput."""
    if (path / "run.json").exists():
        _show_agreement(path, console)
    else:
        _show_pool(path, console)


def agreement_lines(path: Path) -> list[str]:
    """Of a run, one line a judge; empty where nothing was judged that a program can decide. Raises BadInput."""
    return [f"{judge}: {_line(total(kinds))}" for judge, kinds in sorted(_of_run(path).items())]


def _show_pool(path: Path, console: Console) -> None:
    constraints = released.load_constraints(path)
    by_kind: dict[str, list[tuple[Check, str]]] = {}
    for constraint in constraints:
        if (check := recognise(constraint.text)) is not None:
            by_kind.setdefault(check.kind, []).append((check, constraint.text))
    for kind, found in sorted(by_kind.items()):
        console.print(f"{kind} ({len(found)})", style="bold")
        for check, text in sorted(found, key=lambda pair: pair[1]):
            console.print(f"  {_meaning(check):24} {text}")
    console.print(f"covered={sum(map(len, by_kind.values()))} of={len(constraints)}")


def _meaning(check: Check) -> str:
    if check.texts:
        return ", ".join(check.texts)
    if check.high is None:
        return f"{check.low} or more" if check.low else ""
    return str(check.low) if check.low == check.high else f"{check.low} to {check.high}"


def _show_agreement(path: Path, console: Console) -> None:
    for judge, kinds in sorted(_of_run(path).items()):
        table = Table(title=f"{judge} against the truth", title_justify="left", box=None, pad_edge=False)
        for name in ("constraint", "judged", "right %", "followed: yes", "no", "broken: yes", "no", "unreadable"):
            table.add_column(name, justify="left" if name == "constraint" else "right")
        for kind, found in [*sorted(kinds.items()), ("all", total(kinds))]:
            share = "-" if found.share is None else f"{100 * found.share:.1f}"
            counts = found.followed_yes, found.followed_no, found.broken_yes, found.broken_no, found.unreadable
            table.add_row(kind, str(found.read + found.unreadable), share, *map(str, counts))
        console.print(table)
    for line in agreement_lines(path) or ["no constraint of this run can be decided by a program, or none is judged"]:
        console.print(line)


def _of_run(path: Path) -> dict[str, dict[str, Agreement]]:
    folder = RunFolder(path)
    folder.read()
    language = Language(model_file(COMPRESSED))
    dialogues = (dialogue for test_set in folder.test_sets() for dialogue in test_set.dialogues)
    return agreements(dialogues, folder.turns, folder.judgements, lambda text: language.scores(text)[1])


def _line(found: Agreement) -> str:
    share = "none readable" if found.share is None else f"right on {100 * found.share:.1f}% of {found.read:,}"
    missed, invented = found.broken_yes, found.followed_no
    return (
        f"{share} judgements that a program can decide (missed {missed:,} violations, saw {invented:,} that are none)"
    )
