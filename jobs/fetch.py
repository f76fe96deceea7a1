"""fetch: the released data into a folder of one's own, checked. A download, or a local copy."""

import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from rich.console import Console

from sequor import introductions, released
from sequor.errors import BadInput
from sequor.types import Constraint, TestSet

ARCHIVE = "https://github.com/BeatrizCanaverde/SEQUOR/archive/refs/heads/main.tar.gz"
"""The address that the paper gives for its data."""

PARTS = ("constraints", "tasks", "testsets")


def fetch(source: Path | None, out: Path, console: Console) -> None:
    """Raises BadInput; `out` is then as it was before."""
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out}: not empty; remove it to fetch again, or name another folder with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".fetch-") as work:
        found = _find(source if source is not None else _download(Path(work), console))
        copy = Path(work) / "copy"
        for part in PARTS:
            shutil.copytree(found / part, copy / part, copy_function=shutil.copyfile)
        sets = [released.load_test_set(copy, name, turns=None) for name in released.test_sets_in(copy)]
        constraints, tuples = released.load_constraints(copy), released.load_tuples(copy)
        note = _introductions(copy, sets, constraints)
        if out.exists():
            out.rmdir()
        copy.rename(out)
    dialogues = sum(len(test_set.dialogues) for test_set in sets)
    pool = f"{len(constraints):,} constraints, {len(tuples):,} tuples"
    console.print(f"{out}: {dialogues:,} dialogues in {len(sets)} test sets, {pool}")
    console.print(note)


def _introductions(folder: Path, sets: list[TestSet], constraints: tuple[Constraint, ...]) -> str:
    """The templates behind the dialogues' introductions, as a file that `build --introductions` takes."""
    try:
        templates = introductions.recover([d for test_set in sets for d in test_set.dialogues], constraints)
    except BadInput as error:
        return f"no introductions recovered: {error}"
    (folder / "introductions.yaml").write_text(introductions.to_yaml(templates), "utf-8")
    counts = ", ".join(f"{kind} {len(templates[kind])}" for kind in introductions.KINDS)
    return f"introductions.yaml: the templates recovered from the dialogues ({counts})"


def _find(root: Path) -> Path:
    """The folder in or below `root` that holds the three parts, wherever the archive has them."""
    if not root.is_dir():
        raise BadInput(f"{root}: no such folder")
    for folder in [root, *sorted(path for path in root.rglob("*") if path.is_dir())]:
        if all((folder / part).is_dir() for part in PARTS):
            return folder
    raise BadInput(f"{root}: no folder in it holds {', '.join(PARTS)}")


def _download(work: Path, console: Console) -> Path:
    console.print(f"downloading {ARCHIVE}")
    archive = work / "archive.tar.gz"
    try:
        with urllib.request.urlopen(ARCHIVE, timeout=60) as answer, open(archive, "wb") as file:
            shutil.copyfileobj(answer, file)
        with tarfile.open(archive) as tar:
            tar.extractall(work / "archive", filter="data")
    except (urllib.error.URLError, OSError, tarfile.TarError) as error:
        raise BadInput(f"{ARCHIVE}: {error}; sequor fetch --from DIR takes a local copy") from None
    return work / "archive"
