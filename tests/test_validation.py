"""Validation: the facts of the release, and the faults of folders that were tampered with."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sequor import introductions, released, testsets
from sequor.introductions import KINDS
from sequor.testsets import Recipe, build
from sequor.types import TEST_SETS, Constraint, ConstraintTuple, Task
from sequor.validation import Report, validate

RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
needs_release = pytest.mark.skipif(
    not (RELEASE / "testsets").is_dir(), reason=f"no released data at {RELEASE}; name it in SEQUOR_RELEASE"
)
POOL = tuple(Constraint(f"c{i:02}", f"Rule number {i}") for i in range(30))
TUPLES = tuple(ConstraintTuple(f"t{i}", POOL[3 * i : 3 * i + 3]) for i in range(10))
TASKS = {f"p{p}": tuple(Task(f"persona {p}", "at 9", f"Question {p}.{i}?") for i in range(60)) for p in range(3)}


@pytest.fixture
def folder(tmp_path) -> Path:
    testsets.write(tmp_path, build(TASKS, POOL, TUPLES, Recipe()), Recipe(), TASKS, POOL, TUPLES)
    (tmp_path / "manifest.json").rename(tmp_path / "aside.json")  # it would tell of every change made here
    return tmp_path


def change(path: Path, line: int, edit: Callable[[dict], object]) -> None:
    rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()]
    edit(rows[line - 1])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def found(report: Report) -> list[tuple[str, str]]:
    return [(fault.where, fault.what) for fault in report.faults]


def test_what_we_build_has_no_fault(folder):
    (folder / "aside.json").rename(folder / "manifest.json")
    report = validate(folder)
    assert report.ok and not report.warnings and found(report) == []
    assert [facts.name for facts in report.sets] == list(TEST_SETS)
    assert (report.constraints, report.tuples, report.turns) == (30, 10, 50)
    assert report.sets[4].in_force == {1: 15, 2: 15, 3: 120}
    assert all(facts.repeated == 0 and facts.mean_length == 50 for facts in report.sets)


def test_what_was_built_with_more_in_force_is_held_against_its_own_limit(tmp_path):
    fours = tuple(ConstraintTuple(f"t{i}", POOL[4 * i : 4 * i + 4]) for i in range(7))
    recipe = Recipe(limit=4, test_sets=("tuples_4", "add_5", "everything"))
    testsets.write(tmp_path, build(TASKS, POOL, fours, recipe), recipe, TASKS, POOL, fours)
    report = validate(tmp_path)
    assert found(report) == [] and max(report.sets[-1].in_force) == 4
    assert any("4 constraints in force" in what for _, what in found(validate(tmp_path, limit=3)))


def test_a_folder_of_test_sets_alone_is_judged_by_itself(folder):
    for path in (folder / "constraints").iterdir():
        path.unlink()
    report = validate(folder)
    assert report.ok
    assert [warning.what.split(":")[0] for warning in report.warnings] == ["no pool here"]


def test_templates_that_nobody_named_are_recovered(tmp_path):
    words = {kind: (f"{kind} A {{constraints}}", f"{kind} B {{constraints}}") for kind in KINDS}
    testsets.write(tmp_path, build(TASKS, POOL, TUPLES, Recipe(), words), Recipe(), TASKS, POOL, TUPLES, words)
    assert found(validate(tmp_path)) == []
    path = tmp_path / "testsets" / "add" / "step_size_5" / "p1.jsonl"
    rows = path.read_text().splitlines()
    given = json.loads(rows[5])["constraints_data"]
    replaced = f"replace_one A {given[1]['text']}\n\n\nhello"
    change(path, 6, lambda row: row.update(prompt=replaced))  # says replace, the data says add
    where = [fault.where for fault in validate(tmp_path).faults]
    assert "add_5/p1: turn 6" in where


SINGLE, REPLACE, TUPLE = "single/p0.jsonl", "replace/step_size_5/p0.jsonl", "tuples/3/p0.jsonl"


@pytest.mark.parametrize(
    ("file", "line", "edit", "where", "what"),
    [
        (
            SINGLE,
            1,
            lambda r: r.update(prompt=r["prompt"].split("\n\n\n")[1]),
            "single/p0: turn 1",
            "without an introduction",
        ),
        (
            SINGLE,
            7,
            lambda r: r["constraints_data"][0].update(id="c00", text="Rule number 0"),
            "single/p0: turn 7",
            "without",
        ),
        (REPLACE, 6, lambda r: r.update(prompt=r["prompt"].split("\n\n\n")[1]), "replace_5/p0: turn 6", "without an"),
        (REPLACE, 6, lambda r: r.update(prompt="Obey: x\n\n\nhello"), "replace_5/p0: turn 6", "of no known wording"),
        (
            TUPLE,
            1,
            lambda r: r.update(prompt=r["prompt"].replace("\n2. ", "\n4. ")),
            "tuples_3/p0: turn 1",
            "wrongly numbered",
        ),
        (
            TUPLE,
            1,
            lambda r: r.update(prompt=r["prompt"].split("\n\n\n")[0] + "\n\n\n "),
            "tuples_3/p0: turn 1",
            "without a task",
        ),
        (TUPLE, 9, lambda r: r["constraints_data"].pop(), "tuples_3/p0: turn 9", "2 constraints in force in tuples"),
        (TUPLE, 9, lambda r: r["constraints_data"][0].update(id="zz"), "tuples_3/p0: turn 9", "zz is not in the pool"),
        (
            TUPLE,
            9,
            lambda r: r["constraints_data"][0].update(text="?"),
            "tuples_3/p0: turn 9",
            "change without an introduction",
        ),
    ],
)
def test_a_tampered_turn_is_told(folder, file, line, edit, where, what):
    change(folder / "testsets" / file, line, edit)
    assert any(where == told and what in words for told, words in found(validate(folder)))


def test_an_unreadable_file_is_a_fault_and_the_rest_is_still_counted(folder):
    path = folder / "testsets" / "single" / "p0.jsonl"
    change(path, 3, lambda row: row.pop("prompt"))
    report = validate(folder)
    assert (str(path), f"{path}:3: Object missing required field `prompt`") in found(report)
    assert report.sets[0].dialogues == 2


def write_dialogue(root: Path, name: str, id: str, turns: list[tuple[str, tuple[Constraint, ...]]]) -> None:
    path = released.folder_of(root, name) / f"{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": p, "constraints_data": [{"id": c.id, "text": c.text} for c in now]} for p, now in turns]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def says(kind: str, *constraints: Constraint) -> str:
    return introductions.render(introductions.load()[kind][0], [c.text for c in constraints]) + "\n\n\nhello"


def test_incompatible_repeated_and_irregular_constraints_are_told(tmp_path):
    a, b, far = POOL[0], POOL[1], POOL[9]
    released.write_constraints(tmp_path, POOL)
    released.write_tuples(tmp_path, TUPLES)
    write_dialogue(tmp_path, "everything", "mixed", [(says("start_several", a, far), (a, far))])
    write_dialogue(tmp_path, "everything", "twice", [(says("start_several", a, a), (a, a))])
    back = [(says(f"{k}_one", c), (c,)) for k, c in (("start", a), ("replace", b), ("replace", a))]
    write_dialogue(tmp_path, "replace_1", "back", back)
    write_dialogue(tmp_path, "replace_2", "early", back[:2])
    write_dialogue(tmp_path, "add_1", "replaced", back[:2])
    told = found(validate(tmp_path))
    assert ("everything/mixed: turn 1", "the constraints in force are not of one compatible tuple") in told
    assert ("everything/twice: turn 1", "a constraint is in force twice") in told
    assert ("replace_1/back", "a constraint comes twice in a dialogue of replace") in told
    assert ("replace_2/early", "changes at turns [1, 2]; replace_2 has them at [1]") in told
    assert ("add_1/replaced: turn 2", "replace_one in a dialogue of add") in told


def test_other_task_sequences_and_a_stale_manifest_are_told(folder):
    (folder / "aside.json").rename(folder / "manifest.json")
    change(folder / "testsets" / SINGLE, 9, lambda row: row.update(prompt="another question"))
    told = found(validate(folder))
    assert ("tuples_3", "other task sequences than behind single") in told
    assert (str(folder / "manifest.json"), "single is not what was built: its sha256 differs") in told
    (folder / "manifest.json").write_text("{}")
    assert any("cannot be read: KeyError" in what for _, what in found(validate(folder)))


def test_texts_of_tuples_that_differ_from_the_pool_are_warnings(folder):
    shouted = ConstraintTuple("t0", (Constraint("c00", "RULE number 0"), *POOL[1:3]))
    released.write_tuples(folder, (shouted, *TUPLES[1:]))
    report = validate(folder)
    assert report.ok
    (warning,) = report.warnings
    assert warning.where == "tuple t0: c00" and "in letter case" in warning.what


def test_an_empty_folder_and_a_broken_pool_are_faults(tmp_path):
    assert found(validate(tmp_path))[0][1].startswith("no test set in this folder")
    (tmp_path / "constraints").mkdir()
    (tmp_path / "constraints" / "single.jsonl").write_text("{")
    assert any("no valid JSON" in what for _, what in found(validate(tmp_path)))


@pytest.fixture(scope="module")
def release() -> Report:
    start = time.perf_counter()
    report = validate(RELEASE)
    assert time.perf_counter() - start < 30
    return report


@needs_release
def test_the_release_has_no_fault_and_five_tuple_texts_in_other_letter_case(release):
    assert found(release) == []
    assert len(release.warnings) == 5 and all("in letter case" in w.what for w in release.warnings)
    assert (release.constraints, release.tuples) == (1446, 948)


@needs_release
def test_the_release_has_the_facts_that_are_known_of_it(release):
    facts = {found.name: found for found in release.sets}
    assert tuple(facts) == TEST_SETS
    for found_facts in facts.values():
        assert (found_facts.dialogues, found_facts.shortest, found_facts.longest) == (200, 120, 210)
        assert found_facts.mean_length == pytest.approx(138.4, abs=0.05)
    for name in ("single", "replace_5", "replace_10"):
        assert facts[name].in_force == {1: 10_000}
    assert facts["tuples_3"].in_force == {3: 10_000}
    assert facts["add_5"].in_force == {1: 1000, 2: 1000, 3: 8000}
    assert facts["add_10"].in_force == {1: 2000, 2: 2000, 3: 6000}
    assert (facts["replace_5"].replacements, facts["replace_10"].replacements) == (1800, 800)
    everything = facts["everything"]
    assert everything.in_force == {1: 4801, 2: 1747, 3: 3452}
    assert (everything.replacements, everything.additions) == (1176, 499)
    gaps = {1: 40, 2: 118, 3: 160, 4: 223, 5: 300, 6: 297, 7: 218, 8: 162, 9: 93, 10: 64}
    assert everything.gaps == gaps
    assert everything.templates == dict(zip(KINDS, (6, 6, 6, 6, 5, 5), strict=True))
    assert sum(found_facts.introductions for found_facts in facts.values()) == 14_234
    assert {name: f.repeated for name, f in facts.items() if f.repeated} == {"everything": 211}
