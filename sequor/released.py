"""The released data, in and out (SPEC of the release's layout; paper, section 3.1).

    constraints/single.jsonl            {"constraint", "id", ratings in percent}
    constraints/3.jsonl                 {"id", "constraints": [text], "constraint_ids"}
    tasks/PERSONA.jsonl                 {"persona", "activity", "prompt"}
    testsets/single/DIALOGUE.jsonl      {"prompt", "constraints_data": [{"id", "text"}]}, one line a turn
    testsets/{tuples/3, replace/step_size_5, add/step_size_10, everything ...}/DIALOGUE.jsonl

1. A folder may hold any part of this; what is asked for and missing is a BadInput.
2. Bytes are split at \\n alone (U+2028 stands in texts); a byte order mark and \\r\\n are taken as well.
3. A dialogue's id is its file's stem; files are read in the order of their names.
4. What cannot be used is a BadInput of one line, which names file and line; non-UTF-8 names the byte.
5. Extra keys are passed over. What is written is byte for byte what the release has.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from sequor.errors import BadInput
from sequor.jsonl import rows
from sequor.regimes import is_name, parse_name
from sequor.types import (
    TASK_COMPLETION,
    TEST_SETS,
    Constraint,
    ConstraintTuple,
    Dialogue,
    Regime,
    Task,
    TestSet,
    UserTurn,
)


class _TurnRow(Struct, frozen=True):
    prompt: str
    constraints_data: tuple[Constraint, ...]


class _ConstraintRow(Struct, frozen=True):
    constraint: str
    id: str
    category: str | None = None


class _TupleRow(Struct, frozen=True):
    id: str
    constraints: tuple[str, ...]
    constraint_ids: tuple[str, ...]


Row = TypeVar("Row")


def folder_of(root: Path, name: str) -> Path:
    """Where a test set lies. Raises BadInput for a name that is none."""
    regime, number = parse_name(name)
    if regime in (Regime.REPLACE, Regime.ADD):
        return root / "testsets" / regime / f"step_size_{number}"
    return root / "testsets" / regime / str(number) if regime is Regime.TUPLES else root / "testsets" / regime


def test_sets_in(root: Path) -> tuple[str, ...]:
    """Names of the test sets in a data folder: those of the release in its order, then others by name."""
    others = [f"{path.parent.name}_{path.name.removeprefix('step_size_')}" for path in root.glob("testsets/*/*/")]
    names = dict.fromkeys((*TEST_SETS, *sorted(filter(is_name, others))))
    return tuple(name for name in names if any(_jsonl_files(folder_of(root, name))))


def load_test_set(root: Path, name: str, turns: int | None = 50, dialogues: int | None = None) -> TestSet:
    """The first `dialogues` dialogues (all: None), each with its first `turns` turns (all: None)."""
    paths = dialogue_files(root, name)
    if dialogues is not None and len(paths) < dialogues:
        raise BadInput(f"{folder_of(root, name)}: {len(paths)} dialogues, {dialogues} asked for")
    seen: dict[Constraint, Constraint] = {}
    found = tuple(load_dialogue(path, name, turns, seen) for path in paths[:dialogues])
    for path, dialogue in zip(paths, found, strict=False):
        for number, turn in enumerate(dialogue.turns, 1):
            if len({constraint.id for constraint in turn.in_force}) < len(turn.in_force):
                raise BadInput(f"{path}:{number}: a constraint is in force twice")
    return TestSet(name, found)


def dialogue_files(root: Path, name: str) -> list[Path]:
    folder = folder_of(root, name)
    if not folder.is_dir():
        here = ", ".join(test_sets_in(root)) or "none"
        raise BadInput(f"{folder}: no such folder; test sets in {root}: {here}")
    return list(_not_empty(tuple(_jsonl_files(folder)), folder, "dialogue (*.jsonl)"))


def load_dialogue(
    path: Path, test_set: str, turns: int | None = None, seen: dict[Constraint, Constraint] | None = None
) -> Dialogue:
    """`seen` lets dialogues share the constraints they have in common."""
    shared = {} if seen is None else seen
    found: list[UserTurn] = []
    for number, row in rows(path, _TurnRow, turns):
        where = f"{path}:{number}"
        if not row.prompt.strip():
            raise BadInput(f"{where}: a turn with an empty prompt")
        if not row.constraints_data:
            raise BadInput(f"{where}: a turn with no constraint in force")
        for constraint in row.constraints_data:
            _check(constraint, where)
        found.append(UserTurn(row.prompt, tuple(shared.setdefault(c, c) for c in row.constraints_data)))
    if turns is not None and len(found) < turns:
        raise BadInput(f"{path}: dialogue {path.stem} has {len(found)} turns, {turns} asked for")
    if not found:
        raise BadInput(f"{path}: dialogue {path.stem} is empty")
    return Dialogue(test_set, path.stem, tuple(found))


def load_constraints(path: Path) -> tuple[Constraint, ...]:
    """The pool of a data folder, or of a file. White space around a text goes (the release's dialogues have none)."""
    source = path / "constraints" / "single.jsonl" if path.is_dir() else path
    found: dict[str, Constraint] = {}
    for number, row in rows(source, _ConstraintRow):
        constraint = Constraint(row.id, row.constraint.strip(), row.category)
        _check(constraint, f"{source}:{number}")
        if constraint.id in found:
            raise BadInput(f"{source}:{number}: id {row.id} stands here for the second time")
        found[constraint.id] = constraint
    return _not_empty(tuple(found.values()), source, "constraint")


def load_tuples(path: Path, size: int | None = 3) -> tuple[ConstraintTuple, ...]:
    """The compatible tuples of a data folder, or of a file, with the texts that stand there. `size` None: of any."""
    if path.is_dir() and size is None:
        sizes = sorted(int(file.stem) for file in (path / "constraints").glob("*.jsonl") if file.stem.isdecimal())
        return tuple(t for size in sizes or (3,) for t in load_tuples(path, size))
    source = path / "constraints" / f"{size}.jsonl" if path.is_dir() else path
    found: list[ConstraintTuple] = []
    for number, row in rows(source, _TupleRow):
        here = len(row.constraint_ids) if size is None else size
        if here < 2 or not len(row.constraints) == len(row.constraint_ids) == len(set(row.constraint_ids)) == here:
            many = "as many texts as" if size is None else f"{size} texts and {size}"
            raise BadInput(f"{source}:{number}: expected {many} ids, each once")
        pairs = zip(row.constraint_ids, row.constraints, strict=True)
        members = tuple(Constraint(id, text.strip()) for id, text in pairs)
        for member in members:
            _check(member, f"{source}:{number}")
        found.append(ConstraintTuple(row.id, members))
    return _not_empty(tuple(found), source, "tuple")


def load_tasks(path: Path) -> dict[str, tuple[Task, ...]]:
    """For each persona, by its file's stem, its tasks in order. `path`: a data folder, or the folder of task files."""
    folder = path / "tasks" if (path / "tasks").is_dir() else path
    found: dict[str, tuple[Task, ...]] = {}
    for file in _jsonl_files(folder):
        numbered = list(rows(file, Task))
        for number, task in numbered:
            if not task.prompt.strip():
                raise BadInput(f"{file}:{number}: a task with an empty prompt")
        found[file.stem] = _not_empty(tuple(task for _, task in numbered), file, "task")
    _not_empty(tuple(found), folder, "task file (*.jsonl)")
    return found


def _check(constraint: Constraint, where: str) -> None:
    if not constraint.id.strip():
        raise BadInput(f"{where}: a constraint without an id")
    if not constraint.text.strip():
        raise BadInput(f"{where}: constraint {constraint.id} is empty")
    if constraint.id == TASK_COMPLETION:  # its verdicts would be taken for those on the task
        raise BadInput(f"{where}: a constraint by the id {TASK_COMPLETION}, which names another question")


def _not_empty(found: tuple[Row, ...], source: Path, what: str) -> tuple[Row, ...]:
    if not found:
        raise BadInput(f"{source}: holds no {what}")
    return found


def _jsonl_files(folder: Path) -> Iterator[Path]:
    # Hidden files are left alone: some systems put one of their own beside each file.
    return (path for path in sorted(folder.glob("*.jsonl")) if path.is_file() and not path.name.startswith("."))


def write_test_set(root: Path, test_set: TestSet) -> list[Path]:
    """Writes the dialogues, over those of the same names. Raises BadInput when others would be left among them."""
    folder = folder_of(root, test_set.name)
    paths = [folder / f"{dialogue.id}.jsonl" for dialogue in test_set.dialogues]
    ours = set(paths)
    for path in _jsonl_files(folder):
        if path not in ours:
            raise BadInput(f"{path}: this dialogue is not of the test set to be written here; choose an empty folder")
    for path, dialogue in zip(paths, test_set.dialogues, strict=True):
        _write(path, map(_turn_row, dialogue.turns), ascii_only=True)
    return paths


def _turn_row(turn: UserTurn) -> dict[str, object]:
    return {"prompt": turn.prompt, "constraints_data": [{"id": c.id, "text": c.text} for c in turn.in_force]}


def write_constraints(
    root: Path, constraints: Iterable[Constraint], ratings: Mapping[str, Mapping[str, float]] | None = None
) -> Path:
    """`ratings`: id -> {"satisfiability", "subjectivity", "triviality"} in percent, for those that were rated."""
    rows = [
        {"constraint": c.text, **(ratings or {}).get(c.id, {}), "id": c.id}
        | ({"category": c.category} if c.category else {})
        for c in constraints
    ]
    return _write(root / "constraints" / "single.jsonl", rows)


def write_tuples(root: Path, tuples: Sequence[ConstraintTuple]) -> Path:
    """Raises BadInput when there are none, or not all of one size."""
    sizes = {len(t.constraints) for t in tuples}
    if len(sizes) != 1:
        raise BadInput(f"tuples to be written must be of one size; there are {sorted(sizes) or 'none'}")
    rows = [
        {"id": t.id, "constraints": [c.text for c in t.constraints], "constraint_ids": [c.id for c in t.constraints]}
        for t in tuples
    ]
    return _write(root / "constraints" / f"{sizes.pop()}.jsonl", rows)


def write_tasks(root: Path, tasks: Mapping[str, Iterable[Task]]) -> list[Path]:
    return [
        _write(root / "tasks" / f"{persona}.jsonl", [msgspec.to_builtins(task) for task in found])
        for persona, found in tasks.items()
    ]


def _write(path: Path, rows: Iterable[object], ascii_only: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows]  # dialogues are all ASCII in the release
    path.write_bytes("".join(lines).encode())
    return path
