"""The simulated engine and the policies on it: counts, never seconds of a real clock."""

import pytest

from cluster.blockcache import BLOCK, PrefixCache
from cluster.policies import Dialogue, Lockstep, Scheduled, Semaphore, ceiling, dialogues, ideal_prefill
from cluster.settings import SchedulerSettings
from cluster.simulation import Ask, Cost, SimulatedEngine, simulate


def test_a_finished_conversation_stays_cached_in_full_blocks():
    cache = PrefixCache(10 * BLOCK)
    assert cache.start("a", prompt=20, total=40) == 0
    cache.finish("a")
    assert cache.start("a", prompt=48, total=60) == 2 * BLOCK  # 40 tokens: two full blocks, and 8 in a third
    cache.finish("a")
    assert cache.start("a", prompt=100, total=110) == 3 * BLOCK  # 60 tokens: three, and 12 in a fourth


def test_the_last_token_of_an_answer_was_never_computed_and_the_last_of_a_prompt_must_be():
    cache = PrefixCache(10 * BLOCK)
    cache.start("a", prompt=20, total=3 * BLOCK)
    cache.finish("a")
    assert cache.start("a", prompt=60, total=70) == 2 * BLOCK  # 48 tokens, 47 of them with KV
    cache.finish("a")
    assert cache.start("a", prompt=4 * BLOCK, total=80) == 3 * BLOCK  # 4 blocks held, the 64th token is computed


def test_a_request_within_one_block_leaves_nothing_behind():
    cache = PrefixCache(2 * BLOCK)
    for _ in range(3):
        assert cache.start("a", prompt=5, total=BLOCK) == 0
        cache.finish("a")


def test_the_least_recently_used_loses_its_tail_first():
    cache = PrefixCache(10 * BLOCK)
    for key in "ab":
        assert cache.start(key, prompt=4 * BLOCK, total=4 * BLOCK + 1) == 0
        cache.finish(key)  # 4 full blocks
    assert cache.start("c", prompt=2 * BLOCK, total=3 * BLOCK) == 0  # 8 held, 3 needed, 1 too many: a's last
    cache.finish("c")  # 2 full blocks; 9 held
    assert cache.start("a", prompt=5 * BLOCK, total=6 * BLOCK) == 3 * BLOCK  # 6 needed beside 6 held: two of b's go
    cache.finish("a")  # 5 full blocks; 9 held, b's two the oldest
    assert cache.start("b", prompt=4 * BLOCK, total=5 * BLOCK) == 2 * BLOCK  # 5 needed beside 7 held: c's two go
    cache.finish("b")
    assert cache.start("c", prompt=2 * BLOCK, total=3 * BLOCK) == 0


def test_pinned_blocks_are_not_evicted_and_who_does_not_fit_waits():
    cache = PrefixCache(10 * BLOCK)
    assert cache.start("a", prompt=BLOCK, total=6 * BLOCK) == 0
    assert cache.start("b", prompt=BLOCK, total=5 * BLOCK) is None
    cache.finish("a")
    assert cache.start("b", prompt=BLOCK, total=5 * BLOCK) == 0


def test_a_single_turn_costs_what_the_model_of_cost_says():
    """100 tokens of prompt in one step that makes the first token, then 9 steps of decoding one token each."""
    cost = Cost(step=1.0, prefill_token=0.1, prefill_context=0.0, decode_sequence=0.0, decode_context=0.01)
    engine = SimulatedEngine(10_000, cost)
    engine.send(Ask("a", 100, 10), 0.0)
    ended = []
    while engine.busy:
        ended += engine.advance()
    assert [ask.key for ask in ended] == ["a"]
    reading = sum(100 + n for n in range(9)) * 0.01
    assert engine.clock == pytest.approx(1.0 + 100 * 0.1 + 9 * 1.0 + reading)


def test_a_turn_larger_than_the_cache_is_an_error_and_not_a_hang():
    engine = SimulatedEngine(100)
    engine.send(Ask("a", 200, 10), 0.0)
    with pytest.raises(ValueError, match="does not fit a cache of 100 tokens"):
        engine.advance()


def test_ideal_prefill_is_every_token_that_no_decoding_has_made():
    assert ideal_prefill([Dialogue("a", (10, 20), (5, 5))]) == 10 + 20 + 1


def test_lengths_are_those_of_the_paper():
    played = dialogues(1400, 50, seed=1)
    totals = [sum(d.users) + sum(d.answers) for d in played]
    mean = sum(totals) / len(totals)
    deviation = (sum((total - mean) ** 2 for total in totals) / len(totals)) ** 0.5
    assert 36_000 < mean < 44_000 and 25_000 < deviation < 40_000  # the longest are cut
    assert max(totals) < 140_000
    assert dialogues(3, 50, seed=1) == played[:3]


@pytest.fixture(scope="module")
def results():
    played = dialogues(140, 50, seed=0)
    capacity = 200_000
    found = {}
    for name in ("continuous", "rounds"):
        engines = [SimulatedEngine(capacity)]
        found[name] = simulate(Scheduled(played, engines, SchedulerSettings(pacing=name)), engines)
    found["lockstep"] = simulate(Lockstep(played), [SimulatedEngine(capacity)])
    found["semaphore"] = simulate(Semaphore(played, 100), [SimulatedEngine(capacity)])
    return found


def test_every_policy_plays_every_turn_and_makes_the_same_tokens(results):
    assert {result.turns for result in results.values()} == {140 * 50}
    assert len({result.output_tokens for result in results.values()}) == 1


def test_token_admission_keeps_the_histories_and_the_others_lose_them(results):
    assert results["continuous"].hit_rate > 0.95
    assert results["rounds"].hit_rate > 0.95
    assert results["lockstep"].hit_rate < 0.1
    assert results["semaphore"].hit_rate < 0.1
    assert results["continuous"].prefilled_tokens * 10 < results["lockstep"].prefilled_tokens


def test_two_replicas_share_the_work():
    played = dialogues(60, 20, seed=0)
    engines = [SimulatedEngine(200_000), SimulatedEngine(200_000)]
    result = simulate(Scheduled(played, engines, SchedulerSettings()), engines)
    assert result.turns == 60 * 20
    shares = [engine.totals.turns for engine in engines]
    assert min(shares) > 0.3 * sum(shares)


def test_only_prefill_can_be_saved_and_it_bounds_every_ratio():
    """Two turns of 10 + 5 tokens: 4 decoded tokens each after the first, prompts of 10 and 25, of which 20 are new."""
    played = [Dialogue("a", (10, 10), (5, 5))]
    cost = Cost(step=0.0, prefill_token=1.0, prefill_context=0.0, decode_sequence=1.0, decode_context=0.0)
    assert ceiling(played, cost) == pytest.approx((8 + 10 + 25) / (8 + 10 + 10))


def test_pauses_are_those_of_the_scheduler_and_nobody_elses(results):
    assert results["continuous"].pauses > 0
    assert results["lockstep"].pauses == results["semaphore"].pauses == 0


def test_an_fp8_cache_halves_what_decoding_reads_and_nothing_else():
    fp8 = Cost().with_fp8_cache()
    assert fp8.decode_context == Cost().decode_context / 2
    assert fp8.prefill_token == Cost().prefill_token and fp8.prefill_context == Cost().prefill_context
