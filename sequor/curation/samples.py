"""Which tasks a constraint or a tuple is tried with: drawn by seed, the same whoever asks and in whatever order. Pure.

A draw depends on the seed, the purpose and the thing alone, so that more things, or fewer, change nothing for the
others. Twice as many tasks begin with the same ones.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from random import Random

from sequor.errors import BadInput
from sequor.types import Task


class Tasks:
    """All tasks there are, each with an id made from its persona and its text."""

    def __init__(self, by_persona: Mapping[str, Sequence[Task]]):
        self.prompts: dict[str, str] = {}
        for persona, tasks in by_persona.items():
            for task in tasks:
                name = f"{persona}:{sha256(task.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
                self.prompts.setdefault(name.replace("|", "_"), task.prompt)
        self.ids = sorted(self.prompts)
        self.draw = lru_cache(4096)(self._draw)  # records come in about the order in which they were asked

    @property
    def digest(self) -> str:
        return sha256("\n".join(self.ids).encode()).hexdigest()[:16]

    def _draw(self, seed: int, purpose: str, thing: str, count: int) -> tuple[str, ...]:
        """Ids of `count` different tasks, in the order of the draw. Raises BadInput when there are fewer."""
        if count > len(self.ids):
            raise BadInput(f"tasks: {count} wanted for each, there are {len(self.ids)}")
        rng = Random(f"{seed}/{purpose}/{thing}")
        drawn: dict[int, None] = {}
        while len(drawn) < count:
            drawn[rng.randrange(len(self.ids))] = None
        return tuple(self.ids[at] for at in drawn)
