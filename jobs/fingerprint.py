"""What can change a result, as flat key -> value. A run's folder holds only records made under one fingerprint.

1. Keys of one group (`candidate.`, `test_set.`, `judge[MODEL].`) are all there or not at all: a field at its default
   stands there too, so that setting it later is a difference. Each judge is a group of its own, as its records are,
   and so is what it is asked beside the constraints.
2. Left out is what only changes how fast the result comes: replicas, GPUs, memory shares, batch sizes, pacing.
"""

from hashlib import sha256

from msgspec.structs import asdict

from cluster import weights
from cluster.settings import ApiSettings, EngineSettings
from cluster.weights import ModelFiles
from jobs.config import RunConfig
from sequor.errors import BadInput
from sequor.prompts.render import digest
from sequor.run_folder import COMPLETION, content_digest
from sequor.types import TestSet

NEUTRAL_ENGINE_ARGS = frozenset(
    (
        "gpu_memory_utilization",
        "max_num_seqs",
        "max_num_batched_tokens",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "enforce_eager",
        "block_size",
        "kv_cache_memory_bytes",
        "kv_cache_tokens",
        "swap_space",
        "disable_log_stats",
        "enable_prefix_caching",
        "distributed_executor_backend",
        "max_parallel_loading_workers",
        "download_dir",
    )
)
"""vLLM's engine arguments that decide how fast an answer comes, not which."""


def fingerprint(config: RunConfig, test_sets: list[TestSet], models: dict[str, ModelFiles]) -> dict[str, str]:
    parts = {"turns": str(config.turns), "seed": str(config.seed)}
    parts |= {f"test_set.{t.name}": f"{content_digest(t)} ({len(t.dialogues)} dialogues)" for t in test_sets}
    if "candidate" in models:
        parts |= engine_fingerprint("candidate", config.candidate, models["candidate"])
    for role, settings in config.judges.items():
        if role not in models:
            continue
        judge = f"judge[{settings.model}]"
        parts |= engine_fingerprint(judge, settings, models[role])
        parts |= {f"{judge}.prompt": digest("judge"), f"{judge}.parser": config.judge_parser}
        if config.task_completion:
            parts[f"{COMPLETION}[{settings.model}].prompt"] = digest("completion")
    return parts


def engine_fingerprint(group: str, settings: EngineSettings, files: ModelFiles) -> dict[str, str]:
    """Raises BadInput for a chat template that is not there."""
    parts = {"model": settings.model, "files": files.digest, "chat_template": _template(group, settings)}
    for key in ("engine", "max_model_len", "reasoning_parser", "trust_remote_code"):
        parts[key] = _text(getattr(settings, key))
    if settings.reasoning_history != "none":  # left out where it is: older folders do not have it
        parts["reasoning_history"] = settings.reasoning_history
    if settings.engine == "scripted":
        parts["script"] = settings.script
    if settings.engine == "api":  # what differs from the defaults, likewise
        defaults, own = asdict(ApiSettings()), asdict(settings.api or ApiSettings())
        telling = ("context_tokens", "tokenizer", "send_seed", "extra_body")
        parts |= {f"api.{key}": str(own[key]) for key in telling if own[key] != defaults[key]}
    parts |= {f"sampling.{key}": _text(value) for key, value in asdict(settings.sampling).items()}
    args = {key: value for key, value in sorted(settings.engine_args.items()) if key not in NEUTRAL_ENGINE_ARGS}
    parts["engine_args"] = ", ".join(f"{key}={value}" for key, value in args.items()) or "none"
    return {f"{group}.{key}": value for key, value in parts.items()}


def _text(value: object) -> str:
    return "none" if value is None or value == () else str(value)


def _template(group: str, settings: EngineSettings) -> str:
    """By its content: a file can change under its name. Raises BadInput."""
    try:
        source = weights.chat_template(settings)
    except OSError as error:
        role = group.partition("[")[0]
        raise BadInput(f"{role}.chat_template: {settings.chat_template}: {error.strerror}") from None
    return "the model's own" if source is None else sha256(source.encode()).hexdigest()[:16]
