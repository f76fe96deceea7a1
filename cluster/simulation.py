"""The scheduler's rules against other ways to play, on a simulated engine with a made-up clock. Pure.

1. The engine batches continuously like vLLM: a step decodes one token of every running request and fills what is left
   of `max_num_batched_tokens` with prefill, first come first served. Waiting requests start when the cache has room.
2. A step takes `Cost`. Steps in which nothing but decoding happens are taken together up to the next answer's end.
3. The prefix cache is blockcache.py's. What it does not hold of a prompt is prefilled again.
4. Replicas have clocks of their own; the one that is behind moves next. A turn that another replica's answer set free
   arrives at its replica's own time, late by less than one stretch of decoding.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from cluster.blockcache import PrefixCache


class Cost(Struct, frozen=True):
    """Seconds. The defaults are Qwen3-4B in bfloat16 on one H100 (SXM: 990 TFLOP/s dense, 3.35 TB/s), assumed to reach
    45% of its arithmetic and 80% of its bandwidth: 4.0e9 parameters, 36 layers, 32 query and 8 KV heads of 128.
    Nothing here was measured on such a GPU."""

    step: float = 0.005
    """Reading the weights (8 GB, 3 ms) and launching."""
    prefill_token: float = 2 * 4.0e9 / (0.45 * 990e12)
    prefill_context: float = 4 * 36 * 32 * 128 / (0.45 * 990e12)
    """Attention: for each prefilled token and each token before it."""
    decode_sequence: float = 2e-5
    """Sampling and bookkeeping."""
    decode_context: float = 36 * 2 * 8 * 128 * 2 / (0.8 * 3.35e12)
    """Reading one token's KV (147,456 bytes)."""

    def with_fp8_cache(self) -> "Cost":
        """KV of a byte a number instead of two. Its arithmetic stays bfloat16's."""
        return replace(self, decode_context=self.decode_context / 2)


class Ask(Struct, frozen=True, gc=False):
    """One turn for the engine: a prompt of so many tokens, of which the conversation has said all but the new ones."""

    key: str
    prompt: int
    output: int


@dataclass(slots=True)
class Totals:
    turns: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    output_tokens: int = 0
    most_waiting: int = 0

    @property
    def hit_rate(self) -> float:
        return 1 - self.prefilled_tokens / self.prompt_tokens


@dataclass(slots=True)
class _Prefill:
    ask: Ask
    done: int
    """Prompt tokens in the cache or computed."""


@dataclass(slots=True, eq=False)
class SimulatedEngine:
    """One replica. `capacity`: KV tokens."""

    capacity: int
    cost: Cost = Cost()
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    clock: float = 0.0
    totals: Totals = field(default_factory=Totals)
    _cache: PrefixCache = field(init=False)
    _waiting: deque = field(default_factory=deque)
    _prefill: deque = field(default_factory=deque)
    _decoding: list = field(default_factory=list)
    """Heap of (step at which it ends, order, Ask)."""
    _steps: int = 0
    _context: int = 0
    """Tokens whose KV a step reads."""
    _order: int = 0

    def __post_init__(self) -> None:
        self._cache = PrefixCache(self.capacity)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._prefill or self._decoding)

    def send(self, ask: Ask, now: float) -> None:
        if not self.busy:
            self.clock = max(self.clock, now)
        self._waiting.append(ask)

    def advance(self) -> list[Ask]:
        """One step, or one stretch of decoding. Returns the turns that it ended. Raises ValueError for a turn that is
        larger than the whole cache."""
        self._start_waiting()
        if not self._prefill and not self._decoding:
            raise ValueError(f"{self._waiting[0]} does not fit a cache of {self.capacity} tokens")
        if self._prefill:
            self._mixed_step()
        else:
            self._decode_steps(self._decoding[0][0] - self._steps)
        return self._ended()

    def _start_waiting(self) -> None:
        self.totals.most_waiting = max(self.totals.most_waiting, len(self._waiting))
        while self._waiting and len(self._prefill) + len(self._decoding) < self.max_num_seqs:
            ask = self._waiting[0]
            hit = self._cache.start(ask.key, ask.prompt, ask.prompt + ask.output)
            if hit is None:
                return
            self._waiting.popleft()
            self._prefill.append(_Prefill(ask, hit))
            self.totals.prompt_tokens += ask.prompt
            self.totals.prefilled_tokens += ask.prompt - hit

    def _mixed_step(self) -> None:
        count, seconds = len(self._decoding), self.cost.step
        seconds += count * self.cost.decode_sequence + self._context * self.cost.decode_context
        self._steps += 1
        self._context += count
        room = self.max_num_batched_tokens - count
        while self._prefill and room > 0:
            head = self._prefill[0]
            chunk = min(room, head.ask.prompt - head.done)
            seconds += chunk * (self.cost.prefill_token + self.cost.prefill_context * (head.done + chunk / 2))
            head.done += chunk
            room -= chunk
            if head.done == head.ask.prompt:
                self._prefill.popleft()
                self._order += 1
                heapq.heappush(self._decoding, (self._steps + head.ask.output - 1, self._order, head.ask))
                self._context += head.ask.prompt
        self.clock += seconds

    def _decode_steps(self, steps: int) -> None:
        count = len(self._decoding)
        read = steps * self._context + count * steps * (steps - 1) // 2
        self.clock += steps * (self.cost.step + count * self.cost.decode_sequence) + read * self.cost.decode_context
        self._steps += steps
        self._context += count * steps

    def _ended(self) -> list[Ask]:
        ended = []
        while self._decoding and self._decoding[0][0] <= self._steps:
            _, _, ask = heapq.heappop(self._decoding)
            self._cache.finish(ask.key)
            self._context -= ask.prompt + ask.output - 1
            self.totals.turns += 1
            self.totals.output_tokens += ask.output
            ended.append(ask)
        return ended


class Policy(Protocol):
    """A way to play: what is sent first, and what follows from turns that have ended. (engine, turn) each."""

    @property
    def pauses(self) -> int: ...

    def begin(self) -> list[tuple[int, Ask]]: ...

    def ended(self, engine: int, asks: list[Ask]) -> list[tuple[int, Ask]]: ...


class Result(Struct, frozen=True):
    seconds: float
    turns: int
    prefilled_tokens: int
    prompt_tokens: int
    output_tokens: int
    pauses: int

    @property
    def hit_rate(self) -> float:
        return 1 - self.prefilled_tokens / self.prompt_tokens


def simulate(policy: Policy, engines: list[SimulatedEngine]) -> Result:
    """Play to the end."""
    for where, ask in policy.begin():
        engines[where].send(ask, 0.0)
    while busy := [n for n, engine in enumerate(engines) if engine.busy]:
        where = min(busy, key=lambda n: engines[n].clock)
        ended = engines[where].advance()
        if ended:
            for target, ask in policy.ended(where, ended):
                engines[target].send(ask, engines[where].clock)
    totals = [engine.totals for engine in engines]
    return Result(
        seconds=max(engine.clock for engine in engines),
        turns=sum(t.turns for t in totals),
        prefilled_tokens=sum(t.prefilled_tokens for t in totals),
        prompt_tokens=sum(t.prompt_tokens for t in totals),
        output_tokens=sum(t.output_tokens for t in totals),
        pauses=policy.pauses,
    )
