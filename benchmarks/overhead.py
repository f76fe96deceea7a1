"""What deciding and driving cost, without Ray and without a model: scripted answers in this process.

    python benchmarks/overhead.py [--dialogues 1400] [--turns 50]

decide_ms_per_turn: time within the scheduler's `handle`. drive_ms_per_turn: everything, the records on disk (an fsync a
batch) and the scripted answers included. Both over the number of turns.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from cluster.conversation import Conversation, EngineFacts, Outcome, Request, Turn
from cluster.driver import Driver, Pool
from cluster.events import Action, Event
from cluster.scheduler import ConversationScheduler
from sequor.records import Journal, TurnRecord, turn_record
from sequor.scripts import candidate

USER_TURN = "I have been thinking about this since the morning, and I would like to know what you make of it: " * 3


class Timed(ConversationScheduler):
    """The scheduler, with a clock around `handle`."""

    seconds = 0.0

    def handle(self, *events: Event) -> list[Action]:
        begun = time.perf_counter()
        actions = super().handle(*events)
        self.seconds += time.perf_counter() - begun
        return actions


class Here:
    """A Host in this process."""

    async def run(self, ready, lost) -> str:
        ready("here", EngineFacts("scripted", kv_cache_tokens=1_000_000, max_running=256, context_tokens=131_072))
        await asyncio.Event().wait()
        return "never"

    async def ask(self, replica: str, request: Request) -> Outcome:
        await asyncio.sleep(0)
        return candidate(request)

    async def close(self) -> None:
        return None


async def play(dialogues: int, turns: int, journal: Journal[TurnRecord]) -> tuple[float, float]:
    """Seconds of deciding, seconds of everything."""
    scheduler = Timed()
    pool = Pool("candidate", scheduler, Here())

    def write(saves: list[tuple[Pool, Turn]]) -> None:
        journal.append([turn_record("bench", turn.key, turn) for _, turn in saves])

    async def keep(saves: list[tuple[Pool, Turn]]) -> list:
        await asyncio.to_thread(write, saves)
        return []

    driver = Driver([pool], keep)
    driver.add(pool, [Conversation(f"d{n}", tuple(f"{USER_TURN}{t}" for t in range(turns))) for n in range(dialogues)])
    begun = time.perf_counter()
    await driver.play()
    return scheduler.seconds, time.perf_counter() - begun


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--dialogues", type=int, default=1400)
    arguments.add_argument("--turns", type=int, default=50)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "turns.jsonl", TurnRecord)
        journal.open()
        decide, drive = asyncio.run(play(chosen.dialogues, chosen.turns, journal))
        records = sum(1 for _ in journal)
    played = chosen.dialogues * chosen.turns
    assert records == played, f"{records} records of {played} turns"
    print(f"{played:,} turns in {drive:.1f} s on {os.cpu_count()} cores")
    print(f"decide_ms_per_turn={1000 * decide / played:.3f} drive_ms_per_turn={1000 * drive / played:.3f}")


if __name__ == "__main__":
    main()
