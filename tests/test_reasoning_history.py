"""`reasoning_history`: what a model thought travels with its answers where the setting wants it, and nowhere else."""

from pathlib import Path

import pytest

from cluster import weights
from cluster.admission import Play
from cluster.conversation import Conversation, Exchange, Failure, Request, Response
from cluster.events import ConversationsAdded, ReplicaReady, SendTurn, TurnFinished
from cluster.scheduler import ConversationScheduler
from jobs.config import load, load_all, one_pool
from jobs.fingerprint import fingerprint
from jobs.run import Run
from sequor.errors import BadInput
from sequor.records import TurnRecord
from sequor.run_folder import refuse_difference

WORDS = ["data=demo", "sets=[single]", "dialogues=1", "turns=5"]
WORDS += ["candidate.engine=scripted", "candidate.model=c", "candidate.script=sequor.scripts:candidate"]
AS_TEMPLATE = "candidate.reasoning_history=as-template"


def saved(run: Run, *records: dict) -> None:
    """Those turns stand in the folder, and whoever played them is gone."""
    [dialogue] = run._test_sets[0].dialogues
    run.begin({})
    run.write([TurnRecord(test_set="single", dialogue=dialogue.id, **record) for record in records])
    run.end(stopped=True)


def sent(actions) -> Request:
    [send] = [action for action in actions if isinstance(action, SendTurn)]
    return send.request


@pytest.mark.parametrize(("more", "kept"), [([], False), ([AS_TEMPLATE], True)])
def test_it_is_in_the_history_of_a_run_also_of_one_that_is_continued_only_where_it_is_asked_for(tmp_path, more, kept):
    def start() -> Run:
        run = Run(load(None, [*WORDS, *more]), tmp_path / "run", ("candidate",))
        run.prepare()
        return run

    first = start()
    saved(
        first,
        {"turn": 1, "status": "ok", "answer": "one", "reasoning": "thought 1"},
        {"turn": 2, "status": "reasoning_unfinished", "reasoning": "thought 2"},
    )
    scheduler = ConversationScheduler()
    third = sent(
        scheduler.handle(ConversationsAdded(tuple(start().evaluation.dialogues())), ReplicaReady("r", 10**6, 9))
    )
    fourth = sent(scheduler.handle(TurnFinished(0, Response("three", reasoning="thought 3"))))
    fifth = sent(scheduler.handle(TurnFinished(1, Failure("reasoning_unfinished", reasoning="thought 4"))))
    told = ["thought 1" if kept else None, None]  # an answer that never came is nothing, its thought too
    assert [past.reasoning for past in third.history] == told
    assert [past.answer for past in third.history] == ["one", None]
    told += ["thought 3" if kept else None]
    assert [past.reasoning for past in fourth.history] == told
    assert [past.reasoning for past in fifth.history] == [*told, None]


def test_it_counts_among_what_a_conversation_needs_while_no_engine_holds_it():
    def estimate(reasoning: str | None) -> int:
        exchange = Exchange("a", "b", reasoning)
        return Play(Conversation("a", ("a", "c"), finished=(exchange,)), [exchange]).estimate(0)

    assert estimate("x" * 300) == estimate(None) + 100


def parts(*more: str) -> dict[str, str]:
    files = {"candidate": weights.ModelFiles("p", "d")}
    return fingerprint(load(None, [*WORDS, *more]), [], files)


def test_folders_from_before_the_setting_go_on_and_another_setting_is_refused_both_ways():
    before, asked = parts(), parts(AS_TEMPLATE)
    assert not any("reasoning_history" in key for key in before)
    refuse_difference(Path("run"), before, parts("candidate.reasoning_history=none"))
    for there, now in ((before, asked), (asked, before)):
        with pytest.raises(BadInput, match="candidate.reasoning_history"):
            refuse_difference(Path("run"), there, now)


def test_behind_an_endpoint_it_is_refused_in_one_line(tmp_path):
    words = ["candidate.engine=api", AS_TEMPLATE]
    with pytest.raises(BadInput, match="candidate.reasoning_history: an endpoint's template") as error:
        load(None, ["candidate.model=m", *words])
    assert "\n" not in str(error.value)
    (tmp_path / "many.yaml").write_text("candidates: [a, b]\njudge: {model: j}\n")
    with pytest.raises(BadInput, match="candidate.reasoning_history: an endpoint's template"):
        load_all(tmp_path / "many.yaml", words)


def test_a_judge_that_is_the_candidate_needs_no_engines_of_its_own_for_it():
    config = load(None, ["candidate.model=a", "judge.model=a", AS_TEMPLATE])
    assert config.candidate != config.judge and one_pool(config.candidate, config.judge)
