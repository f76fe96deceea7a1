"""The sliding window: which of a conversation's turns still fit the context. Pure.

1. A turn without an answer leaves its user text in front of the next user text, in the same user message, with a
   blank line between them: what the user said stays said, and user and assistant keep alternating.
2. The earliest pairs of user and assistant message are dropped first, and no more of them than must be.
3. When the last user message alone does not fit, the unanswered texts in front of the last one are dropped, the
   earliest first. When the last text alone does not fit, the turn is a `context_overflow`.
4. The system message always stays.
5. The decision is taken from scratch each turn, from the texts alone: a continued run drops what the first one would.

What is dropped is a number of steps, earliest first: each pair is one step, and so is each text that waits in front
of the last one. The fewest steps are looked for with few counts, as a count renders and tokenizes the whole prompt.
"""

from collections.abc import Callable

from msgspec import Struct

from cluster.conversation import Exchange, Failure, Message

CHARACTERS_PER_TOKEN = 4.0
"""A first guess for English; each count corrects it."""
MESSAGE_CHARACTERS = 16
"""Added for each message's markers in the template."""
GUESSES = 6
"""Counts that follow the estimate; after them the search halves, so that it ends in any case."""

Messages = tuple[Message, ...]


class Pair(Struct, frozen=True, gc=False):
    """A user message and its answer. `users`: the texts that were left without an answer, and the answered one."""

    users: tuple[str, ...]
    answer: str
    reasoning: str | None = None


class Window(Struct, frozen=True):
    messages: Messages
    dropped_turns: int
    """Turns of the history that are not in `messages`, unanswered ones included."""


def pairs(history: tuple[Exchange, ...], user: str) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """The answered pairs, and the texts of the last user message (rule 1)."""
    answered: list[Pair] = []
    waiting: list[str] = []
    for exchange in history:
        waiting.append(exchange.user)
        if exchange.answer is not None:
            answered.append(Pair(tuple(waiting), exchange.answer, exchange.reasoning))
            waiting = []
    return tuple(answered), (*waiting, user)


def joined(texts: tuple[str, ...]) -> str:
    """The texts of one user message."""
    return "\n\n".join(texts)


def fit(
    system: str | None, history: tuple[Exchange, ...], user: str, room: int, count: Callable[[Messages], int]
) -> Window | Failure:
    """The longest end of the conversation whose prompt takes at most `room` tokens, or a `context_overflow`.

    `count` gives the tokens of a prompt of these messages; more messages must never take fewer tokens.
    """
    answered, last = pairs(history, user)
    weights = _weights(system, answered, last)
    step = _fewest(weights, room, lambda step: count(_messages(system, answered, last, step)))
    if step is None:
        return Failure(
            "context_overflow",
            f"the last user turn alone takes more than the {max(room, 0)} tokens that the answer's budget leaves free",
            dropped_turns=len(history),
            history="rendered" if history else "first",
        )
    return Window(_messages(system, answered, last, step), _turns(answered, step))


def _messages(system: str | None, answered: tuple[Pair, ...], last: tuple[str, ...], step: int) -> Messages:
    """What is left after `step` steps."""
    kept = [Message("system", system)] if system is not None else []
    for pair in answered[step:]:
        kept += [Message("user", joined(pair.users)), Message("assistant", pair.answer, pair.reasoning)]
    return (*kept, Message("user", joined(last[max(0, step - len(answered)) :])))


def _turns(answered: tuple[Pair, ...], step: int) -> int:
    return sum(len(pair.users) for pair in answered[:step]) + max(0, step - len(answered))


def _weights(system: str | None, answered: tuple[Pair, ...], last: tuple[str, ...]) -> list[int]:
    """Characters that are left after 0, 1, 2 ... steps, the markers of the messages with them."""
    left = len(system or "") + len(last[-1]) + 2 * MESSAGE_CHARACTERS
    weights = [left]
    for text in reversed(last[:-1]):
        left += len(text)
        weights.append(left)
    for pair in reversed(answered):
        left += len(joined(pair.users)) + len(pair.answer) + len(pair.reasoning or "") + 2 * MESSAGE_CHARACTERS
        weights.append(left)
    return weights[::-1]


def _fewest(weights: list[int], room: int, count: Callable[[int], int]) -> int | None:
    """The least step whose prompt fits: it was seen to fit, and the one before it was seen not to."""
    does_not, fits, counts = -1, len(weights), 0
    tokens_per_character = 1 / CHARACTERS_PER_TOKEN
    while fits - does_not > 1:
        if counts < GUESSES:
            guess = next((k for k, weight in enumerate(weights) if weight * tokens_per_character <= room), len(weights))
            step = min(max(guess, does_not + 1), fits - 1)
        else:
            step = (does_not + fits) // 2
        tokens = count(step)
        counts += 1
        tokens_per_character = tokens / weights[step]
        if tokens <= room:
            fits = step
        else:
            does_not = step
    return fits if fits < len(weights) else None
