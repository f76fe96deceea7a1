"""Personas into tasks: what is asked, what is kept, what is dropped and why."""

import json

import pytest

from sequor.errors import BadInput
from sequor.personas import load_personas
from sequor.records import ReplyRecord
from sequor.synthesis import Synthesis, agenda_of, questions_of, yield_of
from sequor.types import Persona

PERSONA = Persona("p1", "A beekeeper in the hills.")
AGENDA = ReplyRecord(key="p1/agenda", status="ok", reply="1. 6:00 - Hives: looks.\n2. 9:00 - Market: sells.")


def replies(*texts: str, synthesis: Synthesis, **more) -> dict[str, ReplyRecord]:
    asked = questions_of(PERSONA, AGENDA, synthesis)
    found = {AGENDA.key: AGENDA}
    for conversation, text in zip(asked, texts, strict=False):
        found[conversation.key] = ReplyRecord(key=conversation.key, status="ok", reply=text, **more)
    return found


def test_the_agenda_is_asked_with_the_persona_and_the_number():
    conversation = agenda_of(PERSONA, Synthesis(activities=7))
    assert conversation.key == "p1/agenda"
    assert PERSONA.text in conversation.user_turns[0] and "exactly 7 activities" in conversation.user_turns[0]


def test_each_activity_is_asked_about_once_and_only_as_many_as_wanted():
    asked = questions_of(PERSONA, AGENDA, Synthesis(activities=1, questions=5))
    assert len(asked) == 1
    assert "6:00 - Hives: looks." in asked[0].user_turns[0] and "Write 5 questions" in asked[0].user_turns[0]


def test_keys_come_from_content():
    other = ReplyRecord(key="p1/agenda", status="ok", reply="1. 9:00 - Market: sells.\n2. 6:00 - Hives: looks.")
    keys = [{c.key for c in questions_of(PERSONA, agenda, Synthesis())} for agenda in (AGENDA, other)]
    assert keys[0] == keys[1] and len(keys[0]) == 2


def test_tasks_follow_the_day_and_keep_their_activity():
    found = yield_of(
        PERSONA, replies("1. Why do bees swarm?", "1. What sells best today?", synthesis=(s := Synthesis())), s
    )
    assert [(task.activity[:4], task.prompt) for task in found.tasks] == [
        ("6:00", "Why do bees swarm?"),
        ("9:00", "What sells best today?"),
    ]
    assert (found.replies, found.usable, found.dropped) == (3, 3, ())


def test_repeated_near_short_and_long_questions_are_dropped_with_their_reason():
    first = "1. How do I keep the hives dry in a wet autumn like this?\n2. Why?\n3. " + "word " * 101
    second = (
        "1. how do i keep the hives dry in a wet autumn like this?\n"
        "2. How do I keep the hives dry in a wet autumn like that?\n"
        "3. What would a fair price for heather honey be?"
    )
    synthesis = Synthesis()
    found = yield_of(PERSONA, replies(first, second, synthesis=synthesis), synthesis)
    assert [task.prompt[:14] for task in found.tasks] == ["How do I keep ", "What would a f"]
    reasons = [d.reason for _, d in found.dropped]
    assert reasons[:2] == ["1 words: too short", "101 words: too long"]
    assert reasons[2] == "repeats an earlier question"
    assert reasons[3].startswith("near an earlier question (0.83): How do I keep")


def test_questions_of_a_script_without_spaces_have_words_too():
    synthesis = Synthesis()
    texts = "1. 今天怎样才能让蜂箱保持干燥？\n2. 今天怎样才能让蜂箱保持干净？\n3. 为何？"
    found = yield_of(PERSONA, replies(texts, synthesis=synthesis), synthesis)
    assert [task.prompt for task in found.tasks] == ["今天怎样才能让蜂箱保持干燥？"]
    reasons = [d.reason for _, d in found.dropped]
    assert reasons[0].startswith("near an earlier question") and reasons[1] == "2 words: too short"


def test_more_tasks_than_wanted_are_dropped_from_the_end_of_the_day():
    synthesis = Synthesis(tasks=1)
    found = yield_of(
        PERSONA, replies("1. Why do bees swarm?\n2. What do they drink in summer?", synthesis=synthesis), synthesis
    )
    assert [task.prompt for task in found.tasks] == ["Why do bees swarm?"]
    assert [d.reason for _, d in found.dropped] == ["one task too many"]


def test_a_reply_without_a_list_is_not_usable_and_counted():
    synthesis = Synthesis()
    found = yield_of(PERSONA, replies("I cannot.", "1. What sells best today?", synthesis=synthesis), synthesis)
    assert (found.replies, found.usable) == (3, 2)


def write(tmp_path, *rows):
    path = tmp_path / "personas.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_personas_are_read_as_persona_hub_has_them(tmp_path):
    found = load_personas(
        write(tmp_path, {"persona": "A baker.", "other": 1}, {"id": 7, "text": "A cook."}, {"persona": "A baker."})
    )
    assert [persona.text for persona in found] == ["A baker.", "A cook."]
    assert found[1].id == "7"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"persona": "A baker."}, {"persona": "  "}], ":2: a persona without text"),
        ([{"id": "a/b", "persona": "A baker."}], ":1: id 'a/b' cannot be a file's name"),
        ([{"id": 1, "persona": "A baker."}, {"id": 1, "persona": "A cook."}], ":2: id '1' stands for two personas"),
        ([], "holds no persona"),
    ],
)
def test_personas_that_cannot_be_used_are_named(tmp_path, rows, says):
    with pytest.raises(BadInput, match=f"personas.jsonl.*{says}"):
        load_personas(write(tmp_path, *rows))
