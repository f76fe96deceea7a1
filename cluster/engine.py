"""VllmEngine: one vLLM engine behind the Engine seam. The only file that imports vllm, and only once an engine starts.

1. Token ids go in and come out (cluster/history.py). A prompt always leaves the answer's whole budget free, so the
   engine never rejects one and never cuts an answer short of the budget.
2. Sampling is the model's generation config, as `vllm serve` merges it, then what the settings say. Each request has
   its own seed, unless it is greedy.
3. What comes back is read by cluster/outcomes.py. An error for one request is an `engine_error`, whatever it is.
4. A dead engine raises EngineDied, with the reason from its own log, so that its replica dies with it.

Settings, in `vllm_args`: what is ours, then the settings' own fields, then `engine_args`, each over the one before.
vLLM reads VLLM_* from the environment; on a CPU VLLM_CPU_KVCACHE_SPACE (GiB) and VLLM_CPU_OMP_THREADS_BIND matter.
"""

import asyncio
import copy
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from cluster.conversation import EngineFacts, Failure, Outcome, Request, Response
from cluster.driver import EngineStartError
from cluster.enginelog import EngineLog, useful_line
from cluster.history import Histories, Prompt, Template
from cluster.machine import physical_cores
from cluster.outcomes import outcome_of
from cluster.settings import EngineSettings, Sampling
from cluster.weights import ModelFiles, chat_template, context_tokens

ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Set before vLLM is imported, where the environment does not say otherwise."""

GPU_ARGS = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
"""What `vllm serve` has on a large GPU; AsyncLLM of its own would take 2048 and 128."""

CPU_ARGS = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 128,
    "max_num_batched_tokens": 4096,
    "max_num_seqs": 64,
}
FEW_CORES = 8
"""On a CPU vLLM computes in a process beside the engine's, which keeps a core busy waiting for it. Below so many cores
that is too dear: one process does both, on all of them (1.4 times the tokens/s on two cores)."""
CPU_MOST_IN_A_STEP = 16384
"""Tokens; their activations take memory that is kept free."""
CPU_KV_CACHE_BYTES = 2 * 2**30
"""Unless VLLM_CPU_KVCACHE_SPACE or the settings say otherwise; vLLM of its own takes nearly all memory."""


MEMORY_SHARE = 0.9
"""Of a GPU's memory, for all engines that share it."""


class EngineDied(Exception):
    """The engine is dead and will answer nothing more. One line: why."""


def vllm_args(settings: EngineSettings, model_path: str, on_cpu: bool) -> dict[str, Any]:
    """vLLM's engine arguments (AsyncEngineArgs), by their names there."""
    args: dict[str, Any] = {"model": model_path, "enable_prefix_caching": True, "enable_log_requests": False}
    args |= CPU_ARGS | _whole_prompts(settings, model_path) if on_cpu else GPU_ARGS
    if on_cpu and not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        args["kv_cache_memory_bytes"] = CPU_KV_CACHE_BYTES
    if not on_cpu and settings.gpus is not None and 0 < settings.gpus < 1:
        args["gpu_memory_utilization"] = round(MEMORY_SHARE * settings.gpus, 3)
    if settings.max_model_len is not None:
        args["max_model_len"] = settings.max_model_len
    if settings.revision is not None:
        args |= {"revision": settings.revision, "tokenizer_revision": settings.revision}
    if settings.trust_remote_code:
        args["trust_remote_code"] = True
    return args | settings.engine_args


def _whole_prompts(settings: EngineSettings, model_path: str) -> dict[str, Any]:
    """A CPU's random generator cannot step back, as vLLM 0.32 wants of a seeded request whose prompt it has cut in two:
    the engine would die. So prompts are not cut, where a step can take the longest one."""
    context = settings.max_model_len or context_tokens(ModelFiles(model_path, ""))
    if context is None or context > CPU_MOST_IN_A_STEP or "max_num_batched_tokens" in settings.engine_args:
        return {}
    return {"enable_chunked_prefill": False, "max_num_batched_tokens": max(4096, context)}


def merged_sampling(defaults: dict[str, Any], sampling: Sampling) -> dict[str, Any]:
    """The model's own sampling (vLLM: `get_diff_sampling_param`) with the settings' set fields over it (rule 2).

    Its keys are those of vLLM's SamplingParams.
    """
    own = {name: value for name, value in asdict(sampling).items() if value is not None and name != "choices"}
    return defaults | own | {"stop": list(sampling.stop)}


class VllmEngine:
    """Made by `VllmEngine.start`."""

    facts: EngineFacts

    @classmethod
    async def start(cls, settings: EngineSettings, model_path: str) -> "VllmEngine":
        """Blocks its event loop for a minute or so. Raises EngineStartError, one line with what vLLM said."""
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if Path(model_path).is_absolute() and not (Path(model_path) / "config.json").is_file():
            raise EngineStartError(f"model {settings.model}: no model in folder {model_path}")
        log = EngineLog()
        try:
            with log.recording():
                engine = cls(settings, model_path, log)
                # The first request would ask this, and hang if the engine died meanwhile; vLLM keeps the answer.
                await engine._llm.get_supported_tasks()
                return engine
        except (ValueError, RuntimeError, OSError, TypeError, LookupError, ImportError, AssertionError) as error:
            message = log.first_error() or useful_line(error)
            log.close()
            raise EngineStartError(f"model {settings.model}: {message}") from error

    def __init__(self, settings: EngineSettings, model_path: str, log: EngineLog):
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.tokenizers import cached_tokenizer_from_config
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        on_cpu = current_platform.is_cpu()
        args = AsyncEngineArgs(**vllm_args(settings, model_path, on_cpu))
        if on_cpu and args.tensor_parallel_size * args.pipeline_parallel_size == 1:
            _use_few_cores()
        config = args.create_engine_config(UsageContext.ENGINE_CONTEXT)
        context = config.model_config.max_model_len
        if settings.sampling.max_tokens >= context:
            raise ValueError(f"max_tokens {settings.sampling.max_tokens} leaves no room in a context of {context}")
        tokenizer = cached_tokenizer_from_config(config.model_config)
        source = chat_template(settings)
        # A copy: the engine's own decodes in another thread, and one tokenizer is not for two.
        template = Template(copy.deepcopy(tokenizer), source)
        name = settings.reasoning_parser
        self._reasoning = _Reasoning(name, tokenizer, config.model_config) if name else None
        self._settings = settings
        self._log = log
        self._histories = Histories(template, context)
        self._defaults = config.model_config.get_diff_sampling_param()
        self._params(settings.sampling, 0)  # raises for what vLLM would refuse
        self._thread = ThreadPoolExecutor(1, "tokenize")
        self._steps = _step_counter()
        self._llm: Any = AsyncLLM.from_vllm_config(
            config, usage_context=UsageContext.ENGINE_CONTEXT, stat_loggers=[lambda *_: self._steps]
        )
        self.facts = _facts(settings, config, template, merged_sampling(self._defaults, settings.sampling))

    @property
    def steps(self) -> int:
        return self._steps.count

    async def generate(self, request: Request) -> Outcome:
        """Raises EngineDied."""
        sampling = request.sampling or self._settings.sampling
        prompt = await self._in_thread(self._histories.prompt, request, sampling.max_tokens)
        if isinstance(prompt, Failure):
            await self._in_thread(self._histories.forget, request)
            return prompt
        try:
            output = await self._final_output(request, prompt, self._params(sampling, request.seed))
        except Exception as error:  # whatever one request's fault is, the others go on
            if self._llm.errored:
                raise EngineDied(self._log.first_error() or useful_line(error)) from error
            detail = useful_line(error.__cause__ or error)
            outcome = Failure("engine_error", detail, dropped_turns=prompt.dropped_turns, history=prompt.history)
            ids = None
        else:
            outcome, ids = outcome_of(output, prompt, self._reasoning and self._reasoning.split)
        answer = outcome.text if isinstance(outcome, Response) else None
        await self._in_thread(self._histories.remember, request, prompt, ids, answer)
        return outcome

    async def close(self) -> None:
        if self._llm is not None:
            self._llm.shutdown()
        self._llm = None  # or its __del__ would shut it down again, when the interpreter is half gone
        self._thread.shutdown(wait=False)
        self._log.close()

    async def _in_thread(self, function: Callable, *args: Any) -> Any:
        """One after the other, beside the event loop: rendering a long history takes a tenth of a second."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    async def _final_output(self, request: Request, prompt: Prompt, params: Any) -> Any:
        from vllm.inputs.engine import tokens_input

        async for output in self._llm.generate(tokens_input(prompt.ids), params, f"{request.key}/{request.index}"):
            final = output
        return final

    def _params(self, sampling: Sampling, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        merged = merged_sampling(self._defaults, sampling)
        return SamplingParams(
            **merged,
            seed=seed if merged.get("temperature", 1.0) > 0 else None,
            skip_special_tokens=self._reasoning is None or self._reasoning.skip_special_tokens,
            output_kind=RequestOutputKind.FINAL_ONLY,
            structured_outputs=StructuredOutputsParams(choice=list(sampling.choices)) if sampling.choices else None,
        )


def _use_few_cores() -> None:
    """FEW_CORES. Whoever has bound vLLM's threads by its own variables is left alone. Ray gives an actor one thread."""
    own = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_ENABLE_V1_MULTIPROCESSING")
    if physical_cores() < FEW_CORES and not any(name in os.environ for name in own):
        os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(physical_cores())}


def _step_counter():
    """A stat logger that counts: vLLM calls it after each step of the engine that had something to do."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Steps(StatLoggerBase):
        def __init__(self):
            self.count = 0

        def record(self, *args: Any, **kwargs: Any) -> None:
            self.count += 1

        def log_engine_initialized(self) -> None:
            return None

    return Steps()


class _Reasoning:
    """vLLM's parser of one model's reasoning, used as `vllm serve` does. Raises ValueError for an unknown name."""

    def __init__(self, name: str, tokenizer: Any, model_config: Any):
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
        from vllm.parser.parser_manager import ParserManager
        from vllm.reasoning import ReasoningParserManager

        known = ReasoningParserManager.list_registered()
        if name not in known:
            raise ValueError(f"reasoning_parser {name!r} is none of vLLM's: {', '.join(known)}")
        harmony = model_config.hf_config.model_type == "gpt_oss"
        parser = ParserManager.get_parser(reasoning_parser_name=name, is_harmony=harmony, tokenizer=tokenizer)
        self._parser: Callable = lambda: parser(tokenizer, None, chat_template_kwargs={}, model_config=model_config)
        request = ChatCompletionRequest(model="", messages=[{"role": "user", "content": ""}])
        self._request = self._parser().adjust_request(request)
        self.skip_special_tokens: bool = self._request.skip_special_tokens

    def split(self, text: str, ids: list[int], prompt_ids: list[int]) -> tuple[str | None, str, bool]:
        parser = self._parser()
        parser.set_prompt_token_ids(prompt_ids)
        reasoning, answer, _ = parser.parse(text, self._request, model_output_token_ids=ids)
        answer = answer or ""
        start = getattr(parser.reasoning_parser, "reasoning_start_str", None)
        if start and answer.lstrip().startswith(start):  # some parsers take a reasoning without an end for the answer
            return answer, "", False
        return reasoning, answer, bool(answer.strip()) or not reasoning or parser.is_reasoning_end(ids)


def _facts(settings: EngineSettings, config: Any, template: Template, sampling: dict[str, Any]) -> EngineFacts:
    """Of a started engine: only then is the size of its KV cache known."""
    model, cache, scheduler = config.model_config, config.cache_config, config.scheduler_config
    resolved = {package: version(package) for package in ("torch", "transformers")}
    resolved |= {
        "vllm": _vllm_version(),
        "device": config.device_config.device_type,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "max_model_len": model.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "kv_cache_size_tokens": cache.kv_cache_size_tokens,
        "block_size": cache.block_size,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "enforce_eager": model.enforce_eager,
        "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
        "reasoning_parser": settings.reasoning_parser,
    }
    resolved |= {f"chat_template.{name}": value for name, value in template.facts().items()}
    resolved |= {f"sampling.{name}": _scalar(value) for name, value in sampling.items()}
    own = model.try_get_generation_config()
    resolved |= {f"generation_config.{name}": _scalar(value) for name, value in own.items()}
    resolved |= {f"engine_args.{name}": _scalar(value) for name, value in settings.engine_args.items()}
    return EngineFacts(
        settings.model,
        cache.kv_cache_size_tokens,
        scheduler.max_num_seqs,
        model.max_model_len,
        template.append_only,
        resolved,
    )


def _scalar(value: Any) -> str | int | float | bool | None:
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value, default=str)


def _vllm_version() -> str:
    import vllm

    return vllm.__version__
