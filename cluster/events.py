"""What happens to a pool of replicas, and what is to be done about it.

Events go into `ConversationScheduler.handle`, actions come out. Both are plain values, so that a run can be written
down, replayed and tested without a replica.
"""

from msgspec import Struct

from cluster.conversation import Conversation, Outcome, Request, Turn


class ConversationsAdded(Struct, frozen=True):
    """New work. Conversations of one group are expected in one event."""

    conversations: tuple[Conversation, ...]


class ReplicaReady(Struct, frozen=True):
    replica: str
    """Unique over all lives: a reborn replica comes under a new name."""
    kv_cache_tokens: int
    max_running: int


class ReplicaLost(Struct, frozen=True):
    replica: str
    reason: str = ""


class TurnFinished(Struct, frozen=True):
    """The answer to a ticket: a response, or a failure that the engine reported as a value."""

    ticket: int
    outcome: Outcome


Event = ConversationsAdded | ReplicaReady | ReplicaLost | TurnFinished


class SendTurn(Struct, frozen=True):
    ticket: int
    replica: str
    request: Request


class SaveTurn(Struct, frozen=True):
    """Write the turn down. Actions are performed in order, so this comes before the SendTurn that builds on it."""

    turn: Turn


class RetireReplica(Struct, frozen=True):
    """It is up, and useless: end it, so that another is born in its place. Its conversations are elsewhere already."""

    replica: str
    reason: str


Action = SendTurn | SaveTurn | RetireReplica
