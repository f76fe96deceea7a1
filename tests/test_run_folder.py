"""Who may write into a run's folder, and what it must be."""

import io
import os
import socket

import msgspec
import pytest
from rich.console import Console

from jobs.run import changed
from jobs.status import show
from sequor import run_folder
from sequor.errors import BadInput
from sequor.run_folder import RunFile, RunFolder, content_digest
from sequor.types import Constraint, Dialogue, TestSet, UserTurn

SET = TestSet("single", (Dialogue("single", "d", (UserTurn("q", (Constraint("c", "be brief"),)),)),))


def run_file(**fingerprint: str) -> RunFile:
    return RunFile({"turns": 1}, {"seed": "0"} | fingerprint, {"sequor": "0"})


def status(folder: RunFolder, **fields) -> None:
    me = {"state": "running", "host": socket.gethostname(), "pid": os.getpid(), "beat": 1}
    (folder.path / "status.json").write_bytes(msgspec.json.encode(me | fields))


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    found.start(run_file(), [SET])
    return found


def test_a_folder_holds_what_is_played(folder):
    assert folder.test_sets() == [SET]


def test_the_same_configuration_may_go_on(folder):
    folder.start(run_file(), [SET])


def test_another_configuration_is_refused_with_every_difference(folder):
    with pytest.raises(BadInput, match=r"another configuration \(seed: 0 there, 1 now\)"):
        folder.start(run_file(seed="1"), [SET])


def test_a_judge_may_be_added_to_what_was_only_answered(folder):
    folder.start(run_file(**{"judge[a/a-1.5].prompt": "p", "judge[a/a-1.5].parser": "strict"}), [SET])
    folder.start(run_file(**{"judge[b].prompt": "p", "judge[b].parser": "other"}), [SET])
    with pytest.raises(BadInput, match=r"judge\[b\].parser: other there, strict now"):
        folder.start(run_file(**{"judge[b].prompt": "p", "judge[b].parser": "strict"}), [SET])


def test_a_key_that_only_one_side_has_is_a_difference_within_a_group_that_both_have(folder):
    folder.start(run_file(**{"candidate.model": "a", "test_set.single": "1"}), [SET])
    with pytest.raises(BadInput, match="candidate.sampling.top_k: nothing there, 5 now"):
        folder.start(
            run_file(**{"candidate.model": "a", "candidate.sampling.top_k": "5", "test_set.single": "1"}), [SET]
        )
    with pytest.raises(BadInput, match="test_set.add_5: nothing there, 2 now; test_set.single: 1 there, nothing now"):
        folder.start(run_file(**{"candidate.model": "a", "test_set.add_5": "2"}), [SET])


def test_each_start_with_another_engine_is_kept(folder):
    def engine(folder, run, dtype):
        folder.write(msgspec.structs.replace(run, engines={"candidate": {"resolved": {"dtype": dtype}}}))

    for dtype in ("bfloat16", "bfloat16", "float32"):
        engine(folder, folder.start(run_file(), [SET]), dtype)
    run = folder.start(run_file(), [SET])
    assert [start.engines["candidate"]["resolved"]["dtype"] for start in run.earlier] == ["bfloat16", "float32"]
    engine(folder, run, "float32")
    assert changed(folder.read(), "candidate") == "dtype was bfloat16, is float32"


def test_a_role_that_a_start_has_no_use_for_keeps_its_settings(folder):
    run = folder.start(RunFile({"turns": 1, "judge": None}, {"seed": "0"}, {}), [SET])
    run = folder.start(RunFile({"turns": 1, "judge": {"model": "j"}}, {"seed": "0"}, {}), [SET])
    run = folder.start(RunFile({"turns": 1, "judge": None}, {"seed": "0"}, {}), [SET])
    assert (run.config["turns"], run.config["judge"]) == (1, {"model": "j"})


def test_a_judge_that_was_there_stays_and_remains_the_first(folder):
    def config(first, *others, completion=False):
        more = [{"model": name} for name in others]
        return {"judge": {"model": first}, "more_judges": more, "task_completion": completion, "judge_parser": "p"}

    for start in (config("a", "b"), config("c", completion=True), config("b")):
        run = folder.start(RunFile(start, {"seed": "0"}, {}), [SET])
    assert run.config == config("a", "b", "c", completion=True)


def test_of_two_drivers_the_later_claim_has_the_folder(folder):
    folder.write_status({"state": "running", "beat": 1})
    status(folder, pid=os.getppid(), born="1")
    with pytest.raises(BadInput, match=f"taken over by process {os.getppid()}"):
        folder.write_status({"state": "running", "beat": 2})


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(BadInput, match="not empty"):
        RunFolder(tmp_path).start(run_file(), [SET])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_killed_half_way_is_begun_again(folder):
    (folder.path / "run.json").unlink()
    (folder.path / ".run.json.123").write_text("{")
    folder.start(run_file(), [SET])
    assert folder.test_sets() == [SET]


def test_a_dialogue_that_stands_there_twice_is_refused_and_never_counted_twice(folder):
    path = folder.path / "dialogues.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(BadInput, match="dialogues.jsonl: .* stands there twice"):
        folder.test_sets()


def test_a_folder_that_was_claimed_and_never_played_has_a_status_of_one_line(folder):
    with pytest.raises(BadInput, match="status.json: the run has not started to play"):
        show(folder.path, Console(file=io.StringIO()))


def test_an_empty_folder_is_no_run_to_be_read(tmp_path):
    with pytest.raises(BadInput, match="run.json: not there"):
        RunFolder(tmp_path).read()


def test_a_folder_whose_driver_lives_on_this_machine_is_refused(folder):
    status(folder, pid=os.getppid(), born=run_folder.process_start(os.getppid()))
    with pytest.raises(BadInput, match="works in this folder"):
        folder.refuse_claimed()


def test_a_dead_driver_or_another_process_with_its_number_is_no_hindrance(folder):
    status(folder, pid=os.getppid(), born="1")
    folder.refuse_claimed()
    status(folder, pid=2**22 + 1, born="1")
    folder.refuse_claimed()


def test_somebody_elses_process_is_alive_too(folder, monkeypatch):
    def not_ours(pid, signum):
        raise PermissionError

    monkeypatch.setattr(run_folder.os, "kill", not_ours)
    status(folder, pid=os.getppid(), born=run_folder.process_start(os.getppid()))
    with pytest.raises(BadInput, match="works in this folder"):
        folder.refuse_claimed()


def test_a_driver_on_another_machine_is_alive_while_it_counts(folder, monkeypatch):
    status(folder, host="elsewhere")
    monkeypatch.setattr(run_folder.time, "sleep", lambda _: None)
    folder.refuse_claimed()
    monkeypatch.setattr(run_folder.time, "sleep", lambda _: status(folder, host="elsewhere", beat=2))
    with pytest.raises(BadInput, match="on elsewhere works in this folder"):
        folder.refuse_claimed()


def test_a_digest_names_the_content():
    other = TestSet("single", (Dialogue("single", "d", (UserTurn("q!", (Constraint("c", "be brief"),)),)),))
    assert content_digest(SET) != content_digest(other)
