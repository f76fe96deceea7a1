"""Settings of the cluster layer, as they stand in a YAML file. Frozen; an unknown key is an error."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]


class Sampling(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sampling of one pool. What is left out is the model's own generation config's, as in `vllm serve`."""

    max_tokens: Positive = 4096
    """Answer budget in tokens: the window keeps this much of the context free."""
    min_tokens: Positive | None = None
    """No answer ends before; with `max_tokens`, all are equally long: for benchmarks."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: int | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """The answer is made to be one of these, by constrained decoding; empty: free."""


class ApiSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """For `engine: api`: where the endpoint is, and what it bears."""

    base_url: str = "https://api.openai.com/v1"
    key_env: str | None = "OPENAI_API_KEY"
    """Environment variable that holds the key; null where none is wanted. The key itself is written nowhere."""
    concurrency: Positive = 32
    """Requests under way at the same time."""
    tries: Positive = 6
    timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    context_tokens: Positive = 131_072
    """Of the model behind it, where `max_model_len` does not say."""
    tokenizer: str | None = None
    """Of the window: a repository or a folder. Left out, texts are measured, with a margin."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_seed: bool = True
    extra_body: dict[str, Any] = {}
    """Anything else for the body of each request."""


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """What a model costs, in any one currency. Of an endpoint by tokens, of an engine of one's own by GPU hours."""

    input: Annotated[float, Meta(ge=0)] = 0.0
    """For a million prompt tokens."""
    cached: Annotated[float, Meta(ge=0)] | None = None
    """For a million of those that were in the cache; left out, as `input`."""
    output: Annotated[float, Meta(ge=0)] = 0.0
    """For a million output tokens, reasoning included."""
    gpu_hour: Annotated[float, Meta(ge=0)] = 0.0

    def of(self, prompt_tokens: int, cached_tokens: int, output_tokens: int, gpu_seconds: float = 0.0) -> float:
        cached = self.input if self.cached is None else self.cached
        tokens = (prompt_tokens - cached_tokens) * self.input + cached_tokens * cached + output_tokens * self.output
        return tokens / 1e6 + gpu_seconds / 3600 * self.gpu_hour


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One pool: which model answers, how it samples, and how many replicas of it there are."""

    model: str
    """Repository name on a hub, or a local folder; `embedded` is the small model that comes with the `cpu` extra."""
    engine: Literal["vllm", "scripted", "api"] = "vllm"
    revision: str | None = None
    replicas: Positive = 1
    gpus: Annotated[float, Meta(ge=0)] | None = None
    """GPUs of one replica. Left out: tensor x pipeline parallel size, or none where the engine runs on the CPU. Less
    than one is a share of one GPU, and of its memory; such engines start one after the other."""
    sampling: Sampling = Sampling()
    max_model_len: Positive | None = None
    """Context in tokens. Left out: the model's own."""
    reasoning_parser: str | None = None
    """Name of one of vLLM's reasoning parsers; left out, the whole output is the answer."""
    reasoning_history: Literal["none", "as-template"] = "none"
    """none: what a model thought is not sent back. as-template: its chat template gets it and decides."""
    chat_template: str | None = None
    """File of a Jinja chat template to be used instead of the model's own."""
    trust_remote_code: bool = False
    engine_args: dict[str, str | int | float | bool | None | dict | list] = {}
    """Anything else of vLLM's engine arguments, by their names there."""
    api: ApiSettings | None = None
    price: Price | None = None
    """For what a run has cost; it changes nothing else."""
    script: str = "cluster.scripted:echo"
    """For `engine: scripted`: the function that answers, as `module:function`."""
    start_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0
    turn_timeout_s: Annotated[float, Meta(gt=0)] = 1800.0
    """A turn without an answer for this long ends as `timeout`."""
    hang_timeout_s: Annotated[float, Meta(gt=0)] = 300.0
    """An engine that has requests and makes no step for this long hangs, and is ended."""


class SchedulerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    pacing: Literal["continuous", "rounds"] = "continuous"
    kv_share: Annotated[float, Meta(gt=0, le=1)] = 0.85
    """Share of the engine's KV cache that the contexts of live conversations may take."""
    attempts: Positive = 3
    """How often a turn is asked when the machinery fails, before the failure stands."""
