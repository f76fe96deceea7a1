"""The nouns of the cluster layer: what is asked, what comes back, what a run keeps of it.

Everything that asks a model anything is a `Conversation`: a candidate's dialogue has fifty user turns, a judge's
question has one. A failure is a value of its own type, with a status; it is never turned into text.

Outcome of a turn            type       status                  goes into the history as
---------------------------  ---------  ----------------------  ------------------------
answered                     Response   ok                      the answer
cut at the token limit       Response   truncated               the answer, as far as it came
nothing but white space      Failure    empty                   nothing
reasoning never closed       Failure    reasoning_unfinished    nothing
last user turn does not fit  Failure    context_overflow        nothing
chat template refuses it     Failure    template_error          nothing
endpoint refuses it          Failure    rejected                nothing
a filter's veto              Failure    content_filter          nothing
engine raised, or died       Failure    engine_error            nothing; asked again on the next run
no answer in time            Failure    timeout                 nothing; asked again on the next run
"""

from typing import Literal

from msgspec import Struct

from cluster.settings import Sampling

Role = Literal["system", "user", "assistant"]

RETRYABLE = frozenset({"engine_error", "timeout"})
"""Failures of the machinery. They end the conversation for this run and are asked again by the next one."""


class Message(Struct, frozen=True, gc=False):
    role: Role
    content: str
    reasoning: str | None = None
    """Of an assistant's message, where the chat template is to decide what becomes of it."""


class Usage(Struct, frozen=True, gc=False):
    """What one turn cost the engine. Tokens, and seconds of the engine's own clock."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt's tokens, those found in the prefix cache (vLLM's `num_cached_tokens`)."""
    output_tokens: int = 0
    queue_s: float = 0.0
    run_s: float = 0.0
    preemptions: int = 0
    """How often the engine took its cache away while it ran."""


class Response(Struct, frozen=True, gc=False):
    text: str
    reasoning: str | None = None
    """What the model thought before its answer, taken apart by the engine. Never judged, and not sent back unless the
    settings say so."""
    truncated: bool = False
    usage: Usage = Usage()
    dropped_turns: int = 0
    """How many of the earliest turns the sliding window left out of this prompt."""
    history: Literal["first", "bridged", "rendered"] = "first"
    """How the prompt's tokens were made: no history yet; the engine's own ids with only the new user turn rendered;
    or everything rendered afresh from text."""

    @property
    def status(self) -> str:
        return "truncated" if self.truncated else "ok"


class Failure(Struct, frozen=True, gc=False):
    status: Literal[
        "empty",
        "reasoning_unfinished",
        "context_overflow",
        "template_error",
        "rejected",
        "content_filter",
        "engine_error",
        "timeout",
    ]
    detail: str = ""
    reasoning: str | None = None
    usage: Usage = Usage()
    dropped_turns: int = 0
    history: Literal["first", "bridged", "rendered"] = "first"

    @property
    def retryable(self) -> bool:
        return self.status in RETRYABLE


Outcome = Response | Failure


class Exchange(Struct, frozen=True, gc=False):
    """One finished turn as the history sees it. `answer` is None where the turn had no answer."""

    user: str
    answer: str | None
    reasoning: str | None = None
    """Only of a conversation that keeps it."""


class Conversation(Struct, frozen=True):
    """A list of user turns to be played in order against one pool of replicas."""

    key: str
    """Unique in its pool and made from content (test set, dialogue, constraint ...), never from a position."""
    user_turns: tuple[str, ...]
    system: str | None = None
    finished: tuple[Exchange, ...] = ()
    """Turns that an earlier run has saved; the next turn to ask is number len(finished)."""
    group: str | None = None
    """Conversations of one group share their prompt's beginning: they start side by side on one replica."""
    urgent: bool = False
    """Started before conversations that are not: a judge's question before another dialogue of the same pool."""
    sampling: Sampling | None = None
    """Instead of the pool's own, where one pool serves conversations of several kinds."""
    keeps_reasoning: bool = False
    """What the model thought goes along with its answers, for the chat template (`reasoning_history: as-template`)."""
    seed_key: str | None = None
    """What seeds are made from instead of `key`, where several runs share a pool: a run's answers must not depend on
    its company."""


class Turn(Struct, frozen=True):
    """One finished turn: what SaveTurn carries and the record keeps. `index` counts from 0."""

    key: str
    index: int
    outcome: Outcome
    replica: str = ""


class Request(Struct, frozen=True):
    """One turn as it travels to a replica: self-contained, so that any replica can answer it."""

    key: str
    index: int
    history: tuple[Exchange, ...]
    user: str
    system: str | None
    seed: int
    """Made from (run seed, key, index): the order in which turns are played never matters."""
    sampling: Sampling | None = None
    """Instead of the pool's own."""
    last: bool = False
    """The conversation's last turn: the replica forgets its token ids after it."""


class EngineFacts(Struct, frozen=True):
    """What a started engine says of itself. Counts are tokens or sequences, per replica."""

    model: str
    kv_cache_tokens: int
    """Size of the KV cache (vLLM: `kv_cache_size_tokens`): the base of admission."""
    max_running: int
    """Requests that the engine runs at the same time (vLLM: `max_num_seqs`)."""
    context_tokens: int
    append_only: bool = True
    """Whether the chat template lets a history grow without changing its beginning."""
    resolved: dict[str, str | int | float | bool | None] = {}
    """Engine settings, versions and hashes as they came out, for the run's folder."""
