"""What a run says, to whom, and what becomes of it when nobody listens any more."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from madeup import write_run
from rich.table import Table
from test_burned import SCRIPTED, sequor, started

from jobs import progress
from jobs.progress import Display, PlainConsole, Watch
from sequor.evaluation import Evaluation
from sequor.run_folder import RunFile, RunFolder

ROOT = Path(__file__).resolve().parents[1]
NAME = "my[/bold]model [red]:smile: [0]"


def watch(folder: Path, name: str = "") -> Watch:
    run = RunFolder(write_run(folder, {"single": {"a": "s s"}}))
    run.start(RunFile({}, {}, {}), run.test_sets())
    return Watch(run, Evaluation(run.test_sets(), [], [], {}), [], {}, name)


# Names


def test_what_looks_like_markup_is_printed_as_it_is():
    out = io.StringIO()
    console = PlainConsole(file=out, width=200)
    table = Table("set", title=NAME)
    table.add_row(NAME)
    console.print(NAME)
    console.print(table)
    console.rule(NAME, align="left")
    assert out.getvalue().count(NAME) == 4


def test_a_line_stays_one_line_however_narrow_the_terminal_is():
    out = io.StringIO()
    PlainConsole(file=out, width=40).print("a folder's name and what became of it " * 9)
    assert out.getvalue().count("\n") == 1


def test_bars_show_a_name_that_looks_like_markup(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "STATUS_EVERY_S", 0.01)
    out = io.StringIO()
    shown = Display([watch(tmp_path / "run", NAME)], PlainConsole(file=out, force_terminal=True, width=200))

    async def a_moment():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shown.run(), 0.2)

    asyncio.run(a_moment())
    assert NAME in out.getvalue()


def test_a_folder_with_any_name_is_scored_and_reported_also_where_the_terminal_lacks_its_letters(tmp_path):
    out = write_run(tmp_path / f"mödèle {NAME.replace('/', '')}", {"single": {"a": "s s v s"}}, model=NAME, judge=NAME)
    for verb in ("score", "report"):
        command = [sys.executable, "-m", "jobs", verb, str(out)]
        environment = os.environ | {"PYTHONIOENCODING": "ascii"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
    assert "my[bold]model [red]:smile: [0]/report figures=" in done.stdout and "m\\xf6d\\xe8le" in done.stdout


def test_a_report_may_be_made_where_one_stands(tmp_path):
    run, here = write_run(tmp_path / "run", {"single": {"a": "s s v s"}}), tmp_path / "here"
    here.mkdir()
    command = [sys.executable, "-m", "jobs", "report", str(run), "--out", "."]
    done = subprocess.run(
        command, cwd=here, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (here / "index.html").exists()


def test_what_is_no_utf8_on_the_command_line_is_refused_in_one_line(tmp_path):
    command = [sys.executable, "-m", "jobs", "score", bytes(tmp_path) + b"/lat\xe9"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "lat\\udce9' is no UTF-8" in done.stderr


# A full disk


def test_a_full_disk_ends_score_and_report_in_one_line_and_leaves_nothing_half_written(small_disk):
    folder, remount = small_disk
    run = write_run(folder / "run", {"single": {"a": "s s v s", "b": "s s s s"}})
    assert sequor("score", run).returncode == 0
    before = (run / "scores" / "turns.csv").read_bytes()
    done = sequor("report", run)
    assert done.returncode == 4 and done.stderr.count("\n") == 1, done.stderr
    assert "No space left on device" in done.stderr
    with open(folder / "filler", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    done = sequor("score", run)
    assert (done.returncode, done.stderr) == (4, f"sequor: {run}/scores/turns.csv: No space left on device\n")
    assert (run / "scores" / "turns.csv").read_bytes() == before
    assert not [path for path in run.rglob(".*") if path.name.startswith(".turns")]
    remount("size=64m")
    assert [sequor(verb, run).returncode for verb in ("score", "report")] == [0, 0]


# Neither a flood nor silence


def test_a_log_has_a_line_every_so_often_and_no_bars(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "STATUS_EVERY_S", 0.01)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.05)
    out = io.StringIO()
    shown = Display([watch(tmp_path / "run")], PlainConsole(file=out, width=160))

    async def a_moment():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shown.run(), 0.5)

    asyncio.run(a_moment())
    lines = out.getvalue().splitlines()
    assert 1 <= len(lines) <= 10
    assert all("turns 0/2, judgements 0/0, failures 0" in line and line.isprintable() for line in lines)


# Nobody listens; nothing is left


@pytest.mark.ray
def test_a_run_whose_reader_has_gone_is_played_to_its_end_and_then_nothing_is_left_to_do(tmp_path):
    out = tmp_path / "run"
    words = ["data=demo", "sets=[single,add_5]", "dialogues=2", "turns=6", *SCRIPTED, "--out", out]
    command = [sys.executable, "-m", "jobs", "run", *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 0 and errors == "", errors
    records = {path: path.read_bytes() for path in out.glob("*.jsonl")}
    for verb in ("run", "respond", "judge"):
        done = sequor(verb, *(words if verb != "judge" else words[-2:]))
        assert done.returncode == 0 and "nothing is left to" in done.stdout, done.stdout + done.stderr
        assert done.stdout.strip().endswith("lost=0 repeated=0")
    assert {path: path.read_bytes() for path in out.glob("*.jsonl")} == records


@pytest.mark.ray
def test_a_lost_connection_stops_a_run_as_a_signal_does_and_nohup_keeps_it_going(tmp_path):
    with started(tmp_path / "lost") as process:
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors.decode()
    assert RunFolder(tmp_path / "lost").status()["state"] == "stopped"
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup hands it on
    try:
        with started(tmp_path / "kept") as process:
            process.send_signal(signal.SIGHUP)
            _, errors = process.communicate(timeout=120)
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert process.returncode == 0, errors.decode()
