"""Lists as models write them."""

import pytest

from sequor.listing import items


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("1. How so?\n2. Why now?", ["How so?", "Why now?"]),
        ("1) How so?\n2) Why now?", ["How so?", "Why now?"]),
        ("(1) How so?\n(2) Why now?", ["How so?", "Why now?"]),
        ("1: How so?\n2: Why now?", ["How so?", "Why now?"]),
        ("- How so?\n- Why now?", ["How so?", "Why now?"]),
        ("* How so?\n* Why now?", ["How so?", "Why now?"]),
        ("• How so?\n• Why now?", ["How so?", "Why now?"]),
        ("a) How so?\nb) Why now?", ["How so?", "Why now?"]),
        ("**1. How so?**\n**2. Why now?**", ["How so?", "Why now?"]),
        ("1. **How so?**\n2. **Why now?**", ["How so?", "Why now?"]),
        ("### 1. How so?\n### 2. Why now?", ["How so?", "Why now?"]),
        ('1. "How so?"\n2. “Why now?”', ["How so?", "Why now?"]),
        ("Sure, here they are:\n\n1. How so?\n2. Why now?", ["How so?", "Why now?"]),
        ("1. How so?\n2. Why now?\n\nTell me if you need more!", ["How so?", "Why now?"]),
        ("1. How so,\n   and for whom?\n2. Why now?", ["How so, and for whom?", "Why now?"]),
        ("1. How so?\n\n2. Why now?\n", ["How so?", "Why now?"]),
        ("```\n1. How so?\n2. Why now?\n```", ["How so?", "Why now?"]),
        ('```json\n["How so?", "Why now?"]\n```', ["How so?", "Why now?"]),
        ('Here: ["How so?", "Why now?"] as asked.', ["How so?", "Why now?"]),
        ("How so?\nWhy now?", ["How so?", "Why now?"]),
        ("1. 7:00 AM - Tea: hot.\n2. 8:30 - Work.", ["7:00 AM - Tea: hot.", "8:30 - Work."]),
        ("**7:00 AM – Tea**: hot.\n**8:30 AM – Work**: hard.", ["7:00 AM – Tea: hot.", "8:30 AM – Work: hard."]),
        ("1. How so?\n2.\n3. Why now?", ["How so?", "Why now?"]),
        ("1. Is 3.5 enough?\n2. Why now?", ["Is 3.5 enough?", "Why now?"]),
        ("I cannot do that.", []),
        ("", []),
        ("[1, 2, 3]", []),
    ],
)
def test_items_are_read_through_what_models_put_around_them(reply, found):
    assert items(reply)[0] == found


def test_what_is_left_out_is_kept_with_its_reason():
    _, dropped = items("Sure!\n\n1. How so?\n2. Why now?\n\nBye.")
    assert [(d.text, d.reason) for d in dropped] == [("Sure!", "before the list"), ("Bye.", "behind the list")]
    _, dropped = items("I cannot do that.")
    assert [(d.text, d.reason) for d in dropped] == [("I cannot do that.", "no list")]


def test_the_last_item_of_a_cut_reply_is_dropped():
    found, dropped = items("1. How so?\n2. Why n", cut=True)
    assert found == ["How so?"]
    assert [(d.text, d.reason) for d in dropped] == [("Why n", "cut off by the token limit")]
