"""The simulated engine and the policies on it: counts, never seconds of a real clock."""

import pytest

from cluster.blockcache import BLOCK, PrefixCache
from cluster.policies import Dialogue, Lockstep, Scheduled, Semaphore, dialogues, ideal_prefill
from cluster.settings import SchedulerSettings
from cluster.simulation import Ask, Cost, SimulatedEngine, simulate


def test_a_finished_conversation_stays_cached_in_full_blocks_but_for_the_last_token():
    cache = PrefixCache(10 * BLOCK)
    assert cache.start("a", prompt=20, total=40) == 0
    cache.finish("a")
    assert cache.start("a", prompt=48, total=60) == 2 * BLOCK  # 3 blocks held, 48 tokens asked: one must be computed
    cache.finish("a")
    assert cache.start("a", prompt=100, total=110) == 4 * BLOCK


def test_the_least_recently_used_loses_its_tail_first():
    cache = PrefixCache(10 * BLOCK)
    for key in "ab":
        assert cache.start(key, prompt=4 * BLOCK, total=4 * BLOCK) == 0
        cache.finish(key)
    assert cache.start("c", prompt=3 * BLOCK, total=3 * BLOCK) == 0  # 8 held, 3 needed, 1 too many: a's last
    cache.finish("c")
    assert cache.start("a", prompt=9 * BLOCK, total=4 * BLOCK) == 3 * BLOCK
    assert cache.start("b", prompt=9 * BLOCK, total=4 * BLOCK) == 3 * BLOCK  # a's growth took one of b's, the oldest


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
