"""What can change a result, as flat key -> value. A run's folder holds only records made under one fingerprint.

Left out is what only changes how fast the result comes: replicas, GPUs, memory shares, batch sizes, pacing.
"""

from hashlib import sha256
from pathlib import Path

import msgspec

from cluster.settings import EngineSettings
from cluster.weights import ModelFiles
from jobs.config import RunConfig
from sequor.errors import BadInput
from sequor.prompts.render import digest
from sequor.run_folder import content_digest
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
        "load_format",
    )
)
"""vLLM's engine arguments that decide how fast an answer comes, not which."""


def fingerprint(config: RunConfig, test_sets: list[TestSet], models: dict[str, ModelFiles]) -> dict[str, str]:
    parts = {"turns": str(config.turns), "seed": str(config.seed)}
    parts |= {f"test_set.{t.name}": f"{content_digest(t)} ({len(t.dialogues)} dialogues)" for t in test_sets}
    for role, files in models.items():
        parts |= engine_fingerprint(role, getattr(config, role), files)
    if "judge" in models:
        parts |= {"judge.prompt": digest("judge"), "judge.parser": config.judge_parser}
    return parts


def engine_fingerprint(role: str, settings: EngineSettings, files: ModelFiles) -> dict[str, str]:
    parts = {f"{role}.model": settings.model, f"{role}.files": files.digest}
    for key in ("engine", "max_model_len", "reasoning_parser"):
        parts[f"{role}.{key}"] = str(getattr(settings, key))
    parts[f"{role}.chat_template"] = _template(role, settings)
    for key, value in msgspec.to_builtins(settings.sampling).items():
        parts[f"{role}.sampling.{key}"] = str(value)
    for key, value in sorted(settings.engine_args.items()):
        if key not in NEUTRAL_ENGINE_ARGS:
            parts[f"{role}.engine_args.{key}"] = str(value)
    return parts


def _template(role: str, settings: EngineSettings) -> str:
    """By its content: a file can change under its name. Raises BadInput."""
    if settings.chat_template is None:
        return "the model's own"
    try:
        return sha256(Path(settings.chat_template).expanduser().read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise BadInput(f"{role}.chat_template: {settings.chat_template}: {error.strerror}") from None
