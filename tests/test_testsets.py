"""Test sets built from tasks, a pool and tuples."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sequor import introductions, released, testsets
from sequor.errors import BadInput
from sequor.testsets import Recipe, build
from sequor.types import TEST_SETS, Constraint, ConstraintTuple, Task

POOL = tuple(Constraint(f"c{i:02}", f"Rule number {i}", "style rules") for i in range(30))
TUPLES = tuple(ConstraintTuple(f"t{i}", POOL[3 * i : 3 * i + 3]) for i in range(10))
TASKS = {f"p{p}": tuple(Task(f"persona {p}", f"at {i} h", f"Question {p}.{i}?") for i in range(60)) for p in range(5)}


def tasks_of(test_set):
    return [[introductions.split(turn.prompt)[1] for turn in d.turns] for d in test_set.dialogues]


def test_seven_sets_share_their_task_sequences():
    sets = build(TASKS, POOL, TUPLES, Recipe())
    assert tuple(s.name for s in sets) == TEST_SETS
    assert all(tasks_of(s) == tasks_of(sets[0]) for s in sets)
    assert [d.id for d in sets[0].dialogues] == sorted(TASKS)


def test_tasks_are_a_random_subset_of_the_personas_in_their_order():
    (single,) = build(TASKS, POOL, TUPLES, Recipe(test_sets=("single",), turns=20))
    for dialogue, prompts in zip(single.dialogues, tasks_of(single), strict=True):
        positions = [[task.prompt for task in TASKS[dialogue.id]].index(prompt) for prompt in prompts]
        assert len(positions) == 20 and positions == sorted(set(positions))
        assert positions != list(range(20))
    (whole,) = build(TASKS, POOL, TUPLES, Recipe(test_sets=("single",), turns=None))
    assert {len(d.turns) for d in whole.dialogues} == {60}


def in_force_counts(test_set):
    return [sorted(Counter(len(turn.in_force) for turn in d.turns).items()) for d in test_set.dialogues]


def test_numbers_in_force_are_those_of_the_regimes():
    sets = {s.name: s for s in build(TASKS, POOL, TUPLES, Recipe())}
    for name in ("single", "replace_5", "replace_10"):
        assert in_force_counts(sets[name]) == [[(1, 50)]] * 5
    assert in_force_counts(sets["tuples_3"]) == [[(3, 50)]] * 5
    assert in_force_counts(sets["add_5"]) == [[(1, 5), (2, 5), (3, 40)]] * 5
    assert in_force_counts(sets["add_10"]) == [[(1, 10), (2, 10), (3, 30)]] * 5
    for dialogue in sets["replace_5"].dialogues:
        assert len({turn.in_force[0].id for turn in dialogue.turns}) == 10


def test_no_constraint_or_tuple_is_dealt_twice_while_others_are_left():
    sets = {s.name: s for s in build(TASKS, POOL, TUPLES, Recipe())}
    for name in ("single", "tuples_3", "add_5"):
        assert len({d.turns[-1].in_force[0].id for d in sets[name].dialogues}) == 5


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def built(root: Path, **recipe: object) -> dict[str, bytes]:
    settings = Recipe(**recipe)
    testsets.write(root, build(TASKS, POOL, TUPLES, settings), settings, TASKS, POOL, TUPLES)
    return files_of(root)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    once, again, other = (built(tmp_path / n, seed=s) for n, s in (("a", 1), ("b", 1), ("c", 2)))
    assert once == again
    assert once.keys() == other.keys()
    sequences = [name for name in once if name.startswith("testsets/")]
    assert len(sequences) == 35 and all(once[name] != other[name] for name in sequences)


def test_a_part_is_the_same_as_in_the_whole():
    whole = build(TASKS, POOL, TUPLES, Recipe(seed=5))
    part = build(TASKS, POOL, TUPLES, Recipe(seed=5, test_sets=("everything", "single"), dialogues=2))
    assert part[0].dialogues == whole[6].dialogues[:2]
    assert part[1].dialogues == whole[0].dialogues[:2]


def test_what_is_built_equals_what_is_read_back_and_the_manifest_says_what_it_is(tmp_path):
    sets = build(TASKS, POOL, TUPLES, Recipe(seed=3))
    path = testsets.write(tmp_path, sets, Recipe(seed=3), TASKS, POOL, TUPLES)
    assert tuple(released.load_test_set(tmp_path, name) for name in TEST_SETS) == sets
    assert released.load_constraints(tmp_path) == POOL
    manifest = json.loads(path.read_bytes())
    assert manifest["recipe"]["seed"] == 3
    assert manifest["inputs"] == {"personas": 5, "tasks": 300, "constraints": 30, "tuples": 10}
    assert manifest["test_sets"]["single"] == {
        "dialogues": 5,
        "turns": 250,
        "sha256": testsets.digest(released.load_test_set(tmp_path, "single")),
    }
    assert manifest["sha256"].keys() == {"tasks", "constraints", "tuples", "introductions"}
    assert all(len(sha) == 64 for sha in manifest["sha256"].values())
    assert manifest["version"]


def test_writing_that_fails_leaves_no_manifest(tmp_path):
    built(tmp_path)
    with pytest.raises(BadInput, match="is not of the test set"):
        built(tmp_path, dialogues=2)
    assert not (tmp_path / "manifest.json").exists()


def test_other_templates_give_other_words():
    ours = introductions.load()
    templates = {kind: ("Obey {constraints} now.",) for kind in ours}
    (single,) = build(TASKS, POOL, TUPLES, Recipe(test_sets=("single",)), templates)
    assert single.dialogues[0].turns[0].prompt.startswith("Obey Rule number")


TWICE = (*POOL, Constraint("again", POOL[4].text))
UNKNOWN = (*TUPLES, ConstraintTuple("t99", (POOL[0], Constraint("nobody", "Unknown"), POOL[1])))
SHORT = {**TASKS, "p3": TASKS["p3"][:49]}
GAPPED = {"p0": (*TASKS["p0"], Task("persona 0", "at night", "one\n\n\ntwo"))}


@pytest.mark.parametrize(
    ("tasks", "pool", "tuples", "recipe", "fault"),
    [
        (TASKS, POOL[:9], TUPLES[:3], {}, "replace_5: 10 constraints needed for one dialogue, the pool has 9"),
        (TASKS, (), (), {}, "the pool holds no constraint"),
        (TASKS, POOL, UNKNOWN, {}, "tuple t99 names the constraint nobody, which the pool does not have"),
        (SHORT, POOL, TUPLES, {}, "persona p3 has 49 tasks, 50 turns asked for"),
        (TASKS, POOL, TUPLES, {"dialogues": 6}, "6 dialogues asked for, there are tasks of 5 personas"),
        (TASKS, POOL, (), {}, "tuples_3: no compatible tuples to draw from"),
        (TASKS, POOL, TUPLES, {"test_sets": ("tuples_2",)}, "tuples_2: no compatible tuples of 2 to draw from"),
        (TASKS, TWICE, TUPLES, {}, "the pool holds one text twice, as c04 and again"),
        (GAPPED, POOL, TUPLES, {}, "persona p0: a task holds three newlines"),
        (TASKS, (*POOL, Constraint("x", "a\n\n\nb")), TUPLES, {}, "constraint x holds three newlines"),
        (TASKS, POOL, (ConstraintTuple("t", ()),), {}, "tuple t is empty"),
        (TASKS, POOL, TUPLES, {"turns": 0}, "turns: 0; at least 1 is needed"),
        (TASKS, POOL, TUPLES, {"test_sets": ("single", "single")}, "test_sets: name at least one, and each once"),
        (TASKS, POOL, TUPLES, {"test_sets": ("twos",)}, "'twos' is no test set"),
    ],
)
def test_inputs_that_cannot_carry_the_recipe_are_told(tasks, pool, tuples, recipe, fault):
    with pytest.raises(BadInput) as caught:
        build(tasks, pool, tuples, Recipe(**recipe))
    assert str(caught.value).startswith(fault)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(),
    turns=st.integers(1, 60),
    step=st.integers(2, 20),
    limit=st.integers(1, 4),
    longest=st.integers(1, 9),
    rhythm=st.sampled_from(["paper", "release"]),
)
def test_what_is_in_force_follows_from_the_introductions_alone(seed, turns, step, limit, longest, rhythm):
    names = ("single", "tuples_3", f"replace_{max(step, 2)}", f"add_{step}", "everything")
    recipe = Recipe(seed=seed, turns=turns, test_sets=names, limit=limit, longest=longest, rhythm=rhythm, dialogues=2)
    templates, texts = introductions.load(), frozenset(c.text for c in POOL)
    members = [{c.id for c in t.constraints} for t in TUPLES]
    for dialogue in (d for s in build(TASKS, POOL, TUPLES, recipe) for d in s.dialogues):
        told: tuple[str, ...] = ()
        for turn in dialogue.turns:
            introduction, _ = introductions.split(turn.prompt)
            if introduction is not None:
                ((kind, _, given_texts),) = introductions.read(introduction, templates, texts)
                told = told + given_texts if kind.startswith("add") else given_texts
            assert tuple(c.text for c in turn.in_force) == told
            assert 1 <= len(told) <= (3 if dialogue.test_set == "tuples_3" else limit)
            ids = {c.id for c in turn.in_force}
            assert len(ids) == 1 or any(ids <= found for found in members)
