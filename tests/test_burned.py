"""What users of other harnesses lost days with, tried as they would meet it. BURNED.md says which test holds what."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chaos import descendants
from madeup import write_run

from jobs.progress import Watch, console
from jobs.score import show
from sequor.evaluation import Evaluation
from sequor.run_folder import RunFile, RunFolder
from sequor.scoring import score

ROOT = Path(__file__).resolve().parents[1]
SCRIPTED = ["candidate.engine=scripted", "candidate.model=c", "candidate.script=sequor.scripts:candidate"]
SCRIPTED += ["judge.engine=scripted", "judge.model=j", "judge.script=sequor.scripts:judge"]
SCORES = ("turns.csv", "sets.csv", "outcomes.csv")


def sequor(*words: object, timeout: float = 120) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "jobs", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def said(done: subprocess.CompletedProcess) -> str:
    return done.stdout + done.stderr


def test_every_line_of_the_table_is_held_by_tests_that_are_there():
    tests = ROOT / "tests"
    lines = [line for line in (tests / "BURNED.md").read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    there = {
        f"{path.name}::{node.name}"
        for path in tests.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lines) >= 32
    for line in lines:
        named = set(re.findall(r"test_\w+\.py::\w+", line))
        assert named and named <= there, f"{line[:60]}: {named - there}"


# Numbers that look better than they are


@pytest.mark.parametrize(("decided", "headline"), [(100, True), (90, True), (80, False), (1, False)])
def test_what_is_not_decided_stays_in_the_denominator_and_below_a_coverage_there_is_no_headline(
    tmp_path, capsys, decided, headline
):
    """Eighty of a hundred are no 89%, and the one survivor of a crash is no 100%."""
    row = {f"d{n}": "s" if n < decided else "u" for n in range(100)}
    out = write_run(tmp_path / "m", {"single": row})
    scores, tally = score(out)
    overall = scores[0].overall
    assert (overall.coverage, overall.lower, overall.upper) == (decided / 100, decided / 100, 1.0)
    show(scores, tally, console())
    printed = capsys.readouterr().out
    assert ("no headline for single" in printed) != headline
    cells = (out / "scores" / "sets.csv").read_text().splitlines()[1].split(",")
    assert cells[3:8] == (["100.00", "100.00", "100.00", "0.00", "0.00"] if headline else [""] * 5)
    assert sequor("score", out).returncode == (0 if headline else 3)
    if decided == 80:
        assert sequor("score", out, "--min-coverage", "0.8").returncode == 0


@pytest.mark.ray
def test_a_run_in_which_every_request_failed_is_no_success(tmp_path):
    out = tmp_path / "out"
    words = ["data=demo", "sets=[single]", "dialogues=2", "turns=2", *SCRIPTED]
    done = sequor("run", *words, "candidate.script=sequor.scripts:broken", "--out", out)
    assert done.returncode == 3, said(done)
    assert "2 x engine_error: CUDA error: an illegal memory access was encountered" in done.stdout
    assert json.loads((out / "status.json").read_bytes())["state"] == "incomplete"
    assert not (out / "turns.jsonl").read_bytes() and not (out / "scores").exists()
    done = sequor("run", *words, "candidate.script=sequor.scripts:candidate", "--out", tmp_path / "other")
    assert done.returncode == 0, said(done)


def test_an_unreadable_verdict_is_still_one_after_it_was_saved_and_read_back(tmp_path):
    out = write_run(tmp_path / "m", {"single": {"a": "u s e v"}})
    before = score(out)[1].outcomes
    journal = RunFolder(out).judgements
    records = list(journal)
    journal.path.unlink()
    journal.open()
    journal.append(records)
    journal.close()
    assert score(out)[1].outcomes == before
    assert before["single"] == {
        "turn ok": 4,
        "judgement unreadable": 1,
        "judgement satisfied": 1,
        "judgement judge_error": 1,
        "judgement violated": 1,
    }


# Texts and names


NASTY = (
    "a NUL \x00 and a bell \x07",
    "emoji \U0001f9d1\u200d\U0001f680 and a flag \U0001f1ea\U0001f1fa",
    "right to left \u202eעברית\u202c and \u061cعربي",
    "lines\u2028in\u2029one\x85text\r\nand CR",
    "</script><script>alert(1)</script> {{ 7 * 7 }} {% raise %} {0} %s",
    "x" * 200_000,
)


@pytest.mark.ray
def test_any_text_and_any_name_goes_through_run_score_and_report(tmp_path):
    """Each message is stored once, the log is no flood, and the folder's and the model's names are what they are."""
    folder = tmp_path / "dätä and more" / "testsets" / "single"
    folder.mkdir(parents=True)
    rule = [{"id": "c/1 é", "text": "be brief {{ }} \U0001f600"}]
    lines = [json.dumps({"prompt": text, "constraints_data": rule}) for text in NASTY]
    (folder / "персона 1.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    out = tmp_path / "out .1 ü" / "run"
    words = [f"data={folder.parents[1]}", "sets=[single]", f"turns={len(NASTY)}", *SCRIPTED]
    done = sequor("run", *words, "candidate.model=Ω/ä b..c", "candidate.sampling.max_tokens=1000", "--out", out)
    assert done.returncode == 0, said(done)
    assert done.stdout.count("\n") < 40
    dialogue = json.loads((out / "dialogues.jsonl").read_text())
    assert [turn["prompt"] for turn in dialogue["turns"]] == list(NASTY)
    assert (out / "turns.jsonl").stat().st_size < 20_000  # answers alone, no prompt
    done = sequor("report", out)
    assert done.returncode == 0, said(done)
    assert (out / "report" / "data" / "r0" / "0" / "0.js").exists()


# Disks, clocks and hands


@pytest.mark.ray
def test_a_full_disk_ends_the_run_in_one_line_and_the_same_command_completes_it(small_disk, tmp_path):
    folder, remount = small_disk
    words = ["run", "configs/tiny.yaml", "turns=20"]
    done = sequor(*words, "--out", folder / "run")
    assert done.returncode == 4, said(done)
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
    remount("size=64m")
    done = sequor(*words, "--out", folder / "run")
    assert done.returncode == 0, said(done)
    assert done.stdout.strip().endswith("lost=0 repeated=0")
    assert sequor(*words, "--out", tmp_path / "alone").returncode == 0
    for name in SCORES:
        assert (folder / "run" / "scores" / name).read_bytes() == (tmp_path / "alone" / "scores" / name).read_bytes()
    remount("ro")
    done = sequor(*words, "--out", folder / "another")
    assert done.returncode in (2, 4) and "Read-only file system" in done.stderr and "Traceback" not in done.stderr


@contextmanager
def started(out: Path) -> Iterator[subprocess.Popen]:
    """A run that has saved its first answers."""
    words = [sys.executable, "-m", "jobs", "run", "configs/tiny.yaml", "candidate.script=sequor.scripts:unhurried"]
    with subprocess.Popen([*words, "--out", out], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        turns = out / "turns.jsonl"
        while process.poll() is None and not (turns.exists() and turns.stat().st_size):
            time.sleep(0.01)
        yield process


@pytest.mark.ray
def test_ctrl_c_twice_loses_nothing(tmp_path):
    out = tmp_path / "run"
    with started(out) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors.decode()
    done = sequor("run", "configs/tiny.yaml", "candidate.script=sequor.scripts:unhurried", "--out", out)
    assert done.returncode == 0 and done.stdout.strip().endswith("lost=0 repeated=0"), said(done)


def listening(pids: set[int]) -> set[str]:
    """Addresses on which these processes take connections, as the kernel writes them."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in inodes:
                found.add(local.partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.ray
def test_a_run_on_one_machine_listens_on_loopback_alone(tmp_path):
    with started(tmp_path / "run") as process:
        found = listening({process.pid, *descendants(process.pid)})
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert found and found <= LOOPBACK, found


@pytest.mark.engine
def test_a_real_engine_listens_on_loopback_alone(engine):
    found = listening({os.getpid(), *descendants(os.getpid())})
    assert found and found <= LOOPBACK, found


def test_a_clock_that_is_set_back_makes_no_speeds_of_nothing(tmp_path, monkeypatch):
    out = write_run(tmp_path / "m", {"single": {"a": "s s"}})
    folder = RunFolder(out)
    folder.start(RunFile({}, {}, {}), folder.test_sets())
    watch = Watch(folder, Evaluation(folder.test_sets(), [], [], {}), [], {})
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 86_400)
    time.sleep(0.05)
    status = watch.status("running")
    assert 0.05 <= status["elapsed_s"] < 60


def test_nothing_needs_a_lock_or_a_database():
    """Runs lie on network file systems."""
    for path in [p for package in ("cluster", "sequor", "jobs") for p in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
            assert not {"sqlite3", "fcntl", "filelock"} & set(names), path
