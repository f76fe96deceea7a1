"""report: run folders -> figures, tables, pages; what was made, in a few lines."""

import json
from pathlib import Path

from rich.console import Console

from sequor import released
from sequor.errors import BadInput
from sequor.report.report import Options, write_report

DEMO = Path(released.__file__).parent / "demo"


def report(
    runs: list[Path],
    out: Path | None,
    judge: str | None,
    categories: Path | None,
    compare_paper: bool,
    inspect: bool,
    console: Console,
) -> None:
    """`categories`: JSON lines of {"id", "category"}, such as a pool of constraints. Raises BadInput."""
    known = {c.id: c.category for c in released.load_constraints(DEMO) if c.category}
    known |= _categories(categories) if categories else {}
    made = write_report(runs, out, Options(judge=judge, compare_paper=compare_paper, categories=known, inspect=inspect))
    for note in made.notes:
        console.print(note)
    console.print(f"transcripts of {made.dialogues:,} dialogues; open {made.out}/index.html")
    console.print(f"{made.out} figures={made.figures} tables={made.tables}")


def _categories(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        lines = path.read_text("utf-8-sig").split("\n")  # U+2028 stands in texts
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line) if line.strip() else {}
            if entry:
                found[str(entry["id"])] = str(entry["category"] or "")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise BadInput(f'{path}:{number}: not a JSON object with "id" and "category"') from None
    return {id: category for id, category in found.items() if category}
