"""A run as conversations, without engines: what is left to play, to ask and to write."""

import pytest

from cluster.conversation import Failure, Response, Turn
from cluster.settings import Sampling
from sequor.errors import BadInput
from sequor.evaluation import Evaluation
from sequor.judging import Judge
from sequor.records import FailureRecord, JudgementRecord, TurnRecord
from sequor.types import Constraint, Dialogue, TestSet, UserTurn

RULES = (Constraint("c1", "be brief"), Constraint("c2", "be kind"))
YES = Response("Final verdict: yes")


def test_set(dialogues: int = 2, turns: int = 3) -> TestSet:
    user_turns = tuple(UserTurn(f"q{n}", RULES) for n in range(turns))
    return TestSet("tuples_3", tuple(Dialogue("tuples_3", f"d{n}", user_turns) for n in range(dialogues)))


test_set.__test__ = False


J, K = Judge("j"), Judge("k")


def fresh(turns=(), judgements=(), judges=(J,), again=False) -> Evaluation:
    return Evaluation([test_set()], turns, judgements, {j.model: j for j in judges}, again)


def verdict(constraint="c1", status="violated", judge="j", **more) -> JudgementRecord:
    key = {"test_set": "tuples_3", "dialogue": "d0", "turn": 1, "constraint": constraint, "judge": judge}
    return JudgementRecord(**key, status=status, parser="strict/2", **more)


def answered(turn: int = 1, dialogue: str = "d0", **more) -> TurnRecord:
    return TurnRecord(test_set="tuples_3", dialogue=dialogue, turn=turn, **{"status": "ok", "answer": "a", **more})


def test_a_fresh_run_plays_everything_and_asks_nothing_yet():
    evaluation = fresh()
    assert [len(c.user_turns) for c in evaluation.dialogues()] == [3, 3]
    assert evaluation.questions("j", 100) == []
    assert (evaluation.turns_total, evaluation.judgements_total, evaluation.complete) == (6, 12, False)


def test_a_saved_answer_is_asked_about_and_its_verdict_written():
    evaluation = fresh()
    record = evaluation.finished(Turn("tuples_3/d0", 0, Response("hi")), 0.0)
    assert isinstance(record, TurnRecord) and (record.turn, record.answer) == (1, "hi")
    asked = evaluation.questions("j", 100)
    assert [c.key for c in asked] == ["tuples_3/d0/1/c1/j", "tuples_3/d0/1/c2/j"]
    verdict = evaluation.finished(Turn(asked[0].key, 0, YES), 0.0)
    assert isinstance(verdict, JudgementRecord) and verdict.status == "satisfied"
    assert evaluation.questions("j", 100) == []


def test_questions_are_made_only_as_there_is_room_whole_answers_at_a_time():
    evaluation = fresh([answered(1), answered(2), answered(3)])
    asked = evaluation.questions("j", 3)
    assert len(asked) == 4
    assert evaluation.questions("j", 3) == []
    for question in asked[:2]:
        evaluation.finished(Turn(question.key, 0, YES), 0.0)
    assert len(evaluation.questions("j", 3)) == 2


def test_a_resumed_run_goes_on_behind_its_records():
    evaluation = fresh([answered(2, answer=None, status="empty"), answered(1)], [verdict()])
    by_key = {c.key: c for c in evaluation.dialogues()}
    assert [e.answer for e in by_key["tuples_3/d0"].finished] == ["a", None]
    assert by_key["tuples_3/d1"].finished == ()
    assert [c.key for c in evaluation.questions("j", 100)] == ["tuples_3/d0/1/c2/j"]
    assert evaluation.unjudgeable == 2


def test_a_judgement_of_another_judge_is_not_this_ones():
    assert len(fresh([answered(1)], [verdict(judge="k")]).questions("j", 100)) == 2


def test_a_failure_of_the_machinery_is_a_log_entry_and_leaves_the_turn_open():
    evaluation = fresh()
    record = evaluation.finished(Turn("tuples_3/d0", 1, Failure("timeout", "slow")), 5.0)
    assert record == FailureRecord(key="tuples_3/d0/2", status="timeout", detail="slow", time=5.0)
    assert evaluation.turns_done == 0


def test_a_run_is_complete_when_every_turn_has_an_end_and_every_answer_its_verdicts():
    evaluation = fresh()
    for dialogue in ("d0", "d1"):
        for turn in range(3):
            outcome = Failure("empty") if turn == 1 else Response("a")
            evaluation.finished(Turn(f"tuples_3/{dialogue}", turn, outcome), 0.0)
    asked = evaluation.questions("j", 100)
    assert len(asked) == 8
    for question in asked:
        assert not evaluation.complete
        evaluation.finished(Turn(question.key, 0, YES), 0.0)
    assert evaluation.complete


def test_without_a_judge_answers_are_enough():
    evaluation = fresh(judges=())
    for dialogue in ("d0", "d1"):
        for turn in range(3):
            evaluation.finished(Turn(f"tuples_3/{dialogue}", turn, Response("a")), 0.0)
    assert evaluation.complete and evaluation.judgements_total == 0


def test_of_a_turn_that_stands_there_twice_the_first_record_counts():
    evaluation = fresh([answered(1, answer="first"), answered(1, answer="second"), answered(2)])
    [done] = [c for c in evaluation.dialogues() if c.key == "tuples_3/d0"]
    assert [e.answer for e in done.finished] == ["first", "a"]
    assert evaluation.turns_done == 2


def test_a_turn_without_its_predecessor_is_refused():
    with pytest.raises(BadInput, match=r"tuples_3/d0/3: the turn before it is not there"):
        fresh([answered(1), answered(3)])
    with pytest.raises(BadInput, match=r"tuples_3/d9/1: no such dialogue"):
        fresh([answered(1, dialogue="d9")])


def test_answers_and_judgements_are_complete_each_for_itself():
    verdicts = [verdict("c1"), verdict("c2")]
    evaluation = fresh([answered(1), answered(2, answer=None, status="empty")], verdicts)
    assert (evaluation.answered, evaluation.judged, evaluation.complete) == (False, True, False)
    assert not fresh([answered(1)], verdicts[:1]).judged


def test_each_judge_is_asked_everything_and_told_apart():
    evaluation = fresh([answered(1)], [verdict("c1"), verdict("c2"), verdict("c1", judge="k")], (J, K))
    assert evaluation.judged_by("j") and not evaluation.judged_by("k")
    assert evaluation.judgements_total == 24
    [last] = evaluation.questions("k", 100)
    assert evaluation.finished(Turn(last.key, 0, YES), 0.0).judge == "k"
    assert evaluation.judged


def test_whether_the_task_is_done_is_asked_without_its_constraints():
    turns = (UserTurn("Be brief.\n\n\nWhat is rain?", RULES[:1]), UserTurn("And snow?", RULES[:1]))
    found = Evaluation(
        [TestSet("single", (Dialogue("single", "d0", turns),))], [], [], {"judge": Judge("j", completion=True)}
    )
    assert found.judgements_total == 4
    for turn in range(2):
        found.finished(Turn("single/d0", turn, Response("Water.")), 0.0)
    asked = {c.key: c.user_turns[0] for c in found.questions("judge", 100)}
    assert list(asked) == [f"single/d0/{t}/{about}/j" for t in (1, 2) for about in ("c1", "task_completion")]
    first, second = asked["single/d0/1/task_completion/j"], asked["single/d0/2/task_completion/j"]
    assert "What is rain?" in first and "brief" not in first.lower() and "And snow?" in second
    record = found.finished(Turn("single/d0/1/task_completion/j", 0, YES), 0.0)
    assert (record.constraint, record.status) == ("task_completion", "satisfied")


def test_a_verdict_that_was_cut_is_asked_for_once_more_with_twice_the_room():
    """A judge that spends its whole budget thinking gives no verdict; both attempts are written down."""
    evaluation = fresh([answered(1)], [verdict("c2")], (Judge("j", sampling=Sampling(max_tokens=10)),))
    cut = Failure("reasoning_unfinished", "no answer in 10 tokens", "Let me count")
    [first] = evaluation.questions("j", 100)
    record = evaluation.finished(Turn(first.key, 0, cut), 0.0)
    assert (record.status, record.truncated, record.attempt, record.reply) == ("unreadable", True, 1, None)
    assert not evaluation.judged
    [second] = evaluation.questions("j", 100)
    assert (second.sampling.max_tokens, second.user_turns, second.key) == (20, first.user_turns, first.key + "#2")
    record = evaluation.finished(Turn(second.key, 0, Response("Final", truncated=True)), 0.0)
    assert (record.status, record.truncated, record.attempt) == ("unreadable", True, 2)
    assert evaluation.judged and evaluation.questions("j", 100) == []


def test_a_resumed_run_asks_again_only_where_the_second_attempt_is_missing():
    cut = verdict(status="unreadable", truncated=True)
    [again] = fresh([answered(1)], [cut, verdict("c2")]).questions("j", 100)
    assert again.key.endswith("/c1/j#2")
    twice = [cut, verdict(status="unreadable", truncated=True, attempt=2), verdict("c2")]
    assert fresh([answered(1)], twice).judged
    assert fresh([answered(1)], [verdict(status="unreadable"), verdict("c2")]).judged


def test_only_what_no_judge_could_say_is_asked_again():
    records = [verdict("c1", "judge_error"), verdict("c2", "unreadable")]
    evaluation = fresh([answered(1)], records, again=True)
    asked = evaluation.questions("j", 100)
    assert [c.key.split("/")[-2:] for c in asked] == [["c1", "j#2"], ["c2", "j#2"]]
    records.append(evaluation.finished(Turn(asked[0].key, 0, YES), 0.0))
    [third] = fresh([answered(1)], [*records, verdict("c2", "unreadable", attempt=2)], again=True).questions("j", 9)
    assert third.key.endswith("/c2/j#3")
    assert fresh([answered(1)], [verdict("c1"), verdict("c2", "satisfied")], again=True).judged
