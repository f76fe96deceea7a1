from hypothesis import given
from hypothesis import strategies as st

from cluster.conversation import Exchange, Failure, Message
from cluster.window import Pair, Window, fit, pairs

TEXTS = st.text("ab \n", max_size=60)
HISTORIES = st.lists(st.builds(Exchange, TEXTS, st.none() | TEXTS), max_size=12).map(tuple)


def count(messages):
    """A tokenizer of one token a character, and three a message."""
    return sum(len(message.content) + 3 for message in messages)


def history(*turns):
    return tuple(Exchange(user, answer) for user, answer in turns)


def texts(window):
    return [message.content for message in window.messages]


def candidates(system, past, user):
    """Every prompt that the rules allow, the longest first, with the turns it leaves out."""
    answered, last = pairs(past, user)
    head = [] if system is None else [Message("system", system)]
    for k in range(len(answered) + 1):
        body = []
        for pair in answered[k:]:
            body += [Message("user", "\n\n".join(pair.users)), Message("assistant", pair.answer)]
        dropped = sum(len(pair.users) for pair in answered[:k])
        yield (*head, *body, Message("user", "\n\n".join(last))), dropped
    for k in range(1, len(last)):
        yield (*head, Message("user", "\n\n".join(last[k:]))), dropped + k


def test_an_unanswered_turn_stands_in_front_of_the_next_user_text():
    answered, last = pairs(history(("a", None), ("b", "B"), ("c", None), ("d", None)), "e")
    assert answered == (Pair(("a", "b"), "B"),)
    assert last == ("c", "d", "e")


def test_everything_stays_when_it_fits():
    window = fit("s", history(("a", "A"), ("b", None)), "c", 100, count)
    assert window.dropped_turns == 0
    assert [(m.role, m.content) for m in window.messages] == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "A"),
        ("user", "b\n\nc"),
    ]


def test_the_earliest_pair_goes_first_and_the_system_message_stays():
    window = fit("s", history(("a", "A"), ("b", "B")), "c", 4 + 8 + 4, count)
    assert texts(window) == ["s", "b", "B", "c"]
    assert window.dropped_turns == 1


def test_a_dropped_pair_counts_the_unanswered_turns_in_it():
    window = fit(None, history(("a", None), ("b", "B"), ("c", "C")), "d", 12, count)
    assert texts(window) == ["c", "C", "d"]
    assert window.dropped_turns == 2


def test_unanswered_texts_go_before_the_last_one_overflows():
    window = fit(None, history(("a", "A"), ("b", None), ("c", None)), "d", 7, count)
    assert texts(window) == ["c\n\nd"]
    assert window.dropped_turns == 2


def test_a_last_text_that_does_not_fit_is_an_overflow():
    outcome = fit("s", history(("a", "A")), "long text", 15, count)
    assert isinstance(outcome, Failure)
    assert outcome.status == "context_overflow"
    assert outcome.dropped_turns == 1


def test_no_room_at_all_is_an_overflow():
    assert fit(None, (), "a", 0, count).status == "context_overflow"


def test_one_count_is_enough_when_all_fits_and_few_when_it_slides():
    counts = []
    past = history(*(("word " * 40, "word " * 160) for _ in range(50)))

    def counted(messages):
        counts.append(messages)
        return count(messages) // 5

    assert fit(None, past, "word", 13_000, counted).dropped_turns == 0
    assert len(counts) == 1
    counts.clear()
    assert fit(None, past, "word", 5_000, counted).dropped_turns > 20
    assert len(counts) <= 4


@given(st.none() | TEXTS, HISTORIES, TEXTS, st.integers(-5, 900))
def test_the_window_is_the_longest_allowed_end_that_fits(system, past, user, room):
    fitting = [choice for choice in candidates(system, past, user) if count(choice[0]) <= room]
    outcome = fit(system, past, user, room, count)
    if fitting:
        assert outcome == Window(*fitting[0])
    else:
        assert outcome.status == "context_overflow"


@given(HISTORIES, TEXTS, st.integers(0, 900))
def test_user_and_assistant_alternate_and_the_last_text_is_always_there(past, user, room):
    outcome = fit(None, past, user, room, count)
    if isinstance(outcome, Window):
        roles = [message.role for message in outcome.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert outcome.messages[-1].content.endswith(user)
