"""Ways to play many dialogues on engines, for the simulation: ours, and the two that users write by hand. Pure.

1. Lockstep: turn t of every dialogue, and turn t+1 when the last of them has ended; as an offline batch does.
2. Semaphore: a client with so many dialogues under way, one coroutine each, started in their order.
3. Scheduled: the ConversationScheduler itself, with its admission and its pacing.
Dialogues stay on the engine they begin on: spread evenly by hand (1, 2), or where the scheduler puts them (3).
"""

from collections.abc import Sequence
from math import log
from random import Random

from msgspec import Struct

from cluster.admission import CHARACTERS_PER_TOKEN
from cluster.conversation import Conversation, Response, Usage
from cluster.events import Action, ConversationsAdded, ReplicaReady, SendTurn, TurnFinished
from cluster.scheduler import ConversationScheduler
from cluster.settings import SchedulerSettings
from cluster.simulation import Ask, Cost, SimulatedEngine

LONGEST_ANSWER = 2400
"""Mean tokens of an answer in the longest dialogues: fifty of them about fill a context of 131,072 tokens."""


class Dialogue(Struct, frozen=True):
    """Tokens of each turn: what the user says, what the model answers."""

    key: str
    users: tuple[int, ...]
    answers: tuple[int, ...]

    def ask(self, turn: int) -> Ask:
        before = sum(self.users[:turn]) + sum(self.answers[:turn])
        return Ask(self.key, before + self.users[turn], self.answers[turn])


def dialogues(count: int, turns: int, seed: int, mean: int = 42_000, deviation: int = 37_000) -> list[Dialogue]:
    """Lengths with that mean and standard deviation per 50 turns: Qwen3-4B in Single (paper, table 7). Log-normal over
    dialogues, cut at about a context of 131,072 tokens; within one, answers vary by a quarter. A user turn
    has about 60 tokens."""
    rng = Random(seed)
    sigma = log((deviation / mean) ** 2 + 1) ** 0.5
    found = []
    for n in range(count):
        factor = rng.lognormvariate(-(sigma**2) / 2, sigma)
        users = tuple(max(10, int(rng.gauss(60, 15))) for _ in range(turns))
        answer = min(max(20.0, mean * factor / 50 - 60), LONGEST_ANSWER)
        answers = tuple(max(1, int(answer * rng.gauss(1, 0.25))) for _ in range(turns))
        found.append(Dialogue(f"d{n}", users, answers))
    return found


def ideal_prefill(played: Sequence[Dialogue]) -> int:
    """Each token once: every user turn, and every answer but a dialogue's last, which no prompt holds.

    An answer's own KV is made while it is decoded; nothing of it would have to be prefilled but its last token.
    """
    return sum(sum(dialogue.users) + len(dialogue.answers) - 1 for dialogue in played)


def ceiling(played: Sequence[Dialogue], cost: Cost) -> float:
    """How many times longer a run becomes that loses every history, against one that loses none.

    The seconds of both, without `Cost.step`: reading the KV for every decoded token is the same work for every policy,
    and only prefill can be saved. A ratio to a policy without cache hits is about this at most, steps being equal.
    """
    decode = kept = lost = 0.0
    for dialogue in played:
        for turn, (user, answer) in enumerate(zip(dialogue.users, dialogue.answers, strict=True)):
            prompt, steps = dialogue.ask(turn).prompt, answer - 1
            read = steps * prompt + steps * (steps - 1) // 2
            decode += steps * cost.decode_sequence + read * cost.decode_context
            kept += user * (cost.prefill_token + cost.prefill_context * (prompt - user / 2))
            lost += prompt * (cost.prefill_token + cost.prefill_context * prompt / 2)
    return (decode + lost) / (decode + kept)


class Lockstep:
    pauses = 0

    def __init__(self, played: Sequence[Dialogue], engines: int = 1):
        self._played, self._engines = played, engines
        self._turn = self._open = 0

    def begin(self) -> list[tuple[int, Ask]]:
        return self._round()

    def ended(self, engine: int, asks: list[Ask]) -> list[tuple[int, Ask]]:
        self._open -= len(asks)
        if self._open:
            return []
        self._turn += 1
        return self._round()

    def _round(self) -> list[tuple[int, Ask]]:
        going = [(n % self._engines, d) for n, d in enumerate(self._played) if self._turn < len(d.users)]
        self._open = len(going)
        return [(engine, dialogue.ask(self._turn)) for engine, dialogue in going]


class Semaphore:
    pauses = 0

    def __init__(self, played: Sequence[Dialogue], limit: int = 100, engines: int = 1):
        self._played = {d.key: d for d in played}
        self._engine = {d.key: n % engines for n, d in enumerate(played)}
        self._turns = dict.fromkeys(self._played, 0)
        self._waiting = iter(played)
        self._limit = limit

    def begin(self) -> list[tuple[int, Ask]]:
        return [self._next() for _ in range(min(self._limit, len(self._played)))]

    def ended(self, engine: int, asks: list[Ask]) -> list[tuple[int, Ask]]:
        following = []
        for ask in asks:
            dialogue, turn = self._played[ask.key], self._turns[ask.key] + 1
            self._turns[ask.key] = turn
            if turn < len(dialogue.users):
                following.append((engine, dialogue.ask(turn)))
            elif (started := self._next()) is not None:
                following.append(started)
        return following

    def _next(self) -> tuple[int, Ask] | None:
        dialogue = next(self._waiting, None)
        return None if dialogue is None else (self._engine[dialogue.key], dialogue.ask(0))


class Scheduled:
    """Engine n is the replica named n. The scheduler sees texts and token counts, never the lengths to come."""

    def __init__(self, played: Sequence[Dialogue], engines: Sequence[SimulatedEngine], settings: SchedulerSettings):
        self.scheduler = ConversationScheduler(settings)
        self._played = {d.key: d for d in played}
        self._engines = engines
        self._tickets: dict[str, int] = {}

    @property
    def pauses(self) -> int:
        return self.scheduler.counts.pauses

    def begin(self) -> list[tuple[int, Ask]]:
        texts = {n: "x" * (n * CHARACTERS_PER_TOKEN) for d in self._played.values() for n in d.users}
        added = tuple(Conversation(d.key, tuple(texts[n] for n in d.users)) for d in self._played.values())
        ready = [ReplicaReady(str(n), e.capacity, e.max_num_seqs) for n, e in enumerate(self._engines)]
        return self._sent(self.scheduler.handle(*ready, ConversationsAdded(added)))

    def ended(self, engine: int, asks: list[Ask]) -> list[tuple[int, Ask]]:
        events = [
            TurnFinished(self._tickets.pop(ask.key), Response("", usage=Usage(ask.prompt, 0, ask.output)))
            for ask in asks
        ]
        return self._sent(self.scheduler.handle(*events))

    def _sent(self, actions: list[Action]) -> list[tuple[int, Ask]]:
        sent = []
        for action in actions:
            if isinstance(action, SendTurn):
                self._tickets[action.request.key] = action.ticket
                sent.append((int(action.replica), self._played[action.request.key].ask(action.request.index)))
        return sent
