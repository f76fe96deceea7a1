"""Models behind an OpenAI-compatible endpoint: a provider's, or a `vllm serve` that runs already.

The only file that imports openai. The driver's process asks; there is no actor. The key is read from the environment
variable that the settings name, and goes into nothing that is written.

1. What may pass is tried again, with growing pauses and jitter, or the pause that the endpoint asks for (Retry-After):
   no connection, no answer in time, 408, 409, 429, 5xx. `tries` times in all; then it is an `engine_error`, which the
   scheduler and the next run ask again.
2. What will never work is not: a context that is too long is a `context_overflow`, any other refusal of one request
   `rejected`. A key that is refused, a model that is not there or a spent account ends the pool, with its message.
3. A filter's veto is `content_filter`; white space alone is `empty`; a reasoning that used the budget up is
   `reasoning_unfinished`. None of them is an answer.
4. Turns go as text. The sliding window counts with the tokenizer that the settings name; without one at
   `CHARACTERS_PER_TOKEN`, too many on purpose, and a context that overflows all the same is cut by a tenth more, twice.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from cluster.conversation import EngineFacts, Failure, Outcome, Request, Response, Usage
from cluster.driver import EngineStartError, ReplicaDied
from cluster.settings import ApiSettings, EngineSettings, Sampling
from cluster.texts import whole
from cluster.window import Messages, Window, fit

CHARACTERS_PER_TOKEN = 2.5
MESSAGE_TOKENS = 8
"""For each message's markers, where there is no tokenizer."""
CUTS = (1.0, 0.9, 0.81)
NO_LIMIT = 10**12
"""KV tokens: what the endpoint keeps is its own affair."""
PAUSE_S = (1.0, 60.0)
LIVES_IN_VAIN = 3
PAUSE_AFTER_FAILURE_S = 30.0
PASSING = frozenset({408, 409, 429})
ENDING = frozenset({401, 403, 404})
OPENAIS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
VLLMS = ("top_k", "min_p", "repetition_penalty", "min_tokens")
"""Fields that OpenAI's protocol does not have; vLLM and others take them in the body."""


class Unusable(Exception):
    """Nothing that is asked of this endpoint will be answered. One line: why."""


class ApiEngine:
    """One endpoint behind the Engine seam."""

    def __init__(self, settings: EngineSettings):
        """Raises EngineStartError: no key, or no such tokenizer."""
        from openai import AsyncOpenAI

        api = settings.api or ApiSettings()
        key = os.environ.get(api.key_env, "") if api.key_env else "none"
        if not key:
            raise EngineStartError(f"model {settings.model}: no key in the environment variable {api.key_env}")
        self._settings, self._api, self._key = settings, api, key
        self._client = AsyncOpenAI(api_key=key, base_url=api.base_url, max_retries=0, timeout=api.timeout_s)
        self._count = _tokenizer_count(settings.model, api) if api.tokenizer else _count
        self._places = asyncio.Semaphore(api.concurrency)
        self.steps = 0
        context = settings.max_model_len or api.context_tokens
        self.facts = EngineFacts(
            model=settings.model,
            kv_cache_tokens=NO_LIMIT,
            max_running=api.concurrency,
            context_tokens=context,
            append_only=False,
            resolved={"endpoint": api.base_url, "context_tokens": context, "tokenizer": api.tokenizer}
            | {
                f"sampling.{name}": str(value) for name, value in asdict(settings.sampling).items() if value is not None
            },
        )

    async def generate(self, request: Request) -> Outcome:
        """Raises Unusable."""
        sampling = request.sampling or self._settings.sampling
        history = "rendered" if request.history else "first"
        for cut in CUTS:
            room = int((self.facts.context_tokens - sampling.max_tokens) * cut)
            window = fit(request.system, request.history, request.user, room, self._count)
            if isinstance(window, Failure):
                return window
            outcome = await self._asked(window, sampling, request.seed, history)
            self.steps += 1
            if not (isinstance(outcome, Failure) and outcome.status == "context_overflow"):
                break
        return outcome

    async def close(self) -> None:
        await self._client.close()

    async def _asked(self, window: Window, sampling: Sampling, seed: int, history: Any) -> Outcome:
        import openai
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

        how = {"dropped_turns": window.dropped_turns, "history": history}
        tries = AsyncRetrying(
            retry=retry_if_exception(_passes), stop=stop_after_attempt(self._api.tries), wait=_wait, reraise=True
        )
        body = self._body(window.messages, sampling, seed)

        async def ask() -> Any:
            async with self._places:
                return await self._client.chat.completions.create(**body)

        try:
            reply = await tries(ask)
        except openai.APIStatusError as error:
            return _refusal(error, self._without_key(_line(error)), how)
        except (openai.APIError, ValueError, TypeError) as error:  # no connection, too late, or no JSON
            return Failure("engine_error", self._without_key(f"{type(error).__name__}: {_line(error)}"), **how)
        return outcome_of(reply, how)

    def _without_key(self, line: str) -> str:
        """Endpoints repeat the key that they refuse."""
        return line.replace(self._key, "***") if self._api.key_env else line

    def _body(self, messages: Messages, sampling: Sampling, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            self._api.max_tokens_field: sampling.max_tokens,
        }
        body |= {name: value for name in OPENAIS if (value := getattr(sampling, name)) is not None}
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if self._api.send_seed and sampling.temperature != 0:
            body["seed"] = seed
        more = {name: value for name in VLLMS if (value := getattr(sampling, name)) is not None}
        if sampling.choices:
            more["structured_outputs"] = {"choice": list(sampling.choices)}
        return body | {"extra_body": more | self._api.extra_body}


class ApiHost:
    """The Host of a pool (cluster/driver.py) whose one replica is an endpoint."""

    def __init__(self, name: str, settings: EngineSettings):
        self.name = name
        self._settings = settings
        self._engine: ApiEngine | None = None
        self._ended: dict[str, asyncio.Future[str]] = {}
        self._fruitful: set[str] = set()
        self._hopeless = ""

    async def run(self, ready: Callable[[str, EngineFacts], None], lost: Callable[[str, str], None]) -> str:
        """Raises EngineStartError."""
        self._engine = ApiEngine(self._settings)
        in_vain, life = 0, 0
        while in_vain < LIVES_IN_VAIN and not self._hopeless:
            name = f"{self.name}-0.{life}"
            self._ended[name] = asyncio.get_running_loop().create_future()
            ready(name, self._engine.facts)
            reason = await self._ended[name]
            lost(name, reason)
            in_vain = 0 if name in self._fruitful else in_vain + 1
            life += 1
            if not self._hopeless and in_vain < LIVES_IN_VAIN:
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        return self._hopeless or reason

    async def ask(self, replica: str, request: Request) -> Outcome:
        assert self._engine is not None
        try:
            outcome = await self._engine.generate(request)
        except Unusable as error:
            self._hopeless = str(error)
            self.retire(replica, str(error))
            raise ReplicaDied(str(error)) from None
        if not (isinstance(outcome, Failure) and outcome.retryable):
            self._fruitful.add(replica)
        return outcome

    def retire(self, replica: str, reason: str) -> None:
        ended = self._ended.get(replica)
        if ended is not None and not ended.done():
            ended.set_result(reason)

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


def outcome_of(reply: Any, how: dict[str, Any]) -> Outcome:
    """Of a chat completion (rule 3)."""
    if not getattr(reply, "choices", None):
        return Failure("engine_error", "a reply without choices", **how)
    choice, made = reply.choices[0], how | {"usage": _usage(reply.usage)}
    message = choice.message
    text = whole(message.content or "")
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    reasoning = whole(reasoning) if isinstance(reasoning, str) else None
    if choice.finish_reason == "content_filter":
        return Failure("content_filter", "the endpoint's filter", reasoning, **made)
    if not text.strip():
        if getattr(message, "refusal", None):
            return Failure("content_filter", whole(str(message.refusal)), reasoning, **made)
        if choice.finish_reason == "length" and (reasoning or made["usage"].output_tokens):
            return Failure("reasoning_unfinished", "the budget ended before an answer", reasoning, **made)
        return Failure("empty", "white space alone", reasoning, **made)
    return Response(text, reasoning, choice.finish_reason == "length", **made)


def _usage(usage: Any) -> Usage:
    if usage is None:
        return Usage()
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Usage(usage.prompt_tokens or 0, cached, usage.completion_tokens or 0)


def _refusal(error: Any, line: str, how: dict[str, Any]) -> Failure:
    """Rules 1 and 2. `line`: what the endpoint says. Raises Unusable."""
    what = f"{error.status_code}: {line}"
    if error.status_code in ENDING or _spent(error):
        raise Unusable(what)
    if _passes(error):
        return Failure("engine_error", what, **how)
    said = str(error).casefold()
    too_long = "context_length_exceeded" in said or ("context" in said and ("length" in said or "tokens" in said))
    return Failure("context_overflow" if too_long else "rejected", what, **how)


def _passes(error: BaseException) -> bool:
    import openai

    if isinstance(error, openai.APIStatusError):
        return (error.status_code in PASSING or error.status_code >= 500) and not _spent(error)
    return isinstance(error, openai.APIConnectionError)  # also of APITimeoutError


def _spent(error: Any) -> bool:
    return error.status_code == 402 or getattr(error, "code", None) == "insufficient_quota"


def _wait(state: Any) -> float:
    """Seconds: what the endpoint asks for, or twice as long as before, with jitter."""
    from tenacity import wait_random_exponential

    error = state.outcome.exception()
    asked = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    shortest, longest = PAUSE_S
    try:
        return max(0.0, float(asked))
    except ValueError:  # none, or a date
        return wait_random_exponential(multiplier=shortest, max=longest)(state)


def _count(messages: Messages) -> int:
    return sum(int(len(message.content) / CHARACTERS_PER_TOKEN) + MESSAGE_TOKENS for message in messages)


def _tokenizer_count(model: str, api: ApiSettings) -> Callable[[Messages], int]:
    """Raises EngineStartError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(api.tokenizer, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise EngineStartError(f"model {model}: api.tokenizer {api.tokenizer}: {_line(error)}") from None

    def count(messages: Messages) -> int:
        texts = [{"role": message.role, "content": message.content} for message in messages]
        return len(tokenizer.apply_chat_template(texts, add_generation_prompt=True, return_dict=False))

    return count


def _line(error: BaseException) -> str:
    return next((whole(line.strip()) for line in str(error).splitlines() if line.strip()), type(error).__name__)
