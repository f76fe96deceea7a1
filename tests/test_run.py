"""Whole runs through real Ray with scripted models: complete, the same whatever happens, each record once."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ["configs/tiny.yaml", "turns=40"]
SCORES = ("turns.csv", "sets.csv", "outcomes.csv")

pytestmark = pytest.mark.ray


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "jobs", "run", *CONFIG, *more, "--out", str(out)]


def run(out: Path, *more: str) -> str:
    done = subprocess.run(command(out, *more), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().splitlines()[-1]


def scores(out: Path) -> list[bytes]:
    return [(out / "scores" / name).read_bytes() for name in SCORES]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def keys(path: Path, *fields: str) -> list[tuple]:
    return [tuple(json.loads(line)[field] for field in fields) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    line = run(out, "candidate.replicas=1", "judge.replicas=1")
    assert line.startswith("turns=1120 ") and line.endswith("lost=0 repeated=0")
    return out


def test_scores_are_the_same_bytes_whatever_the_number_of_replicas(undisturbed, tmp_path):
    run(tmp_path / "run", "candidate.replicas=3", "judge.replicas=2", "scheduler.pacing=rounds")
    assert scores(tmp_path / "run") == scores(undisturbed)


def killed_at(out: Path, file: str, count: int, signum: int) -> subprocess.Popen:
    process = subprocess.Popen(command(out), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while lines(out / file) < count and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signum)
    process.wait(timeout=60)
    return process


def test_kill_9_at_any_moment_loses_nothing_and_doubles_nothing(undisturbed, tmp_path):
    out = tmp_path / "run"
    for file, count in (("turns.jsonl", 1), ("turns.jsonl", 300), ("judgements.jsonl", 900)):
        before = lines(out / file)
        assert killed_at(out, file, count, signal.SIGKILL).returncode == -signal.SIGKILL
        assert before < lines(out / file)
    with open(out / "judgements.jsonl", "ab") as file:
        file.write(b'{"test_set":"single","dial')  # torn in the middle of a write
    assert run(out).endswith(" lost=0 repeated=0")
    assert scores(out) == scores(undisturbed)
    turns = keys(out / "turns.jsonl", "test_set", "dialogue", "turn")
    judgements = keys(out / "judgements.jsonl", "test_set", "dialogue", "turn", "constraint", "judge", "attempt")
    assert len(turns) == len(set(turns)) == 1120
    assert len(judgements) == len(set(judgements))
    pools = json.loads((out / "status.json").read_bytes())["pools"]
    assert (pools["candidate"]["turns"], pools["judge"]["turns"]) == (len(turns), len(judgements))  # of all starts
    assert pools["candidate"]["output_tokens"] == sum(count for [count] in keys(out / "turns.jsonl", "output_tokens"))


def test_a_signal_saves_the_state_and_exits_with_75(undisturbed, tmp_path):
    out = tmp_path / "run"
    assert killed_at(out, "turns.jsonl", 200, signal.SIGTERM).returncode == 75
    assert json.loads((out / "status.json").read_bytes())["state"] == "stopped"
    run(out)
    assert scores(out) == scores(undisturbed)
    assert run(out).endswith("lost=0 repeated=0")  # with nothing left to do


def test_a_run_in_parts_is_the_same_run(undisturbed, tmp_path):
    out = tmp_path / "run"
    for verb in (["respond", *CONFIG], ["judge"]):
        done = subprocess.run(
            [sys.executable, "-m", "jobs", *verb, "--out", str(out)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert scores(out) == scores(undisturbed)
    assert set(json.loads((out / "status.json").read_bytes())["pools"]) == {"candidate", "judge"}


def test_no_engine_outlives_a_killed_driver(tmp_path):
    """Ray's own helpers may take a minute to notice; what would hold a GPU is gone at once."""
    out = tmp_path / "run"
    process = subprocess.Popen(command(out), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while lines(out / "turns.jsonl") < 100 and process.poll() is None:
        time.sleep(0.005)
    engines = [pid for pid in descendants(process.pid) if "ray::Replica" in title(pid)]
    assert engines
    process.kill()
    process.wait()
    deadline = time.time() + 30
    while any("ray::Replica" in title(pid) for pid in engines) and time.time() < deadline:
        time.sleep(0.2)
    assert not any("ray::Replica" in title(pid) for pid in engines)


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for file in children for child in file.read_text().split()]
    return found + [below for child in found for below in descendants(child)]


def test_poisoned_dialogues_fail_alone_and_the_rest_of_the_run_is_complete(tmp_path):
    """Each kills three engines; its later turns are missing, which is said, and nothing else is."""
    out = tmp_path / "run"
    words = [
        "sets=[single,add_5]",
        "turns=4",
        "candidate.script=sequor.scripts:deadly",
        "candidate.replicas=1",
    ]
    done = subprocess.run(command(out, *words), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stdout + done.stderr
    failed = [json.loads(line) for line in (out / "failures.jsonl").read_text().splitlines()]
    assert {f["key"] for f in failed} == {"single/persona_2/2", "add_5/persona_2/2"}
    assert all("at the death of 3 engines" in f["detail"] for f in failed)
    played = keys(out / "turns.jsonl", "test_set", "dialogue", "turn")
    assert len(played) == len(set(played)) == 2 * (3 * 4 + 1)


def test_an_engine_that_hangs_is_ended_and_what_hangs_every_engine_fails_alone(tmp_path):
    out = tmp_path / "run"
    words = ["sets=[single]", "turns=3", "candidate.script=sequor.scripts:stuck", "candidate.hang_timeout_s=1.5"]
    done = subprocess.run(
        command(out, *words, "candidate.replicas=1"), cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3, done.stdout + done.stderr
    [failed] = [json.loads(line) for line in (out / "failures.jsonl").read_text().splitlines()]
    assert failed["key"] == "single/persona_2/2"
    assert "at the death of 3 engines; the last one: hung: no step in" in failed["detail"]
    assert lines(out / "turns.jsonl") == 3 * 3 + 1


def test_a_signal_before_the_first_answer_exits_with_75(tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(out, "candidate.script=sequor.scripts:unhurried", "sets=[single]", "dialogues=2"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = out / "logs" / "driver.log"
    while process.poll() is None and not (log.exists() and "candidate: engine ready" in log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "The same command continues." in said
