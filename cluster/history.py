"""From messages to token ids, kept token-exact from turn to turn.

What a model has said is known as token ids. Decoding them and encoding the text again may give other ids, which costs
the prefix cache and shows the model a history that it did not write. So each replica remembers, per conversation, the
ids of the last prompt and of its answer, and a next turn adds to them only what the template puts between an answer
and the next generation: the bridge.

1. A prompt is bridged when the template is `append_only`, what is remembered stands for exactly the pairs of this
   request (cluster/window.py), and all of it fits. Otherwise it is rendered from text, through the sliding window.
2. An answer is remembered when text and ids say the same: the template shows it unchanged in a history, no special
   token lies within it, it was not shortened at a stop string, and no reasoning was taken from it, nor handed to the
   template with an earlier one: what a template shows of the last answer's reasoning, it may leave out of older ones'.
3. The end-of-turn token of an answer is left to the bridge, so that it is never there twice. An answer that was cut
   at the token limit has none; the bridge ends the turn for it.
4. A turn that failed leaves what is remembered alone: its user text becomes part of the next bridge.
5. A prompt that lost turns to the window is not remembered; its conversation is rendered from then on.
6. The last turn of a conversation forgets it; beyond `MOST_TOKENS` the conversation longest unused is forgotten.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

import jinja2
import msgspec
from msgspec import Struct

from cluster.conversation import Failure, Message, Request
from cluster.window import Messages, Pair, fit, joined, pairs

MOST_TOKENS = 64_000_000
"""Remembered per replica: 256 MB. 1,400 conversations of 38,000 tokens are 53 million."""

SENTINEL = "Sequor7f3a9c"
"""Stands for an answer. No template changes it, and no white space touches its ends."""


REFUSALS = (jinja2.TemplateError, ValueError, TypeError)
"""What a template raises for messages that it does not take; ValueError is the tokenizer's, when there is none."""


class UnusableTemplate(ValueError):
    """The tokenizer has no chat template, or one that cannot be used. One line."""


class Template:
    """A chat template with its tokenizer, and what is true of it. Finding that out renders a few short prompts.

    `tokenizer`: of Hugging Face, or anything with its `apply_chat_template`, `encode` and `all_special_ids`.
    `source`: text of a Jinja template to be used instead of the tokenizer's own. Raises UnusableTemplate.
    """

    def __init__(self, tokenizer: Any, source: str | None = None):
        self._tokenizer = tokenizer
        self._source = source
        self._special = frozenset(tokenizer.all_special_ids)
        self._check()
        self._head, _, self._tail = self._text(_dialogue("a", SENTINEL, "b")).partition(SENTINEL)
        self.system_role: bool = self._has_system_role()
        """Without one, the system text goes in front of the first user text, with a blank line between them."""
        self.append_only: bool = self._is_append_only()
        """A longer conversation's prompt begins with the shorter one's prompt and its answer."""
        self.shows_reasoning: Literal["all", "last", "none", "refused"] = self._shows_reasoning()
        """Of the answers of a history that come with their reasoning, those that have it in the prompt."""
        self.trims: bool = f" {SENTINEL} " not in self._text(_dialogue("a", f" {SENTINEL} ", "b"))
        """Outer white space of an answer is lost in a history."""
        self.double_bos: bool = self._doubles_bos()
        """Encoding a prompt's text with special tokens would begin it twice; this class never does."""

    def render(self, messages: Messages) -> list[int]:
        """Ids of the whole prompt, the generation prompt at its end."""
        return self._encode(self._text(messages if self.system_role else _without_system(messages)))

    def bridge(self, user: str) -> list[int]:
        """Ids of what follows an answer's content: the end of its turn, the new user turn, the generation prompt."""
        return self._encode(self._text(_dialogue("a", SENTINEL, user)).partition(SENTINEL)[2])

    def facts(self) -> dict[str, str | bool | None]:
        """For the record. `dated`: the template shows today's date, so that prompts differ from day to day."""
        own = getattr(self._tokenizer, "get_chat_template", lambda source: source)  # not every tokenizer's is Jinja
        source = own(self._source)
        return {
            "sha256": hashlib.sha256(source.encode()).hexdigest() if source else None,
            "dated": "strftime_now" in (source or ""),
            "append_only": self.append_only,
            "trims": self.trims,
            "double_bos": self.double_bos,
            "system_role": self.system_role,
        }

    def shows(self, answer: str, ids: Sequence[int]) -> bool:
        """Whether a history shows this answer unchanged, and its ids hold nothing that its text does not."""
        try:
            shown = self._text(_dialogue("a", answer, "b")) == self._head + answer + self._tail
        except REFUSALS:
            return False
        return shown and self._special.isdisjoint(ids)

    def _text(self, messages: Messages) -> str:
        return self._tokenizer.apply_chat_template(
            [_for_template(message) for message in messages],
            chat_template=self._source,
            tokenize=False,
            add_generation_prompt=True,
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _check(self) -> None:
        messages = [{"role": "user", "content": "a"}]
        options = {"chat_template": self._source, "add_generation_prompt": True}
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, **options)
            ids = self._tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
        except REFUSALS as error:
            raise UnusableTemplate(f"chat template: {str(error).strip().splitlines()[0]}") from None
        if self._encode(text) != list(ids):
            raise UnusableTemplate("chat template: its text does not encode to the ids that the tokenizer makes of it")

    def _has_system_role(self) -> bool:
        try:
            return SENTINEL in self._text((Message("system", SENTINEL), Message("user", "a")))
        except REFUSALS:  # as Gemma's does; others leave the text out
            return False

    def _is_append_only(self) -> bool:
        answers, system = (f"{SENTINEL}1", f"{SENTINEL}2"), Message("system", "s")
        for head in [(), (system,)] if self.system_role else [()]:
            messages: Messages = (*head, Message("user", "a"))
            shorter = self._text(messages)
            for answer in answers:
                messages = (*messages, Message("assistant", answer), Message("user", "b"))
                longer = self._text(messages)
                if longer != shorter + answer + self._tail:
                    return False
                shorter = longer
        # A tokenizer might merge an answer's end with the tail's beginning: then the bridge's ids are not the prompt's.
        bridge = self.bridge("b")
        return self._encode(shorter)[-len(bridge) :] == bridge

    def _shows_reasoning(self) -> Literal["all", "last", "none", "refused"]:
        first, _, last = _dialogue("a", "b", "c")
        shorter = (first, Message("assistant", "b", SENTINEL), last)
        longer = (*shorter, Message("assistant", "d"), Message("user", "e"))
        try:
            of_last, of_older = (SENTINEL in self._text(messages) for messages in (shorter, longer))
        except REFUSALS:
            return "refused"
        return "all" if of_older else "last" if of_last else "none"

    def _doubles_bos(self) -> bool:
        bos, text = getattr(self._tokenizer, "bos_token", None), self._text((Message("user", "a"),))
        if not bos or not text.startswith(bos):
            return False
        ids = list(self._tokenizer.encode(text))
        return ids[0] == ids[1] == self._tokenizer.bos_token_id


class Prompt(Struct, frozen=True, gc=False):
    ids: list[int]
    dropped_turns: int
    history: Literal["first", "bridged", "rendered"]


class _Remembered(Struct, frozen=True, gc=False):
    ids: array
    """Of the last answered prompt and its answer, without the answer's end-of-turn token."""
    stands_for: bytes
    """Digest of the system text and the pairs."""


class Histories:
    """The conversations of one replica. Not for two threads at once."""

    def __init__(self, template: Template, context_tokens: int, most_tokens: int = MOST_TOKENS):
        self._template = template
        self._context_tokens = context_tokens
        self._most_tokens = most_tokens
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._remembered)

    def prompt(self, request: Request, max_tokens: int) -> Prompt | Failure:
        """The prompt of this turn, with `max_tokens` of the context left free, or a `context_overflow`, or a
        `template_error`: a template may refuse a text, and would do so again."""
        try:
            return self._bridged(request, max_tokens) or self._rendered(request, max_tokens)
        except REFUSALS as error:
            return Failure("template_error", str(error).strip().partition("\n")[0] or type(error).__name__)

    def remember(self, request: Request, prompt: Prompt, ids: Sequence[int] | None, answer: str | None) -> None:
        """Called once for each turn when it is over.

        `ids`: the answer's, without the end-of-turn token; None when they are not the ids of its text.
        `answer`: its text; None when the turn has failed.
        """
        if request.last:
            self._forget(request.key)
        elif answer is not None:
            self._forget(request.key)
            grows = ids is not None and not prompt.dropped_turns and self._template.append_only
            grows = grows and all(exchange.reasoning is None for exchange in request.history)
            if grows and self._template.shows(answer, ids):
                self._keep(request, array("i", [*prompt.ids, *ids]), answer)

    def forget(self, request: Request) -> None:
        """For a turn that had no prompt."""
        if request.last:
            self._forget(request.key)

    def _bridged(self, request: Request, max_tokens: int) -> Prompt | None:
        remembered = self._remembered.get(request.key)
        if remembered is None:
            return None
        answered, last = pairs(request.history, request.user)
        if remembered.stands_for != _digest(request.system, answered):
            return None
        ids = [*remembered.ids, *self._template.bridge(joined(last))]
        if len(ids) + max_tokens > self._context_tokens:
            return None
        self._remembered.move_to_end(request.key)
        return Prompt(ids, 0, "bridged")

    def _rendered(self, request: Request, max_tokens: int) -> Prompt | Failure:
        rendered: dict[Messages, list[int]] = {}

        def count(messages: Messages) -> int:
            rendered[messages] = self._template.render(messages)
            return len(rendered[messages])

        window = fit(request.system, request.history, request.user, self._context_tokens - max_tokens, count)
        if isinstance(window, Failure):
            return window
        return Prompt(rendered[window.messages], window.dropped_turns, "rendered" if request.history else "first")

    def _keep(self, request: Request, ids: array, answer: str) -> None:
        answered, last = pairs(request.history, request.user)
        self._remembered[request.key] = _Remembered(ids, _digest(request.system, (*answered, Pair(last, answer))))
        self._tokens += len(ids)
        while self._tokens > self._most_tokens and self._remembered:
            self._forget(next(iter(self._remembered)))

    def _forget(self, key: str) -> None:
        if (gone := self._remembered.pop(key, None)) is not None:
            self._tokens -= len(gone.ids)


def _digest(system: str | None, answered: tuple[Pair, ...]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode((system, answered)), digest_size=16).digest()


def _for_template(message: Message) -> dict[str, str]:
    """As templates know it. Reasoning has three names: vLLM passes the first two, gpt-oss reads the third."""
    names = ("reasoning", "reasoning_content", "thinking") if message.reasoning is not None else ()
    return {"role": message.role, "content": message.content, **dict.fromkeys(names, message.reasoning)}


def _dialogue(user: str, answer: str, next_user: str) -> Messages:
    return Message("user", user), Message("assistant", answer), Message("user", next_user)


def _without_system(messages: Messages) -> Messages:
    if messages[0].role != "system":
        return messages
    first = Message("user", joined((messages[0].content, messages[1].content)))
    return (first, *messages[2:])
