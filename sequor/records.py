"""The records of a run, and the append-only files that hold them.

1. One JSON object a line, one writer a file, one record an event; nothing is ever rewritten.
2. `append` returns when the lines are on disk (one write, one fsync for the whole batch).
3. A crash can tear the last line. Opening for writing cuts a torn tail off (a whole last line that only lacks its line
   end is kept and gets one), so that the damage never moves to the middle of the file.
4. Lines end with \\n alone: JSON escapes it inside strings, while U+2028 and its like may stand in them as they are.
5. A record that cannot be read anywhere else than at the end is an error that names file and line.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from cluster.conversation import Response, Turn
from sequor.errors import NOT_JSON, BadInput
from sequor.types import JudgementStatus


class TurnRecord(Struct, frozen=True, kw_only=True):
    """One turn of a candidate. Key: (test_set, dialogue, turn); turns count from 1."""

    test_set: str
    dialogue: str
    turn: int
    status: str
    """ok, truncated, empty, reasoning_unfinished, context_overflow, template_error, rejected, content_filter;
    engine_error and timeout stand in failures.jsonl only."""
    answer: str | None = None
    reasoning: str | None = None
    detail: str | None = None
    dropped_turns: int = 0
    """Earliest turns that the sliding window left out of this prompt."""
    history: str = "first"
    """first, bridged (token-exact) or rendered: how the prompt's tokens were made."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    queue_s: float = 0.0
    run_s: float = 0.0
    preemptions: int = 0
    replica: str = ""

    @property
    def key(self) -> str:
        return f"{self.test_set}/{self.dialogue}/{self.turn}"


class JudgementRecord(Struct, frozen=True, kw_only=True):
    """One constraint judged on one answer. Key: (test_set, dialogue, turn, constraint, judge), and the attempt.

    What is asked again gets a record more, and none is ever replaced; `metrics.better` says which counts.
    """

    test_set: str
    dialogue: str
    turn: int
    constraint: str
    """Its id; task_completion: whether the answer does the task."""
    judge: str
    attempt: int = 1
    status: JudgementStatus
    parser: str
    reply: str | None = None
    reasoning: str | None = None
    truncated: bool = False
    detail: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def key(self) -> str:
        return f"{self.test_set}/{self.dialogue}/{self.turn}/{self.constraint}/{self.judge}"


class ReplyRecord(Struct, frozen=True, kw_only=True):
    """One reply to one question of a stage (synthesis, curation). Key: the conversation's."""

    key: str
    status: str
    reply: str | None = None
    reasoning: str | None = None
    truncated: bool = False
    detail: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class FailureRecord(Struct, frozen=True, kw_only=True):
    """A turn or judgement that the machinery failed to bring. A log, not a result: it is asked again."""

    key: str
    status: str
    detail: str
    replica: str = ""
    time: float = 0.0
    """Unix time, seconds."""


def turn_record(test_set: str, dialogue: str, turn: Turn) -> TurnRecord:
    outcome = turn.outcome
    answered = isinstance(outcome, Response)
    usage = outcome.usage
    return TurnRecord(
        test_set=test_set,
        dialogue=dialogue,
        turn=turn.index + 1,
        status=outcome.status,
        answer=outcome.text if answered else None,
        reasoning=outcome.reasoning,
        detail=None if answered else outcome.detail or None,
        dropped_turns=outcome.dropped_turns,
        history=outcome.history,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        queue_s=round(usage.queue_s, 4),
        run_s=round(usage.run_s, 4),
        preemptions=usage.preemptions,
        replica=turn.replica,
    )


def reply_record(turn: Turn) -> ReplyRecord:
    """Of a conversation of one turn."""
    outcome = turn.outcome
    answered = isinstance(outcome, Response)
    return ReplyRecord(
        key=turn.key,
        status=outcome.status,
        reply=outcome.text if answered else None,
        reasoning=outcome.reasoning,
        truncated=answered and outcome.truncated,
        detail=None if answered else outcome.detail or None,
        prompt_tokens=outcome.usage.prompt_tokens,
        cached_tokens=outcome.usage.cached_tokens,
        output_tokens=outcome.usage.output_tokens,
    )


Record = TypeVar("Record", bound=Struct)


class Journal(Generic[Record]):
    """One append-only file of one kind of record."""

    def __init__(self, path: Path, kind: type[Record]):
        self.path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()
        self._file = None

    def __iter__(self) -> Iterator[Record]:
        """Every whole record. A torn last line is left out. Raises BadInput for a broken line anywhere else."""
        if not self.path.exists():
            return
        with open(self.path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    record = self._decoder.decode(line)
                except NOT_JSON as error:
                    if line.endswith(b"\n"):
                        raise BadInput(f"{self.path}:{number}: {error}") from None
                    return
                yield record

    def open(self) -> None:
        """Open for appending; mends a torn tail first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._mend()
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115

    def append(self, records: Iterable[Record]) -> None:
        """Blocks until the lines are on disk. Raises OSError (disk full, read-only)."""
        assert self._file is not None, "open() first"
        data = self._encoder.encode_lines(list(records))
        if not data:
            return
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _mend(self) -> None:
        if not self.path.exists() or self.path.stat().st_size == 0:
            return
        with open(self.path, "r+b") as file:
            tail = _last_line(file)
            if tail.endswith(b"\n"):
                return
            try:
                self._decoder.decode(tail)
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
            except NOT_JSON:
                file.truncate(file.seek(0, os.SEEK_END) - len(tail))


def _last_line(file, block: int = 65536) -> bytes:
    """What stands behind the last line end but one; the whole file if there is none."""
    end = file.seek(0, os.SEEK_END)
    tail = b""
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        tail = file.read(end - start) + tail
        end = start
        cut = tail.rfind(b"\n", 0, len(tail) - 1)
        if cut >= 0:
            return tail[cut + 1 :]
    return tail
