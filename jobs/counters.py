"""What a pool has done over all starts of a run, what that comes to, and a warning where something is wrong with it.

1. Tokens, turns and preemptions of earlier starts are counted from the records, the only truth.
2. What no record holds (pauses, moves, retries, seconds) is carried on from status.json. A killed run has lost the
   last two seconds of it.
3. A hit rate is too low when it is under `HIT_RATE` although nearly all of what was prompted could have been held.
4. Answers that hold their model's thoughts are worse than slow: thoughts are judged as answers, and sent back.
"""

import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from cluster.conversation import EngineFacts, Usage
from cluster.counts import Counts, thinks_aloud
from cluster.driver import Pool
from cluster.occupancy import Spent
from cluster.settings import Price
from sequor.metrics import ANSWERED
from sequor.records import JudgementRecord, TurnRecord

HIT_RATE = 0.9
ATTAINABLE = 0.95
"""Of a hit rate: only where contexts are long, and their beginnings known, is so much possible."""
NOTABLE = 0.05
"""Of the turns: so many pauses or fresh renderings explain a low hit rate; more thoughts are no chance."""


class Earlier(Struct, frozen=True):
    """Of one pool, before this start."""

    counts: Counts
    spent: Spent = Spent()


NOTHING = Earlier(Counts())


class Bill(Struct, frozen=True):
    """What a pool costs, and by what."""

    price: Price
    gpus: float
    """Of one replica."""

    def cost(self, counts: Counts, spent: Spent) -> float:
        seconds = spent.alive_s * self.gpus
        return self.price.of(counts.prompt_tokens, counts.cached_tokens, counts.output_tokens, seconds)


def earlier(turns: Iterable[TurnRecord], judgements: Iterable[JudgementRecord], status: dict[str, Any]) -> Earlier:
    """Of the roles whose records are given. `status`: the pool's part of the last status.json, empty if there is
    none."""
    counts = Counts(**{name: int(status.get(name, 0)) for name in ("pauses", "moved", "retries")})
    contexts: dict[tuple[str, str], int] = {}
    for turn in turns:
        dialogue = turn.test_set, turn.dialogue
        usage = Usage(turn.prompt_tokens, turn.cached_tokens, turn.output_tokens, preemptions=turn.preemptions)
        how = {"dropped_turns": turn.dropped_turns, "history": turn.history}
        thought = thinks_aloud(turn.answer, turn.reasoning)
        counts.add(usage, contexts.get(dialogue, 0), failed=turn.status not in ANSWERED, thought=thought, **how)
        contexts[dialogue] = turn.prompt_tokens + turn.output_tokens
    for verdict in judgements:
        usage = Usage(verdict.prompt_tokens, verdict.cached_tokens, verdict.output_tokens)
        thought, failed = thinks_aloud(verdict.reply, verdict.reasoning), verdict.status == "judge_error"
        counts.add(usage, 0, failed=failed, thought=thought, dropped_turns=0, history="first")
    return Earlier(counts, Spent(*(float(status.get(name, 0.0)) for name in Spent.__struct_fields__)))


def pool_status(pool: Pool, before: Earlier, bill: Bill | None = None) -> dict[str, Any]:
    """As status.json keeps it: what is there now, and what the whole run has done."""
    counts, spent = before.counts + pool.scheduler.counts, before.spent + pool.occupancy.spent(time.monotonic())
    facts = next(iter(pool.facts.values()), None)
    return {
        "model": facts.model if facts else None,
        "replicas": len(pool.alive),
        "live": pool.scheduler.live,
        "paused": pool.scheduler.paused,
        "unfinished": pool.scheduler.unfinished,
        **{name: getattr(counts, name) for name in COUNTED},
        **{name: round(getattr(spent, name), 3) for name in Spent.__struct_fields__},
        "output_tokens_per_s": _ratio(counts.output_tokens, spent.ready_s, 2) or 0.0,
        "hit_rate": _ratio(counts.cached_tokens, counts.prompt_tokens, 4),
        "prefill_over_ideal": _ratio(counts.prompt_tokens - counts.cached_tokens, counts.ideal_prefill_tokens, 3),
        "busy": _ratio(spent.busy_s, spent.alive_s, 4),
        "in_flight": _ratio(spent.in_flight_s, spent.alive_s, 2),
        "warning": warning(counts, facts) if facts else None,
    } | ({"cost": round(bill.cost(counts, spent), 6)} if bill else {})


COUNTED = (
    "turns",
    "failures",
    "retries",
    "pauses",
    "moved",
    "preemptions",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "ideal_prefill_tokens",
)


def speed(status: dict[str, Any]) -> str:
    """Of a pool's part of status.json, which an older version may have written."""
    parts = [f"{status['turns']:,} turns, {status['output_tokens_per_s']:,.1f} output tokens/s"]
    if status["hit_rate"] is not None:
        parts.append(f"cache hit {100 * status['hit_rate']:.1f}%")
    if status["prefill_over_ideal"] is not None:
        parts.append(f"prefill/ideal {status['prefill_over_ideal']:.2f}")
    if status.get("busy") is not None:
        parts.append(f"engine busy {100 * status['busy']:.0f}% with {status['in_flight']:.1f} requests")
    if status.get("cost") is not None:
        parts.append(f"cost {status['cost']:,.2f}")
    return ", ".join(parts)


def events(status: dict[str, Any]) -> str:
    names = ("pauses", "preemptions", "moved", "retries")
    return ", ".join(f"{name} {status.get(name, 0):,}" for name in names)


def warning(counts: Counts, facts: EngineFacts) -> str | None:
    """One line, or None where all is well (rules 3 and 4)."""
    if counts.thoughts > NOTABLE * counts.turns:
        return (
            f"{counts.thoughts:,} of {counts.turns:,} answers hold a thought (<think>), which is judged and sent back: "
            "reasoning_parser takes it apart, or an endpoint's own setting"
        )
    hit = _ratio(counts.cached_tokens, counts.prompt_tokens, 4)
    attainable = 1 - counts.ideal_prefill_tokens / max(1, counts.prompt_tokens)
    if hit is None or hit >= HIT_RATE or attainable < ATTAINABLE or not facts.append_only:
        return None
    shares = f"only {100 * hit:.1f}% of the prompts came from the cache, {100 * attainable:.1f}% could"
    return f"{shares}: {_why(counts, facts)}"


def _why(counts: Counts, facts: EngineFacts) -> str:
    if facts.resolved.get("enable_prefix_caching") is False:
        return "prefix caching is off (engine_args.enable_prefix_caching)"
    if counts.rendered > NOTABLE * counts.turns:
        return (
            f"{counts.rendered:,} prompts were rendered afresh, as their last answers could not be kept token by token"
        )
    if counts.pauses > NOTABLE * counts.turns:
        return (
            f"{counts.pauses:,} pauses, the KV cache of {facts.kv_cache_tokens:,} tokens is short for these contexts "
            "(gpu_memory_utilization, kv_cache_dtype: fp8, tensor_parallel_size)"
        )
    if counts.moved:
        return f"{counts.moved:,} conversations moved away from lost replicas"
    return "live conversations were evicted; a lower scheduler.kv_share keeps fewer of them"


def _ratio(part: float, whole: float, digits: int) -> float | None:
    return round(part / whole, digits) if whole else None
