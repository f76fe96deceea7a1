"""Scripted models of the benchmark's two roles, for dry runs and for measuring the machinery (cluster/scripted.py).

Pure functions of the request. What they say means nothing; it has the length, the variety and the failures of what
real models say.
"""

import asyncio

from cluster.conversation import Failure, Outcome, Request, Response, Usage

WORDS = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by"
).split()
TOKENS_PER_CHARACTER = 0.25


def candidate(request: Request) -> Outcome:
    """40 to 140 words. One answer in 500 is empty and one in 100 is cut, as with real models."""
    draw = request.seed
    if draw % 500 == 0:
        return Failure("empty", "scripted", usage=_usage(request, 1))
    words = [WORDS[(draw >> shift) % len(WORDS)] for shift in range(40 + draw % 100)]
    text = " ".join(words)
    return Response(text, truncated=draw % 100 == 1, usage=_usage(request, len(words)), history=_history(request))


def judge(request: Request) -> Outcome:
    """Eight in ten answers satisfy; one reply in 200 has no verdict."""
    draw = request.seed
    verdict = "perhaps" if draw % 200 == 0 else "yes" if draw % 10 < 8 else "no"
    return Response(f"I compared the answer with the rule.\nFinal verdict: {verdict}", usage=_usage(request, 16))


def undecided(request: Request) -> Outcome:
    """A judge with no verdict until it is asked again."""
    if "#" not in request.key.rpartition("/")[2]:
        return Response("Let me see.\nFinal verdict: perhaps", usage=_usage(request, 8))
    return judge(request)


def _usage(request: Request, output: int) -> Usage:
    history = int(TOKENS_PER_CHARACTER * sum(len(e.user) + len(e.answer or "") for e in request.history))
    prompt = history + int(TOKENS_PER_CHARACTER * len(request.user)) + 8
    return Usage(prompt, history, output)


def _history(request: Request):
    return "bridged" if request.history else "first"


def deadly(request: Request) -> Outcome:
    """Kills its engine at the second turn of any dialogue whose id ends in 2; otherwise the candidate."""
    if request.index == 1 and request.key.endswith("2"):
        raise SystemExit("poisoned")
    return candidate(request)


async def unhurried(request: Request) -> Outcome:
    """The candidate, a fifth of a second an answer."""
    await asyncio.sleep(0.2)
    return candidate(request)


def broken(request: Request) -> Outcome:
    """Whatever it is asked, the machinery fails."""
    return Failure("engine_error", "CUDA error: an illegal memory access was encountered")


async def stuck(request: Request) -> Outcome:
    """Never answers the second turn of any dialogue whose id ends in 2; otherwise the candidate."""
    if request.index == 1 and request.key.endswith("2"):
        await asyncio.Event().wait()
    return candidate(request)


def synthesizer(request: Request) -> Outcome:
    """An agenda, or questions about an activity, decorated as models do it. One reply in 50 is no list."""
    draw = request.seed
    agenda = "activities in the order of the day" in request.user
    if draw % 50 == 0:
        return Response("I am afraid that I cannot do that.", usage=_usage(request, 9))
    words = [[WORDS[(draw * (n + 3) >> shift) % len(WORDS)] for shift in range(9)] for n in range(14)]
    lines = [
        f"{n + 1}. **{n + 6}:00 - {' '.join(w)}**" if agenda else f"{n + 1}) {' '.join(w)}?"
        for n, w in enumerate(words)
    ]
    text = "Sure! Here is the list:\n\n" + "\n".join(lines) + "\n\nLet me know if you need more."
    return Response(text, usage=_usage(request, 150))
