"""One definition of a passed turn, and the numbers that follow from it, worked out by hand."""

import pytest

from sequor.metrics import Rate, results, score, turn_result
from sequor.types import Constraint, Dialogue, TestSet, UserTurn


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [
        ({"a": "satisfied", "b": "satisfied"}, "passed"),
        ({"a": "satisfied", "b": "violated"}, "failed"),
        ({"a": "unreadable", "b": "violated"}, "failed"),
        ({"b": "violated"}, "failed"),
        ({"a": "satisfied", "b": "unreadable"}, "undecided"),
        ({"a": "satisfied", "b": "judge_error"}, "undecided"),
        ({"a": "satisfied"}, "undecided"),
        ({}, "undecided"),
    ],
)
def test_a_turn_passes_when_all_are_satisfied_and_fails_at_one_readable_violation(verdicts, result):
    assert turn_result(["a", "b"], verdicts) == result


def test_accuracy_stands_beside_its_coverage_and_bounds():
    rate = Rate(passed=6, failed=2, undecided=2)
    assert (rate.accuracy, rate.coverage, rate.lower, rate.upper) == (0.75, 0.8, 0.6, 0.8)


def test_nothing_decided_is_no_accuracy_and_not_zero():
    rate = Rate(0, 0, 4)
    assert rate.accuracy is None and (rate.lower, rate.upper) == (0.0, 1.0)


def dialogue(name: str, turns: int = 3) -> Dialogue:
    return Dialogue("single", name, tuple(UserTurn(f"q{n}", (Constraint("a", "be brief"),)) for n in range(turns)))


def test_a_small_run_worked_out_by_hand():
    """Three dialogues, three turns. Turn 1: pass pass pass. Turn 2: pass fail missing. Turn 3: fail fail unreadable."""
    table = {"x": "satisfied satisfied violated", "y": "satisfied violated violated", "z": "satisfied - unreadable"}
    verdicts = {
        ("single", name, turn): {"a": status}
        for name, row in table.items()
        for turn, status in enumerate(row.split(), 1)
        if status != "-"
    }
    found = score(TestSet("single", tuple(dialogue(name) for name in table)), verdicts, "judge")
    assert found.turns == (Rate(3, 0, 0), Rate(1, 1, 1), Rate(0, 2, 1))
    assert found.overall == Rate(4, 3, 2)
    assert found.mean == pytest.approx((1 + 0.5 + 0) / 3)
    assert found.drop == -1.0
    assert found.worst_minus_best == -1.0


def test_a_table_without_verdicts_is_all_undecided():
    assert results([dialogue("x")], {}, 3).tolist() == [[2, 2, 2]]
