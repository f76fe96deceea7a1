"""The released data's layout: read, written, and refused in one line that says where."""

import json
import os
import time
from pathlib import Path

import pytest

from sequor import released
from sequor.errors import BadInput
from sequor.types import TEST_SETS, Constraint, ConstraintTuple, Dialogue, Task, TestSet, UserTurn

RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
needs_release = pytest.mark.skipif(
    not (RELEASE / "testsets").is_dir(), reason=f"no released data at {RELEASE}; name it in SEQUOR_RELEASE"
)
BRIEF, FRENCH = Constraint("c1", "Be brief"), Constraint("c2", "Réponds en français")
LINE = b'{"prompt": "Do: Be brief\\n\\n\\nhello", "constraints_data": [{"id": "c1", "text": "Be brief"}]}'


def dialogue_file(root: Path, content: bytes, name: str = "single/d.jsonl") -> Path:
    path = root / "testsets" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def turns(count: int) -> tuple[UserTurn, ...]:
    return tuple(UserTurn(f"turn {number} é \u2028 \U0001f600", (BRIEF, FRENCH)) for number in range(1, count + 1))


@pytest.mark.parametrize("name", [*TEST_SETS, "replace_7"])
def test_what_is_written_is_read_back(tmp_path, name):
    test_set = TestSet(name, tuple(Dialogue(name, id, turns(3)) for id in ("a", "b")))
    released.write_test_set(tmp_path, test_set)
    assert released.load_test_set(tmp_path, name, turns=None) == test_set
    assert released.test_sets_in(tmp_path) == (name,)
    first = released.load_test_set(tmp_path, name, turns=2, dialogues=1)
    assert first == TestSet(name, (Dialogue(name, "a", turns(2)),))


def test_dialogues_come_in_the_order_of_their_names_and_hidden_files_are_left_alone(tmp_path):
    for name in ("b", "a10", "a2"):
        dialogue_file(tmp_path, LINE, f"single/{name}.jsonl")
    dialogue_file(tmp_path, b"\x00\x05", "single/._a2.jsonl")
    dialogue_file(tmp_path, b"not ours", "single/notes.txt")
    assert [d.id for d in released.load_test_set(tmp_path, "single", 1).dialogues] == ["a10", "a2", "b"]


def test_byte_order_mark_crlf_blank_lines_and_extra_keys_are_taken(tmp_path):
    extra = LINE.replace(b'{"prompt"', b'{"note": 1, "prompt"')
    dialogue_file(tmp_path, b"\xef\xbb\xbf" + LINE + b"\r\n\r\n" + extra + b"\r\n")
    (dialogue,) = released.load_test_set(tmp_path, "single", 2).dialogues
    assert dialogue.turns[0] == dialogue.turns[1] == UserTurn("Do: Be brief\n\n\nhello", (BRIEF,))


def test_lines_are_not_split_at_the_line_separators_of_unicode(tmp_path):
    separated = LINE.replace(b"hello", "a\u2028b\u2029c\u0085d".encode())
    dialogue_file(tmp_path, separated)
    (dialogue,) = released.load_test_set(tmp_path, "single", 1).dialogues
    assert dialogue.turns[0].prompt.endswith("a\u2028b\u2029c\u0085d")


def row(**changes: object) -> bytes:
    return json.dumps(json.loads(LINE) | changes).encode()


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        (LINE[:-5], "no valid JSON: "),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"constraints_data": []}', "Object missing required field `prompt`"),
        (row(prompt=" \n"), "a turn with an empty prompt"),
        (row(prompt=None), "Expected `str`, got `null` - at `$.prompt`"),
        (row(constraints_data=[]), "a turn with no constraint in force"),
        (b'{"prompt": "x"}', "Object missing required field `constraints_data`"),
        (row(constraints_data=[{"id": "c"}]), "Object missing required field `text` - at `$.constraints_data[0]`"),
        (row(constraints_data=[{"text": "c"}]), "Object missing required field `id` - at `$.constraints_data[0]`"),
        (row(constraints_data=[{"id": "c", "text": "  "}]), "constraint c is empty"),
        (row(constraints_data=[{"id": "", "text": "t"}]), "a constraint without an id"),
        (
            LINE.replace(b"hello", b"h\xe9llo"),
            f"not UTF-8: byte {len(LINE) + 1 + LINE.index(b'ello')} of the file is 0xe9",
        ),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(tmp_path, second, fault):
    path = dialogue_file(tmp_path, LINE + b"\n" + second + b"\n")
    with pytest.raises(BadInput) as caught:
        released.load_test_set(tmp_path, "single", 2)
    assert str(caught.value).startswith(f"{path}:2: {fault}")
    assert "\n" not in str(caught.value)
    assert len(released.load_test_set(tmp_path, "single", 1).dialogues) == 1  # what is not asked for is not read


def test_too_few_turns_or_dialogues_are_told(tmp_path):
    path = dialogue_file(tmp_path, LINE + b"\n" + LINE)
    with pytest.raises(BadInput, match="dialogue d has 2 turns, 50 asked for"):
        released.load_test_set(tmp_path, "single")
    with pytest.raises(BadInput, match="1 dialogues, 2 asked for"):
        released.load_test_set(tmp_path, "single", 1, dialogues=2)
    path.write_bytes(b"\n")
    with pytest.raises(BadInput, match="dialogue d is empty"):
        released.load_test_set(tmp_path, "single", None)


def test_missing_sets_are_told_with_those_that_are_there(tmp_path):
    dialogue_file(tmp_path, LINE, "add/step_size_5/d.jsonl")
    with pytest.raises(BadInput, match=f"no such folder; test sets in {tmp_path}: add_5"):
        released.load_test_set(tmp_path, "single")
    with pytest.raises(BadInput, match="'singel' is no test set"):
        released.load_test_set(tmp_path, "singel")
    (tmp_path / "testsets" / "single").mkdir()
    with pytest.raises(BadInput, match="holds no dialogue"):
        released.load_test_set(tmp_path, "single")
    assert released.test_sets_in(tmp_path) == ("add_5",)
    assert released.test_sets_in(tmp_path / "missing") == ()


def test_writing_among_dialogues_of_another_set_is_refused(tmp_path):
    dialogue_file(tmp_path, LINE, "single/other.jsonl")
    with pytest.raises(BadInput, match=r"other\.jsonl: this dialogue is not of the test set"):
        released.write_test_set(tmp_path, TestSet("single", (Dialogue("single", "d", turns(1)),)))
    assert not (tmp_path / "testsets" / "single" / "d.jsonl").exists()


def test_pool_tuples_and_tasks_are_read_back_as_written(tmp_path):
    pool = (BRIEF, FRENCH, Constraint("c3", "In prose", "style rules"))
    tuples = (ConstraintTuple("t1", (BRIEF, FRENCH, Constraint("c3", "In prose"))),)
    tasks = {"persona_1": (Task("A baker", "05:00", "Why does dough rise?"),) * 2}
    ratings = {"c1": {"satisfiability": 97.0, "subjectivity": 76.0, "triviality": 100.0}}
    path = released.write_constraints(tmp_path, pool, ratings)
    released.write_tuples(tmp_path, tuples)
    released.write_tasks(tmp_path, tasks)
    assert json.loads(path.read_bytes().split(b"\n")[0]) == {"constraint": "Be brief", "id": "c1"} | ratings["c1"]
    assert released.load_constraints(tmp_path) == released.load_constraints(path) == pool
    assert released.load_tuples(tmp_path) == tuples
    assert released.load_tasks(tmp_path) == released.load_tasks(tmp_path / "tasks") == tasks
    with pytest.raises(BadInput, match="must be of one size"):
        released.write_tuples(tmp_path, ())


@pytest.mark.parametrize(
    ("load", "content", "fault"),
    [
        (
            released.load_constraints,
            '{"constraint": "x", "id": "1"}\n{"constraint": "y", "id": "1"}',
            ":2: id 1 stands",
        ),
        (released.load_constraints, '{"constraint": " ", "id": "1"}', ":1: constraint 1 is empty"),
        (released.load_constraints, "", ": holds no constraint"),
        (released.load_tuples, '{"id": "t", "constraints": ["x"], "constraint_ids": ["1"]}', ":1: expected 3 texts"),
        (
            released.load_tuples,
            '{"id": "t", "constraints": ["x", "y", "z"], "constraint_ids": ["1", "2", "1"]}',
            ":1: expected 3 texts and 3 ids, each once",
        ),
    ],
)
def test_a_bad_pool_is_told(tmp_path, load, content, fault):
    path = tmp_path / "pool.jsonl"
    path.write_text(content, "utf-8")
    with pytest.raises(BadInput) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}{fault}")


def test_missing_pools_and_tasks_are_told(tmp_path):
    for load in (released.load_constraints, released.load_tuples):
        with pytest.raises(BadInput, match="cannot be read: No such file"):
            load(tmp_path)
    with pytest.raises(BadInput, match="holds no task file"):
        released.load_tasks(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"persona": "p", "activity": "a", "prompt": ""}')
    with pytest.raises(BadInput, match=r"p\.jsonl:1: a task with an empty prompt"):
        released.load_tasks(tmp_path)


@needs_release
def test_the_release_is_read_whole_in_a_few_seconds():
    start = time.perf_counter()
    sets = [released.load_test_set(RELEASE, name) for name in released.test_sets_in(RELEASE)]
    assert time.perf_counter() - start < 10
    assert tuple(found.name for found in sets) == TEST_SETS
    assert [len(found.dialogues) for found in sets] == [200] * 7
    assert {len(dialogue.turns) for found in sets for dialogue in found.dialogues} == {50}
    assert len(released.load_constraints(RELEASE)) == 1446
    assert len(released.load_tuples(RELEASE)) == 948
    assert sum(map(len, released.load_tasks(RELEASE).values())) == 27_675


@needs_release
def test_what_is_written_has_the_releases_bytes(tmp_path):
    for name in TEST_SETS:
        for path in released.write_test_set(tmp_path, released.load_test_set(RELEASE, name, turns=None, dialogues=20)):
            assert path.read_bytes() == (RELEASE / path.relative_to(tmp_path)).read_bytes()
    released.write_tuples(tmp_path, released.load_tuples(RELEASE))
    tasks = released.load_tasks(RELEASE)
    for path in released.write_tasks(tmp_path, {persona: tasks[persona] for persona in sorted(tasks)[:20]}):
        assert path.read_bytes() == (RELEASE / path.relative_to(tmp_path)).read_bytes()
