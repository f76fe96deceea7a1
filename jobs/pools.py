"""From runs to pools of replicas: which model files, which actors, which scheduler, in which order."""

from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cluster import weights
from cluster.api import ApiHost
from cluster.driver import Pool
from cluster.replicas import RayReplicas, gpus_available, gpus_of, largest_node
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings, SchedulerSettings
from jobs.config import RunConfig, shared
from jobs.preflight import check_gpus, check_key, check_nodes
from jobs.run import Run


class Wanted(Struct):
    """One pool before it is made."""

    settings: EngineSettings
    files: weights.ModelFiles
    serves: list[tuple[str, str]]
    """(run, role)"""

    @property
    def gpus(self) -> float:
        return self.settings.replicas * gpus_of(self.settings)

    @property
    def judges(self) -> bool:
        return any(role != "candidate" for _, role in self.serves)


class Pools(Struct):
    ordered: list[Pool]
    """As the driver starts them."""
    serving: dict[tuple[str, str], Pool]
    """(run, role) -> pool"""
    gpus: float
    """For all of them."""

    def served(self, pool: Pool) -> dict[str, list[str]]:
        """Run -> its roles in this pool."""
        found: dict[str, list[str]] = {}
        for (run, role), serving in self.serving.items():
            if serving is pool:
                found.setdefault(run, []).append(role)
        return found


def engines(config: RunConfig, roles: Collection[str]) -> dict[str, EngineSettings]:
    """Pool -> settings; `both` is the one of the candidate and a judge. Its other settings are the candidate's."""
    both = shared(config, roles)
    found = {role: config.engine(role) for role in roles if role not in ("candidate", both)}
    if both:
        replicas = max(config.candidate.replicas, config.engine(both).replicas)
        return {"both": replace(config.candidate, replicas=replicas)} | found
    return ({"candidate": config.candidate} if "candidate" in roles else {}) | found


def wanted(runs: Iterable[Run]) -> dict[str, Wanted]:
    """Name -> pool, of the roles that have something to do. All runs of a campaign have the same judges; each of their
    candidates has a pool of its own, named after the run, unless it is a judge's model."""
    found: dict[str, Wanted] = {}
    for run in runs:
        named, both = engines(run.config, run.roles), shared(run.config, run.roles)
        for role in run.open_roles:
            own = "both" if both and role in ("candidate", both) else role
            name = own if not run.name else {"both": both, "candidate": run.name}.get(own, own)
            pool = found.setdefault(name, Wanted(named[own], run.files[role], []))
            pool.settings = replace(pool.settings, replicas=max(pool.settings.replicas, named[own].replicas))
            pool.serves.append((run.name, role))
    return found


def one(
    name: str, settings: EngineSettings, files: weights.ModelFiles, scheduling: SchedulerSettings, seed: int, logs: Path
) -> Pool:
    """A pool by itself. Raises BadInput when the cluster has too few GPUs for it."""
    check_gpus({name: settings}, (), "together", gpus_available())
    check_nodes(name, settings, largest_node())
    return pool(name, settings, files, scheduling, seed, logs)


def build(runs: list[Run], available: float, logs: Path | None = None) -> Pools:
    """`available`: GPUs of the cluster. Raises BadInput when they are too few."""
    pools, config = wanted(runs), runs[0].config
    judges = {name for name, pool in pools.items() if pool.judges}
    check_gpus({name: pool.settings for name, pool in pools.items()}, judges, config.order, available)
    for name, want in pools.items():
        if want.gpus:
            check_nodes(name, want.settings, largest_node())
    made = {
        name: pool(name, want.settings, want.files, config.scheduler, config.seed, logs) for name, want in pools.items()
    }
    candidates = [made[name] for name in pools if name not in judges]
    for name in judges:
        made[name].fed_by = tuple(candidates)
    last = [made[name] for name in judges]
    ordered = [*candidates, *last] if config.order == "phases" else [*last, *candidates]
    serving = {served: made[name] for name, want in pools.items() for served in want.serves}
    return Pools(ordered, serving, available)


def pool(
    name: str,
    settings: EngineSettings,
    files: weights.ModelFiles,
    scheduling: SchedulerSettings,
    seed: int,
    logs: Path | None = None,
) -> Pool:
    """`logs`: folder of the engines' own logs. Raises BadInput where an endpoint's key is not there."""
    check_key(settings)
    if files.path == settings.model and files.digest.startswith("commit "):
        settings = replace(settings, revision=files.digest.removeprefix("commit "))  # what the fingerprint names
    scheduler = ConversationScheduler(scheduling, seed, min(512, settings.sampling.max_tokens))
    if settings.engine == "api":
        return Pool(name, scheduler, ApiHost(name, settings), settings.turn_timeout_s)
    host = RayReplicas(name, settings, files.path, logs=logs.resolve() if logs else None)
    return Pool(name, scheduler, host, settings.turn_timeout_s, settings.replicas * gpus_of(settings))
