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
        (
            "1. **6:00 - Tea**\n   - Hot\n   - Sweet\n2. **8:00 - Work**\n   - Mail",
            ["6:00 - Tea; Hot; Sweet", "8:00 - Work; Mail"],
        ),
        ("1. **Tea**\n- Hot\n- Sweet\n\n2. **Work**\n- Mail", ["Tea; Hot; Sweet", "Work; Mail"]),
        ("1. Tea\n\n   She drinks it.\n\n2. Work", ["Tea She drinks it.", "Work"]),
        ("1. How so?\n   2. Why now?\n   3. Who else?", ["How so?", "Why now?", "Who else?"]),
        (" 9. How so?\n10. Why now?", ["How so?", "Why now?"]),
        ("**Morning**\n- How so?\n**Evening**\n- Why now?", ["How so?", "Why now?"]),
        ("**1. Tea** - hot\n\n---\n\n**2. Work** - hard", ["Tea - hot", "Work - hard"]),
        ("- **Tea**: hot\n- **Work**: hard", ["Tea: hot", "Work: hard"]),
        ("**Question 1:** How so?\n**Question 2:** Why now?", ["How so?", "Why now?"]),
        ("Q1. How so?\nQ2. Why now?", ["How so?", "Why now?"]),
        ("1 - How so?\n2 – Why now?", ["How so?", "Why now?"]),
        ("- 1. How so?\n- 2. Why now?", ["How so?", "Why now?"]),
        ("1\\. How so?\n2\\. Why now?", ["How so?", "Why now?"]),
        ("1、今天怎么样？\n2、为什么现在？", ["今天怎么样？", "为什么现在？"]),
        ("6am: Tea\n7 a.m. – Work\n10:15: Talk", ["6am: Tea", "7 a.m. – Work", "10:15: Talk"]),
        ("Here they are:\nHow so?\nWhy now?", ["How so?", "Why now?"]),
        ("1. How so?\n2. Why now?\nTell me if you need more!", ["How so?", "Why now?"]),
        ('["How so?", "Why now?",]', ["How so?", "Why now?"]),
        ('["1. How so?", "2. Why now?"]', ["How so?", "Why now?"]),
        ('```json\n[\n"How so?",\n"Why now?"\n```', ["How so?", "Why now?"]),
        ('{"questions": [{"id": 1, "question": "How so?"}, {"question": "Why now?"}]}', ["How so?", "Why now?"]),
        ('[{"time": "7:00", "activity": "Tea"}]', ["7:00 - Tea"]),
        ('1. What does ["a"] print?\n2. Why is 2**3 not 3**2?', ['What does ["a"] print?', "Why is 2**3 not 3**2?"]),
        ('1. What is "rest"?\n2. Explain `map` and `filter`', ['What is "rest"?', "Explain `map` and `filter`"]),
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


def test_a_json_list_is_taken_up_to_where_it_breaks():
    for reply in ('["How so?", "Why n', '["How so?", "Why "now" of all?"]'):
        found, dropped = items(reply)
        assert found == ["How so?"]
        assert [(d.text, d.reason) for d in dropped] == [(reply[12:], "no whole item of the JSON list")]
    assert items('["How so?", "Why now?"', cut=True) == (["How so?", "Why now?"], [])
