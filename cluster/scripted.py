"""An engine that answers from a function: tests, dry runs, the scheduler's cost, chaos. No model, no waiting.

A script is a pure function of the request, so that its answers depend neither on order nor on the replica.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from inspect import isawaitable

from cluster.conversation import EngineFacts, Outcome, Request, Response, Usage
from cluster.driver import EngineStartError
from cluster.settings import EngineSettings

Script = Callable[[Request], Outcome | Awaitable[Outcome]]


def echo(request: Request) -> Outcome:
    """Answers with the user's own words; about four characters a token."""
    history = sum(len(past.user) + len(past.answer or "") for past in request.history)
    prompt, output = (history + len(request.user)) // 4 + 1, len(request.user) // 4 + 1
    return Response(request.user, usage=Usage(prompt, history // 4, output), history="bridged" if history else "first")


def find_script(name: str) -> Script:
    """`module:function`. Raises EngineStartError when there is no such function."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise EngineStartError(f"script {name!r}: {error}") from None


class ScriptedEngine:
    """A script behind the Engine seam, with a KV cache of made-up size."""

    def __init__(self, settings: EngineSettings):
        self.script = find_script(settings.script)
        self.steps = 0
        self.facts = EngineFacts(
            model=settings.model,
            kv_cache_tokens=int(settings.engine_args.get("kv_cache_tokens", 1_000_000)),
            max_running=int(settings.engine_args.get("max_num_seqs", 256)),
            context_tokens=settings.max_model_len or 131_072,
            resolved={"script": settings.script},
        )

    async def generate(self, request: Request) -> Outcome:
        outcome = self.script(request)
        self.steps += 1
        return await outcome if isawaitable(outcome) else outcome

    async def close(self) -> None:
        return None
