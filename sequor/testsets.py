"""Test sets made from tasks, a pool of constraints and compatible tuples (paper, section 3.1).

1. The same task sequences stand behind all sets: a dialogue is a persona, its tasks a random subset of the persona's,
   in their order. Only the constraints differ.
2. Same inputs, recipe and seed, same bytes; what is drawn for one set or dialogue depends on no other set, so a part
   of the sets, or the first of the dialogues, is the same as in the whole.
3. Single, Tuples and Add deal their cards over the dialogues (none twice until all were dealt); Replace and
   Everything shuffle anew for each dialogue.
4. A pool that cannot carry the recipe is a BadInput before anything is written; `manifest.json` is written last, so a
   folder that has one is whole.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random

import msgspec
from msgspec import Struct

from sequor import introductions, released
from sequor.errors import BadInput
from sequor.introductions import GAP, Templates
from sequor.regimes import (
    Deck,
    Plan,
    Rhythm,
    change_turns,
    in_force,
    parse_name,
    plan_add,
    plan_everything,
    plan_replace,
    plan_single,
    plan_tuples,
)
from sequor.types import TEST_SETS, Constraint, ConstraintTuple, Dialogue, Regime, Task, TestSet, UserTurn

Tasks = Mapping[str, Sequence[Task]]
"""For each persona, by its id, its tasks in order."""


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seed: int = 0
    test_sets: tuple[str, ...] = TEST_SETS
    turns: int | None = 50
    """Tasks taken of each persona. None: all of them, as in the release, whose dialogues have 120 to 210 turns."""
    dialogues: int | None = None
    """The first of the personas, by id. None: all."""
    limit: int = 3
    """Most constraints in force, in Add and Everything."""
    longest: int = 5
    """Longest random step of Everything, in turns."""
    rhythm: Rhythm = "release"


class Sources(Struct, frozen=True):
    tasks: Tasks
    constraints: tuple[Constraint, ...]
    tuples: tuple[ConstraintTuple, ...]
    templates: Templates


def build(
    tasks: Tasks,
    constraints: Sequence[Constraint],
    tuples: Sequence[ConstraintTuple],
    recipe: Recipe,
    templates: Templates | None = None,
) -> tuple[TestSet, ...]:
    """The test sets of the recipe. `templates`: ours, when None. Raises BadInput."""
    # Dialogues carry ids and texts alone, as in the release's files, so that what is built equals what is read back.
    bare = [ConstraintTuple(t.id, tuple(map(_bare, t.constraints))) for t in tuples]
    sources = Sources(tasks, tuple(map(_bare, constraints)), tuple(bare), templates or introductions.load())
    _check_recipe(recipe)
    _check_pool(sources)
    sequences = task_sequences(tasks, recipe)
    return tuple(_test_set(name, sequences, sources, recipe) for name in recipe.test_sets)


def _bare(constraint: Constraint) -> Constraint:
    return Constraint(constraint.id, constraint.text)


def task_sequences(tasks: Tasks, recipe: Recipe) -> dict[str, tuple[str, ...]]:
    """For each dialogue the prompts of its tasks."""
    personas = sorted(tasks)
    if recipe.dialogues is not None and len(personas) < recipe.dialogues:
        raise BadInput(f"{recipe.dialogues} dialogues asked for, there are tasks of {len(personas)} personas")
    found = {}
    for persona in personas[: recipe.dialogues]:
        prompts = [task.prompt for task in tasks[persona]]
        turns = len(prompts) if recipe.turns is None else recipe.turns
        if not prompts or len(prompts) < turns:
            raise BadInput(f"persona {persona} has {len(prompts)} tasks, {turns} turns asked for")
        if any(GAP in prompt for prompt in prompts):
            raise BadInput(f"persona {persona}: a task holds three newlines, which part introduction and task")
        chosen = sorted(Random(f"{recipe.seed}/tasks/{persona}").sample(range(len(prompts)), turns))
        found[persona] = tuple(prompts[position] for position in chosen)
    return found


def _test_set(name: str, sequences: Mapping[str, tuple[str, ...]], sources: Sources, recipe: Recipe) -> TestSet:
    rng = Random(f"{recipe.seed}/{name}")
    singles, tuples = Deck(sources.constraints, rng), Deck(_fitting(name, sources.tuples), rng)
    dialogues = []
    for persona, prompts in sequences.items():
        own = Random(f"{recipe.seed}/{name}/{persona}")
        plan = _plan(name, singles, tuples, len(prompts), recipe, own)
        texts = introductions.introduce(plan, prompts, sources.templates, own)
        turns = map(UserTurn, texts, in_force(plan, len(prompts)))
        dialogues.append(Dialogue(name, persona, tuple(turns)))
    return TestSet(name, tuple(dialogues))


def _plan(
    name: str, singles: Deck[Constraint], tuples: Deck[ConstraintTuple], turns: int, recipe: Recipe, own: Random
) -> Plan:
    regime, number = parse_name(name)
    if regime is Regime.SINGLE:
        return plan_single(singles)
    if regime is Regime.TUPLES:
        return plan_tuples(tuples)
    if regime is Regime.REPLACE:
        _check_replace(name, len(singles.cards), len(change_turns(turns, number)))
        return plan_replace(Deck(singles.cards, own), turns, number)
    if regime is Regime.ADD:
        return plan_add(tuples, turns, number, recipe.limit, own)
    shuffled = Deck(singles.cards, own), Deck(tuples.cards, own)
    return plan_everything(*shuffled, turns, own, longest=recipe.longest, limit=recipe.limit, rhythm=recipe.rhythm)


def _fitting(name: str, tuples: Sequence[ConstraintTuple]) -> list[ConstraintTuple]:
    """The tuples that the set can draw from. Raises BadInput when it needs some and there are none."""
    regime, size = parse_name(name)
    found = [t for t in tuples if regime is not Regime.TUPLES or len(t.constraints) == size]
    if not found and regime not in (Regime.SINGLE, Regime.REPLACE):
        raise BadInput(f"{name}: no compatible tuples" + (f" of {size}" if size and tuples else "") + " to draw from")
    return found


def _check_replace(name: str, have: int, need: int) -> None:
    if have < need:
        raise BadInput(f"{name}: {need} constraints needed for one dialogue, the pool has {have}")


def _check_recipe(recipe: Recipe) -> None:
    for field in ("turns", "dialogues", "limit", "longest"):
        value = getattr(recipe, field)
        if value is not None and value < 1:
            raise BadInput(f"{field}: {value}; at least 1 is needed")
    for name in recipe.test_sets:
        parse_name(name)
    if not recipe.test_sets or len(set(recipe.test_sets)) < len(recipe.test_sets):
        raise BadInput("test_sets: name at least one, and each once")


def _check_pool(sources: Sources) -> None:
    if not sources.constraints:
        raise BadInput("the pool holds no constraint")
    seen: dict[str, str] = {}
    for constraint in sources.constraints:
        if constraint.text in seen:  # a reader of the introductions could not tell them apart
            raise BadInput(f"the pool holds one text twice, as {seen[constraint.text]} and {constraint.id}")
        if GAP in constraint.text:
            raise BadInput(f"constraint {constraint.id} holds three newlines, which part introduction and task")
        seen[constraint.text] = constraint.id
    ids = set(seen.values())
    for member_of in sources.tuples:
        if not member_of.constraints:
            raise BadInput(f"tuple {member_of.id} is empty")
        for member in member_of.constraints:
            if member.id not in ids:
                raise BadInput(f"tuple {member_of.id} names the constraint {member.id}, which the pool does not have")


def write(
    root: Path,
    test_sets: Sequence[TestSet],
    recipe: Recipe,
    tasks: Tasks,
    constraints: Sequence[Constraint],
    tuples: Sequence[ConstraintTuple],
    templates: Templates | None = None,
) -> Path:
    """The sets in the release's layout with the pool beside them, all dialogues in one file as a run's folder has them,
    and `manifest.json`, whose path is returned."""
    manifest = root / "manifest.json"
    manifest.unlink(missing_ok=True)
    for test_set in test_sets:
        released.write_test_set(root, test_set)
    released.write_constraints(root, constraints)
    for size in sorted({len(t.constraints) for t in tuples}):
        released.write_tuples(root, [t for t in tuples if len(t.constraints) == size])
    lines = msgspec.json.Encoder().encode_lines([d for test_set in test_sets for d in test_set.dialogues])
    (root / "dialogues.jsonl").write_bytes(lines)
    inputs = {"tasks": tasks, "constraints": constraints, "tuples": tuples}
    facts = {
        "version": _version(),
        "recipe": msgspec.to_builtins(recipe),
        "test_sets": {s.name: _facts(s) for s in test_sets},
        "inputs": {
            "personas": len(tasks),
            "tasks": sum(map(len, tasks.values())),
            "constraints": len(constraints),
            "tuples": len(tuples),
        },
        "sha256": {name: digest(value) for name, value in inputs.items()}
        | {"introductions": digest(templates or introductions.load())},
    }
    manifest.write_bytes((json.dumps(facts, indent=2) + "\n").encode())
    return manifest


def _facts(test_set: TestSet) -> dict[str, object]:
    turns = sum(len(dialogue.turns) for dialogue in test_set.dialogues)
    return {"dialogues": len(test_set.dialogues), "turns": turns, "sha256": digest(test_set)}


def digest(value: object) -> str:
    """sha256 of what a value says, wherever it was read from."""
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def _version() -> str:
    try:
        return version("sequor")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"
