"""Ratings: votes of judges whose every vote is known, counted by hand."""

import json
import os
import signal
from pathlib import Path

import pytest
from local import LocalHost

from cluster import replicas
from cluster.conversation import Request, Response, Usage
from cluster.driver import ClusterError, Pool
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings
from jobs import pools, rate
from jobs.curation import RateConfig, words_to_config
from jobs.progress import console
from jobs.select import select
from sequor.curation.rubrics import CHOICES, rubrics, satisfiable
from sequor.curation.samples import Tasks
from sequor.curation.select import MEASURES
from sequor.curation.votes import Ballot, Tally
from sequor.errors import BadInput
from sequor.types import Task

YES, NO = "Final verdict: yes", "Final verdict: no"
GOOD = '{"1": "yes", "2": "no", "3": "yes", "4": "yes"}'


@pytest.mark.parametrize(
    ("reply", "votes"),
    [
        (GOOD, (True, False, True, True)),
        (f"```json\n{GOOD}\n```\nDone.", (True, False, True, True)),
        ('{"rubric 1": true, "rubric 2": false, "Q3": "Yes.", "4": "NO, it is topic"}', (True, False, True, False)),
        (
            '{"1": {"answer": "yes", "why": "a"}, "2": {"a": "no"}, "3": {"a": "yes"}, "4": {"a": "yes"}}',
            (True, False, True, True),
        ),
        ('["yes", "no", "yes", "no"]', (True, False, True, False)),
        (f"First I thought {CHOICES[-1]}, but no: {GOOD}", (True, False, True, True)),
        ("1. Yes\n2. No\n3. yes - it can\n4. **No**", (True, False, True, False)),
        ("Rubric 1: yes\nRubric 2: no\nRubric 3: yes\nRubric 4 (category): yes", (True, False, True, True)),
        ("1) yes\n2) no\n3) yes", None),
        ("1. yes\n2. no\n3. yes\n4. yes\n1. no", None),
        ('{"1": "yes", "2": "perhaps", "3": "yes", "4": "yes"}', None),
        ("yes no yes yes", None),
        ("1. None of it\n2. no\n3. yes\n4. yes", None),
        ("", None),
    ],
)
def test_rubrics_are_read_as_judges_write_them(reply, votes):
    assert rubrics(reply) == votes
    assert satisfiable(reply) == (None if votes is None else votes == (True, False, True, True))


def test_a_reply_that_was_cut_is_no_vote_and_every_choice_can_be_read():
    assert satisfiable(GOOD, truncated=True) is None and satisfiable(None) is None
    assert len(set(CHOICES)) == 16 and sum(satisfiable(choice) for choice in CHOICES) == 1


def test_judges_are_counted_apart_and_together_by_hand():
    """Ten tasks, three judges; u: unreadable, .: no vote yet.
    a  y y y y y y y n n n     7 of 10
    b  y y y y y n n u u .     5 of 7, 2 unreadable
    c  y n y n y n n n y y     5 of 10
    All have a vote in tasks 1 to 7: all yes in 1, 3, 5; all no in none; so 3 of 7 say yes, 3 of 7 agree."""
    ballot = Ballot("abc", 1, 10)
    for judge, votes in zip("abc", ("yyyyyyynnn", "yyyyynnuu.", "ynynynnnyy"), strict=True):
        for task, vote in enumerate(votes):
            if vote != ".":
                ballot.cast(judge, 0, task, {"y": True, "n": False, "u": None}[vote])
    count = ballot.count(0)
    assert count.judges == {"a": Tally(7, 10, 0), "b": Tally(5, 7, 2), "c": Tally(5, 10, 0)}
    assert count.judges["a"].percent == 70.0
    assert (count.all_yes, count.all_agree) == (Tally(3, 7, 2), Tally(3, 7, 2))
    assert (count.lowest, count.fewest) == (50.0, 7)
    against = ballot.count(0, yes=0)
    assert against.judges["b"] == Tally(2, 7, 2) and against.all_yes == Tally(0, 7, 2)
    assert against.all_agree == Tally(3, 7, 2)  # to agree does not depend on what is counted


def test_all_no_is_agreement_too():
    ballot = Ballot("ab", 1, 4)
    for task, votes in enumerate(("nn", "nn", "yn", "yy")):
        for judge, vote in zip("ab", votes, strict=True):
            ballot.cast(judge, 0, task, vote == "y")
    assert ballot.count(0).all_agree == Tally(3, 4) and ballot.count(0).all_yes == Tally(1, 4)


def test_no_readable_vote_is_no_percentage():
    ballot = Ballot("ab", 1, 2)
    ballot.cast("a", 0, 0, True)
    ballot.cast("b", 0, 0, None)
    count = ballot.count(0)
    assert count.judges["b"].percent is None and count.lowest is None and count.all_yes.percent is None


def tasks(count: int = 40) -> dict[str, list[Task]]:
    return {"p": [Task("p", "a", f"What about matter number {n}?") for n in range(count)]}


def test_tasks_are_drawn_by_seed_without_repetition_and_more_of_them_begin_alike():
    known = Tasks(tasks())
    drawn = known.draw(1, "satisfiability", "c1", 10)
    assert len(set(drawn)) == 10 and drawn == Tasks(tasks()).draw(1, "satisfiability", "c1", 10)
    assert known.draw(1, "satisfiability", "c1", 20)[:10] == drawn
    others = [known.draw(2, "satisfiability", "c1", 10), known.draw(1, "subjectivity", "c1", 10)]
    assert drawn not in others and drawn != known.draw(1, "satisfiability", "c2", 10)
    assert set(known.draw(1, "x", "y", 40)) == set(known.ids)
    with pytest.raises(BadInput, match="41 wanted for each, there are 40"):
        known.draw(1, "x", "y", 41)


class Desk:
    """Three judges and two answering models whose replies are functions of the key."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.out, self.asked, self.lives = folder, folder / "out", [], []
        self.hook = lambda request: None
        self.votes = lambda judge, request: True
        (folder / "tasks").mkdir()
        lines = [json.dumps({"persona": t.persona, "activity": t.activity, "prompt": t.prompt}) for t in tasks()["p"]]
        (folder / "tasks" / "p.jsonl").write_text("\n".join(lines))
        texts = ("Be brief", "Use a list", "Write in French")
        rows = [{"id": f"c{at}", "constraint": text, "category": "style rules"} for at, text in enumerate(texts)]
        (folder / "kept.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        monkeypatch.setattr(replicas, "connect", lambda address: None)
        monkeypatch.setattr(replicas, "disconnect", lambda: None)
        monkeypatch.setattr(pools, "one", self.pool)

    def pool(self, name, settings, files, scheduling, seed, logs) -> Pool:
        self.lives.append(name)
        return Pool(name, ConversationScheduler(scheduling, seed), LocalHost(lambda request: self.ask(name, request)))

    def ask(self, name: str, request: Request) -> Response:
        assert request.key.endswith(f"|{name}")
        self.asked.append(request.key)
        self.hook(request)
        if name in ("x", "y"):
            return said(f"{name} about: {request.user}")
        vote = self.votes(name, request)
        if '"1":' in request.user:
            return said("Hm." if vote is None else GOOD if vote else GOOD.replace("no", "yes"))
        return said("Hm." if vote is None else YES if vote else NO)

    def config(self, **more) -> RateConfig:
        engine = EngineSettings("m", engine="scripted")
        settings = {
            "input": str(self.folder),
            "data": str(self.folder),
            "judges": dict.fromkeys("abc", engine),
            "answerers": dict.fromkeys("xy", engine),
            "tasks": 10,
        }
        return RateConfig(**settings | more)

    def run(self, **more) -> int:
        self.asked.clear()
        self.lives.clear()
        return rate.rate(self.config(**more), self.out, console())

    def ratings(self) -> dict[str, dict]:
        return {row["id"]: row for row in map(json.loads, (self.out / "ratings.jsonl").read_text().splitlines())}


def said(text: str) -> Response:
    return Response(text, usage=Usage(1, 0, 1))


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def by_place(desk: Desk, rule):
    """Votes by constraint, measure and the place of the task among the drawn ones: rule(judge, id, measure, place)."""
    plan = rate._plan(desk.config())

    def vote(judge: str, request: Request) -> bool | None:
        kind, *parts = request.key.split("|")
        if kind == "plain":
            return rule(judge, parts[2][:2], "triviality", plan.drawn("triviality").index(parts[0]))
        if kind == "with":
            return rule(judge, parts[0][:2], "subjectivity", plan.drawn("subjectivity", parts[0]).index(parts[1]))
        return rule(judge, kind[:2], "satisfiability", plan.drawn("satisfiability", kind).index(parts[0]))

    return vote


def test_known_votes_give_exact_percentages_by_judge_and_never_pooled(desk, tmp_path, capsys):
    """c0: a and b find it satisfiable in all ten tasks, c in seven: 70.0, although 27 of 30 votes are 90%.
    c1: the same, but c in six of the nine that can be read: 66.7 of 9.
    Answers without it follow c0 in 1 (a), 2 (b), 3 (c) tasks: non-trivial in 90, 80, 70.
    Answers with it: a and b say yes to all, c no to the first two and nothing readable to the last: they agree in 7 of
    the 9 tasks in which all three have a vote."""

    def rule(judge, id, measure, place):
        if measure == "satisfiability":
            if judge != "c":
                return True
            return place < 7 if id == "c0" else None if place == 9 else place < 6
        if measure == "triviality":
            return place < "abc".index(judge) + 1
        return None if judge == "c" and place == 9 else not (judge == "c" and place < 2)

    desk.votes = by_place(desk, rule)
    assert desk.run() == 0
    found = desk.ratings()
    zero, one = found["c0"], found["c1"]
    assert (zero["satisfiability"], zero["triviality"], zero["category"]) == (70.0, 70.0, "style rules")
    assert zero["subjectivity"] == 100 * 7 / 9
    assert zero["n"] == {"satisfiability": 10, "triviality": 10, "subjectivity": 9}
    judges = zero["votes"]["triviality"]["judges"]
    assert [judges[j]["yes"] for j in "abc"] == [9, 8, 7]
    assert zero["votes"]["satisfiability"]["all_yes"] == {"yes": 7, "n": 10, "unreadable": 0}
    assert one["votes"]["satisfiability"]["judges"]["c"] == {"yes": 6, "n": 9, "unreadable": 1}
    assert one["satisfiability"] == 100 * 6 / 9
    capsys.readouterr()
    select(desk.out, tmp_path / "pool", dict.fromkeys(MEASURES, 70.0), 1, console())
    assert capsys.readouterr().out.splitlines()[-1] == "in=3 satisfiability=2 triviality=0 subjectivity=0 kept=1"


def test_what_is_asked_is_what_the_paper_asks(desk):
    desk.run()
    steps = {step: (desk.out / step / "replies.jsonl").read_text().splitlines() for step in rate._steps(plan_of(desk))}
    assert {step: len(lines) for step, lines in steps.items()} == {
        "satisfiability": 3 * 10 * 3,
        "answers": 10 + 3 * 10,  # one set of tasks without a constraint, shared by all
        "verdicts": (10 * 3 + 3 * 10) * 3,
    }
    answers = [json.loads(line) for line in steps["answers"]]
    plain = [row for row in answers if row["key"].startswith("plain|")]
    assert sum(row["key"].endswith("|x") for row in plain) == 5  # shared out evenly
    asked = rate._plan(desk.config()).tasks.prompts
    assert all(row["reply"].partition(" about: ")[2] == asked[row["key"].split("|")[1]] for row in plain)
    with_it = next(row for row in answers if row["key"].startswith("with|c0"))
    assert "Be brief" in with_it["reply"]


def plan_of(desk: Desk):
    return rate._plan(desk.config())


def test_models_take_turns_or_live_together_with_the_same_result(desk, tmp_path):
    desk.votes = lambda judge, request: None if request.seed % 11 == 0 else request.seed % 3 > 0
    assert desk.run() == 0 and desk.lives == ["a", "b", "c", "x", "y", "a", "b", "c"]
    apart = (desk.out / "ratings.jsonl").read_bytes()
    desk.out = tmp_path / "together"
    assert desk.run(together=True, live=7) == 0
    assert (desk.out / "ratings.jsonl").read_bytes() == apart


@pytest.mark.parametrize("at", [25, 100, 150, 280])
def test_a_stop_in_any_step_loses_nothing_and_asks_nothing_twice(desk, tmp_path, at):
    desk.run()
    undisturbed, everything = (desk.out / "ratings.jsonl").read_bytes(), sorted(desk.asked)
    desk.out = tmp_path / "again"

    def stop(request: Request) -> None:
        if len(desk.asked) == at:
            os.kill(os.getpid(), signal.SIGTERM)

    desk.hook = stop
    assert desk.run() == 75
    had = {
        json.loads(line)["key"]
        for step in ("satisfiability", "answers", "verdicts")
        if (desk.out / step / "replies.jsonl").exists()
        for line in (desk.out / step / "replies.jsonl").read_text().splitlines()
    }
    desk.hook = lambda request: None
    assert desk.run() == 0
    assert not had & set(desk.asked) and sorted([*had, *desk.asked]) == everything
    assert (desk.out / "ratings.jsonl").read_bytes() == undisturbed


def test_more_tasks_and_another_judge_go_on_and_another_model_is_refused(desk):
    engine = EngineSettings("m", engine="scripted")
    desk.run(tasks=4, judges={"a": engine})
    assert len(desk.asked) == 12 + 16 + 24
    desk.run(tasks=10, judges={"a": engine, "b": engine})
    assert len(desk.asked) == (30 - 12) + 30 + (40 - 16) + (60 - 24) + 60
    with pytest.raises(BadInput, match=r"judge\[a\].model: m there, other now"):
        desk.run(judges={"a": EngineSettings("other", engine="scripted")})


def test_a_text_that_was_changed_gets_votes_of_its_own(desk):
    desk.run()
    path = desk.folder / "kept.jsonl"
    path.write_text(path.read_text().replace("Be brief", "Be long"))
    desk.run()
    assert len(desk.asked) == 30 + 10 + 60 and all("c0:" in key for key in desk.asked)


def test_what_is_not_satisfiable_is_rated_no_further_when_asked_so(desk):
    desk.votes = lambda judge, request: not (request.key.startswith("c1:") and judge == "b")
    assert desk.run(satisfiable_at_least=70) == 0
    found = desk.ratings()
    assert (found["c1"]["satisfiability"], found["c1"]["triviality"], found["c1"]["subjectivity"]) == (0.0, None, None)
    assert found["c0"]["subjectivity"] == 100.0


def test_a_judge_who_says_nothing_readable_is_stopped_with_name_and_share(desk):
    desk.votes = lambda judge, request: None if judge == "b" else True
    expected = r"satisfiability: judge b: (\d+) of \1 replies cannot be read \(100%\); most_unreadable=0.5 is the limit"
    with pytest.raises(ClusterError, match=expected):
        desk.run(unreadable_after=10)
    asked = [key for key in desk.asked if key.endswith("|b")]
    assert 10 <= len(asked) <= 30 and not any(key.endswith("|c") for key in desk.asked)
    with pytest.raises(ClusterError, match="judge b"):  # known from the folder: nothing is asked again
        desk.run(unreadable_after=10)
    assert desk.asked == []
    assert desk.run(unreadable_after=10, most_unreadable=1.0) == 0
    assert desk.ratings()["c0"]["satisfiability"] is None  # no vote of b's: no rating


def test_judges_can_be_made_to_choose(desk):
    seen = []
    desk.hook = lambda request: seen.append((request.key[:5], request.sampling and request.sampling.choices))
    desk.run(choose=True)
    assert {choices for key, choices in seen if key.startswith("c0:")} == {CHOICES}
    assert (YES, NO) in {choices for key, choices in seen if key == "plain"}
    assert None in {choices for key, choices in seen if key == "plain"}  # the answers themselves are free


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"judges": {}}, "judges: none is named; judges.NAME.model=MODEL names one"),
        ({"answerers": {}}, "answerers: none is named"),
        ({"tasks": 41}, "tasks: 41 wanted for each, there are 40"),
        ({"data": "nowhere"}, "data: nowhere: no such folder"),
        ({"input": "nowhere.jsonl"}, "nowhere.jsonl: cannot be read"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(desk, more, says):
    with pytest.raises(BadInput, match=says):
        desk.run(**more)
    assert desk.lives == [] and not desk.out.exists()


def test_judges_are_greedy_and_known_models_bring_their_settings(tmp_path):
    words = ["in.jsonl", "data=d", "judges.a.model=openai/gpt-oss-120b", "judges.b.model=m", "answerers.x.model=m"]
    config = words_to_config(words, RateConfig)
    assert config.judges["b"].sampling.temperature == 0.0 and config.answerers["x"].sampling.temperature is None
    assert config.judges["a"].reasoning_parser and config.input == "in.jsonl"
    with pytest.raises(BadInput, match="judges: the name 'a b' is not made of"):
        words_to_config([*words, "judges.a b.model=m"], RateConfig)
    with pytest.raises(BadInput, match="unknown key judges"):
        words_to_config([*words, "judges.a.modell=m"], RateConfig)
