"""A Host in this process: engines without Ray, for tests of the driver and of whole runs."""

import asyncio

from cluster.conversation import EngineFacts, Outcome, Request
from cluster.driver import ReplicaDied


class LocalHost:
    """`answer(request)` may be a plain function or a coroutine; it may raise ReplicaDied."""

    def __init__(self, answer, replicas: int = 1, kv_cache_tokens: int = 100_000, max_running: int = 64):
        self._answer = answer
        self._replicas = replicas
        self._facts = EngineFacts("local", kv_cache_tokens, max_running, 8192)
        self._births = 0
        self.asked: list[Request] = []
        self.retired: list[str] = []

    async def run(self, ready, lost) -> str:
        self._ready, self._lost = ready, lost
        for _ in range(self._replicas):
            self.birth()
        await asyncio.Event().wait()
        return "never"

    def birth(self) -> None:
        self._births += 1
        self._ready(f"r{self._births}", self._facts)

    async def ask(self, replica: str, request: Request) -> Outcome:
        self.asked.append(request)
        await asyncio.sleep(0)
        try:
            outcome = self._answer(request)
            return await outcome if asyncio.iscoroutine(outcome) else outcome
        except ReplicaDied:
            asyncio.get_running_loop().call_soon(self.birth)
            raise

    def retire(self, replica: str, reason: str) -> None:
        self.retired.append(replica)
        self._lost(replica, reason)
        asyncio.get_running_loop().call_soon(self.birth)

    async def close(self) -> None:
        return None
