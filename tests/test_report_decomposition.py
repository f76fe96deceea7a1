"""How constraints are lost, on dialogues small enough to read."""

import numpy as np
import pytest
from madeup import write_run
from scipy import stats

from sequor.report import decomposition
from sequor.report.decomposition import KINDS, NONE
from sequor.report.reading import read


def frame(tmp_path, rows: dict[str, str]):
    run = read(write_run(tmp_path / "run", {"everything": rows}), "m").run
    found = run.sets["everything"]
    return found, found.verdicts["judge"], found.results("judge")


def named(codes) -> list[str]:
    return ["-" if code == NONE else KINDS[code] for code in codes]


def test_every_violation_has_its_kind(tmp_path):
    found, verdicts, _ = frame(tmp_path, {"d": "v v s v v s v"})
    kinds = named(decomposition.violation_kinds(found.slots, verdicts))
    assert kinds == ["never", "never", "-", "again", "stays", "-", "again"]


def test_the_first_violation_after_being_followed_is_the_break(tmp_path):
    found, verdicts, _ = frame(tmp_path, {"d": "s s v v u v s v"})
    kinds = named(decomposition.violation_kinds(found.slots, verdicts))
    assert kinds == ["-", "-", "broke", "stays", "-", "stays", "-", "again"]


def test_a_constraint_that_comes_again_begins_a_new_spell(tmp_path):
    found, verdicts, _ = frame(tmp_path, {"d": "s. v. .s v. s."})
    assert found.slots.given.tolist() == [0, 0, 2, 3, 3]
    assert named(decomposition.violation_kinds(found.slots, verdicts)) == ["-", "broke", "-", "never", "-"]


def test_a_failed_turn_takes_the_newest_kind(tmp_path):
    found, verdicts, results = frame(tmp_path, {"d": "vs vv ss uv"})
    kinds = decomposition.failed_turn_kinds(found.slots, verdicts, results)
    assert named(kinds[0]) == ["never", "broke", "-", "again"]


def test_recovery_by_hand(tmp_path):
    """a: lost at turn 2, back at turn 4. b: lost for good. c: lost at the last turn, which says nothing."""
    found, verdicts, _ = frame(tmp_path, {"a": "s v v s", "b": "s v v v", "c": "s s s v"})
    spells = decomposition.broken_spells(found.slots, verdicts)
    assert spells.dialogue.tolist() == [0, 1]
    assert spells.recovers.tolist() == [True, False]
    assert spells.next_satisfied.tolist() == [False, False]
    assert spells.broken_at.tolist() == [1, 1]


def test_satisfied_before_it_broke_is_no_recovery(tmp_path):
    found, verdicts, _ = frame(tmp_path, {"a": "s s v v"})
    assert decomposition.broken_spells(found.slots, verdicts).recovers.tolist() == [False]


def test_which_breaks_first(tmp_path):
    found, verdicts, results = frame(tmp_path, {"a": "s. ss sv vv", "b": "ss ss ss ss", "c": "vv ss ss ss"})
    positions, count = decomposition.first_breaks(found.slots, verdicts, results)
    assert positions.tolist() == [[0, 1], [0, 0], [1, 1]]
    assert count.tolist() == [2, 0, 2]


def test_survival_is_kaplan_and_meiers(tmp_path):
    rows = {"a": "s s s s", "b": "s v s s", "c": "s s v s", "d": "s u v s", "e": "v s s s", "f": "s s s v"}
    _, _, results = frame(tmp_path, rows)
    ours = decomposition.survival(np.ones((1, 6), np.float32), results)[0]
    # Turns survived by those that fail; d is lost from sight at turn 2, having survived turn 1; a survives all.
    failed = stats.CensoredData(uncensored=[2, 3, 1, 4], right=[4, 1])
    theirs = stats.ecdf(failed).sf
    assert ours == pytest.approx([float(theirs.evaluate(turn)) for turn in (1, 2, 3, 4)])
    assert ours == pytest.approx([5 / 6, 5 / 8, 5 / 12, 5 / 24])


def test_survival_ends_where_nobody_is_followed(tmp_path):
    _, _, results = frame(tmp_path, {"a": "s u s", "b": "s u s"})
    ours = decomposition.survival(np.ones((1, 2), np.float32), results)[0]
    assert ours[0] == 1.0 and np.isnan(ours[1:]).all()


def test_nothing_readable_is_no_loss(tmp_path):
    found, verdicts, results = frame(tmp_path, {"a": "u -"})
    assert named(decomposition.violation_kinds(found.slots, verdicts)) == ["-", "-"]
    assert len(decomposition.broken_spells(found.slots, verdicts).dialogue) == 0
    assert (decomposition.failed_turn_kinds(found.slots, verdicts, results) == NONE).all()
