"""Constraints that a program can decide: what is recognised, what is left alone, and what is true."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sequor.agreement import Agreement, agreements, total
from sequor.checkable import Check, holds, recognise
from sequor.records import JudgementRecord, TurnRecord
from sequor.types import Constraint, Dialogue, UserTurn

ROOT = Path(__file__).resolve().parents[1]
RELEASE = Path(os.environ.get("SEQUOR_RELEASE", ROOT.parent / "shared" / "sequor-release"))


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("Answer in up to 100 words", Check("words", 0, 100)),
        ("Do not exceed 1,000 words", Check("words", 0, 1000)),
        ("Use less than six words", Check("words", 0, 5)),
        ("Keep responses under 25 words.", Check("words", 0, 24)),
        ("Write at least 40 words", Check("words", 40, None)),
        ("It must be over 5000 words", Check("words", 5001, None)),
        ("Write exactly 10 words", Check("words", 10, 10)),
        ("Limit your reply to three words", Check("words", 0, 3)),
        ("300-character or less", Check("characters", 0, 300)),
        ("Make the length of my reply 220 characters maximum", Check("characters", 0, 220)),
        ("AI answer should be 2-10 sentences long", Check("sentences", 2, 10)),
        ("Use between five and seven sentences", Check("sentences", 5, 7)),
        ("Limit your answer to one to two sentences", Check("sentences", 1, 2)),
        ("Write a paragraph", Check("paragraphs", 1, 1)),
        ("Give your answer in 2 bullets", Check("bullets", 2, 2)),
        ("Have exactly 14 lines", Check("lines", 14, 14)),
        ('Start your response with "True"', Check("start", texts=("True",))),
        ("End each response with 'Bye'", Check("end", texts=("Bye",))),
        ("Always say 'Thank you' at the end", Check("end", texts=("Thank you",))),
        ("Do not use the words 'and', 'the' or 'of'", Check("without", texts=("and", "the", "of"))),
        ("Give the answer entirely in German language", Check("language", texts=("de",))),
        ("Output the answers in JSON format", Check("json")),
        ("Every word must start with the letter m", Check("letters", texts=("m",))),
    ],
)
def test_what_a_program_can_decide_is_recognised(text, check):
    assert recognise(text) == check


@pytest.mark.parametrize(
    "text",
    [
        "Each sentence should have 5 words",
        "Each paragraph must be exactly 50 words",
        "Reply within 30 words, max 2 sentences",
        "Limit to around 6 words",
        "Write short answers, preferably one or two sentences.",
        "Provide 5 enumerated sentences",
        "Summarize each chapter in 3 sentences",
        "Keep the first response under 20 words",
        "Avoid long sentences",
        "Do not repeat words more than 2 times",
        "The second and fourth sentences should rhyme",
        "Reply only with one sentence in quotes",
        "Pretend you're a japanese robot with emotions",
        "Use A1 Russian",
        "Include a Chinese translation",
        "Answer in JSON template with specific fields and data types",
        'Send all responses in this format: "☇:" followed by what ucar would say',
        "Start with a joke",
        "Answer in a few words",
        "Say 'hello'",
        "Be brief",
        "",
    ],
)
def test_what_is_vague_about_a_part_or_about_several_things_is_left_to_the_judges(text):
    assert recognise(text) is None


@pytest.mark.parametrize(
    ("check", "answer", "truth"),
    [
        (Check("words", 0, 4), "It's a well-known fact", True),
        (Check("words", 0, 3), "It's a well-known fact", False),
        (Check("characters", 0, 5), "  five!  ", True),
        (Check("sentences", 2, 2), "Is it? Yes, at 3.5 degrees.", True),
        (Check("sentences", 1, 1), "No end", True),
        (Check("sentences", 2, 2), 'He said "no." And left', True),
        (Check("paragraphs", 2, 2), "one\nstill one\n\n\ntwo", True),
        (Check("bullets", 3, 3), "Here:\n- a\n* b\n3. c\nd", True),
        (Check("lines", 2, 2), "a\n\nb\n", True),
        (Check("start", texts=("“Sure”",)), '**"sure"**, of course', True),
        (Check("start", texts=("Sure",)), "Well, sure", False),
        (Check("end", texts=("Bye!",)), "And so on. bye", True),
        (Check("end", texts=("Bye",)), "Bye, then.", False),
        (Check("without", texts=("the",)), "Then others gathered", True),
        (Check("without", texts=("the",)), "On The road", False),
        (Check("json"), '```json\n{"a": 1}\n```', True),
        (Check("json"), 'Here: {"a": 1}', False),
        (Check("code_block"), "x\n```\ny\n```", True),
        (Check("emoji"), "fine 🙂", True),
        (Check("emoji"), "fine :)", False),
        (Check("letters", texts=("m",)), "Many men must", True),
        (Check("letters", texts=("m",)), "Many other men", False),
    ],
)
def test_the_truth_is_counted(check, answer, truth):
    assert holds(check, answer) is truth


def test_a_language_is_a_matter_of_whoever_detects_it():
    check = Check("language", texts=("de",))
    assert holds(check, "Guten Tag") is None
    assert holds(check, "Guten Tag", lambda text: "de") is True
    assert holds(check, "Good day", lambda text: "en") is False


def test_agreement_counts_each_kind_of_mistake():
    rules = (Constraint("w", "Write exactly 2 words"), Constraint("x", "be kind"))
    dialogue = Dialogue("single", "d", tuple(UserTurn("q", rules) for _ in range(5)))
    answers = ["one two", "one two", "one", "one", "one two"]
    verdicts = ["satisfied", "violated", "satisfied", "violated", "unreadable"]
    turns = [
        TurnRecord(test_set="single", dialogue="d", turn=n, status="ok", answer=answer)
        for n, answer in enumerate(answers, 1)
    ]
    judged = [
        JudgementRecord(test_set="single", dialogue="d", turn=n, constraint=c, judge="j", status=status, parser="p")
        for n, status in enumerate(verdicts, 1)
        for c in ("w", "x")
    ]
    found = agreements([dialogue], turns, judged, lambda text: "en")
    assert found == {"j": {"words": Agreement(1, 1, 1, 1, 1)}}
    assert total(found["j"]).share == 0.5


@pytest.mark.skipif(not RELEASE.exists(), reason="the released data is not here (SEQUOR_RELEASE)")
def test_the_verb_lists_what_it_covers_of_the_released_pool():
    command = [sys.executable, "-m", "jobs", "checkable", str(RELEASE / "constraints" / "single.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    covered = int(last.removeprefix("covered=").removesuffix(" of=1446"))
    assert covered >= 170, last
