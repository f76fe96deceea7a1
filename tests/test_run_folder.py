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
from sequor.records import JudgementRecord, TurnRecord
from sequor.run_folder import RunFile, RunFolder, content_digest
from sequor.types import TASK_COMPLETION, Constraint, Dialogue, TestSet, UserTurn

SET = TestSet("single", (Dialogue("single", "d", (UserTurn("q", (Constraint("c", "be brief"),)),)),))


def run_file(**fingerprint: str) -> RunFile:
    return RunFile({"turns": 1}, {"seed": "0"} | fingerprint, {"sequor": "0"})


def status(folder: RunFolder, **fields) -> None:
    me = {"state": "running", "host": socket.gethostname(), "pid": os.getpid(), "beat": 1}
    (folder.path / "status.json").write_bytes(msgspec.json.encode(me | fields))


def keep(folder: RunFolder, *records: TurnRecord | JudgementRecord) -> None:
    for record in records:
        journal = folder.turns if isinstance(record, TurnRecord) else folder.judgements
        journal.open()
        journal.append([record])
        journal.close()


TURN = TurnRecord(test_set="single", dialogue="d", turn=1, status="ok", answer="yes")


def judgement(judge: str, constraint: str = "c") -> JudgementRecord:
    return JudgementRecord(
        test_set="single", dialogue="d", turn=1, constraint=constraint, judge=judge, status="satisfied", parser="p"
    )


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    """With one answer in it."""
    found = RunFolder(tmp_path / "run")
    found.start(run_file(), [SET])
    keep(found, TURN)
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
    keep(folder, judgement("a/a-1.5"), judgement("b"))
    with pytest.raises(BadInput, match=r"judge\[b\].parser: other there, strict now"):
        folder.start(run_file(**{"judge[b].prompt": "p", "judge[b].parser": "strict"}), [SET])


def test_what_no_record_rests_on_may_be_another(tmp_path):
    """Whoever lowers a context because the engine did not start is not told to throw the folder away."""
    folder = RunFolder(tmp_path / "run")
    folder.start(run_file(**{"candidate.max_model_len": "9", "judge[j].max_model_len": "9"}), [SET])
    longer = TestSet("single", (*SET.dialogues, Dialogue("single", "e", SET.dialogues[0].turns)))
    folder.start(run_file(seed="1", **{"candidate.max_model_len": "8", "test_set.single": "2"}), [longer])
    assert folder.test_sets() == [longer]
    assert folder.read().fingerprint == {"seed": "1", "candidate.max_model_len": "8", "test_set.single": "2"}
    keep(folder, TURN)
    for length in ("9", "7"):
        judged = {"judge[j].max_model_len": length, "completion[j].prompt": length}
        folder.start(run_file(seed="1", **judged), [longer])
        assert judged.items() <= folder.read().fingerprint.items()
    keep(folder, judgement("other"), judgement("other", TASK_COMPLETION), judgement("j"))
    folder.start(run_file(seed="1", **{"completion[j].prompt": "6"}), [longer])
    with pytest.raises(BadInput, match=r"judge\[j\].max_model_len: 7 there, 6 now\)"):
        folder.start(run_file(seed="1", **{"judge[j].max_model_len": "6"}), [longer])
    keep(folder, judgement("j", TASK_COMPLETION))
    with pytest.raises(BadInput, match=r"completion\[j\].prompt: 6 there, 5 now\)"):
        folder.start(run_file(seed="1", **{"completion[j].prompt": "5"}), [longer])
    with pytest.raises(BadInput, match="candidate.max_model_len: 8 there, 7 now"):
        folder.start(run_file(seed="1", **{"candidate.max_model_len": "7"}), [longer])


def test_a_stages_folder_is_never_a_runs(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.start(run_file(stage="extract"), [SET])
    with pytest.raises(BadInput, match="stage: extract there, nothing now"):
        folder.start(run_file(), [SET])


def test_of_many_differences_those_that_others_follow_from_come_first(tmp_path):
    folder = RunFolder(tmp_path / "run")
    sets = {f"test_set.{n}": "a" for n in range(9)}
    folder.start(run_file(turns="25", **sets), [SET])
    keep(folder, TURN)
    with pytest.raises(BadInput, match=r"\(turns: 25 there, 26 now; test_set.0: a there, b now; .*; and 4 more\)"):
        folder.start(run_file(turns="26", **dict.fromkeys(sets, "b")), [SET])


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


def test_a_start_that_was_killed_half_way_is_begun_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.start(run_file(), [SET])
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
