"""From a run's records to the paper's tables, worked out by hand; and what is said when runs are not alike."""

import numpy as np
import pytest
from madeup import write_run
from msgspec.structs import replace

from sequor import metrics
from sequor.errors import BadInput
from sequor.metrics import verdicts_by_turn
from sequor.report import groups, paper, tables_models, tables_of
from sequor.report.analysis import Analysis
from sequor.report.reading import read
from sequor.report.report import Options, write_report
from sequor.report.sample import write_runs
from sequor.run_folder import RunFolder
from sequor.scoring import score

# Turn 1: 4/4. Turn 2: 2/3 (one unreadable). Turn 3: 1/4. Turn 4: 2/4.
SMALL = {"single": {"a": "s s v v", "b": "s u v s", "c": "s v v v", "d": "s s s s"}}


def analysis(*folders, **more) -> Analysis:
    return Analysis([read(folder, folder.name).run for folder in folders], resamples=500, **more)


def test_tables_5_and_6_by_hand(tmp_path):
    found = analysis(write_run(tmp_path / "m", SMALL))
    cell = found.cells[0, "single"]
    assert cell.accuracy == pytest.approx([1, 2 / 3, 1 / 4, 1 / 2])
    assert found.drop(0, "single").value == -0.5
    assert found.worst_minus_best(0, "single").value == -0.75
    assert found.mean(0, "single").value == pytest.approx((1 + 2 / 3 + 1 / 4 + 1 / 2) / 4)
    five = tables_models.change(found, "drop", "t", "t")
    assert five.csv().splitlines()[1].startswith("m,-50.0,")
    assert tables_models.change(found, "worst_minus_best", "t", "t").rows[0][1].value == -0.75
    main = tables_models.main(found).csv().splitlines()[1].split(",")
    assert main[:3] == ["m", "Single", "4"] and main[-3:] == ["93.75", "56.25", "62.5"]  # coverage, lower, upper


def test_the_average_row_is_the_mean_over_models(tmp_path):
    other = {"single": {"a": "s s s s", "b": "s s s s", "c": "s s s s", "d": "s s s v"}}
    found = analysis(write_run(tmp_path / "m", SMALL), write_run(tmp_path / "n", other, model="b/other"))
    assert found.average("drop", "single").value == pytest.approx((-0.5 - 0.25) / 2)
    assert found.labels == ["n", "m"]  # the better one first
    [pair] = [p for p in found.pairs if p.test_set == "single"]
    assert pair.difference.value == pytest.approx(15 / 16 - (1 + 2 / 3 + 1 / 4 + 1 / 2) / 4)


def test_models_with_the_same_verdicts_tie(tmp_path):
    found = analysis(write_run(tmp_path / "m", SMALL), write_run(tmp_path / "n", SMALL, model="b/other"))
    assert all(p.tied and p.difference.low == p.difference.high == 0 for p in found.pairs)
    assert found.ties(0) == [1] and found.ranking[0].points.value == found.ranking[1].points.value == 0.5
    assert "tie" in tables_models.pairs(found).markdown()


def test_columns_and_records_agree_on_every_turn(tmp_path):
    """`frame.turn_results` and the scores are the rule of `metrics.turn_result`, also with three in force."""
    [folder] = write_runs(tmp_path, models=1, dialogues=4, turns=12)
    run = read(folder, "m").run
    scores = {(s.test_set, s.judge): s for s in score(folder)[0]}
    assert len(scores) == 14
    for name, frame in run.sets.items():
        for judge in run.judges:
            found = metrics.score_results(name, judge, frame.results(judge))
            assert found == replace(scores[name, judge], completion=None)


def test_age_and_window_of_a_constraint(tmp_path):
    turns = {("everything", "a", 4): {"dropped_turns": 2}}
    folder = write_run(tmp_path / "m", {"everything": {"a": "s. ss sv vv"}}, turns=turns)
    frame = read(folder, "m").run.sets["everything"]
    assert frame.slots.age.tolist() == [0, 1, 0, 2, 1, 3, 2]
    assert frame.out_of_window.tolist() == [False] * 5 + [True, True]
    turns = {("everything", "a", 4): {"dropped_turns": 1}}
    again = read(write_run(tmp_path / "n", {"everything": {"a": "s. ss sv vv"}}, turns=turns), "n").run
    assert again.sets["everything"].out_of_window.tolist() == [False] * 5 + [True, False]


def test_rates_by_number_in_force_by_hand(tmp_path):
    found = analysis(write_run(tmp_path / "m", {"everything": {"a": "s. ss sv vv", "b": "v. ss ss uv"}}))
    turns = groups.of_turns_by_count(found, 0, 2)
    assert turns.count.tolist() == [2, 6] and turns.curve.value == pytest.approx([1 / 2, 3 / 6])
    alone = groups.of_constraints(found, 0, "count", 3)
    assert alone.count.tolist() == [0, 2, 11] and alone.curve.value[1:] == pytest.approx([1 / 2, 7 / 11])


def test_in_context_at_the_ages_of_what_was_dropped(tmp_path):
    """Out of context at age 1 only: satisfied 0 of 1. In context at age 1: 1 of 2; age 0 must not count."""
    turns = {("everything", "a", 2): {"dropped_turns": 1}}
    rows = {"a": "s v", "b": "s s", "c": "s v"}
    found = analysis(write_run(tmp_path / "m", {"everything": rows}, turns=turns))
    assert groups.of_constraints(found, 0, "window", 2).curve.value.tolist() == [0.8, 0.0]
    assert groups.in_context_at_these_ages(found, 0).value == 0.5


def test_hardest_first(tmp_path):
    found = analysis(write_run(tmp_path / "m", {"everything": {"a": "sv ss", "b": "sv s-"}}))
    ranked = groups.hardness(found, {"c0": "Style rules"})
    assert [(h.id, h.dialogues, h.verdicts, h.satisfied) for h in ranked] == [("c1", 2, 3, 1 / 3), ("c0", 2, 4, 1.0)]
    assert ranked[1].category == "style_rules"


def test_categories_by_hand(tmp_path):
    found = analysis(write_run(tmp_path / "m", {"everything": {"a": "sv ss", "b": "sv s-"}}))
    rates = groups.of_categories(found, 0, {"c0": "style-rules", "c1": "something else"})
    assert rates.count.tolist() == [0, 4, 0, 0] and rates.curve.value[1] == 1.0


def test_two_judges_side_by_side(tmp_path):
    others = {"other": {"single": {"a": "s v v v", "b": "s s v u", "c": "s v v v", "d": "s s s s"}}}
    found = analysis(write_run(tmp_path / "m", SMALL, others=others))
    [a] = groups.agreements(found)
    assert (a.first, a.second, a.both) == ("judge", "other", 14) and a.same == pytest.approx(13 / 14)
    assert found.runs[0].judge == "judge"  # the run's own


def test_task_completion_beside_the_constraints(tmp_path):
    done = {"judge": {"single": {"a": "s s v v"}}}
    folder = write_run(tmp_path / "m", {"single": {"a": "s v s v"}})
    text = (folder / "judgements.jsonl").read_text()
    write_run(tmp_path / "t", done["judge"])
    extra = (tmp_path / "t" / "judgements.jsonl").read_text().replace('"c0"', '"task_completion"')
    (folder / "judgements.jsonl").write_text(text + extra)
    curve, cross = groups.completion(analysis(folder), 0, "single")
    assert curve.value.tolist() == [1, 1, 0, 0]
    assert cross.tolist() == [[1, 1], [1, 1]]


def test_tokens_of_a_conversation_without_reasoning(tmp_path):
    """The last prompt, and of the last 40 tokens the half that is no reasoning (answer and reasoning of one length)."""
    turns = {
        ("single", "a", n): {"prompt_tokens": 100 * n, "output_tokens": 40, "answer": "x" * 8, "reasoning": "y" * 8}
        for n in (1, 2)
    }
    frame = read(write_run(tmp_path / "m", {"single": {"a": "s s"}}, turns=turns), "m").run.sets["single"]
    assert tables_models.tokens(frame).tolist() == [220.0]


def test_tokens_of_an_unfinished_dialogue_are_not_known(tmp_path):
    folder = write_run(tmp_path / "m", {"single": {"a": "s -", "b": "s s"}}, turns={("single", "a", 2): None})
    tokens = tables_models.tokens(read(folder, "m").run.sets["single"])
    assert np.isnan(tokens[0]) and np.isfinite(tokens[1])


def test_runs_of_other_lengths_are_compared_over_what_both_have(tmp_path):
    short = {"single": {name: row[:5] for name, row in SMALL["single"].items()}}  # three turns
    found = analysis(write_run(tmp_path / "m", SMALL), write_run(tmp_path / "n", short))
    assert found.turns == 3 and any("the first 3 are compared" in note for note in found.notes)
    assert [p.dialogues for p in found.pairs] == [4, 4]
    assert found.cells[0, "single"].results.shape == (4, 3)


def test_other_dialogues_and_missing_sets_are_said(tmp_path):
    more = SMALL | {"add_5": {"a": "s s s s"}}
    folders = write_run(tmp_path / "m", more), write_run(tmp_path / "n", SMALL, user="What of {turn}?")
    found = analysis(*folders)
    assert any("n has no add_5" in note for note in found.notes)
    assert any("single: not the same dialogues" in note for note in found.notes)
    assert found.common == ["single"] and found.pairs == []


def test_pairs_share_the_dialogues_that_both_have(tmp_path):
    part = {"single": {name: SMALL["single"][name] for name in "ac"}}
    found = analysis(write_run(tmp_path / "m", SMALL), write_run(tmp_path / "n", part))
    assert [p.dialogues for p in found.pairs] == [2, 2]
    assert all(p.difference.value == 0 for p in found.pairs)


# One survivor of a crash had 100% and came first.
def test_where_too_little_is_decided_there_is_no_headline_no_rank_and_no_part_in_averages(tmp_path):
    crashed = {"single": {"a": "s s s s"} | {name: "- - - -" for name in "bcd"}}
    turns = {("single", name, turn): None for name in "bcd" for turn in (1, 2, 3, 4)}
    worse = {"single": {name: "s s s v" for name in "abcd"}}
    folders = [
        write_run(tmp_path / "crashed", crashed, turns=turns),
        write_run(tmp_path / "m", SMALL),
        write_run(tmp_path / "n", worse),
    ]
    found = analysis(*folders)
    assert found.labels == ["n", "m", "crashed"] and found.best == 0 and sorted(found.ranking) == [0, 1]
    assert found.cells[2, "single"].accuracy.tolist() == [1, 1, 1, 1]
    assert found.average("mean", "single").value == pytest.approx((0.75 + (1 + 2 / 3 + 1 / 4 + 1 / 2) / 4) / 2)
    assert found.mean_curve("single").value[3] == pytest.approx((0 + 1 / 2) / 2)
    assert all({p.first, p.second} == {0, 1} for p in found.pairs) and found.pairs
    for table in (tables_models.change(found, "drop", "t", "t"), tables_models.overview(found)):
        assert table.csv().splitlines()[3].startswith("crashed,,")
    assert [found.label_on(m, "single") for m in range(3)] == ["n", "m", "crashed (25% decided)"]
    assert not found.at(2, "single", 0).known and found.at(1, "single", 0).known
    row = tables_models.main(found).csv().splitlines()[3].split(",")
    assert row[:3] == ["crashed", "Single", "4"] and row[-3:] == ["25.0", "25.0", "100.0"] and not any(row[3:-3])
    assert any("crashed: no headline, for less than 90%" in note for note in found.notes)
    made = write_report(folders, tmp_path / "out", Options(resamples=50, processes=1, compare_paper=True))
    assert (made.out / "index.html").exists()


def test_a_runs_own_minimum_is_the_reports(tmp_path):
    folder = write_run(tmp_path / "m", {"single": {"a": "s s s u", "b": "s s s u"}})
    assert not analysis(folder).mean(0, "single").known
    file = RunFolder(folder).read()
    RunFolder(folder).write(replace(file, config=file.config | {"min_coverage": 0.7}))
    assert analysis(folder).mean(0, "single").value == 1


def test_half_a_run_is_marked(tmp_path):
    turns = {("single", name, turn): None for name in "abcd" for turn in (3, 4)}
    half = {"single": {name: row[:3] + " - -" for name, row in SMALL["single"].items()}}
    found = analysis(write_run(tmp_path / "m", half, turns=turns))
    assert any("an unfinished run, 50.0% of its turns" in note for note in found.notes)
    assert found.cells[0, "single"].score.overall.undecided == 9
    assert found.drop(0, "single").known is False  # nothing is known of the last turn


def test_a_run_without_judgements_has_no_accuracy(tmp_path):
    found = analysis(write_run(tmp_path / "m", SMALL, judge=None))
    assert found.judged == [] and found.best is None
    assert any("nothing was judged yet" in note for note in found.notes)
    assert [t.name for t in tables_of.all_tables(found, {}, True)] == ["table-7-tokens", "outcomes"]


def test_the_first_of_several_records_counts_and_a_torn_end_does_not(tmp_path):
    folder = write_run(tmp_path / "m", SMALL)
    first = (folder / "judgements.jsonl").read_text().splitlines()[0]
    with open(folder / "judgements.jsonl", "a") as file:
        file.write(first.replace("satisfied", "violated") + '\n{"test_set": "sin')
    run = read(folder, "m").run
    assert run.repeated == 1 and run.sets["single"].verdicts["judge"][0] == 0


def test_a_broken_line_is_named(tmp_path):
    folder = write_run(tmp_path / "m", SMALL)
    text = (folder / "turns.jsonl").read_text().splitlines()
    (folder / "turns.jsonl").write_text("\n".join([text[0], "{", *text[1:]]) + "\n")
    with pytest.raises(BadInput, match=r"turns.jsonl:2: "):
        read(folder, "m")


def test_a_record_of_no_dialogue_is_refused(tmp_path):
    folder = write_run(tmp_path / "m", SMALL)
    other = write_run(tmp_path / "n", {"single": {"z": "s s s s"}})
    (folder / "turns.jsonl").write_bytes((other / "turns.jsonl").read_bytes())
    with pytest.raises(BadInput, match="single/z: no such dialogue"):
        read(folder, "m")


def test_the_sample_is_a_run_that_can_be_read_back(tmp_path):
    [folder] = write_runs(tmp_path, models=1, dialogues=2, turns=5)
    assert len(RunFolder(folder).test_sets()) == 7
    assert len(list(RunFolder(folder).turns)) == 7 * 2 * 5
    again = write_runs(tmp_path / "again", models=1, dialogues=2, turns=5)[0]
    assert (folder / "judgements.jsonl").read_bytes() == (again / "judgements.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen3-4B-Inst"),
        ("google/gemma-3-12b-it", "Gemma3-12B"),
        ("openai/gpt-oss-120b", "GPT-oss-120B"),
        ("/models/Llama-3.3-70B-Instruct/", "Llama-3.3-70B-Inst"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3-235B-A22B-Inst"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", None),
        ("zai-org/GLM-4.7-FP8", None),
    ],
)
def test_a_model_is_found_in_the_paper(model, name):
    assert paper.find(model) == name


def test_the_papers_rows_add_up_to_its_averages():
    """Of table 5 all do to a hundredth; of table 6 too."""
    for table in (paper.LAST_MINUS_FIRST, paper.WORST_MINUS_BEST):
        rows = np.array([row for name, row in table.items() if name != "Average"])
        assert rows.shape == (11, 5)
        assert rows.mean(axis=0) == pytest.approx(table["Average"], abs=0.011)


def test_ours_stand_beside_the_papers(tmp_path):
    found = analysis(write_run(tmp_path / "m", SMALL, model="Qwen/Qwen3-4B-Instruct-2507"))
    table = tables_models.beside_paper(found, "drop", paper.LAST_MINUS_FIRST, "t", "t")
    assert [row[:2] for row in table.rows] == [
        ["m", "this run"],
        ["Qwen3-4B-Inst", "paper"],
        ["Average of 11 models", "paper"],
    ]
    assert table.rows[0][2].value == -0.5 and table.rows[1][2].value == pytest.approx(-0.125)


def test_the_judge_against_the_truth_by_hand(tmp_path):
    """Kept and accepted, kept and refused, broken and missed, broken and seen, kept and unreadable."""
    brief, long = "It is water.", "It is water that falls from clouds."
    answers = [brief, brief, long, long, brief]
    turns = {("single", "a", n): {"answer": text} for n, text in enumerate(answers, 1)}
    texts = {"c0": "Answer in at most 5 words"}
    folder = write_run(tmp_path / "m", {"single": {"a": "s v s v u"}}, turns=turns, texts=texts)
    made = write_report([folder], tmp_path / "out", Options(processes=1))
    [note] = [note for note in made.notes if note.startswith("Judge ")]
    assert note.endswith("saw 1 of 2 violations, accepted 1 of 2 constraints that were kept.")
    line = (tmp_path / "out" / "tables" / "judge-against-truth.csv").read_text().splitlines()[1].split(",")
    assert line[:4] == ["model", "judge", "4", "50.0"]
    assert [line[at] for at in (6, 7, 10, 11, 14)] == ["2", "50.0", "2", "50.0", "1"]


def test_of_attempts_at_one_judgement_the_first_readable_one_counts_everywhere(tmp_path):
    folder = write_run(tmp_path / "m", {"single": {"a": "u v s u"}})
    journal = RunFolder(folder).judgements
    first = list(journal)
    again = [
        replace(first[0], attempt=2, status="violated"),
        replace(first[0], attempt=3, status="satisfied"),
        replace(first[1], attempt=2, status="satisfied"),
        replace(first[3], attempt=2, status="judge_error"),
    ]
    journal.open()
    journal.append(again)
    journal.close()
    [scored], tally = score(folder)
    assert (scored.overall.passed, scored.overall.failed, scored.overall.undecided) == (1, 2, 1)
    assert (tally.judgements, tally.repeated, tally.lost) == (4, 0, 0)
    assert tally.outcomes["single"] == {
        "turn ok": 4,
        "judgement violated": 2,
        "judgement satisfied": 1,
        "judgement unreadable": 1,
    }
    frame = read(folder, "m").run.sets["single"]
    assert frame.results("judge").tolist() == [[1, 1, 0, 2]]
    assert verdicts_by_turn(journal, "judge")["single", "a", 1] == {"c0": "violated"}
    journal.open()
    journal.append(again[:1])
    journal.close()
    assert score(folder)[1].repeated == read(folder, "m").run.repeated == 1
