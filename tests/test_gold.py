"""Gold answers and what judges make of them: counted by hand, and as a user runs it, on scripted models."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap

from cluster.settings import Price
from jobs.curation import KINDS, words_to_config
from jobs.data import DEMO
from jobs.gold import gold as write_gold
from jobs.judge_judges import judge_judges
from jobs.progress import console
from sequor import gold, released
from sequor.curation.samples import Tasks
from sequor.errors import BadInput
from sequor.gold import GoldAnswer, Truth, judged, pairs, truth, writing, written
from sequor.records import ReplyRecord
from sequor.report.statistics import RESAMPLES
from sequor.types import Constraint, Task

POOL = tuple(Constraint(f"c{n}", f"Use {n} sentences") for n in range(8))
TASKS = Tasks({"p": tuple(Task("p", "a", f"What about {n}?") for n in range(9))})
YES, NO = "Final verdict: yes", "Final verdict: no"


def reply(key: str, text: str | None, **more) -> ReplyRecord:
    return ReplyRecord(key=key, status="ok" if text is not None else "empty", reply=text, **more)


def answer(
    pair: str, label: str, writer: str = "w", constraint: str = "Write in French", text: str = "Oui."
) -> GoldAnswer:
    return GoldAnswer(pair=pair, writer=writer, gold=label, constraint=constraint, answer=text)


def test_pairs_are_drawn_by_seed_and_nothing_stands_in_two_of_them():
    drawn = pairs(POOL, TASKS, 8, 1)
    assert len({p.constraint.id for p in drawn}) == len({p.task for p in drawn}) == 8
    assert drawn == pairs(POOL[::-1], TASKS, 8, 1) != pairs(POOL, TASKS, 8, 2)
    with pytest.raises(BadInput, match="count: 9 pairs wanted, and there are 8 constraints"):
        pairs(POOL, TASKS, 9, 1)
    with pytest.raises(BadInput, match="10 wanted for each, there are 9"):
        pairs((*POOL, Constraint("c8", "x"), Constraint("c9", "y")), TASKS, 10, 1)


def test_each_pair_is_written_twice_once_along_the_rule_and_once_against_it():
    [pair] = pairs(POOL, TASKS, 1, 1)
    along, against = list(writing([pair], "w"))
    assert (along.key, against.key) == (f"{pair.id}|yes|w", f"{pair.id}|no|w")
    for prompt in (along.user_turns[0], against.user_turns[0]):
        assert pair.task in prompt and pair.constraint.text in prompt
    assert "has to follow this rule" in along.user_turns[0] and "has to break the rule" in against.user_turns[0]


def test_what_is_no_whole_answer_is_left_out_with_its_reason():
    [pair] = pairs(POOL, TASKS, 1, 1)
    records = [
        reply(f"{pair.id}|no|w", "Four. Five."),
        reply(f"{pair.id}|yes|w", None),
        reply(f"{pair.id}|yes|v", "cut", truncated=True),
        reply("c9:0|t|yes|w", "of an earlier draw"),
    ]
    answers, dropped = written([pair], records)
    assert [(g.writer, g.gold, g.answer, g.constraint_id) for g in answers] == [
        ("w", "no", "Four. Five.", pair.constraint.id)
    ]
    assert dropped == {"empty": 1, "ok": 1}


def test_labels_are_held_against_the_truth_where_a_program_can_tell():
    brief = "Answer in at most 5 words"
    answers = [
        answer("1", "yes", constraint=brief, text="Yes, of course."),
        answer("2", "yes", constraint=brief, text="Yes, of course, and with great pleasure."),
        answer("2", "no", constraint=brief, text="Yes, of course, and with great pleasure."),
        answer("3", "yes", constraint="Be kind", text="Thank you."),
    ]
    assert truth(answers, lambda text: "en") == {("w", "yes"): Truth(1, 1), ("w", "no"): Truth(1, 0)}


def test_table_one_counted_by_hand():
    """Ten pairs, one writer. Gold yes: 7 found to follow, 2 not, 1 unreadable. Gold no: 9 found not to, 1 to follow."""
    answers = [answer(str(n), label) for n in range(10) for label in ("yes", "no")]
    said = {"yes": [YES] * 7 + [NO] * 2 + ["Hm."], "no": [NO] * 9 + [YES]}
    records = [reply(f"{n}|{label}|w|j", text) for label, texts in said.items() for n, text in enumerate(texts)]
    records += [reply("1|yes|w|another", NO), reply("99|yes|w|j", NO)]
    found = judged(answers, records, ["j"]).estimates("j")
    shares = {part: [round(found[part][r].value, 6) for r in gold.RESULTS] for part in found}
    assert shares == {"yes": [0.7, 0.2, 0.1], "no": [0.9, 0.1, 0.0], "overall": [0.8, 0.15, 0.05]}


def test_an_answer_without_a_verdict_is_in_no_share():
    answers = [answer(str(n), "yes") for n in range(4)]
    found = judged(answers, [reply("0|yes|w|j", YES), reply("1|yes|w|j", NO)], ["j"])
    assert found.judged("j") == 2 and found.estimates("j")["yes"]["correct"].value == 0.5
    assert not found.estimates("j")["no"]["correct"].known


def test_intervals_are_bootstrapped_over_pairs_as_scipy_does_it():
    """Two writers whose verdicts on one pair are the same: over answers the interval would be too narrow."""
    rng = np.random.default_rng(3)
    right = rng.random(60) < 0.8
    answers = [answer(str(n), "yes", writer) for n in range(60) for writer in "vw"]
    records = [reply(f"{n}|yes|{w}|j", YES if right[n] else NO) for n in range(60) for w in "vw"]
    found = judged(answers, records, ["j"]).estimates("j")["overall"]["correct"]
    theirs = bootstrap((right.astype(float),), np.mean, n_resamples=RESAMPLES, method="percentile", rng=rng)
    assert found.value == pytest.approx(right.mean())
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.02)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.02)


def test_judges_on_the_same_pairs_are_compared_in_pairs():
    answers = [answer(str(n), "yes") for n in range(40)]
    votes = {"a": lambda n: n % 4, "b": lambda n: n % 4, "c": lambda n: n % 2}
    records = [reply(f"{n}|yes|w|{j}", YES if vote(n) else NO) for j, vote in votes.items() for n in range(40)]
    found = judged(answers, records, list(votes))
    same, other = found.difference("a", "b"), found.difference("a", "c")
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert other.value == pytest.approx(0.25) and other.low > 0


def test_a_price_is_of_tokens_or_of_gpu_hours():
    assert Price(input=2, output=10).of(1_000_000, 400_000, 100_000) == pytest.approx(3.0)
    assert Price(input=2, cached=0.5, output=10).of(1_000_000, 400_000, 100_000) == pytest.approx(2.4)
    assert Price(gpu_hour=3).of(10**9, 0, 10**9, gpu_seconds=7200) == pytest.approx(6.0)


def run(*words: object) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "jobs", *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


SCRIPTED = "{model: %s, engine: scripted, script: 'sequor.curation.scripts:%s', price: {output: 1000}}"


def test_from_pairs_to_table_one_as_a_user_runs_it(tmp_path):
    """On real Ray; what was asked is not asked again, and a second judge joins the first."""
    words = [f"answerers.w={SCRIPTED % ('w', 'answerer')}", f"answerers.v={SCRIPTED % ('v', 'answerer')}"]
    code, said = run("gold", "data=demo", "count=12", *words, "--out", tmp_path / "gold")
    assert code == 0 and said.endswith("pairs=12 writers=2 gold=48 left_out=0\n")
    rows = [json.loads(line) for line in (tmp_path / "gold" / "gold.jsonl").read_text().splitlines()]
    assert {row["gold"] for row in rows} == {"yes", "no"} and len({row["pair"] for row in rows}) == 12
    one, two = (f"judges.{name}={SCRIPTED % (name, 'judge')}" for name in ("one", "two"))
    code, said = run("judge-judges", tmp_path / "gold", one, "--out", tmp_path / "judged")
    assert code == 0 and "gold=48 judges=1 judged=48 of=48" in said
    code, said = run("judge-judges", tmp_path / "gold", one, two, "--out", tmp_path / "judged")
    assert code == 0 and "gold=48 judges=2 judged=96 of=96" in said
    replies = (tmp_path / "judged" / "verdicts" / "replies.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in replies]
    assert len(keys) == len(set(keys)) == 96
    table = (tmp_path / "judged" / "tables" / "judges.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in table[1:]] == [["one", "48"], ["two", "48"]]
    tokens = sum(json.loads(line)["output_tokens"] for line in replies if line.find('|one"') > 0)
    assert float(table[1].split(",")[-1]) == pytest.approx(tokens / 1000, abs=0.01)  # 1000 for a million tokens
    assert (tmp_path / "judged" / "tables" / "differences.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gold", "data=demo"], "answerers: none is named"),
        (["gold", "data=demo", "count=999", "answerers.w.model=w", "answerers.w.engine=scripted"], "count: 999 pairs"),
        (["gold", "here", "data=demo"], "here: this verb takes a config"),
        (["judge-judges", "nowhere", "judges.j.model=j", "judges.j.engine=scripted"], "nowhere: cannot be read"),
        (["judge-judges", "GOLD"], "judges: none is named"),
        (["judge-judges", "BROKEN", "judges.j.model=j", "judges.j.engine=scripted"], "gold.jsonl:2: "),
        (["judge-judges", "TWICE", "judges.j.model=j", "judges.j.engine=scripted"], "stands here for the second time"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, words, message):
    line = json.dumps({"pair": "p", "writer": "w", "gold": "yes", "constraint": "c", "answer": "a"}) + "\n"
    files = {"GOLD": line, "BROKEN": line + '{"pair": "p"}\n', "TWICE": line * 2}
    for name, text in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "gold.jsonl").write_text(text)
    verb, *rest = [str(tmp_path / word) if word in files else word for word in words]
    with pytest.raises(BadInput) as error:
        config = words_to_config(rest, KINDS[verb])
        {"gold": write_gold, "judge-judges": judge_judges}[verb](config, tmp_path / "out", console())
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_the_demo_has_enough_for_gold():
    assert len(released.load_constraints(DEMO)) >= 60 and Path(DEMO, "tasks").is_dir()
