"""Tuples: which are sampled, which are compatible, which have an answer, and how many more are wanted."""

import csv
import json
import os
import signal
from pathlib import Path

import pytest
from local import LocalHost
from test_curation_rate import NO, YES, said, tasks

from cluster import replicas
from cluster.conversation import Request
from cluster.driver import Pool
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings
from jobs import pools
from jobs import tuples as verb
from jobs.curation import TuplesConfig
from jobs.progress import console
from sequor import released
from sequor.curation.filters import similarity
from sequor.curation.tuples import needed, sample
from sequor.errors import BadInput
from sequor.types import Constraint

RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
WORDS = "apple brick cloud delta eagle flame grape house ivory juice koala lemon".split()
POOL = [
    Constraint(f"c{n}", f"Mention {word} in each and every {word} line", "style rules") for n, word in enumerate(WORDS)
]


def test_more_tuples_are_the_same_ones_and_then_some():
    few, many = sample(POOL, 3, 20, 0.5, 1), sample(POOL, 3, 60, 0.5, 1)
    assert many[:20] == few and sample(POOL, 3, 20, 0.5, 2) != few
    assert len({frozenset(c.id for c in drawn.constraints) for drawn in many}) == 60
    assert all(len({c.id for c in drawn.constraints}) == 3 for drawn in many)


def test_no_tuple_holds_two_that_are_near_each_other():
    near = [Constraint(f"n{n}", f"Write at most {n} words in every line of it", None) for n in range(5)]
    assert similarity(near[0].text, near[1].text) == 1.0
    for drawn in sample([*POOL, *near], 3, 100, 0.34, 1):
        assert sum(c.id.startswith("n") for c in drawn.constraints) <= 1
    with pytest.raises(BadInput, match="no more than 0 different tuples without near-duplicates"):
        sample(near, 3, 1, 0.34, 1)
    with pytest.raises(BadInput, match="holds 2 constraints; tuples of 3 are wanted"):
        sample(POOL[:2], 3, 1, 0.34, 1)


def test_there_are_no_more_tuples_than_there_are():
    assert len(sample(POOL[:5], 3, 10, 1.0, 1)) == 10
    with pytest.raises(BadInput, match="no more than 10 different tuples"):
        sample(POOL[:5], 3, 11, 1.0, 1)


def test_the_released_tuples_hold_no_near_ones_either():
    """0.34 is not stricter than the release: of its 948 tuples only a few hold a pair as near as that."""
    if not (RELEASE / "constraints").is_dir():
        pytest.skip(f"no released data at {RELEASE}; name it in SEQUOR_RELEASE")
    near = 0
    for found in released.load_tuples(RELEASE):
        texts = [c.text for c in found.constraints]
        near += any(similarity(a, b) >= 0.34 for at, a in enumerate(texts) for b in texts[at + 1 :])
    assert near <= 5


def test_how_many_are_wanted_by_hand():
    best, low, high = needed(100, 20, 1000)
    assert best == 5000
    assert 3400 < low < 3600 and 7400 < high < 7600  # Wilson's interval of 20 of 100 is 13.3% to 28.9%
    assert needed(100, 0, 1000)[0] is None and 26_000 < needed(100, 0, 1000)[1] < 29_000
    assert needed(0, 0, 10) == (None, 10, None) and needed(50, 50, 10)[0] == 10


class Desk:
    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.out, self.asked = folder, folder / "out", []
        self.hook = lambda request: None
        self.compatible = lambda judge, request: True
        self.satisfied = lambda judge, tuple_, task, answerer, constraint: True
        (folder / "tasks").mkdir()
        lines = [json.dumps({"persona": t.persona, "activity": t.activity, "prompt": t.prompt}) for t in tasks()["p"]]
        (folder / "tasks" / "p.jsonl").write_text("\n".join(lines))
        released.write_constraints(folder, POOL)
        monkeypatch.setattr(replicas, "connect", lambda address: None)
        monkeypatch.setattr(replicas, "disconnect", lambda: None)
        monkeypatch.setattr(pools, "one", self.pool)

    def pool(self, name, settings, files, scheduling, seed, logs) -> Pool:
        return Pool(name, ConversationScheduler(scheduling, seed), LocalHost(lambda request: self.ask(name, request)))

    def ask(self, name: str, request: Request):
        self.asked.append(request.key)
        self.hook(request)
        parts = request.key.split("|")
        if name in ("x", "y"):
            return said(f"An answer of {name}")
        vote = self.compatible(name, request) if len(parts) == 3 else self.satisfied(name, *parts[:4])
        return said("Hm." if vote is None else YES if vote else NO)

    def config(self, **more) -> TuplesConfig:
        engine = EngineSettings("m", engine="scripted")
        settings = {
            "input": str(self.folder),
            "data": str(self.folder),
            "judges": dict.fromkeys("ab", engine),
            "answerers": dict.fromkeys("xy", engine),
            "tasks": 10,
            "triples": 4,
        }
        return TuplesConfig(**settings | more)

    def run(self, **more) -> int:
        self.asked.clear()
        return verb.tuples(self.config(**more), self.out, console())

    def sampled(self) -> list[dict]:
        return [json.loads(line) for line in (self.out / "sampled.jsonl").read_text().splitlines()]


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_compatible_is_what_every_judge_says_in_so_many_tasks(desk):
    """Number 0: a says yes in the first 8, b in the last 9: both in 7 of 10, which is enough. Number 1: b in the last
    8: both in 6."""
    plan = verb._plan(desk.config())[1]
    first, second = plan.tuples[0].key, plan.tuples[1].key

    def vote(judge, request):
        key, task, _ = request.key.split("|")
        at = plan.drawn("compatibility", key).index(task)
        if key == first:
            return at < 8 if judge == "a" else at > 0
        return (at < 8 if judge == "a" else at > 1) if key == second else True

    desk.compatible = vote
    assert desk.run() == 0
    found = desk.sampled()
    assert [row["compatible"] for row in found] == [70.0, 60.0, 100.0, 100.0]
    assert found[1]["dropped"] == "compatible in 60% of the tasks, below 70" and found[1]["answered"] is None
    assert found[0]["dropped"] is None
    assert not any(key.startswith(second) and len(key.split("|")) == 5 for key in desk.asked)


def test_an_answer_is_found_when_all_judges_find_all_constraints_followed(desk):
    """Number 0, by task: in 0 x alone is good; in 1 y alone; in 2 both are bad; in 3 x is bad and y unreadable for b:
    not decided; in 4 a finds x good and b does not, y is bad; in the other five both are good.
    So an answer is found in 7 of the 9 decided tasks."""
    plan = verb._plan(desk.config())[1]
    first = plan.tuples[0]

    def vote(judge, key, task, answerer, constraint):
        if key != first.key:
            return True
        at = plan.drawn("answers", key).index(task)
        last = constraint == first.constraints[2].id
        if at in (0, 1):
            return answerer == "xy"[at] or not last
        if at == 2:
            return not last
        if at == 3:
            return not last if answerer == "x" else None if judge == "b" and last else True
        if at == 4:
            return not (last and (answerer == "y" or judge == "b"))
        return True

    desk.satisfied = vote
    assert desk.run() == 0
    row = desk.sampled()[0]
    assert row["votes"]["answered"] == {"yes": 7, "n": 9, "unreadable": 1}
    assert row["answered"] == 100 * 7 / 9 and row["dropped"] is None
    desk.run(answered_at_least=77.8)
    assert desk.asked == [] and desk.sampled()[0]["dropped"] == "an answer in 77.7778% of the tasks, below 77.8"


def test_the_kept_ones_are_in_the_releases_format_with_the_figures(desk, capsys):
    assert desk.run() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sampled=4 compatible=4 kept=4"
    found = released.load_tuples(desk.out)
    assert [t.id for t in found] == [f"tuple3-{n:05d}" for n in range(1, 5)]
    texts = {c.id: c.text for c in POOL}
    assert all(texts[c.id] == c.text for t in found for c in t.constraints)
    with open(desk.out / "figures" / "figure_20.csv") as file:
        assert {row["kept"] for row in csv.DictReader(file)} == {"4"}
    with open(desk.out / "figures" / "figure_22.csv") as file:
        counts = {(row["part"], row["category"]): int(row["count"]) for row in csv.DictReader(file)}
    assert counts["constraints", "style rules"] == 12 and counts["in tuples", "style rules"] == 12
    assert all((desk.out / "figures" / f"figure_{n}.png").exists() for n in (20, 21, 22))


def test_it_says_how_many_are_wanted_and_more_go_on_where_it_was(desk, capsys):
    plan = verb._plan(desk.config())[1]
    desk.compatible = lambda judge, request: not request.key.startswith(plan.tuples[1].key)
    desk.run(wanted=300)
    assert "300 kept want about 400 sampled" in capsys.readouterr().out
    before = len(desk.asked)
    desk.run(wanted=300, triples=6)
    assert len(desk.asked) == 2 * 2 * 10 + 2 * 2 * 10 + 2 * 2 * 10 * 3 * 2 and before > len(desk.asked)
    assert [t.id for t in released.load_tuples(desk.out)] == [f"tuple3-{n:05d}" for n in range(1, 6)]


def test_none_kept_is_said_and_leaves_no_old_tuples(desk, capsys):
    desk.run()
    desk.run(answered_at_least=100.0, compatible_at_least=100.0)
    assert (desk.out / "constraints" / "3.jsonl").exists()
    desk.out = desk.folder / "none"
    desk.compatible = lambda judge, request: False
    assert desk.run(wanted=50) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "sampled=4 compatible=0 kept=0" and "none of 4 kept: 50 kept want more than" in out
    assert not (desk.out / "constraints" / "3.jsonl").exists()


@pytest.mark.parametrize("at", [30, 120, 300])
def test_a_stop_in_any_step_loses_nothing_and_asks_nothing_twice(desk, at):
    desk.satisfied = lambda judge, *parts: hash_of(judge, *parts) % 10 > 0
    desk.run()
    undisturbed, everything = (desk.out / "sampled.jsonl").read_bytes(), sorted(desk.asked)
    desk.out = desk.folder / "again"

    def stop(request: Request) -> None:
        if len(desk.asked) == at:
            os.kill(os.getpid(), signal.SIGTERM)

    desk.hook = stop
    assert desk.run() == 75
    had = [
        json.loads(line)["key"] for path in desk.out.glob("*/replies.jsonl") for line in path.read_text().splitlines()
    ]
    desk.hook = lambda request: None
    assert desk.run() == 0
    assert sorted([*had, *desk.asked]) == everything
    assert (desk.out / "sampled.jsonl").read_bytes() == undisturbed


def hash_of(*parts: str) -> int:
    return sum(map(ord, "|".join(parts)))
