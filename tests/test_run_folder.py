"""Who may write into a run's folder, and what it must be."""

import os
import socket

import msgspec
import pytest

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
    folder.start(run_file(**{"judge.model": "a"}), [SET])
    with pytest.raises(BadInput, match="judge.model: a there, b now"):
        folder.start(run_file(**{"judge.model": "b"}), [SET])


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


def test_an_empty_folder_is_no_run_to_be_read(tmp_path):
    with pytest.raises(BadInput, match="run.json: not there"):
        RunFolder(tmp_path).read()


def test_a_folder_whose_driver_lives_on_this_machine_is_refused(folder):
    status(folder, pid=os.getppid(), born=run_folder.process_start(os.getppid()))
    with pytest.raises(BadInput, match="works in this folder"):
        folder.claim()


def test_a_dead_driver_or_another_process_with_its_number_is_no_hindrance(folder):
    status(folder, pid=os.getppid(), born="1")
    folder.claim()
    status(folder, pid=2**22 + 1, born="1")
    folder.claim()


def test_a_driver_on_another_machine_is_alive_while_it_counts(folder, monkeypatch):
    status(folder, host="elsewhere")
    monkeypatch.setattr(run_folder.time, "sleep", lambda _: None)
    folder.claim()
    monkeypatch.setattr(run_folder.time, "sleep", lambda _: status(folder, host="elsewhere", beat=2))
    with pytest.raises(BadInput, match="on elsewhere works in this folder"):
        folder.claim()


def test_a_digest_names_the_content():
    other = TestSet("single", (Dialogue("single", "d", (UserTurn("q!", (Constraint("c", "be brief"),)),)),))
    assert content_digest(SET) != content_digest(other)
