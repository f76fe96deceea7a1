"""A stage: questions of one turn to one model, and the questions that follow from its replies, into replies.jsonl.

The replies are the only memory: what has one is not asked again, so the same command continues a stage. Failures of
the machinery go to failures.jsonl and are asked again by the next run. A folder that holds anything else than this
stage, which the fingerprint names as `stage`, is refused.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from cluster import replicas
from cluster.conversation import Conversation, Failure, Turn
from cluster.driver import Driver, Pool
from jobs.conduct import COMPLETE, INCOMPLETE, STOPPED, conduct, log_to
from sequor.errors import BadInput
from sequor.records import FailureRecord, Journal, ReplyRecord, reply_record
from sequor.run_folder import (
    RunFile,
    claim_folder,
    read_json,
    refuse_claimed,
    refuse_difference,
    write_json,
    write_status,
)

LINE_EVERY_S = 30.0
STATUS_EVERY_S = 2.0

Follow = Callable[[ReplyRecord], list[Conversation]]


class Counts(Struct):
    asked: int = 0
    done: int = 0
    failures: int = 0


class Stage:
    """One stage in one folder."""

    def __init__(self, out: Path, make_pool: Callable[[], Pool], ray_address: str | None, console: Console):
        self.out, self._make_pool, self._ray_address, self._console = out, make_pool, ray_address, console
        self._journal = Journal(out / "replies.jsonl", ReplyRecord)
        self._failures = Journal(out / "failures.jsonl", FailureRecord)
        self.replies: dict[str, ReplyRecord] = {}
        self.counts = Counts()

    def run(self, run_file: RunFile, roots: Iterable[Conversation], follow: Follow) -> int:
        """Returns an exit code. Raises BadInput before anything is written, ClusterError and OSError later on."""
        if (self.out / "run.json").exists():
            old = read_json(self.out / "run.json", RunFile).fingerprint
            refuse_difference(self.out, {"stage": "none"} | old, run_file.fingerprint)
            refuse_claimed(self.out)
        elif self.out.exists() and not all(path.name.startswith(".run.json.") for path in self.out.iterdir()):
            raise BadInput(f"{self.out}: not empty, and no run.json in it: not the folder of a stage")
        self.replies = {record.key: record for record in self._journal}
        waiting = list(self._unanswered(roots, follow))
        self.counts = Counts(len(self.replies) + len(waiting), len(self.replies))
        if not waiting:
            return COMPLETE
        replicas.connect(self._ray_address)
        try:
            pool = self._make_pool()
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(self.out / "run.json", run_file)
            claim_folder(self.out)
            log_to(self.out / "logs" / "driver.log")
            return asyncio.run(self._play(pool, waiting, follow))
        finally:
            replicas.disconnect()

    def _unanswered(self, conversations: Iterable[Conversation], follow: Follow) -> Iterable[Conversation]:
        for conversation in conversations:
            record = self.replies.get(conversation.key)
            if record is None:
                yield conversation
            else:
                yield from self._unanswered(follow(record), follow)

    async def _play(self, pool: Pool, waiting: list[Conversation], follow: Follow) -> int:
        async def keep(saves: list[tuple[Pool, Turn]]) -> list[tuple[Pool, tuple[Conversation, ...]]]:
            records = await asyncio.to_thread(self._write, [turn for _, turn in saves])
            following = [c for record in records for c in follow(record)]
            self.counts.asked += len(following)
            return [(pool, tuple(following))] if following else []

        self._journal.open()
        self._failures.open()
        driver = Driver([pool], keep)
        driver.add(pool, waiting)
        state = "failed"
        try:
            played = await conduct(driver, self._watch(pool))
            complete = played and self.counts.done == self.counts.asked
            state = "complete" if complete else "incomplete" if played else "stopped"
            return {"complete": COMPLETE, "incomplete": INCOMPLETE, "stopped": STOPPED}[state]
        finally:
            self._journal.close()
            self._failures.close()
            write_status(self.out, self._status(state))

    def _write(self, turns: list[Turn]) -> list[ReplyRecord]:
        lost = [turn for turn in turns if isinstance(turn.outcome, Failure) and turn.outcome.retryable]
        records = [reply_record(turn) for turn in turns if turn not in lost]
        self._journal.append(records)
        self._failures.append(
            FailureRecord(
                key=turn.key,
                status=turn.outcome.status,
                detail=turn.outcome.detail,
                replica=turn.replica,
                time=round(time.time(), 3),
            )
            for turn in lost
        )
        self.replies |= {record.key: record for record in records}
        self.counts.done += len(records)
        self.counts.failures += len(lost)
        return records

    async def _watch(self, pool: Pool) -> None:
        last = time.monotonic()
        for beat in range(2**62):
            write_status(self.out, self._status("running") | {"beat": beat})
            await asyncio.sleep(STATUS_EVERY_S)
            if time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                counts = f"replies {self.counts.done}/{self.counts.asked}, failures {self.counts.failures}"
                tokens = f"{pool.scheduler.counts.output_tokens:,} tokens"
                self._console.print(f"{time.strftime('%H:%M:%S')} {counts}; {len(pool.alive)} up, {tokens}")

    def _status(self, state: str) -> dict[str, object]:
        counts = {"replies": self.counts.done, "asked": self.counts.asked, "failures": self.counts.failures}
        return {"state": state, "updated": round(time.time(), 3), **counts}
