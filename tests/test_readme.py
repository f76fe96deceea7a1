"""The README's tree is what is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = re.compile(r"^( *)([\w./-]+) {2,}\S", re.MULTILINE)


def in_tree() -> set[str]:
    """Every path of the block that begins with `cluster/`, folders ending in a slash."""
    [block] = re.findall(r"```tree\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found, folder = set(), ""
    for indent, name in TREE.findall(block):
        folder = folder if indent else ""
        found.add(folder + name)
        if name.endswith("/") and not indent:
            folder = name
    return found


def test_every_source_file_has_its_line_in_the_tree():
    folders = ("cluster", "sequor", "jobs")
    files = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).glob("*.py")
        if not path.name.startswith("__")
    }
    assert files - in_tree() == set()


def test_every_line_of_the_tree_is_there():
    assert {name for name in in_tree() if not (ROOT / name).exists()} == set()
