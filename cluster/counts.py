"""What has been asked and what it cost: sums over finished turns. Pure."""

from dataclasses import dataclass, fields

from cluster.conversation import Usage


@dataclass(slots=True)
class Counts:
    """Of one scheduler, or of the records of a run."""

    turns: int = 0
    failures: int = 0
    pauses: int = 0
    moved: int = 0
    """Conversations taken from lost replicas."""
    retries: int = 0
    ignored: int = 0
    """Answers to forgotten tickets."""
    preemptions: int = 0
    rendered: int = 0
    """Prompts with a history that were rendered afresh from text."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    ideal_prefill_tokens: int = 0
    """Prompt tokens that no cache could have held: what is new since the same conversation's last turn."""
    thoughts: int = 0
    """Answers with a thought in them that nobody took apart."""

    def add(
        self, usage: Usage, context: int, *, failed: bool, dropped_turns: int, history: str, thought: bool = False
    ) -> None:
        """A finished turn, `context` tokens of which the conversation's turns before have shown the engine."""
        self.turns += 1
        self.failures += failed
        self.thoughts += thought
        self.preemptions += usage.preemptions
        self.rendered += history == "rendered"
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.output_tokens += usage.output_tokens
        # Once the window slides, a prompt's beginning is another one each turn: no cache could hold any of it.
        held = 0 if dropped_turns else context
        self.ideal_prefill_tokens += max(0, usage.prompt_tokens - held)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


def thinks_aloud(answer: str | None, reasoning: str | None) -> bool:
    """Whether a thought is part of the answer. A prompt may have opened it already, so that its end alone is there."""
    return bool(answer) and not reasoning and (answer.lstrip().startswith("<think>") or "</think>" in answer)
