"""A stage: questions of one turn to one model or several, and what follows from the replies, into replies.jsonl.

1. The replies are the only memory: what has one is not asked again, so the same command continues a stage. Failures of
   the machinery go to failures.jsonl and are asked again by the next run.
2. A folder that holds anything else than this stage, which the fingerprint names as `stage`, is refused.
3. Each model is a lane: its own pool, its own questions. Keys are unique over all lanes.
4. With `live` set, questions are made only as earlier ones are answered, so many at a time in each lane, and no reply
   is kept in memory: a million take 8 bytes each. Without it all are made at the start, and `replies` holds all.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console

from cluster import replicas
from cluster.conversation import Conversation, Failure, Turn
from cluster.driver import Driver, Pool
from cluster.occupancy import Spent
from jobs.conduct import COMPLETE, INCOMPLETE, STOPPED, conduct, log_to, no_more_signals
from sequor.errors import BadInput
from sequor.keyset import KeySet
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


def nothing(record: ReplyRecord) -> list[Conversation]:
    """Follows from a reply that is its own end."""
    return []


class Stage:
    """One stage in one folder."""

    def __init__(
        self,
        out: Path,
        make_pool: Callable[[str], Pool],
        ray_address: str | None,
        console: Console,
        live: int | None = None,
        look: Callable[[ReplyRecord], None] | None = None,
    ):
        """`make_pool(lane)` is called for lanes with something to ask. `look` sees every reply, those of earlier starts
        first; what it raises stops the stage."""
        self.out, self._make_pool, self._ray_address, self._console = out, make_pool, ray_address, console
        self._live, self._look = live, look
        self._journal = Journal(out / "replies.jsonl", ReplyRecord)
        self._failures = Journal(out / "failures.jsonl", FailureRecord)
        self.replies: dict[str, ReplyRecord] = {}
        self._answered = KeySet()
        """Instead of `replies`, when `live` is set."""
        self._feeds: dict[str, Iterator[Conversation]] = {}
        self._playing: dict[str, int] = {}
        """Lane -> conversations that were drawn from its feed, or follow, and are not finished."""
        self.counts = Counts()
        self._pools: dict[str, Pool] = {}
        self._spent: dict[str, Spent] = {}
        """Lane -> seconds of earlier starts."""

    def run(self, run_file: RunFile, lanes: Mapping[str, Iterable[Conversation]], follow: Follow = nothing) -> int:
        """Returns an exit code. Raises BadInput before anything is written, ClusterError and OSError later on."""
        run_file = self._claimable(run_file)
        self._remember()
        self._feeds = {lane: self._unanswered(roots, follow) for lane, roots in lanes.items()}
        first = {lane: drawn for lane in lanes if (drawn := self._draw(lane))}
        if not first:
            return COMPLETE
        replicas.connect(self._ray_address)
        try:
            pools = {lane: self._make_pool(lane) for lane in first}
            self.out.mkdir(parents=True, exist_ok=True)
            write_json(self.out / "run.json", run_file)
            claim_folder(self.out)
            log_to(self.out / "logs" / "driver.log")
            code = asyncio.run(self._play(pools, first, follow))
            if code == STOPPED:
                no_more_signals()
            return code
        finally:
            replicas.disconnect()

    def records(self) -> Iterator[ReplyRecord]:
        """Every reply, as they came, from the file."""
        return iter(self._journal)

    def _claimable(self, run_file: RunFile) -> RunFile:
        """run.json as it is to be written. Raises BadInput."""
        if (self.out / "run.json").exists():
            old = read_json(self.out / "run.json", RunFile)
            replied = any(True for _ in self._journal)
            refuse_difference(
                self.out, {"stage": "none"} | old.fingerprint, run_file.fingerprint, lambda group: replied
            )
            refuse_claimed(self.out)
            return old.again(run_file) if replied else run_file
        if self.out.exists() and not all(path.name.startswith(".run.json.") for path in self.out.iterdir()):
            raise BadInput(f"{self.out}: not empty, and no run.json in it: not the folder of a stage")
        return run_file

    def _remember(self) -> None:
        for record in self._journal:
            if self._look is not None:
                self._look(record)
            if self._live is None:
                self.replies[record.key] = record
            else:
                self._answered.add(record.key)
        known = len(self.replies) or len(self._answered)
        self.counts = Counts(known, known)
        self._spent = spent(self.out)

    def _unanswered(self, conversations: Iterable[Conversation], follow: Follow) -> Iterator[Conversation]:
        for conversation in conversations:
            record = self.replies.get(conversation.key)
            if record is not None:
                yield from self._unanswered(follow(record), follow)
            elif self._live is None or conversation.key not in self._answered:
                yield conversation

    def _draw(self, lane: str) -> list[Conversation]:
        """What may be asked now of what is left."""
        playing = self._playing.get(lane, 0)
        room = None if self._live is None else max(0, self._live - playing)
        drawn = list(islice(self._feeds[lane], room))
        self._playing[lane] = playing + len(drawn)
        self.counts.asked += len(drawn)
        return drawn

    async def _play(self, pools: dict[str, Pool], first: dict[str, list[Conversation]], follow: Follow) -> int:
        self._pools = pools
        lane_of = {id(pool): lane for lane, pool in pools.items()}

        async def keep(saves: list[tuple[Pool, Turn]]) -> list[tuple[Pool, tuple[Conversation, ...]]]:
            records = await asyncio.to_thread(self._write, [turn for _, turn in saves])
            owner = {turn.key: lane_of[id(pool)] for pool, turn in saves}
            more: dict[str, list[Conversation]] = {lane: [] for lane in owner.values()}
            for record in records:
                more[owner[record.key]] += follow(record)
            for lane, following in more.items():
                self._playing[lane] += len(following) - sum(1 for name in owner.values() if name == lane)
                self.counts.asked += len(following)
                following += await asyncio.to_thread(self._draw, lane)
            return [(pools[lane], tuple(conversations)) for lane, conversations in more.items() if conversations]

        self._journal.open()
        self._failures.open()
        driver = Driver(pools.values(), keep)
        for lane, conversations in first.items():
            driver.add(pools[lane], conversations)
        first.clear()
        state = "failed"
        try:
            played = await conduct(driver, self._watch(list(pools.values())))
            complete = played and self.counts.done == self.counts.asked
            state = "complete" if complete else "incomplete" if played else "stopped"
            return {"complete": COMPLETE, "incomplete": INCOMPLETE, "stopped": STOPPED}[state]
        finally:
            self._journal.close()
            self._failures.close()
            write_status(self.out, self._status(state))

    def _write(self, turns: list[Turn]) -> list[ReplyRecord]:
        lost = [turn for turn in turns if isinstance(turn.outcome, Failure) and turn.outcome.retryable]
        records = [
            reply_record(turn) for turn in turns if not isinstance(turn.outcome, Failure) or not turn.outcome.retryable
        ]
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
        if self._live is None:
            self.replies |= {record.key: record for record in records}
        if self._look is not None:
            for record in records:
                self._look(record)
        self.counts.done += len(records)
        self.counts.failures += len(lost)
        return records

    async def _watch(self, pools: list[Pool]) -> None:
        last = time.monotonic()
        for beat in range(2**62):
            write_status(self.out, self._status("running") | {"beat": beat})
            await asyncio.sleep(STATUS_EVERY_S)
            if time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                counts = f"replies {self.counts.done}/{self.counts.asked}, failures {self.counts.failures}"
                tokens = sum(pool.scheduler.counts.output_tokens for pool in pools)
                up = sum(len(pool.alive) for pool in pools)
                self._console.print(f"{time.strftime('%H:%M:%S')} {counts}; {up} up, {tokens:,} tokens")

    def _status(self, state: str) -> dict[str, object]:
        counts = {"replies": self.counts.done, "asked": self.counts.asked, "failures": self.counts.failures}
        now = time.monotonic()
        lanes = self._spent | {
            lane: self._spent.get(lane, Spent()) + pool.occupancy.spent(now) for lane, pool in self._pools.items()
        }
        return {"state": state, "updated": round(time.time(), 3), **counts, "lanes": msgspec.to_builtins(lanes)}


def spent(out: Path) -> dict[str, Spent]:
    """Lane -> seconds that its replicas have lived and worked, over all starts of the stage in that folder."""
    path = out / "status.json"
    lanes = read_json(path, dict).get("lanes", {}) if path.exists() else {}
    return {lane: msgspec.convert(seconds, Spent) for lane, seconds in lanes.items()}
