"""The command line as a person meets it: one line on standard error, the exit code, nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
CANDIDATE = ["candidate.engine=scripted", "candidate.model=s", "candidate.script=sequor.scripts:candidate"]
SCRIPTED = ["candidate.engine=scripted", "candidate.model=s", "judge.engine=scripted", "judge.model=j"]


def sequor(*words: object, timeout: float = 120, folder: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jobs", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)


def refused(*words: object, folder: Path = ROOT) -> str:
    """Asserts exit code 2 and returns the one line."""
    done = sequor(*words, folder=folder)
    assert done.returncode == 2, done.stderr + done.stdout
    [line] = [line for line in done.stderr.splitlines() if line.startswith("sequor: ")]
    assert "Traceback" not in done.stderr
    return line


@pytest.fixture
def data(tmp_path) -> Path:
    """A small folder of test sets in the release's layout."""
    folder = tmp_path / "data" / "testsets" / "single"
    folder.mkdir(parents=True)
    turn = {"prompt": "hello", "constraints_data": [{"id": "c1", "text": "be brief"}]}
    (folder / "one.jsonl").write_text("".join(json.dumps(turn) + "\n" for _ in range(3)))
    return tmp_path / "data"


def run_words(data: Path, out: Path, *more: str) -> list:
    return ["run", f"data={data}", "sets=[single]", "turns=3", "min_coverage=0", *SCRIPTED, *more, "--out", out]


def test_an_unknown_key_is_named_with_its_file(tmp_path):
    config = tmp_path / "my.yaml"
    config.write_text("candidate: {model: a, modle: b}\n")
    assert refused("run", config, "--out", tmp_path / "out").endswith("my.yaml: unknown key candidate.modle")
    assert not (tmp_path / "out").exists()


def test_a_missing_model_folder_is_named_with_its_key(data, tmp_path):
    line = refused(
        "run",
        f"data={data}",
        "sets=[single]",
        "turns=3",
        "--model",
        "./no/such",
        "--judge",
        "x/y",
        "-o",
        tmp_path / "out",
    )
    assert "candidate.model: model ./no/such: no such folder" in line
    assert not (tmp_path / "out").exists()


def test_data_that_is_not_there_is_named_and_the_released_data_with_what_brings_it(tmp_path):
    """In a folder of its own, which holds no data."""
    gold = ["gold", "answerers={a: {model: m}}"]
    for words in (["check", "candidate.model=m"], [*gold, "--out", "out"], ["build", "--out", "out"]):
        line = refused(*words, folder=tmp_path)
        assert line.endswith("data: data/released: no such folder; sequor fetch brings the released data")
    assert refused("check", "data=mine", "candidate.model=m", folder=tmp_path).endswith("data: mine: no such folder")


def test_a_key_that_is_not_there_stops_a_run_before_it_starts(data, tmp_path):
    far = "{model: far, engine: api, api: {key_env: NO_SUCH_KEY}}"
    says = "model far: api.key_env: no key in the environment variable NO_SUCH_KEY"
    run = run_words(data, tmp_path / "run", f"candidate={far}")
    gold = ["gold", "data=demo", "count=2", f"answerers={{far: {far}}}", "--out", tmp_path / "gold"]
    for words in (run, ["check", *run[1:-2]], gold):
        assert refused(*words).endswith(says)
    assert not (tmp_path / "run").exists() and not (tmp_path / "gold").exists()


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ('{"prompt": "hello", "constraints_da', "one.jsonl:2: "),
        ('{"constraints_data": [{"id": "c1", "text": "be brief"}]}', "one.jsonl:2: "),
        ('{"prompt": "", "constraints_data": [{"id": "c1", "text": "be brief"}]}', "one.jsonl:2: "),
        ('{"prompt": "hello", "constraints_data": [{"id": "c1"}]}', "one.jsonl:2: "),
        ('{"prompt": "hello", "constraints_data": [{"id": "c1", "text": ""}]}', "one.jsonl:2: "),
        ('{"prompt": "hello", "constraints_data": []}', "one.jsonl:2: "),
        (
            '{"prompt": "hello", "constraints_data": [{"id": "c", "text": "a"}, {"id": "c", "text": "a"}]}',
            "one.jsonl:2: a constraint is in force twice",
        ),
    ],
)
def test_a_broken_test_set_is_named_with_file_and_line(data, tmp_path, broken, says):
    file = data / "testsets" / "single" / "one.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], broken, lines[2]]) + "\n")
    line = refused(*run_words(data, tmp_path / "out"))
    assert "one.jsonl" in line and says in line
    assert not (tmp_path / "out").exists()


def test_an_empty_folder_is_no_run(tmp_path):
    for verb in ("score", "status", "judge"):
        words = [verb, "--out", tmp_path] if verb == "judge" else [verb, tmp_path]
        assert "run.json: not there; is this the folder of a run?" in refused(*words)


def test_a_context_too_small_for_one_turn_is_refused_before_anything_starts(data, tmp_path):
    file = data / "testsets" / "single" / "one.jsonl"
    turn = {"prompt": "many words " * 400, "constraints_data": [{"id": "c1", "text": "be brief"}]}
    file.write_text((json.dumps(turn) + "\n") * 3)
    model = tiny_model(tmp_path / "model")
    words = [
        "run",
        f"data={data}",
        "sets=[single]",
        "turns=3",
        "--model",
        model,
        "--judge",
        model,
        "-o",
        tmp_path / "out",
    ]
    line = refused(
        *words, "candidate.max_model_len=512", "candidate.sampling.max_tokens=64", "judge.sampling.max_tokens=64"
    )
    assert "candidate.max_model_len: a context of 512 is too small for one turn" in line
    line = refused(*words, "candidate.max_model_len=512", "candidate.sampling.max_tokens=512")
    assert "candidate.sampling.max_tokens: an answer budget of 512 leaves no room in a context of 512" in line
    assert not (tmp_path / "out").exists()


def test_an_address_without_a_cluster_is_refused_at_once(data, tmp_path):
    line = refused(*run_words(data, tmp_path / "out", "ray_address=127.0.0.1:9"))
    assert "no Ray cluster at 127.0.0.1:9" in line
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_judge_says_what_to_do(data, tmp_path):
    assert "judge.model: missing" in refused("run", f"data={data}", "candidate.model=x", "--out", tmp_path / "out")


@pytest.mark.ray
def test_more_gpus_than_there_are_is_refused_in_seconds(data, tmp_path):
    line = refused(*run_words(data, tmp_path / "out", "candidate.gpus=8"))
    assert "the run asks for 8 GPUs (candidate 8); the Ray cluster has" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.ray
def test_a_folder_of_another_configuration_is_refused_with_the_difference(data, tmp_path):
    assert sequor(*run_words(data, tmp_path / "out")).returncode == 0
    before = (tmp_path / "out" / "turns.jsonl").read_bytes()
    line = refused(*run_words(data, tmp_path / "out", "seed=7"))
    assert "another configuration (seed: 0 there, 7 now)" in line
    assert (tmp_path / "out" / "turns.jsonl").read_bytes() == before


@pytest.mark.ray
def test_an_engine_that_cannot_start_says_so_and_exits_with_4(data, tmp_path):
    done = sequor(*run_words(data, tmp_path / "out", "candidate.script=nowhere:nothing"))
    assert done.returncode == 4
    [line] = done.stderr.strip().splitlines()
    assert "script 'nowhere:nothing': No module named 'nowhere'" in line
    assert json.loads((tmp_path / "out" / "status.json").read_bytes())["state"] == "failed"
    again = sequor(*run_words(data, tmp_path / "out", "candidate.script=sequor.scripts:candidate", "turns=2"))
    assert again.returncode == 0, again.stderr
    assert "turns=2 judgements=2" in again.stdout


@pytest.mark.parametrize(("verb", "below"), [("run", ""), ("run", "x"), ("gold", ""), ("build", ""), ("report", "")])
def test_a_file_is_no_folder_for_what_is_written(verb, below, tmp_path):
    (tmp_path / "out").write_text("mine")
    assert "out" in (line := refused(verb, "--out", tmp_path / "out" / below)) and line.endswith("not a folder")
    assert (tmp_path / "out").read_text() == "mine"


def test_fetch_copies_and_checks_a_local_copy(data, tmp_path):
    for part in ("constraints", "tasks"):
        shutil.copytree(ROOT / "sequor" / "demo" / part, data / part)
    done = sequor("fetch", "--from", data, "--out", tmp_path / "released")
    assert done.returncode == 0, done.stderr
    assert "1 dialogues in 1 test sets, 64 constraints, 24 tuples" in done.stdout
    assert "not empty" in refused("fetch", "--from", data, "--out", tmp_path / "released")
    shutil.rmtree(data / "tasks")
    assert "no folder in it holds" in refused("fetch", "--from", data, "--out", tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.ray
def test_respond_then_judge_then_another_judge(data, tmp_path):
    """Each verb finds what the others left; each judge has its own settings and its own records."""
    out = tmp_path / "run"
    done = sequor("respond", f"data={data}", "sets=[single]", "turns=3", *CANDIDATE, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "judge takes KEY=VALUE" in refused("judge", "my.yaml", "--out", out)
    for judge, script in (("one", "judge"), ("two/b-1.5", "judge"), ("one", "judge")):
        scripted = ["judge.engine=scripted", f"judge.script=sequor.scripts:{script}"]
        done = sequor("judge", "--judge", judge, *scripted, "--out", out)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is left to judge" in done.stdout
    records = [json.loads(line) for line in (out / "judgements.jsonl").read_text().splitlines()]
    assert [record["judge"] for record in records] == ["one"] * 3 + ["two/b-1.5"] * 3
    words = ["judge.engine=scripted", "judge.script=sequor.scripts:judge", "judge.sampling.top_k=3"]
    assert "judge[one].sampling.top_k: none there, 3 now" in refused("judge", "--judge", "one", *words, "--out", out)
    done = sequor("respond", f"data={data}", "sets=[single]", "turns=3", *CANDIDATE, "--out", out)
    assert done.returncode == 0 and "nothing is left to play" in done.stdout


@pytest.mark.ray
def test_judging_what_is_answered_so_far_is_complete_for_the_judge(data, tmp_path):
    out = tmp_path / "run"
    words = [f"data={data}", "sets=[single]", "turns=3", *CANDIDATE, "--out", out]
    assert sequor("respond", *words).returncode == 0
    lines = (out / "turns.jsonl").read_text().splitlines(keepends=True)
    (out / "turns.jsonl").write_text("".join(lines[:2]))
    scripted = ["judge.engine=scripted", "judge.script=sequor.scripts:judge"]
    done = sequor("judge", "--judge", "one", *scripted, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every answer is judged; 1 turns have none yet" in done.stdout
    assert json.loads((out / "status.json").read_bytes())["state"] == "incomplete"


def test_several_judges_task_completion_and_what_was_not_readable(data, tmp_path):
    """One command with two judges; a third joins; what none could read is asked again, and nothing is overwritten."""
    out = tmp_path / "out"
    second = "more_judges=[{model: two/b, engine: scripted, script: 'sequor.scripts:judge'}]"
    words = [*CANDIDATE, "judge.engine=scripted", "judge.script=sequor.scripts:undecided", second]
    done = sequor(
        "run",
        f"data={data}",
        "sets=[single]",
        "turns=3",
        *words,
        "judge.model=one",
        "task_completion=true",
        "--out",
        out,
    )
    assert done.returncode == 3, done.stdout + done.stderr  # complete, and too little of it decided for a headline
    assert "no headline for single (one)" in done.stdout
    assert "judged by one" in done.stdout and "judged by two/b" in done.stdout and "task done" in done.stdout
    assert done.stdout.strip().endswith("turns=3 judgements=12 coverage=0.5000 lost=0 repeated=0")
    records = [json.loads(line) for line in (out / "judgements.jsonl").read_text().splitlines()]
    assert sum(r["judge"] == "one" and r["status"] == "unreadable" for r in records) == len(records) / 2 == 6
    assert sum(r["constraint"] == "task_completion" for r in records) == 6
    again = sequor("judge", "--judge", "one", "--only-failed", "--out", out)
    assert again.returncode == 0, again.stdout + again.stderr
    after = [json.loads(line) for line in (out / "judgements.jsonl").read_text().splitlines()]
    assert after[:12] == records and [r["attempt"] for r in after[12:]] == [2] * 6
    assert again.stdout.strip().endswith("turns=3 judgements=12 coverage=1.0000 lost=0 repeated=0")
    config = json.loads((out / "run.json").read_bytes())["config"]
    assert (config["judge"]["model"], [j["model"] for j in config["more_judges"]]) == ("one", ["two/b"])
    scripted = ["judge.engine=scripted", "judge.script=sequor.scripts:judge"]
    assert sequor("judge", "--judge", "three", *scripted, "--out", out).returncode == 0
    twice = [*words[:3], "judge.model=one", "more_judges=[one]"]
    assert "more_judges: one judges already" in refused("run", f"data={data}", *twice, "--out", tmp_path / "x")
