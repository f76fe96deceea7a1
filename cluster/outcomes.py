"""What an engine's output means for the turn. Pure, and without vllm: it reads the attributes of a RequestOutput.

1. Stopped by the model, or at a stop string: `ok`. Cut at the token budget: still an answer, `truncated`.
2. A reasoning that never closed is no answer, whether it was cut or not: `reasoning_unfinished`.
3. White space alone is no answer, cut or not: `empty`.
4. Ended in any other way: `engine_error`.
"""

from collections.abc import Callable
from typing import Any

from cluster.conversation import Failure, Outcome, Response, Usage
from cluster.history import Prompt

Split = Callable[[str, list[int], list[int]], tuple[str | None, str, bool]]
"""Of a text, its ids and its prompt's: the reasoning, the answer, and whether the reasoning came to its end."""


def outcome_of(output: Any, prompt: Prompt, split: Split | None) -> tuple[Outcome, list[int] | None]:
    """What came of a turn, and the ids of its text (cluster/history.py) where they are known.

    `output`: vLLM's RequestOutput, the final one. `split`: takes reasoning from an answer.
    """
    completion = output.outputs[0]
    made = {"usage": _usage(output), "dropped_turns": prompt.dropped_turns, "history": prompt.history}
    if completion.finish_reason not in ("stop", "length"):
        return Failure("engine_error", f"vLLM ended it with {completion.finish_reason!r}", **made), None
    ids, text, reasoning, closed = list(completion.token_ids), completion.text, None, True
    if split is not None:
        reasoning, text, closed = split(text, ids, prompt.ids)
    if not closed:
        return Failure("reasoning_unfinished", f"no answer in {len(ids)} tokens", reasoning, **made), None
    if not text.strip():
        return Failure("empty", f"white space alone in {len(ids)} tokens", reasoning, **made), None
    outcome = Response(text, reasoning, completion.finish_reason == "length", **made)
    if text != completion.text or isinstance(completion.stop_reason, str):
        return outcome, None
    return outcome, ids if outcome.truncated else ids[:-1]  # stopped: by an end-of-turn token, which vLLM counts


def _usage(output: Any) -> Usage:
    """Times are the engine's monotonic clock."""
    queue_s = run_s = 0.0
    preemptions = 0
    if (times := output.metrics) is not None:
        queue_s = max(0.0, times.scheduled_ts - times.queued_ts)
        run_s = max(0.0, times.last_token_ts - times.scheduled_ts)
        preemptions = times.num_preemptions
    cached, made = output.num_cached_tokens or 0, len(output.outputs[0].token_ids)
    return Usage(len(output.prompt_token_ids), cached, made, queue_s, run_s, preemptions)
