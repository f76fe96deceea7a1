"""Performs what the scheduler decides and tells it what happened. The only place with a clock.

One loop serves all pools: take every event that has come in, let the schedulers decide, have the finished turns
written down (`keep`), and only then send what builds on them. While one batch is being written the next one gathers,
so a slow disk makes batches larger, not turns slower. `keep` may answer with new conversations: a judge's questions
about the answer that was just saved.

Pools start in their order, each as soon as the GPUs that it needs are free, and none before the one in front of it. A
pool is over when its work is done and so are the pools that feed it; then its engines are closed and its GPUs are free.
So a judge that stands behind its candidate, with room for one of them, judges when all is answered.

    ClusterError
    ├─ Stalled           work is left and no replica can come again
    ├─ EngineStartError  an engine's constructor raised; carries its message
    └─ Unreachable       no cluster at the address
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cluster.conversation import Conversation, EngineFacts, Failure, Outcome, Request, Turn
from cluster.events import (
    ConversationsAdded,
    Event,
    ReplicaLost,
    ReplicaReady,
    RetireReplica,
    SaveTurn,
    SendTurn,
    TurnFinished,
)
from cluster.occupancy import Occupancy
from cluster.scheduler import ConversationScheduler


class ClusterError(Exception):
    """The machinery failed; the run can be continued once the cause is gone."""


class EngineStartError(ClusterError):
    """An engine could not be started. The message is the engine's own, one line."""


class Stalled(ClusterError):
    """Work is left, and no replica is alive or will come."""


class Unreachable(ClusterError):
    """No cluster answers at the address that was given."""


class ReplicaDied(Exception):
    """Raised by `Host.ask` when the replica is gone. The driver turns it into ReplicaLost."""


class Engine(Protocol):
    """The seam to a model. `generate` never raises for one request's sake; when it raises, the engine is dead."""

    facts: EngineFacts
    steps: int
    """Grows while the engine works: one that has requests and stands still hangs."""

    async def generate(self, request: Request) -> Outcome: ...

    async def close(self) -> None: ...


class Host(Protocol):
    """Where a pool's engines live."""

    async def run(self, ready: Callable[[str, EngineFacts], None], lost: Callable[[str, str], None]) -> str:
        """Start the replicas and watch them until cancelled. When none can come again it returns why, or raises
        EngineStartError."""

    async def ask(self, replica: str, request: Request) -> Outcome:
        """Raises ReplicaDied. Cancelled, it gives the request up in the engine too."""

    def retire(self, replica: str, reason: str) -> None:
        """End it at once. Another one is born in its place, as after a death."""

    async def close(self) -> None: ...


@dataclass(eq=False)
class Pool:
    """Replicas of one model, and the scheduler that feeds them. `turn_timeout_s` in seconds."""

    name: str
    scheduler: ConversationScheduler
    host: Host
    turn_timeout_s: float = 1800.0
    gpus: float = 0.0
    """Of all its replicas."""
    fed_by: "tuple[Pool, ...]" = ()
    """Pools whose finished turns bring it more work."""
    started: bool = False
    over: bool = False
    """Its work is done, or was given up, and its engines are closed or closing."""
    facts: dict[str, EngineFacts] = field(default_factory=dict)
    """Facts of every replica that ever came up, by its name."""
    alive: set[str] = field(default_factory=set)
    occupancy: Occupancy = field(default_factory=Occupancy)
    """On the monotonic clock."""
    hopeless: str | None = None
    """Why no replica will come again, once that is known."""
    failed: BaseException | None = None
    """What ended its host."""


class _Decided(NamedTuple):
    saves: list[tuple[Pool, Turn]]
    sends: list[tuple[Pool, SendTurn]]
    retired: list[tuple[Pool, RetireReplica]]


Keep = Callable[[list[tuple[Pool, Turn]]], Awaitable[Iterable[tuple[Pool, tuple[Conversation, ...]]]]]
"""Writes finished turns down; answers with the conversations that follow from them."""


class Driver:
    """Plays conversations on pools until nothing is left to do."""

    def __init__(
        self,
        pools: Iterable[Pool],
        keep: Keep,
        on_ready: Callable[[Pool, EngineFacts], None] | None = None,
        gpus: float = math.inf,
        give_up: Callable[[Pool, ClusterError], bool] = lambda pool, error: False,
    ):
        """`gpus`: how many there are for all pools. `give_up`: whether the others go on without a pool that cannot have
        a replica; False ends the play with that error."""
        self.pools = list(pools)
        self._keep = keep
        self._on_ready = on_ready
        self._free_gpus = gpus
        self._give_up = give_up
        self._watchers: dict[int, asyncio.Task[None]] = {}
        self._inbox: list[tuple[Pool, Event]] = []
        self._wake = asyncio.Event()
        self._stopping = False

    def add(self, pool: Pool, conversations: Iterable[Conversation]) -> None:
        """Raises ValueError when the pool is over: `fed_by` lacks a pool."""
        if pool.over:
            raise ValueError(f"pool {pool.name} is over, and more work comes")
        self._post(pool, ConversationsAdded(tuple(conversations)))

    def stop(self) -> None:
        """Leave as soon as what has come in is written down. Turns in flight are given up; safe in a signal handler
        of the event loop, and safe to call twice."""
        self._stopping = True
        self._wake.set()

    async def play(self) -> bool:
        """Returns True when everything was played, False when `stop` came first. Raises ClusterError, and whatever
        `keep` raises; what was saved stays saved."""
        try:
            async with asyncio.TaskGroup() as tasks:
                asks: set[asyncio.Task[None]] = set()
                await self._loop(tasks, asks)
                for task in [*self._watchers.values(), *asks]:
                    task.cancel()
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            for pool in self.pools:
                pool.occupancy.over(time.monotonic())
        return not self._stopping

    async def _loop(self, tasks: asyncio.TaskGroup, asks: set[asyncio.Task[None]]) -> None:
        while True:
            batch, self._inbox = self._inbox, []
            self._wake.clear()
            saves, sends, retired = self._decide(batch)
            for pool, action in retired:
                pool.host.retire(action.replica, action.reason)
            if saves:
                for pool, conversations in await self._keep(saves):
                    self.add(pool, conversations)
            if self._stopping:
                return
            for pool, action in sends:
                task = tasks.create_task(self._ask(pool, action))
                asks.add(task)
                task.add_done_callback(asks.discard)
            if self._inbox:
                continue
            self._check_hope(tasks)
            self._end_pools(tasks)
            if all(pool.over for pool in self.pools):
                return
            self._start_pools(tasks)
            await self._wake.wait()

    def _start_pools(self, tasks: asyncio.TaskGroup) -> None:
        for pool in self.pools:
            if pool.started or pool.over:
                continue
            if pool.gpus > self._free_gpus:
                return
            pool.started = True
            self._free_gpus -= pool.gpus
            self._watchers[id(pool)] = tasks.create_task(self._watch(pool))

    def _end_pools(self, tasks: asyncio.TaskGroup) -> None:
        for pool in self.pools:
            if not pool.over and pool.scheduler.finished and all(feeder.over for feeder in pool.fed_by):
                self._end(pool, tasks)

    def _end(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        pool.over = True
        if pool.started:
            self._watchers.pop(id(pool)).cancel()
            pool.occupancy.over(time.monotonic())
            pool.alive.clear()
            if not all(other.over for other in self.pools):  # or whoever conducts closes it
                tasks.create_task(self._close(pool))

    async def _close(self, pool: Pool) -> None:
        await pool.host.close()
        self._free_gpus += pool.gpus
        self._wake.set()

    def _decide(self, batch: list[tuple[Pool, Event]]) -> "_Decided":
        saves, sends, retired = decided = _Decided([], [], [])
        for pool in self.pools:
            events = [event for owner, event in batch if owner is pool]
            if not events:
                continue
            for action in pool.scheduler.handle(*events):
                match action:
                    case SaveTurn():
                        saves.append((pool, action.turn))
                    case SendTurn() if not pool.over:
                        sends.append((pool, action))
                    case RetireReplica():
                        retired.append((pool, action))
        return decided

    async def _ask(self, pool: Pool, action: SendTurn) -> None:
        pool.occupancy.sent(action.replica, time.monotonic())
        try:
            async with asyncio.timeout(pool.turn_timeout_s):
                outcome = await pool.host.ask(action.replica, action.request)
        except TimeoutError:
            outcome = Failure("timeout", f"no answer within {pool.turn_timeout_s:g} s")
        except ReplicaDied as death:
            self._lost(pool, action.replica, str(death))
            return
        finally:
            pool.occupancy.answered(action.replica, time.monotonic())
        self._post(pool, TurnFinished(action.ticket, outcome))

    async def _watch(self, pool: Pool) -> None:
        try:
            pool.hopeless = await pool.host.run(
                lambda replica, facts: self._ready(pool, replica, facts),
                lambda replica, reason: self._lost(pool, replica, reason),
            )
        except* EngineStartError as group:
            pool.failed = _first(group)
        self._wake.set()

    def _ready(self, pool: Pool, replica: str, facts: EngineFacts) -> None:
        pool.facts[replica] = facts
        pool.alive.add(replica)
        pool.occupancy.born(replica, time.monotonic())
        if self._on_ready is not None:
            self._on_ready(pool, facts)
        self._post(pool, ReplicaReady(replica, facts.kv_cache_tokens, facts.max_running))

    def _lost(self, pool: Pool, replica: str, reason: str) -> None:
        if replica in pool.alive:
            pool.alive.remove(replica)
            pool.occupancy.died(replica, time.monotonic())
            self._post(pool, ReplicaLost(replica, reason))

    def _check_hope(self, tasks: asyncio.TaskGroup) -> None:
        """Raises ClusterError."""
        for pool in self.pools:
            if pool.over:
                continue
            error = pool.failed
            if pool.hopeless and not pool.alive and not pool.scheduler.finished:
                left = pool.scheduler.unfinished
                what = f"pool {pool.name}: no replica is left, {left} conversations are unfinished"
                error = Stalled(f"{what}: {pool.hopeless}")
            if error is not None:
                if not self._give_up(pool, error):
                    raise error
                self._end(pool, tasks)

    def _post(self, pool: Pool, event: Event) -> None:
        self._inbox.append((pool, event))
        self._wake.set()


def _first(group: BaseExceptionGroup) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
