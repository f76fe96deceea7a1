"""plan: before a run, what it will take. From the config, the models' config.json and a GPU's memory; starts nothing.

Tokens are counted from texts at four characters each, and answers have the length that is said: all of it is an
estimate, good for choosing how many GPUs to ask for. Hours follow from a speed that is said as well.
"""

from msgspec import Struct
from rich.console import Console

from cluster import kvmath, weights
from cluster.engine import MEMORY_SHARE
from cluster.machine import GIB
from cluster.replicas import gpus_of
from cluster.settings import EngineSettings
from jobs.config import RunConfig, shared, where
from jobs.data import load_test_sets
from jobs.models import models
from sequor.errors import BadInput
from sequor.judging import questions
from sequor.types import TestSet

CHARACTERS_PER_TOKEN = 4
GPU_MEMORY_UTILIZATION = 0.92
"""vLLM's own default."""
MARGIN = 1.3
"""By how much a cache may be larger than estimated here."""


class Assumed(Struct, frozen=True):
    """What a config cannot say."""

    gpu_memory_gib: float = 80.0
    answer_tokens: int = 780
    """Of one answer. Qwen3-4B: about 42,000 tokens in 50 turns (paper, table 7)."""
    verdict_tokens: int = 300
    """Of one judge's reply, its reasoning included."""
    candidate_speed: float = 2000.0
    judge_speed: float = 2000.0
    """Output tokens/s of one replica. Measure one: a run prints it."""


class Work(Struct, frozen=True):
    """What one role has to compute. Tokens."""

    conversations: int
    turns: int
    prompt: int
    """New ones, each computed once while histories stay in the cache."""
    sent: int
    """All of them, histories and what questions about one answer share included: computed where no cache holds them,
    and what an endpoint bills, less for what its own cache holds."""
    output: int

    @property
    def context(self) -> int:
        """Of one conversation at its end."""
        return (self.prompt + self.output) // max(1, self.conversations)

    @property
    def mean_context(self) -> int:
        """Of one conversation over its turns, the running one included."""
        turns = max(1, self.turns // max(1, self.conversations))
        return self.context * (turns + 1) // (2 * turns)


class Memory(Struct, frozen=True):
    """Of one replica. Bytes; `tokens` of KV, for contexts as the work has them, and for one of the longest."""

    gpus: int
    weights: int
    cache: int
    per_token: float
    tokens: int
    longest: int


def plan(config: RunConfig, assumed: Assumed, console: Console) -> None:
    """Raises BadInput where the model's config.json is not to be had, or the model does not fit."""
    test_sets = load_test_sets(config)
    roles = config.roles("candidate", "judge")
    files = models(config, *roles)
    hours = {}
    for role in roles:
        settings = config.engine(role)
        work, memory = replica(role, config, files[role], test_sets, assumed)
        speed = assumed.candidate_speed if role == "candidate" else assumed.judge_speed
        console.rule(f"{role}: {settings.model}", align="left")
        if memory is not None:
            _show_memory(memory, work, config, settings, console)
        hours[role] = work.output / speed / settings.replicas / 3600
        _show_work(work, hours[role], speed, settings, console)
        if settings.engine == "api":
            del hours[role]  # an endpoint's time is its own
    if "candidate" in hours and len(hours) > 1:
        answering, judging = hours.pop("candidate"), max(hours.values())
        apart = config.order == "phases" or shared(config, roles) is not None
        total = answering + judging if apart else max(answering, judging)
        how = "one after the other" if apart else "side by side"
        console.print(f"whole run: about {total:.2f} h; candidate and judge work {how}")


def replica(
    role: str, config: RunConfig, files: weights.ModelFiles, test_sets: list[TestSet], assumed: Assumed
) -> tuple[Work, Memory | None]:
    """What a role has to compute, and what one of its replicas holds; None for a script. Raises BadInput where the
    model's config.json is not to be had, or the model does not fit."""
    settings = config.engine(role)
    if role == "candidate":
        work = _answers(test_sets, settings, assumed)
    else:
        work = _verdicts(test_sets, settings, assumed, config.task_completion)
    if settings.engine != "vllm":
        return work, None
    found = weights.model_config(files)
    if found is None:
        raise BadInput(f"{role}.model {settings.model}: its config.json is not here, and no hub gives it")
    return work, memory_of(role, settings, full_config(found), weights.weight_bytes(files), work, assumed)


def full_config(found: dict) -> dict:
    """With the defaults of the model's kind, which its file may leave out. As it is for a kind that is unknown here."""
    from transformers import AutoConfig

    try:
        return AutoConfig.for_model(**found).to_dict()
    except (KeyError, ValueError, TypeError):
        return found


def memory_of(
    role: str, settings: EngineSettings, config: dict, on_disk: int | None, work: Work, assumed: Assumed
) -> Memory:
    """Raises BadInput."""
    args = settings.engine_args
    part = settings.gpus if settings.gpus is not None and 0 < settings.gpus < 1 else None
    parallel = int(args.get("tensor_parallel_size", 1)) * int(args.get("pipeline_parallel_size", 1))
    gpus = 1 if part else int(settings.gpus or parallel)
    try:
        shape = kvmath.kv_shape(config, kvmath.BYTES.get(str(args.get("kv_cache_dtype", "auto"))))
        size = on_disk or kvmath.weight_bytes(config)
    except KeyError as error:
        raise BadInput(f"{role}.model {settings.model}: its config.json has no {error}") from None
    usual = MEMORY_SHARE * part if part else GPU_MEMORY_UTILIZATION
    share = float(args.get("gpu_memory_utilization", usual))
    each = int(share * assumed.gpu_memory_gib * GIB) - size // gpus - kvmath.ACTIVATIONS_BYTES
    if each <= 0:
        raise BadInput(
            f"{role}.model {settings.model}: weights of {size / GIB:.1f} GiB leave no room for a KV cache on {gpus} x "
            f"{assumed.gpu_memory_gib:g} GiB (engine_args.tensor_parallel_size takes more GPUs)"
        )
    mean, longest = max(1, work.mean_context), settings.max_model_len or context_of(config) or 1
    per_token, tokens = shape.context(mean) / mean, shape.capacity(each, gpus, mean)
    return Memory(gpus, size, each * gpus, per_token, tokens, shape.capacity(each, gpus, longest))


def context_of(config: dict) -> int | None:
    return kvmath.text_part(config).get("max_position_embeddings")


def refuse_too_long(
    role: str, config: RunConfig, files: weights.ModelFiles, test_sets: list[TestSet], memory_gib: float
) -> None:
    """vLLM would find it out after loading: a cache that one conversation of full length does not fit. Raises BadInput
    where it is short by more than this estimate may be wrong."""
    settings = config.engine(role)
    found = weights.model_config(files)
    if settings.engine != "vllm" or found is None:
        return
    _, memory = replica(role, config, files, test_sets, Assumed(gpu_memory_gib=memory_gib))
    context = settings.max_model_len or context_of(found)
    if memory is not None and context and memory.longest * MARGIN < context:
        raise BadInput(
            f"{where(role)}.max_model_len: {context:,} tokens are more than the KV cache holds, about "
            f"{memory.longest:,} on {memory.gpus} x {memory_gib:.0f} GiB; a smaller one, or more GPUs for a replica "
            "(engine_args.tensor_parallel_size)"
        )


def _answers(test_sets: list[TestSet], settings: EngineSettings, assumed: Assumed) -> Work:
    dialogues = [dialogue for test_set in test_sets for dialogue in test_set.dialogues]
    texts = [turn.prompt for dialogue in dialogues for turn in dialogue.turns]
    prompt = sum(map(len, texts)) // CHARACTERS_PER_TOKEN
    output = len(texts) * min(assumed.answer_tokens, settings.sampling.max_tokens)
    turns = max(1, len(texts) // max(1, len(dialogues)))
    return Work(len(dialogues), len(texts), prompt, prompt + (prompt + output) * (turns - 1) // 2, output)


def _verdicts(test_sets: list[TestSet], settings: EngineSettings, assumed: Assumed, completion: bool) -> Work:
    """Questions about one answer share it: only the first of them computes it."""
    asked = prompt = sent = 0
    for dialogue in (dialogue for test_set in test_sets for dialogue in test_set.dialogues):
        for number in range(1, len(dialogue.turns) + 1):
            asking = questions(dialogue, number, "", settings.model, completion)
            lengths = [len(question.prompt) for question in asking]
            asked += len(lengths)
            prompt += sum(lengths) // CHARACTERS_PER_TOKEN + (assumed.answer_tokens if lengths else 0)
            sent += sum(lengths) // CHARACTERS_PER_TOKEN + assumed.answer_tokens * len(lengths)
    return Work(asked, asked, prompt, sent, asked * min(assumed.verdict_tokens, settings.sampling.max_tokens))


def _show_memory(memory: Memory, work: Work, config: RunConfig, settings: EngineSettings, console: Console) -> None:
    parts = f"{memory.gpus} GPU, weights {memory.weights / GIB:.1f} GiB, KV cache {memory.cache / GIB:.1f} GiB"
    console.print(f"a replica: {parts} = {memory.tokens:,} tokens of {memory.per_token:,.0f} bytes")
    budget = memory.tokens * config.scheduler.kv_share
    most = int(settings.engine_args.get("max_num_seqs", 1024))
    most = min(most, work.conversations)
    mean, end = (max(1, min(most, int(budget / max(1, tokens)))) for tokens in (work.mean_context, work.context))
    console.print(f"live at once on it: about {mean:,} of {work.conversations:,} conversations, {end:,} at their ends")


def _show_work(work: Work, hours: float, speed: float, settings: EngineSettings, console: Console) -> None:
    console.print(f"{work.conversations:,} conversations, {work.turns:,} turns, each to {work.context:,} tokens")
    if settings.engine == "api":
        console.print(f"to send: {work.sent:,} prompt tokens ({work.prompt:,} of them new); to get: {work.output:,}")
    else:
        console.print(
            f"to compute: {work.prompt:,} prompt tokens ({work.sent:,} if no cache held any), "
            f"{work.output:,} output tokens"
        )
        replicas = f"{settings.replicas} replica{'s'[: settings.replicas > 1]}"
        console.print(f"about {hours:.2f} h at {speed:,.0f} output tokens/s x {replicas}")
    if settings.price is not None:
        gpu_seconds = hours * 3600 * settings.replicas * gpus_of(settings)
        least, most = (
            settings.price.of(work.sent, cached, work.output, gpu_seconds) for cached in (work.sent - work.prompt, 0)
        )
        costs = f"{least:,.2f}" if round(least, 2) == round(most, 2) else f"{least:,.2f} to {most:,.2f}"
        console.print(f"costs about {costs}")
