"""A run as conversations, without engines: what is left to play, to ask and to write."""

import pytest

from cluster.conversation import Failure, Response, Turn
from sequor.errors import BadInput
from sequor.evaluation import Evaluation
from sequor.records import FailureRecord, JudgementRecord, TurnRecord
from sequor.types import Constraint, Dialogue, TestSet, UserTurn

RULES = (Constraint("c1", "be brief"), Constraint("c2", "be kind"))
YES = Response("Final verdict: yes")


def test_set(dialogues: int = 2, turns: int = 3) -> TestSet:
    user_turns = tuple(UserTurn(f"q{n}", RULES) for n in range(turns))
    return TestSet("tuples_3", tuple(Dialogue("tuples_3", f"d{n}", user_turns) for n in range(dialogues)))


test_set.__test__ = False


def fresh(turns=(), judgements=(), judge="j") -> Evaluation:
    return Evaluation([test_set()], turns, judgements, judge)


def answered(turn: int = 1, dialogue: str = "d0", **more) -> TurnRecord:
    return TurnRecord(test_set="tuples_3", dialogue=dialogue, turn=turn, **{"status": "ok", "answer": "a", **more})


def test_a_fresh_run_plays_everything_and_asks_nothing_yet():
    evaluation = fresh()
    assert [len(c.user_turns) for c in evaluation.dialogues()] == [3, 3]
    assert evaluation.questions(100) == []
    assert (evaluation.turns_total, evaluation.judgements_total, evaluation.complete) == (6, 12, False)


def test_a_saved_answer_is_asked_about_and_its_verdict_written():
    evaluation = fresh()
    record = evaluation.finished(Turn("tuples_3/d0", 0, Response("hi")), 0.0)
    assert isinstance(record, TurnRecord) and (record.turn, record.answer) == (1, "hi")
    asked = evaluation.questions(100)
    assert [c.key for c in asked] == ["tuples_3/d0/1/c1/j", "tuples_3/d0/1/c2/j"]
    verdict = evaluation.finished(Turn(asked[0].key, 0, YES), 0.0)
    assert isinstance(verdict, JudgementRecord) and verdict.status == "satisfied"
    assert evaluation.questions(100) == []


def test_questions_are_made_only_as_there_is_room_whole_answers_at_a_time():
    evaluation = fresh([answered(1), answered(2), answered(3)])
    assert len(evaluation.questions(3)) == 4
    assert len(evaluation.questions(3)) == 2


def test_a_resumed_run_goes_on_behind_its_records():
    judged = JudgementRecord(
        test_set="tuples_3", dialogue="d0", turn=1, constraint="c1", judge="j", status="violated", parser="p"
    )
    evaluation = fresh([answered(2, answer=None, status="empty"), answered(1)], [judged])
    by_key = {c.key: c for c in evaluation.dialogues()}
    assert [e.answer for e in by_key["tuples_3/d0"].finished] == ["a", None]
    assert by_key["tuples_3/d1"].finished == ()
    assert [c.key for c in evaluation.questions(100)] == ["tuples_3/d0/1/c2/j"]
    assert evaluation.unjudgeable == 2


def test_a_judgement_of_another_judge_is_not_this_ones():
    other = JudgementRecord(
        test_set="tuples_3", dialogue="d0", turn=1, constraint="c1", judge="k", status="violated", parser="p"
    )
    assert len(fresh([answered(1)], [other]).questions(100)) == 2


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
    asked = evaluation.questions(100)
    assert len(asked) == 8
    for question in asked:
        assert not evaluation.complete
        evaluation.finished(Turn(question.key, 0, YES), 0.0)
    assert evaluation.complete


def test_without_a_judge_answers_are_enough():
    evaluation = fresh(judge=None)
    for dialogue in ("d0", "d1"):
        for turn in range(3):
            evaluation.finished(Turn(f"tuples_3/{dialogue}", turn, Response("a")), 0.0)
    assert evaluation.complete and evaluation.questions(100) == []


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
    verdicts = [
        JudgementRecord(
            test_set="tuples_3", dialogue="d0", turn=1, constraint=c, judge="j", status="violated", parser="p"
        )
        for c in ("c1", "c2")
    ]
    evaluation = fresh([answered(1), answered(2, answer=None, status="empty")], verdicts)
    assert (evaluation.answered, evaluation.judged, evaluation.complete) == (False, True, False)
    assert not fresh([answered(1)], verdicts[:1]).judged
