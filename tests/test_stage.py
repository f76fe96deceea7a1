"""A stage continued like a run, and synthesis through it, on engines in this process."""

import json
import os
import signal

import pytest
from local import LocalHost

from cluster import replicas
from cluster.conversation import Failure, Request, Response, Usage
from cluster.driver import Pool
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings
from jobs import pools, synthesize
from jobs.config import SynthesisConfig
from jobs.progress import console
from sequor import released, scripts
from sequor.errors import BadInput
from sequor.personas import load_personas
from sequor.synthesis import Synthesis

SMALL = Synthesis(activities=3, questions=14, tasks=20)


class Desk:
    """Where a test asks for a synthesis, and sees what was asked of the engines."""

    def __init__(self, folder, monkeypatch):
        self.out, self.asked, self.answer = folder / "out", [], scripts.synthesizer
        self.personas = folder / "personas.jsonl"
        self.personas.write_text("".join(f'{{"id": "p{n}", "persona": "Person number {n}."}}\n' for n in range(5)))
        monkeypatch.setattr(replicas, "connect", lambda address: None)
        monkeypatch.setattr(replicas, "disconnect", lambda: None)
        monkeypatch.setattr(pools, "one", self.pool)

    def pool(self, name, settings, files, scheduling, seed, logs) -> Pool:
        return Pool(name, ConversationScheduler(scheduling, seed), LocalHost(self.ask))

    def ask(self, request: Request):
        self.asked.append(request.key)
        return self.answer(request)

    def run(self, synthesis: Synthesis = SMALL, **more) -> int:
        self.asked.clear()
        model = EngineSettings("s", engine="scripted")
        config = SynthesisConfig(model, str(self.personas), synthesis=synthesis, **more)
        return synthesize.synthesize(config, self.out, console())

    def replies(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "replies.jsonl").read_text().splitlines()]

    def tasks(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.out / "tasks").glob("*"))}


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def state(desk: Desk) -> str:
    return json.loads((desk.out / "status.json").read_text())["state"]


def refusing(*keys: str):
    def answer(request: Request):
        return (
            Response("I cannot do that.", usage=Usage(1, 0, 1)) if request.key in keys else scripts.synthesizer(request)
        )

    return answer


def test_personas_end_as_tasks_in_the_releases_format(desk):
    assert desk.run() == 0
    assert state(desk) == "complete"
    found = released.load_tasks(desk.out)
    assert {name: len(tasks) for name, tasks in found.items()} == {f"p{n}": 20 for n in range(5)}
    assert found["p3"][0].persona == load_personas(desk.personas)[3].text
    keys = [row["key"] for row in desk.replies()]
    assert sorted(keys) == sorted(set(keys)) == sorted(desk.asked)


def test_a_second_start_asks_nothing_and_makes_the_same_tasks(desk):
    desk.run()
    before = desk.tasks()
    assert desk.run() == 0
    assert desk.asked == [] and desk.tasks() == before


def test_a_signal_stops_and_the_same_command_asks_only_for_what_is_missing(desk, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    undisturbed = Desk(tmp_path / "other", monkeypatch)
    undisturbed.run()
    monkeypatch.setattr(pools, "one", desk.pool)

    def stopped_at_the_seventh(request: Request):
        if len(desk.asked) == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        return scripts.synthesizer(request)

    desk.answer = stopped_at_the_seventh
    assert desk.run() == 75
    assert state(desk) == "stopped"
    had = {row["key"] for row in desk.replies()}
    assert 0 < len(had) < len(undisturbed.replies())
    with open(desk.out / "replies.jsonl", "ab") as file:
        file.write(b'{"key": "p1/que')  # torn in the middle of a write
    desk.answer = scripts.synthesizer
    assert desk.run() == 0
    assert not had & set(desk.asked)
    assert desk.tasks() == undisturbed.tasks()


def test_a_failure_of_the_machinery_is_no_reply_and_is_asked_again(desk):
    def broken(request: Request):
        return Failure("engine_error", "no luck") if request.key == "p2/agenda" else answer(request)

    answer, desk.answer = desk.answer, broken
    assert desk.run() == 3
    assert state(desk) == "incomplete"
    assert "p2/agenda" not in {row["key"] for row in desk.replies()}
    assert "no luck" in (desk.out / "failures.jsonl").read_text()
    desk.answer = answer
    assert desk.run() == 0
    assert desk.asked[0] == "p2/agenda" and all(key.startswith("p2/") for key in desk.asked)


def test_a_reply_without_a_list_is_asked_for_again_and_kept(desk):
    desk.answer = refusing("p1/agenda", "p1/agenda/2")
    assert desk.run() == 0
    kept = [row["reply"] for row in desk.replies() if row["key"].startswith("p1/agenda")]
    assert kept[:2] == ["I cannot do that."] * 2 and len(kept) == 3
    dropped = [json.loads(line) for line in (desk.out / "dropped.jsonl").read_text().splitlines()]
    assert {"reply": "p1/agenda/2", "text": "I cannot do that.", "reason": "no list"} in dropped
    assert desk.run() == 0 and desk.asked == []


def test_who_has_too_few_tasks_is_named_and_nothing_is_asked_forever(desk, capsys):
    desk.answer = refusing("p1/agenda", "p1/agenda/2")
    assert desk.run(Synthesis(activities=3, questions=14, tasks=20, attempts=2)) == 3
    assert "too few tasks: p1 has 0 of 20" in capsys.readouterr().out
    assert sorted(desk.tasks()) == ["p0.jsonl", "p2.jsonl", "p3.jsonl", "p4.jsonl"]
    assert desk.run(Synthesis(activities=3, questions=14, tasks=20, attempts=2)) == 3
    assert desk.asked == []


def test_more_personas_continue_the_same_folder(desk):
    assert desk.run(count=2) == 0
    assert desk.run() == 0
    assert {key.partition("/")[0] for key in desk.asked} == {"p2", "p3", "p4"}


def test_another_setting_or_another_folder_is_refused(desk, tmp_path):
    desk.run()
    with pytest.raises(BadInput, match=r"holds a run of another configuration \(synthesis.near: 0.7 there, 0.5 now\)"):
        desk.run(Synthesis(activities=3, questions=14, tasks=20, near=0.5))
    desk.out = tmp_path / "mine"
    (desk.out / "tasks").mkdir(parents=True)
    (desk.out / "tasks" / "p1.jsonl").write_text("mine\n")
    with pytest.raises(BadInput, match="mine: not empty, and no run.json in it"):
        desk.run()
    assert (desk.out / "tasks" / "p1.jsonl").read_text() == "mine\n"
    (desk.out / "run.json").write_text('{"config": {}, "fingerprint": {"seed": "0"}, "versions": {}}')
    with pytest.raises(BadInput, match="stage: none there, synthesize now"):
        desk.run()


def test_tasks_that_no_reply_could_give_are_refused_before_anything_is_asked(desk):
    with pytest.raises(BadInput, match="synthesis.tasks: 120 is more than 2 activities of 3 questions can give"):
        desk.run(Synthesis(activities=2, questions=3))
    assert not desk.out.exists()
