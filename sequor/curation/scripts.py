"""Scripted models for the curation's roles (cluster/scripted.py): pure functions of the request, for dry runs, tests
and for measuring the machinery. What they say has the shapes and the failures of what real models say."""

import json

from cluster.conversation import Outcome, Request, Response, Usage
from sequor.curation.candidates import CATEGORIES

DEMANDS = (
    "Write in at most {n} words",
    "Use {n} bullet points",
    "Answer in the style of a pirate",
    "Use the passive voice",
    "Begin with the word {n}",
    "Write {n} short paragraphs",
)


def _said(text: str, request: Request) -> Response:
    return Response(text, usage=Usage(len(request.user) // 4 + 8, 0, len(text) // 4 + 1))


def extractor(request: Request) -> Outcome:
    """None to three constraints, in four wrappings. One reply in 40 is no JSON."""
    draw = request.seed
    if draw % 40 == 0:
        return _said("I am sorry, there is nothing that I could list.", request)
    items = [
        {
            "constraint": DEMANDS[(draw >> at) % len(DEMANDS)].format(n=(draw >> (at * 5)) % 900 + 1),
            "category": CATEGORIES[(draw >> (2 + at)) % 4].title(),
            "message": 1,
        }
        for at in range(draw % 4)
    ]
    text = json.dumps(items)
    shapes = (text, f"```json\n{text}\n```", f"Here they are: {text}", f"{text}\n\nTell me if you need more.")
    return _said(shapes[(draw >> 7) % 4], request)


def rubrics(request: Request) -> Outcome:
    """Satisfiable in nine of ten tasks; one reply in 50 cannot be read."""
    draw = request.seed
    if draw % 50 == 0:
        return _said("It depends.", request)
    votes = {"1": "yes", "2": "no", "3": "yes" if draw % 10 else "no", "4": "yes"}
    lines = "\n".join(f"{key}. {vote}" for key, vote in votes.items())
    return _said(json.dumps(votes) if draw % 2 else lines, request)


def judge(request: Request) -> Outcome:
    """Whatever it is asked: four rubrics, or a final verdict that is yes in eight of ten; an answer without its
    constraint is found to follow it in one of ten."""
    if '"1":' in request.user:
        return rubrics(request)
    draw = request.seed
    if draw % 200 == 0:
        return _said("I cannot tell.", request)
    yes = draw % 10 < (1 if request.key.startswith("plain|") else 8)
    return _said(f"I compared the two.\nFinal verdict: {'yes' if yes else 'no'}", request)


def mute(request: Request) -> Outcome:
    """Never says anything that could be read."""
    return _said("Let me think about that.", request)


def answerer(request: Request) -> Outcome:
    """Some words about the task."""
    return _said(f"Here is what I think of it ({request.seed % 1000}). " * (2 + request.seed % 7), request)
