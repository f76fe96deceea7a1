"""The scheduler's rules, one by one, and under any interleaving of what can happen to it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.conversation import Conversation, Failure, Request, Response, Usage
from cluster.events import (
    ConversationsAdded,
    ReplicaLost,
    ReplicaReady,
    RetireReplica,
    SaveTurn,
    SendTurn,
    TurnFinished,
)
from cluster.scheduler import ConversationScheduler, sampling_seed
from cluster.settings import SchedulerSettings

OUTPUT = 10


def conversation(key: str, turns: int = 3, **more) -> Conversation:
    return Conversation(key, tuple(f"{key} asks {n}" for n in range(turns)), **more)


def answer(request: Request, prompt: int = 20) -> Response:
    """Depends on the whole history, so that a lost or doubled turn changes every later answer."""
    seen = [(past.user, past.answer) for past in request.history]
    history = sum(OUTPUT + prompt for _ in request.history)
    return Response(f"{hash((tuple(seen), request.user)) & 0xFFFF:x}", usage=Usage(history + prompt, history, OUTPUT))


def ready(name: str = "r", tokens: int = 100_000, running: int = 100) -> ReplicaReady:
    return ReplicaReady(name, tokens, running)


def sends(actions) -> list[SendTurn]:
    return [action for action in actions if isinstance(action, SendTurn)]


def saves(actions) -> list:
    return [action.turn for action in actions if isinstance(action, SaveTurn)]


def started(*conversations: Conversation, **options) -> tuple[ConversationScheduler, list[SendTurn]]:
    replica = options.pop("replica", ready())
    scheduler = ConversationScheduler(SchedulerSettings(**options), expected_output=OUTPUT)
    return scheduler, sends(scheduler.handle(ConversationsAdded(conversations), replica))


def finish(scheduler: ConversationScheduler, send: SendTurn, outcome=None):
    return scheduler.handle(TurnFinished(send.ticket, outcome or answer(send.request)))


def test_a_turn_is_saved_before_the_next_one_is_sent():
    scheduler, [first] = started(conversation("a"))
    actions = finish(scheduler, first)
    assert [type(action) for action in actions] == [SaveTurn, SendTurn]
    assert actions[1].request.history[0].answer == answer(first.request).text


def test_a_conversation_continues_behind_its_saved_turns():
    done = conversation("a").user_turns
    from cluster.conversation import Exchange

    scheduler, [send] = started(conversation("a", finished=(Exchange(done[0], "x"), Exchange(done[1], None))))
    assert send.request.index == 2
    assert [past.answer for past in send.request.history] == ["x", None]
    assert send.request.last


def test_a_conversation_that_is_over_is_not_started():
    from cluster.conversation import Exchange

    scheduler, sent = started(conversation("a", 1, finished=(Exchange("a asks 0", "x"),)))
    assert sent == [] and scheduler.finished


def test_a_failure_of_the_model_is_saved_and_the_conversation_goes_on_without_its_text():
    scheduler, [first] = started(conversation("a"))
    actions = finish(scheduler, first, Failure("empty"))
    assert saves(actions)[0].outcome.status == "empty"
    assert sends(actions)[0].request.history[0].answer is None


def test_a_failure_of_the_machinery_is_asked_again_and_then_ends_the_conversation():
    scheduler, [send] = started(conversation("a"), attempts=3)
    for _ in range(2):
        [send] = finish(scheduler, send, Failure("engine_error", "boom"))
        assert send.request.index == 0
    actions = finish(scheduler, send, Failure("engine_error", "boom"))
    assert [turn.outcome.status for turn in saves(actions)] == ["engine_error"]
    assert sends(actions) == [] and scheduler.finished


def test_a_late_answer_to_a_lost_replica_is_ignored():
    scheduler, [send] = started(conversation("a"))
    scheduler.handle(ReplicaLost("r"))
    assert finish(scheduler, send) == []
    [again] = sends(scheduler.handle(ready("r2")))
    assert again.request.index == 0 and again.ticket != send.ticket
    assert scheduler.counts.ignored == 1


def test_conversations_of_a_lost_replica_go_to_the_front_with_what_they_have_finished():
    scheduler, [first] = started(conversation("a"), conversation("b"), replica=ready(running=1))
    [second] = sends(finish(scheduler, first))
    scheduler.handle(ReplicaLost("r"))
    [again] = sends(scheduler.handle(ready("r2", running=1)))
    assert (again.request.key, again.request.index) == ("a", 1)


def test_the_youngest_pauses_when_contexts_outgrow_the_cache_and_the_oldest_paused_resumes_first():
    # Room for two at first; contexts grow by 30 a turn, so that one must pause.
    scheduler, live = started(*(conversation(k, 6) for k in "abc"), replica=ready(tokens=180), kv_share=1.0)
    assert [send.request.key for send in live] == ["a", "b", "c"]
    order, paused_first = [], []
    while live:
        send = live.pop(0)
        live += sends(finish(scheduler, send))
        order.append(send.request.key)
        if scheduler.paused and not paused_first:
            paused_first = [key for key in "abc" if key not in {s.request.key for s in live}]
    assert paused_first == ["c"]
    assert order.index("c") < len(order) and scheduler.finished
    assert scheduler.counts.pauses > 0


def test_a_conversation_larger_than_the_cache_still_runs_alone():
    scheduler, [send] = started(conversation("a", 4), replica=ready(tokens=10))
    for _ in range(3):
        [send] = sends(finish(scheduler, send))
    finish(scheduler, send)
    assert scheduler.finished


def test_a_few_more_are_live_than_the_engine_runs_at_once():
    """So that the place of one that waits for its next turn is not empty meanwhile."""
    for running, live in ((4, 4), (8, 9), (64, 72)):
        _, sent = started(*(conversation(str(n)) for n in range(99)), replica=ready(running=running))
        assert len(sent) == live


def test_a_group_starts_side_by_side_on_one_replica():
    scheduler = ConversationScheduler(expected_output=OUTPUT)
    group = tuple(conversation(f"g{n}", 1, group="g") for n in range(3))
    actions = scheduler.handle(
        ready("x"), ready("y"), ConversationsAdded((conversation("a"), *group, conversation("b")))
    )
    keys = [
        send.request.key
        for send in sends(actions)
        if send.replica == next(s.replica for s in sends(actions) if s.request.key == "g0")
    ]
    at = keys.index("g0")
    assert keys[at : at + 3] == ["g0", "g1", "g2"]


def test_a_group_larger_than_the_engine_runs_at_once_is_not_stuck():
    group = tuple(conversation(f"g{n}", 1, group="g") for n in range(5))
    scheduler, live = started(*group, replica=ready(running=2))
    played = 0
    while live:
        live += sends(finish(scheduler, live.pop(0)))
        played += 1
    assert played == 5 and scheduler.finished


def test_urgent_conversations_start_before_others():
    scheduler, [first] = started(conversation("a", 1), conversation("b", 1), replica=ready(running=1))
    scheduler.handle(ConversationsAdded((conversation("q", 1, urgent=True),)))
    assert sends(finish(scheduler, first))[0].request.key == "q"


def test_rounds_leave_together():
    scheduler, live = started(*(conversation(k, 2) for k in "abc"), pacing="rounds")
    assert sends(finish(scheduler, live[0])) == []
    assert sends(finish(scheduler, live[1])) == []
    assert [send.request.index for send in sends(finish(scheduler, live[2]))] == [1, 1, 1]


def test_a_poisoned_conversation_kills_three_engines_and_fails_alone():
    scheduler, _ = started(*(conversation(k, 2) for k in ("good", "poison", "fine")))
    failed, deaths = [], 0
    live: list[SendTurn] = [send for send in _]
    while not scheduler.finished:
        if any(send.request.key == "poison" for send in live):
            deaths += 1
            actions = scheduler.handle(ReplicaLost(live[0].replica, "segfault"), ready(f"r{deaths}"))
            failed += [turn.key for turn in saves(actions)]
            live = sends(actions)
        else:
            live += sends(finish(scheduler, live.pop(0)))
    assert deaths == 3 and failed == ["poison"]


def test_a_replica_name_is_never_used_twice():
    scheduler, _ = started()
    with pytest.raises(ValueError, match="twice"):
        scheduler.handle(ready())


def test_two_conversations_of_one_key_are_an_error_and_not_a_lost_one():
    with pytest.raises(ValueError, match="a is being played already"):
        started(conversation("a"), conversation("a"))


def test_a_sampling_seed_depends_on_what_is_asked_and_not_on_when():
    seeds = {sampling_seed(seed, key, index) for seed in range(3) for key in "abc" for index in range(3)}
    assert len(seeds) == 27
    assert sampling_seed(1, "a", 2) == sampling_seed(1, "a", 2)


def one_by_one(conversations) -> dict[tuple[str, int], str]:
    """The reference: every conversation alone, a turn at a time."""
    scheduler, live = ConversationScheduler(), []
    texts = {}
    for c in conversations:
        scheduler = ConversationScheduler()
        live = sends(scheduler.handle(ReplicaReady("r", 10**9, 1), ConversationsAdded((c,))))
        while live:
            send = live.pop()
            texts[send.request.key, send.request.index] = answer(send.request).text
            live = sends(finish(scheduler, send))
    return texts


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12),
    tokens=st.integers(20, 2_000),
    running=st.integers(1, 8),
    pacing=st.sampled_from(["continuous", "rounds"]),
    grouped=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_any_interleaving_plays_every_turn_once_as_one_by_one(lengths, tokens, running, pacing, grouped, seed):
    """Replicas come and go, answers come late, twice and in any order, budgets are tight: the same turns, each once."""
    rng = random.Random(seed)
    conversations = [
        conversation(f"c{n}", turns, group=f"g{n // 3}" if grouped else None, urgent=bool(n % 2))
        for n, turns in enumerate(lengths)
    ]
    scheduler = ConversationScheduler(SchedulerSettings(pacing=pacing, attempts=2), expected_output=OUTPUT)
    alive, births = set(), 0
    flying: list[SendTurn] = []
    dead: list[SendTurn] = []
    saved: dict[tuple[str, int], str] = {}

    def perform(actions):
        for action in actions:
            if isinstance(action, SaveTurn):
                where = action.turn.key, action.turn.index
                assert where not in saved
                saved[where] = action.turn.outcome.text
            else:
                assert action.replica in alive
                assert all((action.request.key, n) in saved for n in range(action.request.index))
                flying.append(action)

    perform(scheduler.handle(ConversationsAdded(tuple(conversations))))
    lives = 0
    while not scheduler.finished:
        step = rng.random()
        if not alive or (step < 0.1 and len(alive) < 4):
            births += 1
            alive.add(f"r{births}")
            perform(scheduler.handle(ready(f"r{births}", tokens, running)))
        elif step < 0.18 and lives < 1:  # one loss each 40 steps at most, or the dead-three-times rule fails some
            lives = 40
            victim = rng.choice(sorted(alive))
            alive.remove(victim)
            dead += [send for send in flying if send.replica == victim]
            flying[:] = [send for send in flying if send.replica != victim]
            perform(scheduler.handle(ReplicaLost(victim)))
        elif step < 0.25 and dead:
            send = rng.choice(dead)
            assert scheduler.handle(TurnFinished(send.ticket, Response("late"))) == [] or not alive
        elif flying:
            lives -= 1
            some = [flying.pop(rng.randrange(len(flying))) for _ in range(min(len(flying), rng.randint(1, 3)))]
            perform(scheduler.handle(*(TurnFinished(send.ticket, answer(send.request)) for send in some)))
        else:
            lives -= 1
            assert scheduler.live or scheduler.unfinished
            assert alive, "work waits although a replica is there"
            raise AssertionError("livelock: nothing in flight, a replica alive, work left")
    assert saved == one_by_one(conversations)


@settings(max_examples=150, deadline=None)
@given(
    turns=st.lists(st.integers(1, 12), min_size=2, max_size=16),
    tokens=st.integers(200, 4_000),
    longest=st.integers(50, 3_000),
    running=st.integers(1, 16),
    pacing=st.sampled_from(["continuous", "rounds"]),
    seed=st.integers(0, 2**32),
)
def test_tight_budgets_long_answers_and_changing_replicas_never_lock(turns, tokens, longest, running, pacing, seed):
    """Answers larger than the whole cache at times, none of them expected. Every turn once, and in few enough steps:
    work that is pushed out and let in again for ever would never end, so pauses are bounded by turns and deaths."""
    rng = random.Random(seed)
    scheduler = ConversationScheduler(SchedulerSettings(pacing=pacing), expected_output=OUTPUT)
    alive, births, deaths, flying, saved = [], 0, 0, [], set()

    def perform(actions):
        for action in actions:
            if isinstance(action, SaveTurn):
                assert (where := (action.turn.key, action.turn.index)) not in saved
                saved.add(where)
            else:
                flying.append(action)

    perform(scheduler.handle(ConversationsAdded(tuple(conversation(f"c{n}", t) for n, t in enumerate(turns)))))
    while not scheduler.finished:
        if not alive or (rng.random() < 0.05 and len(alive) < 3):
            births += 1
            alive.append(f"r{births}")
            perform(scheduler.handle(ready(alive[-1], tokens, running)))
        elif rng.random() < 0.05 and deaths < 2:  # the third in a row would be taken for a conversation's fault
            deaths += 1
            lost = alive.pop(rng.randrange(len(alive)))
            flying[:] = [send for send in flying if send.replica != lost]
            perform(scheduler.handle(ReplicaLost(lost)))
        else:
            assert flying, "livelock: a replica is there, work is left, and nothing is in flight"
            send = flying.pop(rng.randrange(len(flying)))
            before = sum(len(past.user) + len(past.answer or "") for past in send.request.history)
            usage = Usage(before + 20, before, rng.randint(1, longest))
            perform(scheduler.handle(TurnFinished(send.ticket, Response("x" * usage.output_tokens, usage=usage))))
    assert len(saved) == sum(turns)
    assert scheduler.counts.pauses <= sum(turns) + len(turns) * deaths


def test_what_failed_on_one_replica_is_asked_again_on_another():
    scheduler = ConversationScheduler(expected_output=OUTPUT)
    [send] = sends(scheduler.handle(ConversationsAdded((conversation("a"),)), ready("r1"), ready("r2")))
    [again] = sends(finish(scheduler, send, Failure("timeout", "slow")))
    assert {send.replica, again.replica} == {"r1", "r2"} and again.request.index == 0
    assert again.request.seed == send.request.seed
    [third] = sends(finish(scheduler, again, Failure("timeout", "slow")))
    assert third.replica == send.replica


def test_a_full_or_quarantined_replica_with_the_largest_cache_does_not_keep_others_waiting():
    scheduler = ConversationScheduler(expected_output=OUTPUT)
    sent = sends(scheduler.handle(ready("large", 1_000_000, running=1), ready("small", 10_000, running=9)))
    sent = sends(scheduler.handle(ConversationsAdded(tuple(conversation(k) for k in "abcd"))))
    assert [send.replica for send in sent] == ["large", "small", "small", "small"]


def test_a_replica_that_fails_everything_is_retired_and_its_conversations_are_not_blamed():
    scheduler = ConversationScheduler(expected_output=OUTPUT)
    work = tuple(conversation(str(n), 1) for n in range(6))
    sent = sends(scheduler.handle(ConversationsAdded(work), ready("sick", running=6)))
    retired = []
    for send in sent[:5]:
        retired += [a for a in finish(scheduler, send, Failure("engine_error", "boom")) if isinstance(a, RetireReplica)]
    assert [(a.replica, a.reason) for a in retired] == [
        ("sick", "5 conversations failed on it in a row; the last one: boom")
    ]
    assert finish(scheduler, sent[5]) == []  # its engine is gone: nobody can tell whose answer this is
    assert scheduler.handle(ReplicaLost("sick")) == []
    again = sends(scheduler.handle(ready("well", running=6)))
    assert {send.request.key for send in again} == {str(n) for n in range(6)}  # together: none of them is suspected
    for send in again:
        assert len(saves(finish(scheduler, send))) == 1
    assert scheduler.finished


def test_good_answers_between_keep_a_replica():
    scheduler, sent = started(*(conversation(str(n), 1) for n in range(20)), attempts=1)
    for number, send in enumerate(sent):
        actions = finish(scheduler, send, Failure("timeout") if number % 4 else None)
        assert not [action for action in actions if isinstance(action, RetireReplica)]


def test_what_a_pause_frees_is_used_at_once():
    """`old` stays, `grown` pauses, and an urgent question takes its room in the same step."""
    scheduler = ConversationScheduler(SchedulerSettings(kv_share=1.0), expected_output=OUTPUT)
    work = (conversation("old"), conversation("grown"), conversation("question", 1, urgent=True))
    sent = sends(scheduler.handle(ready(tokens=60, running=2), ConversationsAdded(work[:2])))
    assert [send.request.key for send in sent] == ["old", "grown"]
    scheduler.handle(ConversationsAdded(work[2:]))
    grown = Response("x", usage=Usage(60, 0, 10))
    assert [send.request.key for send in sends(finish(scheduler, sent[1], grown))] == ["question"]
    assert scheduler.paused == 1
