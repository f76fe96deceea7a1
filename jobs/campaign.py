"""Runs played together: a candidate each, one pool of judges for all, as many at a time as there are GPUs for.

1. `order: together` (default): the judges are up from the start, beside one candidate after the other, or several
   where GPUs allow. `order: phases`: the judges come when all is answered and the candidates' GPUs are free again.
2. Nothing starts that could not end: what is asked for is held against what the cluster has before any engine is up.
3. A candidate whose engine cannot be had fails its own run; the others go on. Without judges nothing goes on.
4. In a pool that several runs share, each run's name goes in front of its conversations' keys, and stays out of their
   seeds: a run's answers do not depend on its company.

Exit codes: cli.py. The worst of the runs' is the campaign's.
"""

import asyncio
import logging
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console

from cluster import replicas
from cluster.conversation import Conversation, EngineFacts, Turn
from cluster.driver import ClusterError, Driver, Pool
from jobs import pools as building
from jobs.conduct import COMPLETE, FAILED, INCOMPLETE, STOPPED, conduct, log_to, no_more_signals
from jobs.progress import Display
from jobs.run import Run

log = logging.getLogger(__name__)

MARK = "\x1f"
"""Between a run's name and a conversation's key; in neither of them."""


class Campaign:
    def __init__(self, runs: list[Run], out: Path, console: Console):
        """`out`: where the logs go. Runs that are done already are left alone."""
        self.runs = [run for run in runs if not run.done]
        self._by_name = {run.name: run for run in self.runs}
        self._out, self._console = out, console

    def play(self) -> int:
        """Returns an exit code. Raises BadInput before anything is written, ClusterError and OSError later on."""
        if not self.runs:
            return COMPLETE
        local = all(pool.settings.engine == "api" for pool in building.wanted(self.runs).values())
        if not local:  # endpoints are asked from here
            replicas.connect(self.runs[0].config.ray_address)
        try:
            self.pools = building.build(self.runs, math.inf if local else replicas.gpus_available(), self._out / "logs")
            self._begin()
            log_to(self._out / "logs" / "driver.log")
            self._say(f"playing into {self._out}; the engines are starting", always=True)
            code = asyncio.run(self._play())
            if code == STOPPED:
                no_more_signals()
            return code
        finally:
            if not local:
                replicas.disconnect()

    def _begin(self) -> None:
        """All of them, or none: a run whose folder is taken stops the others before anything is played."""
        try:
            for run in self.runs:
                run.begin(self._pools_of(run))
        except BaseException as error:
            for run in self.runs:
                if run.watch is not None:
                    run.end(True, error)
            raise

    def _pools_of(self, run: Run) -> dict[str, Pool]:
        return {role: pool for (name, role), pool in self.pools.serving.items() if name == run.name}

    async def _play(self) -> int:
        driver = Driver(self.pools.ordered, self._keep, self._ready, self.pools.gpus, self._give_up)
        for run in self.runs:
            if "candidate" in run.pools:
                driver.add(run.pools["candidate"], self._scoped(run, run.dialogues(), "candidate"))
        for pool, conversations in self._next_questions(self.runs):
            driver.add(pool, conversations)
        display = Display([run.watch for run in self.runs], self._console)
        try:
            played = await conduct(driver, display.run())
        except BaseException as error:
            self._end(True, error)
            raise
        self._end(not played)
        return self._code(played)

    def _end(self, stopped: bool, error: BaseException | None = None) -> None:
        for run in self.runs:
            run.end(stopped, run.failed or (None if run.done else error))

    def _code(self, played: bool) -> int:
        if not played:
            return STOPPED
        if any(run.failed for run in self.runs):
            return FAILED
        return COMPLETE if all(run.done for run in self.runs) else INCOMPLETE

    async def _keep(self, saves: list[tuple[Pool, Turn]]) -> Iterable[tuple[Pool, tuple[Conversation, ...]]]:
        """Write a batch of finished turns down; what follows from them are questions to the judges."""
        turns: dict[str, list[Turn]] = {}
        for pool, turn in saves:
            name, turn = self._owned(pool, turn)
            turns.setdefault(name, []).append(turn)
        records = [(self._by_name[name], self._by_name[name].finished(of_run)) for name, of_run in turns.items()]
        await asyncio.to_thread(_write, records)
        return self._next_questions(run for run, _ in records)

    def _next_questions(self, runs: Iterable[Run]) -> list[tuple[Pool, tuple[Conversation, ...]]]:
        return [
            (run.pools[role], self._scoped(run, questions, role))
            for run in runs
            for role, questions in run.questions().items()
        ]

    def _scoped(self, run: Run, conversations: Iterable[Conversation], role: str) -> tuple[Conversation, ...]:
        """Rule 4. A candidate that shares the judges' engine samples as a candidate."""
        sampling = run.config.candidate.sampling if role == "candidate" else None
        if len(self.pools.served(run.pools[role])) == 1:
            return tuple(conversations)
        return tuple(
            msgspec.structs.replace(
                c,
                key=f"{run.name}{MARK}{c.key}",
                group=f"{run.name}{MARK}{c.group}" if c.group is not None else None,
                seed_key=c.key,
                sampling=c.sampling or sampling,
            )
            for c in conversations
        )

    def _owned(self, pool: Pool, turn: Turn) -> tuple[str, Turn]:
        """The run that a pool's finished turn belongs to, and the turn under the key that it has there."""
        served = self.pools.served(pool)
        if len(served) == 1:
            return next(iter(served)), turn
        name, _, key = turn.key.partition(MARK)
        return name, msgspec.structs.replace(turn, key=key)

    def _ready(self, pool: Pool, facts: EngineFacts) -> None:
        for run in self.runs:
            if pool in run.pools.values() and (change := run.engine_ready(pool, facts)):
                self._say(f"WARNING: {pool.name}: another engine than at an earlier start: {change}", always=True)
        size = f"KV cache {facts.kv_cache_tokens:,} tokens, context {facts.context_tokens:,}"
        self._say(f"{pool.name}: engine ready, {size}")

    def _give_up(self, pool: Pool, error: ClusterError) -> bool:
        """Rule 3."""
        served = [(run, roles) for run, roles in self.pools.served(pool).items()]
        if len(self.runs) < 2 or any(role != "candidate" for _, roles in served for role in roles):
            return False
        for name, _ in served:
            self._by_name[name].failed = error
        self._say(f"{pool.name} is given up: {error}", always=True)
        return True

    def _say(self, note: str, always: bool = False) -> None:
        log.info(note)
        if always or not self._console.is_terminal:
            self._console.print(note)


def _write(records: list[tuple[Run, list]]) -> None:
    for run, of_run in records:
        run.write(of_run)
