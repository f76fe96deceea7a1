"""Verdicts of the strict parser, each right value agreed by reading."""

import pytest

from sequor.parsing import released, strict

SATISFIED, VIOLATED, UNREADABLE = "satisfied", "violated", "unreadable"


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Final verdict: yes", SATISFIED),
        ("Final verdict: no", VIOLATED),
        ("The answer has four sentences.\n\nFinal verdict: no", VIOLATED),
        ("final VERDICT: YES.", SATISFIED),
        ("**Final verdict:** yes", SATISFIED),
        ("**Final verdict: no**", VIOLATED),
        ("*Final Verdict*: **Yes**", SATISFIED),
        ("Final verdict:\nno", VIOLATED),
        ("Final verdict:\n\n**Yes**", SATISFIED),
        ("Final verdict - yes", SATISFIED),
        ("Final verdict is: no", VIOLATED),
        ("Final verdict: “yes”", SATISFIED),
        ("Final verdict: [no]", VIOLATED),
        ("## Final verdict\nyes", SATISFIED),
        ("Final verdict: yes!", SATISFIED),
        ("> **Final verdict: no.**\n\n---\n", VIOLATED),
        ('Final verdict: "no".', VIOLATED),
        ("Final verdict：yes", SATISFIED),
        # two verdicts: the last one counts
        ("Final verdict: yes\nWait, I miscounted.\nFinal verdict: no", VIOLATED),
        ("Final verdict: no\nWait, I miscounted.\nFinal verdict: yes", SATISFIED),
        ("The answer says 'Final verdict: yes', but it is in prose.\nFinal verdict: no", VIOLATED),
        # an unreadable last one is not replaced by an earlier one
        ("Final verdict: yes\nFinal verdict: hard to say", UNREADABLE),
        ("Final verdict: yes\nFinal verdict:", UNREADABLE),
        # negations and off the menu
        ("Final verdict: not satisfied", UNREADABLE),
        ("Final verdict: not yes", UNREADABLE),
        ("Final verdict: satisfied", UNREADABLE),
        ("Final verdict: partially", UNREADABLE),
        ("Final verdict: yes and no", UNREADABLE),
        ("Final verdict: yes/no", UNREADABLE),
        ("Final verdict: yes or no", UNREADABLE),
        ("Final verdict: no, yes", UNREADABLE),
        ("Final verdict: yes-ish", UNREADABLE),
        ("Final verdict: none", UNREADABLE),
        ("Final verdict: nope", UNREADABLE),
        ("Final verdict: yesterday", UNREADABLE),
        # cut
        ("Final verdict: y", UNREADABLE),
        ("Final verdict", UNREADABLE),
        ("Final ver", UNREADABLE),
        # no announced verdict at all
        ("yes", UNREADABLE),
        ("Yes, the answer follows the rule.", UNREADABLE),
        ("Verdict: yes", UNREADABLE),
        ("", UNREADABLE),
        ("Veredicto final: sí", UNREADABLE),
        # more than a verdict: it may be taken back, or be a quotation
        ("Final verdict: yes, it follows the rule.", UNREADABLE),
        ("Final verdict: yes\n\nActually, the third sentence breaks the rule.", UNREADABLE),
        ("Final verdict: no\nI mean that it follows the rule.", UNREADABLE),
        ('I close with "Final verdict: yes" or "Final verdict: no". First I count the words.', UNREADABLE),
        ('I close with "Final verdict: yes" or "Final verdict: no".', UNREADABLE),
        ("Close with one line: Final verdict: yes Final verdict: no", UNREADABLE),
        ('The answer says "Final verdict: yes" and then\nFinal verdict: yes\nwhich is part of it.', UNREADABLE),
        ("Final verdict: oui", UNREADABLE),
        ("Verdict final : non", UNREADABLE),
        ("最终判断：是", UNREADABLE),
        ("Final verdict: да", UNREADABLE),
        # a reasoning that was not taken apart: its verdict is none once it goes on
        ("<think>I would say Final verdict: yes</think>", UNREADABLE),
        ("<think>Final verdict: yes\nNo, wait.</think>\nFinal verdict: no", VIOLATED),
        ("<think>Final verdict: no</think>The answer has two sentences.", UNREADABLE),
        # cut in the middle of a word
        ("The answer follows the rule.\nFinal verdict: ye", UNREADABLE),
        ("The answer follows the rule.\nFinal verdi", UNREADABLE),
        ("final verdict: **NO**", VIOLATED),
        ("FINAL VERDICT:YES", SATISFIED),
    ],
)
def test_strict_reads_the_last_final_verdict_and_nothing_else(reply, verdict):
    assert strict(reply) == verdict


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Final verdict: yes", SATISFIED),
        ("Final verdict: no", VIOLATED),
        ("Final verdict: yes\nWait, I miscounted.\nFinal verdict: no", SATISFIED),
        ("Close with Final verdict: yes or Final verdict: no. First I count", SATISFIED),
        ("It does not follow the rule", VIOLATED),
        ("It follows the rule, as anyone with eyes can see", SATISFIED),
        ("No, wait. Yes", SATISFIED),
        ("**final verdict:** YES", SATISFIED),
        ("I am unable to say", UNREADABLE),
        ("", UNREADABLE),
    ],
)
def test_released_finds_a_verdict_nearly_everywhere(reply, verdict):
    assert released(reply) == verdict
