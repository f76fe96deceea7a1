"""The verbs about data, as a person meets them."""

import json
import shutil
from pathlib import Path

import pytest
from test_cli import refused, sequor

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "sequor" / "demo"


@pytest.fixture
def data(tmp_path) -> Path:
    for part in ("constraints", "tasks"):
        shutil.copytree(DEMO / part, tmp_path / "data" / part)
    return tmp_path / "data"


def build(data: Path, *more: object) -> list:
    return ["build", "--data", data, "--out", data.parent / "built", "--turns", 20, *more]


def test_what_is_built_is_valid_and_the_same_for_the_same_seed(data):
    assert sequor(*build(data)).returncode == 0
    built = data.parent / "built"
    done = sequor("validate", built, "--turns", 20)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("64 constraints, 24 tuples, 0 warnings, 0 faults")
    first = {path: path.read_bytes() for path in sorted(built.rglob("*.json*"))}
    shutil.rmtree(built)
    sequor(*build(data))
    assert {path: path.read_bytes() for path in sorted(built.rglob("*.json*"))} == first


def test_validate_names_what_is_wrong(data):
    sequor(*build(data, "--sets", "single"))
    built = data.parent / "built"
    file = next((built / "testsets" / "single").glob("*.jsonl"))
    lines = file.read_text().splitlines()
    turn = json.loads(lines[3]) | {"constraints_data": [{"id": "demo-00001", "text": "something else"}]}
    file.write_text("\n".join([*lines[:3], json.dumps(turn), *lines[4:]]) + "\n")
    done = sequor("validate", built)
    assert done.returncode == 2
    assert f"fault: {file}:4: the constraint" in done.stdout
    file.write_text("\n".join(["not JSON", *lines[1:]]) + "\n")
    assert f"fault: {file}:1: no valid JSON" in sequor("validate", built).stdout


def test_tuples_of_any_size_are_built_and_valid(data):
    path = data / "constraints" / "3.jsonl"
    singles = [json.loads(line) for line in (data / "constraints" / "single.jsonl").read_text().splitlines()]
    rows = [
        {"id": f"t{n}", "constraint_ids": [c["id"] for c in four], "constraints": [c["constraint"] for c in four]}
        for n, four in enumerate(singles[n : n + 4] for n in range(0, 40, 4))
    ]
    fours = data.parent / "fours.jsonl"
    fours.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = sequor(*build(data, "--tuples", fours, "--limit", 4, "--sets", "tuples_4,add_5,everything"))
    assert done.returncode == 0, done.stderr
    assert sequor("validate", data.parent / "built").returncode == 0
    path.write_text(json.dumps(rows[0] | {"constraint_ids": ["demo-00001"], "constraints": ["x"]}) + "\n")
    assert "3.jsonl:1: expected 3 texts" in refused(*build(data, "--sets", "add_5", "--out", data.parent / "b2"))


@pytest.mark.parametrize(
    ("edit", "more", "says"),
    [
        (
            ("3.jsonl", lambda rows: [rows[0] | {"constraint_ids": ["demo-00001", "demo-00002", "nobody"]}]),
            [],
            "nobody",
        ),
        (("single.jsonl", lambda rows: [rows[0] | {"constraint": " "}, *rows[1:]]), [], "demo-00001 is empty"),
        (None, ["--turns", 51], "persona_1 has 50 tasks, 51 turns asked for"),
        (None, ["--dialogues", 9], "9 dialogues asked for"),
        (None, ["--introductions", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_a_pool_that_cannot_carry_the_recipe_is_refused_in_one_line(data, edit, more, says):
    if edit is not None:
        path = data / "constraints" / edit[0]
        rows = edit[1]([json.loads(line) for line in path.read_text().splitlines()])
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert says in refused(*build(data, *more))
    assert not (data.parent / "built").exists()


def test_a_pool_smaller_than_the_changes_need_is_refused(data):
    tuples = (data / "constraints" / "3.jsonl").read_text().splitlines()[:1]
    (data / "constraints" / "3.jsonl").write_text(tuples[0] + "\n")
    path, needed = data / "constraints" / "single.jsonl", json.loads(tuples[0])["constraint_ids"]
    rows = [line for line in path.read_text().splitlines() if json.loads(line)["id"] in needed]
    path.write_text("\n".join(rows) + "\n")
    line = refused(*build(data, "--sets", "replace_2"))
    assert "replace_2" in line and "10" in line and "3" in line


def test_a_file_that_is_not_utf8_names_the_byte(data):
    path = data / "tasks" / "persona_1.jsonl"
    path.write_bytes(path.read_bytes().replace(b"a", b"\xff", 1))
    assert "persona_1.jsonl:1: not UTF-8: byte " in refused(*build(data))


@pytest.mark.parametrize(
    ("personas", "more", "says"),
    [
        (b'{"persona": "A baker."}\n{"persona": ""}\n', [], "personas.jsonl:2: a persona without text"),
        (b'{"persona": "A b\xe4ker."}\n', [], "personas.jsonl:1: not UTF-8: byte 16 of the file is 0xe4"),
        (b'{"persona": "A baker."}\n', ["count=9"], "1 personas, 9 asked for"),
        (b'{"persona": "A baker."}\n', ["synthesis.tasks=999"], "999 is more than 10 activities of 14 questions"),
        (b'{"persona": "A baker."}\n', ["synthesis.task=9"], "unknown key synthesis.task"),
    ],
)
def test_personas_and_settings_that_cannot_be_used_are_refused_in_one_line(tmp_path, personas, more, says):
    path = tmp_path / "personas.jsonl"
    path.write_bytes(personas)
    words = ["synthesize", "-p", path, "-m", "s", "model.engine=scripted", "--out", tmp_path / "out"]
    assert says in refused(*words, *more)
    assert not (tmp_path / "out").exists()


@pytest.mark.ray
def test_synthesis_is_continued_and_says_who_has_too_few(tmp_path):
    personas = tmp_path / "personas.jsonl"
    personas.write_text("".join(json.dumps({"persona": f"A person number {n}."}) + "\n" for n in range(60)))
    words = ["synthesize", "-p", personas, "-m", "s", "model.engine=scripted"]
    words += [
        "model.script=sequor.scripts:synthesizer",
        "synthesis.tasks=40",
        "synthesis.attempts=1",
        "--out",
        tmp_path / "out",
    ]
    done = sequor(*words)
    lines = (tmp_path / "out" / "replies.jsonl").read_text().splitlines()
    refusals = sum("cannot do that" in line and "/agenda" in line for line in lines)
    assert done.returncode == (3 if refusals else 0), done.stderr
    assert done.stdout.strip().endswith(f"short={refusals}")
    assert len(list((tmp_path / "out" / "tasks").glob("*.jsonl"))) == 60 - refusals

    tasks = {path: path.read_bytes() for path in (tmp_path / "out" / "tasks").glob("*")}
    torn = lines[: len(lines) // 2]
    (tmp_path / "out" / "replies.jsonl").write_text("\n".join(torn) + '\n{"key": "per')
    sequor(*words)
    again = (tmp_path / "out" / "replies.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in again]
    assert again[: len(torn)] == torn and len(keys) == len(set(keys)) == len(lines)
    assert {path: path.read_bytes() for path in (tmp_path / "out" / "tasks").glob("*")} == tasks
