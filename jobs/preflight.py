"""What can be known to fail before anything is started. Each fault is one line and names the key to change."""

from cluster import replicas, weights
from cluster.settings import EngineSettings
from cluster.weights import ModelFiles
from jobs.config import RunConfig
from sequor.errors import BadInput
from sequor.types import TestSet

CHARACTERS_PER_TOKEN_AT_LEAST = 2.0
"""Fewer is rare in any language; a turn that is short by this measure fits for certain."""


def preflight(config: RunConfig, models: dict[str, ModelFiles], test_sets: list[TestSet]) -> None:
    """Raises BadInput."""
    longest = max((turn.prompt for t in test_sets for d in t.dialogues for turn in d.turns), key=len)
    for role, files in models.items():
        settings = getattr(config, role)
        context = settings.max_model_len or weights.context_tokens(files)
        if context is not None:
            _room(role, settings, files, context, longest if role == "candidate" else "")


def _room(role: str, settings: EngineSettings, files: ModelFiles, context: int, longest: str) -> None:
    budget = settings.sampling.max_tokens
    if budget >= context:
        raise BadInput(
            f"{role}.sampling.max_tokens: an answer budget of {budget} leaves no room in a context of {context}"
        )
    if settings.engine == "scripted" or len(longest) / CHARACTERS_PER_TOKEN_AT_LEAST < context - budget:
        return
    needed = _count(files, longest)
    if needed + budget > context:
        raise BadInput(
            f"{role}.max_model_len: a context of {context} is too small for one turn: the longest user turn takes "
            f"{needed} tokens and the answer {budget} (sampling.max_tokens)"
        )


def _count(files: ModelFiles, text: str) -> int:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(files.path)
    return len(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
        )
    )


def check_gpus(wanted: dict[str, EngineSettings]) -> None:
    """To be called when Ray is there. Raises BadInput when the pools ask for more GPUs than the cluster has."""
    needed = {name: settings.replicas * replicas.gpus_of(settings) for name, settings in wanted.items()}
    available = replicas.gpus_available()
    if sum(needed.values()) > available:
        parts = ", ".join(f"{name} {count}" for name, count in needed.items() if count)
        raise BadInput(f"the run asks for {sum(needed.values())} GPUs ({parts}); the Ray cluster has {available:g}")
