"""build: tasks + constraints + tuples + seed -> test sets in the release's layout, with a manifest."""

import tempfile
from pathlib import Path

from rich.console import Console

from sequor import introductions, released, testsets
from sequor.errors import BadInput
from sequor.testsets import Recipe


def build(
    tasks: Path, constraints: Path, tuples: Path, templates: Path | None, recipe: Recipe, out: Path, console: Console
) -> None:
    """All or nothing: the sets are made beside `out` and moved there. Raises BadInput."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out}: not empty; name another folder with --out")
    sources = released.load_tasks(tasks), released.load_constraints(constraints), released.load_tuples(tuples, None)
    wording = introductions.load(templates) if templates is not None else None
    sets = testsets.build(*sources, recipe, wording)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".build-") as work:
        made = Path(work) / "made"
        made.mkdir()
        testsets.write(made, sets, recipe, *sources, wording)
        if out.exists():
            out.rmdir()
        made.rename(out)
    for test_set in sets:
        console.print(
            f"{test_set.name}: {len(test_set.dialogues)} dialogues of {len(test_set.dialogues[0].turns)} turns"
        )
    console.print(f"{out}: seed {recipe.seed}; {out}/manifest.json holds counts and hashes")
