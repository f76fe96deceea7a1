"""What a folder of test sets holds, and what is wrong with it: ours or the release's.

1. Everything is read, all turns of all sets; the facts are counted over the first `turns` turns, as a run sees them.
2. Nothing is printed and nothing is raised for what a file holds: a file that cannot be used is a fault in the report.
3. A tuple's text that differs from its pool's is a warning (five of the release differ, in letter case).
4. A folder without a pool is judged by its dialogues alone, with a warning.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from sequor import introductions, released
from sequor.errors import BadInput
from sequor.introductions import KINDS, Templates
from sequor.replay import Finding, Known, Step, known_of, member_faults, replay, shape_faults
from sequor.testsets import digest
from sequor.types import Constraint, ConstraintTuple, Dialogue, TestSet


class SetFacts(Struct, frozen=True, kw_only=True):
    name: str
    dialogues: int
    shortest: int
    """Turns of the shortest dialogue, before it is cut."""
    longest: int
    mean_length: float
    in_force: dict[int, int]
    """Number of constraints in force -> on how many turns."""
    replacements: int
    additions: int
    gaps: dict[int, int]
    """Turns from one change of a dialogue to its next -> how often."""
    templates: dict[str, int]
    """Kind of introduction -> how many templates of it are in use."""
    introductions: int
    """In all turns, not in the first alone."""
    repeated: int
    """Introductions, in all turns, with the template that the dialogue's change before had."""


class Report(Struct, frozen=True, kw_only=True):
    turns: int
    constraints: int
    tuples: int
    sets: tuple[SetFacts, ...]
    faults: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.faults


def validate(root: Path, turns: int = 50, templates: Templates | None = None, limit: int | None = None) -> Report:
    """`templates`: of the folder's introductions, beside ours and those recovered from it. `limit`: most in force; left
    out, what the folder's manifest says it was built with, or three."""
    limit = limit or _built_limit(root)
    faults: list[Finding] = []
    names = released.test_sets_in(root)
    if not names:
        faults.append(Finding(str(root), "no test set in this folder (testsets/NAME/*.jsonl)"))
    constraints, tuples, warnings = _pool(root, faults)
    sets = {name: list(_dialogues(root, name, faults)) for name in names}
    known = known_of(constraints, tuples, [d for found in sets.values() for d in found], templates)
    warnings += _case_warnings(tuples, known)
    facts = []
    for name, dialogues in sets.items():
        steps = {}
        for dialogue in dialogues:
            steps[dialogue.id], found = replay(dialogue, known.templates, known.texts)
            faults += found
            faults += shape_faults(dialogue, steps[dialogue.id], limit)
            faults += member_faults(dialogue, known)
        if dialogues:
            facts.append(_facts(name, dialogues, steps, turns))
    faults += _sequences(sets)
    faults += _manifest(root, sets)
    return Report(
        turns=turns,
        constraints=len(constraints),
        tuples=len(tuples),
        sets=tuple(facts),
        faults=tuple(faults),
        warnings=tuple(warnings),
    )


def _pool(
    root: Path, faults: list[Finding]
) -> tuple[tuple[Constraint, ...], tuple[ConstraintTuple, ...], list[Finding]]:
    folder = root / "constraints"
    constraints: tuple[Constraint, ...] = ()
    tuples: tuple[ConstraintTuple, ...] = ()
    files = sorted(folder.glob("*.jsonl"))
    for path in files:
        try:
            if path.stem == "single":
                constraints = released.load_constraints(path)
            elif path.stem.isdecimal():
                tuples += released.load_tuples(path, int(path.stem))
        except BadInput as error:
            faults.append(Finding(str(path), str(error)))
    if constraints or files:
        return constraints, tuples, []
    return (), (), [Finding(str(folder), "no pool here: constraints and tuples are not held against one")]


def _dialogues(root: Path, name: str, faults: list[Finding]) -> Iterator[Dialogue]:
    seen: dict[Constraint, Constraint] = {}
    for path in released.dialogue_files(root, name):
        try:
            yield released.load_dialogue(path, name, seen=seen)
        except BadInput as error:
            faults.append(Finding(str(path), str(error)))


def _case_warnings(tuples: Iterable[ConstraintTuple], known: Known) -> Iterator[Finding]:
    for t in tuples:
        for member in t.constraints:
            text = known.pool.get(member.id, member.text)
            if text != member.text:
                how = "in letter case" if text.lower() == member.text.lower() else "in wording"
                yield Finding(f"tuple {t.id}: {member.id}", f"{member.text!r} differs {how} from the pool's {text!r}")


def _facts(name: str, dialogues: list[Dialogue], steps: Mapping[str, list[Step]], turns: int) -> SetFacts:
    lengths = [len(dialogue.turns) for dialogue in dialogues]
    first = [[step for step in steps[d.id] if step.turn <= turns] for d in dialogues]
    every = [step for found in steps.values() for step in found]
    in_force = Counter(len(turn.in_force) for d in dialogues for turn in d.turns[:turns])
    gaps = Counter(b.turn - a.turn for found in first for a, b in zip(found, found[1:], strict=False))
    kinds = Counter(step.kind.partition("_")[0] for found in first for step in found)
    used = {(step.kind, step.template) for step in every}
    pairs = [pair for found in steps.values() for pair in zip(found, found[1:], strict=False)]
    return SetFacts(
        name=name,
        dialogues=len(dialogues),
        shortest=min(lengths),
        longest=max(lengths),
        mean_length=sum(lengths) / len(lengths),
        in_force=dict(sorted(in_force.items())),
        replacements=kinds["replace"],
        additions=kinds["add"],
        gaps=dict(sorted(gaps.items())),
        templates={kind: sum(k == kind for k, _ in used) for kind in KINDS if any(k == kind for k, _ in used)},
        introductions=len(every),
        repeated=sum(a.template == b.template for a, b in pairs),
    )


def _sequences(sets: Mapping[str, list[Dialogue]]) -> Iterator[Finding]:
    """The same task sequences stand behind all sets."""
    first: tuple[str, Counter[tuple[str, ...]]] | None = None
    for name, dialogues in sets.items():
        found = Counter(tuple(introductions.split(turn.prompt)[1] for turn in d.turns) for d in dialogues)
        first = first or (name, found)
        if found != first[1]:
            yield Finding(name, f"other task sequences than behind {first[0]}")


def _built_limit(root: Path) -> int:
    try:
        limit = json.loads((root / "manifest.json").read_bytes())["recipe"]["limit"]
    except (OSError, ValueError, KeyError, TypeError):  # `_manifest` tells what is wrong with one that is there
        return 3
    return limit if isinstance(limit, int) else 3


def _manifest(root: Path, sets: Mapping[str, list[Dialogue]]) -> Iterator[Finding]:
    path = root / "manifest.json"
    if not path.exists():
        return
    try:
        listed = {name: facts["sha256"] for name, facts in json.loads(path.read_bytes())["test_sets"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield Finding(str(path), f"cannot be read: {error!r}")
        return
    for name, sha in listed.items():
        if digest(TestSet(name, tuple(sets.get(name, [])))) != sha:
            yield Finding(str(path), f"{name} is not what was built: its sha256 differs")
