"""Who is live on a replica: the KV-token book behind the scheduler's rules 2 and 8. Pure.

Every live conversation `need`s its context, its next user turn and an expected answer. Two sums are watched:
`need` of all live ones against the budget (when contexts outgrow it, the youngest pause), and the same with one more
answer for everyone (headroom, before another one is let in: admitted without it, it would be paused at once, and
two conversations could push each other out for ever).
"""

from dataclasses import dataclass, field

from cluster.conversation import Conversation, Exchange

DEATHS_SUSPECTED = 2
OVERLAP = 8
CHARACTERS_PER_TOKEN = 3
"""Low on purpose: English has about 4 with today's vocabularies, and a prompt taken for too long only waits."""


@dataclass(slots=True, eq=False)
class Play:
    """A conversation under way. `context` is what the engine's cache holds of it, in tokens."""

    conversation: Conversation
    exchanges: list[Exchange]
    context: int = 0
    need: int = 0
    started: int = -1
    ticket: int | None = None
    attempts: int = 0
    deaths: int = 0
    avoid: str = ""
    """The replica on which the machinery failed it last."""

    @property
    def key(self) -> str:
        return self.conversation.key

    @property
    def index(self) -> int:
        return len(self.exchanges)

    @property
    def user(self) -> str:
        return self.conversation.user_turns[self.index]

    @property
    def over(self) -> bool:
        return self.index >= len(self.conversation.user_turns)

    @property
    def suspected(self) -> bool:
        return self.deaths >= DEATHS_SUSPECTED

    def estimate(self, expected_output: float) -> int:
        """KV tokens from here to the end of the next turn."""
        text = len(self.user)
        if self.context == 0:
            text += len(self.conversation.system or "")
            told = ((past.user, past.answer, past.reasoning) for past in self.exchanges)
            text += sum(len(text or "") for past in told for text in past)
        return self.context + text // CHARACTERS_PER_TOKEN + int(expected_output)


@dataclass(slots=True, eq=False)
class Book:
    """One replica's live and paused conversations. `budget` in KV tokens."""

    name: str
    budget: int
    max_running: int
    live: dict[str, Play] = field(default_factory=dict)
    ready: list[Play] = field(default_factory=list)
    """Live, at a turn's end, next turn not yet sent."""
    paused: list[Play] = field(default_factory=list)
    """Oldest started first."""
    need: int = 0
    in_flight: int = 0
    failing: set[str] = field(default_factory=set)
    """Conversations that the machinery has failed since this replica's last good outcome."""

    @property
    def places(self) -> int:
        """Conversations that may be live: a few more than the engine runs at once, so that the place of one that waits
        for its next turn is not empty meanwhile."""
        return self.max_running + self.max_running // OVERLAP

    def enter(self, play: Play) -> None:
        self.live[play.key] = play
        self.need += play.need
        self.ready.append(play)

    def leave(self, play: Play) -> None:
        del self.live[play.key]
        self.need -= play.need

    def pause(self, play: Play) -> None:
        self.leave(play)
        self.paused.append(play)
        self.paused.sort(key=lambda paused: paused.started)

    def fits(self, need: int, count: int, expected_output: float) -> bool:
        """Whether `count` more conversations that need so much together may be let in."""
        if not self.live:
            return True
        if self.quarantined or len(self.live) + count > self.places:
            return False
        headroom = int((len(self.live) + count) * expected_output)
        return self.need + need + headroom <= self.budget

    def overgrown(self) -> list[Play]:
        """Of those at a turn's end, whatever lies beyond the oldest that fit together; never the oldest itself."""
        if self.need <= self.budget:
            return []
        total, kept = 0, set()
        for play in sorted(self.live.values(), key=lambda play: play.started):
            total += play.need
            if kept and total > self.budget:
                break
            kept.add(play.key)
        return [play for play in self.ready if play.key not in kept]

    @property
    def quarantined(self) -> bool:
        return len(self.live) == 1 and next(iter(self.live.values())).suspected
