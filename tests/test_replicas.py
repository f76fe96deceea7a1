"""The life of a replica at moments that a run through Ray meets too rarely: its actor is a stub here, Ray stays off."""

import ast
import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import replicas
from cluster.conversation import EngineFacts
from cluster.replicas import RayReplicas
from cluster.settings import EngineSettings

ROOT = Path(__file__).resolve().parents[1]
FACTS = EngineFacts("m", kv_cache_tokens=1000, max_running=8, context_tokens=100)


class Actor:
    """Its calls are futures of this loop, as Ray's are to whoever awaits them."""

    def __init__(self):
        self.starting = asyncio.get_running_loop().create_future()
        self.start = SimpleNamespace(remote=lambda: self.starting)
        self.live = SimpleNamespace(remote=asyncio.get_running_loop().create_future)
        self.pulse = SimpleNamespace(remote=asyncio.get_running_loop().create_future)


@pytest.fixture
def killed(monkeypatch) -> list:
    killed = []
    monkeypatch.setattr(replicas.ray, "kill", killed.append)
    return killed


async def watched(monkeypatch) -> tuple[asyncio.Task, Actor, list[str]]:
    actor, ready = Actor(), []
    host = RayReplicas("p", EngineSettings(model="m", engine="scripted", replicas=1), "m")
    monkeypatch.setattr(host, "_create", lambda name: actor)
    watcher = asyncio.create_task(host.run(lambda name, facts: ready.append(name), lambda name, reason: None))
    await asyncio.sleep(0.01)
    return watcher, actor, ready


@pytest.mark.parametrize("ticks", range(-4, 5))
def test_a_run_that_stops_while_an_engine_comes_up_ends_and_leaves_no_actor(monkeypatch, killed, ticks):
    """Stopped so many ticks of the loop after the engine is up. asyncio.wait_for would take some of them for its
    answer, and the run would stay for ever."""

    async def run() -> None:
        watcher, actor, ready = await watched(monkeypatch)
        acts = [lambda: actor.starting.cancelled() or actor.starting.set_result(FACTS), watcher.cancel]
        for act in acts if ticks >= 0 else acts[::-1]:
            act()
            for _ in range(abs(ticks)):
                await asyncio.sleep(0)
        _, still = await asyncio.wait([watcher], timeout=5)
        assert not still and watcher.cancelled()
        assert ready == ([] if killed else ["p-0.0"]) and killed in ([], [actor])  # or whoever closes the pool ends it

    asyncio.run(run())


def test_an_engine_that_is_starting_ends_with_its_run(monkeypatch, killed):
    async def run() -> None:
        watcher, actor, ready = await watched(monkeypatch)
        watcher.cancel()
        _, still = await asyncio.wait([watcher], timeout=5)
        assert not still and killed == [actor] and not ready

    asyncio.run(run())


def test_a_replica_that_is_up_is_left_to_whoever_closes_the_pool(monkeypatch, killed):
    async def run() -> None:
        watcher, actor, ready = await watched(monkeypatch)
        actor.starting.set_result(FACTS)
        await asyncio.sleep(0.01)
        watcher.cancel()
        _, still = await asyncio.wait([watcher], timeout=5)
        assert not still and ready == ["p-0.0"] and not killed

    asyncio.run(run())


def test_no_wait_swallows_a_cancellation():
    """CPython issue 86296: asyncio.timeout is the one for programs that shall run on 3.11 too."""
    for package in ("cluster", "sequor", "jobs"):
        for path in (ROOT / package).rglob("*.py"):
            names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            assert "wait_for" not in names, path
