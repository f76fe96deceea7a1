"""What is told of a run's speed: over all its starts, and with a reason where the cache helped too little."""

from cluster.conversation import Conversation, EngineFacts, Response, Usage
from cluster.counts import Counts
from cluster.events import ConversationsAdded, ReplicaReady, TurnFinished
from cluster.occupancy import Occupancy, Spent
from cluster.scheduler import ConversationScheduler
from cluster.settings import SchedulerSettings
from jobs.counters import earlier, warning
from sequor.records import JudgementRecord, TurnRecord


def turn(number: int, prompt: int, cached: int, output: int, **more) -> TurnRecord:
    usage = {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}
    return TurnRecord(**{"test_set": "s", "dialogue": "d", "turn": number, "status": "ok", **usage, **more})


def test_a_replica_is_busy_while_something_is_with_it():
    pool = Occupancy()
    pool.born("a", 10.0)
    pool.sent("a", 11.0)
    pool.sent("a", 12.0)
    pool.answered("a", 14.0)
    pool.answered("a", 15.0)
    assert pool.spent(20.0) == Spent(ready_s=10.0, alive_s=10.0, busy_s=4.0, in_flight_s=6.0)


def test_a_dead_replica_costs_nothing_and_its_late_answers_count_for_nothing():
    pool = Occupancy()
    pool.born("a", 0.0)
    pool.sent("a", 0.0)
    pool.died("a", 5.0)
    pool.answered("a", 6.0)
    assert pool.spent(10.0) == Spent(ready_s=10.0, alive_s=5.0, busy_s=5.0, in_flight_s=5.0)


def test_time_stops_when_the_pool_is_given_up():
    pool = Occupancy()
    pool.born("a", 0.0)
    pool.over(4.0)
    assert pool.spent(9.0) == Spent(ready_s=4.0, alive_s=4.0)


def test_counts_of_earlier_starts_come_from_the_records():
    turns = [turn(1, 100, 0, 20), turn(2, 150, 96, 30, history="bridged", preemptions=2)]
    verdict = JudgementRecord(
        test_set="s",
        dialogue="d",
        turn=1,
        constraint="c",
        judge="j",
        status="satisfied",
        parser="strict/2",
        prompt_tokens=70,
        cached_tokens=16,
        output_tokens=5,
    )
    counts = earlier(turns, [verdict], {}).counts
    assert (counts.turns, counts.preemptions, counts.prompt_tokens) == (3, 2, 320)
    assert (counts.cached_tokens, counts.output_tokens) == (112, 55)
    assert counts.ideal_prefill_tokens == 100 + (150 - 120) + 70


def test_what_no_record_holds_is_carried_on_from_the_last_status():
    before = earlier([], [], {"pauses": 3, "retries": 1, "ready_s": 9.5, "alive_s": 19.0, "turns": 7})
    assert (before.counts.pauses, before.counts.retries, before.counts.turns) == (3, 1, 0)
    assert before.spent == Spent(ready_s=9.5, alive_s=19.0)


def facts(append_only: bool = True, **resolved) -> EngineFacts:
    return EngineFacts("m", 100_000, 64, 8192, append_only, resolved)


def played(cached: int, ideal: int = 1000, **more) -> Counts:
    """A hundred turns of a thousand prompt tokens."""
    return Counts(turns=100, prompt_tokens=100_000, cached_tokens=cached, ideal_prefill_tokens=ideal, **more)


def test_a_low_hit_rate_is_told_with_its_reason():
    assert warning(played(95_000), facts()) is None
    start = "only 50.0% of the prompts came from the cache, 99.0% could: "
    assert warning(played(50_000, pauses=20), facts()).startswith(f"{start}20 pauses, the KV cache of 100,000 tokens")
    assert "rendered afresh" in warning(played(50_000, rendered=40), facts())
    assert "prefix caching is off" in warning(played(0), facts(enable_prefix_caching=False))
    assert "lost replicas" in warning(played(50_000, moved=2), facts())
    assert "kv_share" in warning(played(50_000), facts())


def test_a_low_hit_rate_is_no_news_where_no_more_was_possible():
    assert warning(played(50_000, ideal=50_000), facts()) is None  # short contexts, or a window that slides
    assert warning(played(50_000), facts(append_only=False)) is None
    assert warning(Counts(), facts()) is None


# A model that thinks, and nobody has said so.
def test_answers_that_hold_their_models_thoughts_are_warned_of_in_this_start_and_the_next():
    texts = ["<think>Hm. Final verdict: yes</think>no", "\n<think>Hm", "Hm.</think>\n\nWell.", "I think <think>."]
    turns = [turn(number, 100, 90, 10, answer=text) for number, text in enumerate(texts, 1)]
    apart = [turn(5, 100, 90, 10, answer="Well.", reasoning="<think>Hm"), turn(6, 100, 90, 10, status="empty")]
    counts = earlier(turns + apart, [], {}).counts
    assert counts.thoughts == 3
    assert warning(counts, facts()).startswith("3 of 6 answers hold a thought (<think>), which is judged and sent back")
    assert warning(Counts(turns=100, thoughts=5), facts()) is None
    scheduler = ConversationScheduler(SchedulerSettings())
    [send] = scheduler.handle(ReplicaReady("r", 10_000, 8), ConversationsAdded((Conversation("a", ("q",)),)))
    scheduler.handle(TurnFinished(send.ticket, Response(texts[0])))
    assert scheduler.counts.thoughts == 1


def test_counts_add_up_field_by_field():
    total = Counts(turns=1, pauses=2) + Counts(turns=3, output_tokens=4)
    assert total == Counts(turns=4, pauses=2, output_tokens=4)
    total.add(Usage(10, 5, 3), 4, failed=True, dropped_turns=0, history="rendered")
    assert (total.turns, total.failures, total.rendered, total.ideal_prefill_tokens) == (5, 1, 1, 6)
