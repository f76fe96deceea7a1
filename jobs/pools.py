"""From a config to pools of replicas: which model files, which actors, which scheduler."""

from msgspec.structs import replace

from cluster import weights
from cluster.driver import Pool
from cluster.replicas import RayReplicas
from cluster.scheduler import ConversationScheduler
from cluster.settings import EngineSettings, SchedulerSettings
from jobs.config import RunConfig, one_pool
from jobs.preflight import check_gpus
from sequor.errors import BadInput


def models(config: RunConfig, *roles: str) -> dict[str, weights.ModelFiles]:
    """Role -> files. Raises BadInput naming the role's key."""
    return {role: find(role, getattr(config, role)) for role in roles}


def find(role: str, settings: EngineSettings) -> weights.ModelFiles:
    """Raises BadInput naming the role's key."""
    try:
        return weights.find(settings)
    except weights.ModelNotFound as error:
        raise BadInput(f"{role}.model: {error}") from None


def engines(config: RunConfig, roles: tuple[str, ...]) -> dict[str, EngineSettings]:
    """Pool -> settings. One pool, `both`, serves both roles when the model and its settings are the same."""
    if set(roles) == {"candidate", "judge"} and one_pool(config.candidate, config.judge):
        return {"both": replace(config.candidate, replicas=max(config.candidate.replicas, config.judge.replicas))}
    return {role: getattr(config, role) for role in roles}


def build(config: RunConfig, found: dict[str, weights.ModelFiles], needed: tuple[str, ...]) -> dict[str, Pool]:
    """Role -> pool, of the roles that are needed. Raises BadInput when the cluster has fewer GPUs than they want."""
    wanted = engines(config, tuple(found))
    if "both" not in wanted:
        wanted = {role: settings for role, settings in wanted.items() if role in needed}
    check_gpus(wanted)

    def make(name: str, files: weights.ModelFiles) -> Pool:
        return pool(name, wanted[name], files, config.scheduler, config.seed)

    if "both" in wanted:
        shared = make("both", found["candidate"])
        return {role: shared for role in needed}
    return {role: make(role, found[role]) for role in wanted}


def pool(
    name: str, settings: EngineSettings, files: weights.ModelFiles, scheduling: SchedulerSettings, seed: int
) -> Pool:
    """Raises BadInput when the cluster has too few GPUs for it."""
    check_gpus({name: settings})
    if files.path == settings.model and files.digest.startswith("commit "):
        settings = replace(settings, revision=files.digest.removeprefix("commit "))  # what the fingerprint names
    scheduler = ConversationScheduler(scheduling, seed, min(512, settings.sampling.max_tokens))
    return Pool(name, scheduler, RayReplicas(name, settings, files.path), settings.turn_timeout_s)
