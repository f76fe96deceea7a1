"""What can be known to fail before anything is started. Each fault is one line and names the key to change."""

import os
from collections.abc import Collection

from cluster import replicas, weights
from cluster.conversation import Message
from cluster.history import Template, UnusableTemplate
from cluster.machine import this_machine
from cluster.settings import ApiSettings, EngineSettings
from cluster.weights import ModelFiles
from jobs.config import RunConfig, where
from jobs.plan import refuse_too_long
from sequor.errors import BadInput
from sequor.types import TestSet

CHARACTERS_PER_TOKEN_AT_LEAST = 2.0
"""Fewer is rare in any language; a turn that is short by this measure fits for certain."""


def preflight(config: RunConfig, models: dict[str, ModelFiles], test_sets: list[TestSet]) -> None:
    """Raises BadInput."""
    longest = max((turn.prompt for t in test_sets for d in t.dialogues for turn in d.turns), key=len)
    gpus = this_machine().gpus
    for role, files in models.items():
        settings = config.engine(role)
        context = settings.max_model_len or weights.context_tokens(files)
        if context is not None:
            _room(where(role), settings, files, context, longest if role == "candidate" else "")
        if gpus and config.ray_address is None:  # of another machine's nothing is known here
            refuse_too_long(role, config, files, test_sets, min(gpu.memory_gib for gpu in gpus))


def _room(role: str, settings: EngineSettings, files: ModelFiles, context: int, longest: str) -> None:
    budget = settings.sampling.max_tokens
    if budget >= context:
        raise BadInput(
            f"{role}.sampling.max_tokens: an answer budget of {budget} leaves no room in a context of {context}"
        )
    if settings.engine != "vllm" or len(longest) / CHARACTERS_PER_TOKEN_AT_LEAST < context - budget:
        return
    template, _ = load_template(role, settings, files)
    needed = len(template.render((Message("user", longest),)))
    if needed + budget > context:
        raise BadInput(
            f"{role}.max_model_len: a context of {context} is too small for one turn: the longest user turn takes "
            f"{needed} tokens and the answer {budget} (sampling.max_tokens)"
        )


def load_template(role: str, settings: EngineSettings, files: ModelFiles):
    """The chat template and its tokenizer, as the engine will have them. Raises BadInput."""
    from transformers import AutoTokenizer

    try:
        # left out, transformers would ask on the terminal whether to run a model's own code
        tokenizer = AutoTokenizer.from_pretrained(
            files.path, revision=settings.revision, trust_remote_code=settings.trust_remote_code
        )
        return Template(tokenizer, weights.chat_template(settings)), tokenizer
    except UnusableTemplate as error:
        raise BadInput(f"{role}.model {settings.model}: {error}") from None
    except (OSError, ValueError) as error:
        what = str(error).splitlines()[0]
        if not settings.trust_remote_code and "trust_remote_code" in str(error):
            what = f"brings code of its own, which runs only with {role}.trust_remote_code=true"
        raise BadInput(f"{role}.model {settings.model}: {what}") from None


def check_gpus(wanted: dict[str, EngineSettings], judges: Collection[str], order: str, available: float) -> None:
    """`wanted`: pools by name, of which `judges` judge; `available`: GPUs of the cluster.

    Together, the judges and any one candidate must fit side by side; in phases, each of them alone. Raises BadInput.
    """
    needed = {name: settings.replicas * replicas.gpus_of(settings) for name, settings in wanted.items()}
    judging = sum(needed[name] for name in judges)
    largest = max((name for name in needed if name not in judges), key=lambda name: needed[name], default=None)
    answering = needed[largest] if largest is not None else 0.0
    most = max(judging, answering) if order == "phases" else judging + answering
    if most <= available:
        return
    parts = ", ".join(f"{name} {needed[name]:g}" for name in needed if needed[name] and name in {largest, *judges})
    way_out = ""
    if order == "together" and max(judging, answering) <= available:
        way_out = "; order=phases would judge when all is answered, and needs " + f"{max(judging, answering):g}"
    raise BadInput(f"the run asks for {most:g} GPUs ({parts}); the Ray cluster has {available:g}{way_out}")


def check_key(settings: EngineSettings) -> None:
    """Endpoints are asked from here, so their keys are in this process's environment. Raises BadInput."""
    key_env = (settings.api or ApiSettings()).key_env if settings.engine == "api" else None
    if key_env and not os.environ.get(key_env):
        raise BadInput(f"model {settings.model}: api.key_env: no key in the environment variable {key_env}")


def check_nodes(name: str, settings: EngineSettings, largest: float) -> None:
    """`largest`: GPUs of the node that has most. Raises BadInput when a replica is larger than any node, and is not
    told to spread over several."""
    needed = replicas.gpus_of(settings)
    if needed > largest and settings.engine_args.get("distributed_executor_backend") != "ray":
        raise BadInput(
            f"{name}: a replica takes {needed:g} GPUs and no node has more than {largest:g}; "
            f"engine_args.distributed_executor_backend=ray spreads one over several nodes"
        )
