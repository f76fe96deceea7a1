"""What a run says while it runs: bars on a terminal, one plain line every 30 s elsewhere, status.json always."""

import asyncio
import logging
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from cluster.driver import Pool
from jobs.counters import NOTHING, Bill, Earlier, pool_status
from sequor.evaluation import Evaluation
from sequor.run_folder import RunFolder

log = logging.getLogger(__name__)

STATUS_EVERY_S = 2.0
LINE_EVERY_S = 30.0


class Watch:
    """Looks at one run from outside, and keeps its status.json."""

    def __init__(
        self,
        folder: RunFolder,
        evaluation: Evaluation,
        pools: list[Pool],
        before: dict[str, Earlier],
        name: str = "",
        bills: dict[str, Bill] | None = None,
    ):
        """`before`: pool -> what earlier starts of this run have done. `name`: the run's, where there are several.
        `bills`: of pools that have a price."""
        self.name, self.evaluation = name, evaluation
        self._folder, self._pools, self._before, self._bills = folder, pools, before, bills or {}
        names = {pool.name for pool in pools}
        old = folder.status().get("pools", {})
        idle = {"replicas": 0, "live": 0, "paused": 0}
        self._others = {name: pool | idle for name, pool in old.items() if name not in names}
        """Pools of earlier starts that this one has no use for."""
        self._begun = time.monotonic()  # a clock that is set back would make speeds of nothing
        self._beat = 0
        self._turns_before = evaluation.turns_done
        self._judgements_before = evaluation.judgements_done
        self.failures = 0
        self.saved: dict[str, Any] = {}
        """The last status that was written."""
        self.first_turn_s: float | None = None
        """Seconds from the start to the first finished turn."""

    @property
    def elapsed_s(self) -> float:
        return max(time.monotonic() - self._begun, 1e-9)

    def status(self, state: str, detail: str = "") -> dict[str, Any]:
        evaluation, elapsed = self.evaluation, self.elapsed_s
        return {
            "state": state,
            "detail": detail,
            "beat": self._beat,
            "updated": round(time.time(), 3),
            "elapsed_s": round(elapsed, 3),
            "turns": evaluation.turns_done,
            "turns_total": evaluation.turns_total,
            "judgements": evaluation.judgements_done,
            "judgements_total": evaluation.judgements_total - evaluation.unjudgeable,
            "failures": self.failures,
            "turns_per_s": round((evaluation.turns_done - self._turns_before) / elapsed, 3),
            "judgements_per_s": round((evaluation.judgements_done - self._judgements_before) / elapsed, 3),
            "pools": self._others | self._now(),
        }

    def _now(self) -> dict[str, dict[str, Any]]:
        return {
            pool.name: pool_status(pool, self._before.get(pool.name, NOTHING), self._bills.get(pool.name))
            for pool in self._pools
        }

    def save(self, state: str, detail: str = "") -> None:
        """A status that cannot be written is worth a line in the log, and no run: the records are elsewhere. Raises
        BadInput when another driver has the folder."""
        self._beat += 1
        self.saved = self.status(state, detail)
        try:
            self._folder.write_status(self.saved)
        except OSError as error:
            log.warning("status.json: %s", error)

    def notes(self) -> list[str]:
        """Of each pool: how many engines, how busy, how fast."""
        return [f"{name}: {_note(pool)}" for name, pool in self._now().items()]

    def line(self) -> str:
        s = self.status("running")
        done = f"turns {s['turns']}/{s['turns_total']}, judgements {s['judgements']}/{s['judgements_total']}"
        what = f"{self.name}: {done}" if self.name else done
        return f"{time.strftime('%H:%M:%S')} {what}, failures {s['failures']}; {'; '.join(self.notes())}"


class Display:
    """Shows runs while they are played: every two seconds their status.json; bars on a terminal, else lines."""

    def __init__(self, watches: list[Watch], console: Console):
        self._watches, self._console = watches, console

    async def run(self) -> None:
        """Until cancelled. Raises BadInput when another driver has one of the folders."""
        bars = self._bars() if self._console.is_terminal else None
        last_line = time.monotonic()
        try:
            while True:
                await asyncio.sleep(STATUS_EVERY_S)
                for watch in self._watches:
                    watch.save("running")
                if bars is not None:
                    self._refresh(bars)
                elif time.monotonic() - last_line >= LINE_EVERY_S:
                    last_line = time.monotonic()
                    for watch in self._watches:
                        self._console.print(watch.line())
        finally:
            if bars is not None:
                self._refresh(bars)
                bars.stop()

    def _bars(self) -> Progress:
        name, note = (TextColumn(text, markup=False) for text in ("{task.description:10}", "{task.fields[note]}"))
        bars = Progress(name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note, console=self._console)
        for watch in self._watches:
            bars.add_task(f"{watch.name} turns".strip(), note="engines are starting")
            bars.add_task(f"{watch.name} judgements".strip(), note="")
        bars.start()
        return bars

    def _refresh(self, bars: Progress) -> None:
        for place, watch in enumerate(self._watches):
            s, notes = watch.status("running"), [*watch.notes(), ""]
            for task, what, note in zip(bars.task_ids[2 * place :], ("turns", "judgements"), notes, strict=False):
                bars.update(task, completed=s[what], total=s[f"{what}_total"], note=note)


def _note(pool: dict[str, Any]) -> str:
    if not pool["replicas"]:
        return "no engine yet" if not pool["turns"] else "no engine now"
    return f"{pool['replicas']} up, {pool['live']} live, {pool['output_tokens_per_s']:.0f} tok/s"


class PlainConsole(Console):
    """Takes what it prints for text: names of models and folders, and what an engine says, may look like markup. A line
    stays one line, however long it is; tables keep to the width."""

    def __init__(self, **how: Any):
        super().__init__(highlight=False, markup=False, emoji=False, **how)

    def print(self, *objects: Any, **how: Any) -> None:
        if all(isinstance(shown, str) for shown in objects):
            how.setdefault("soft_wrap", True)
        super().print(*objects, **how)

    def rule(self, title: str | Text = "", **how: Any) -> None:
        super().rule(Text(title, "bold") if isinstance(title, str) else title, **how)

    def on_broken_pipe(self) -> None:
        """Nobody reads any more: no reason to end a run of hours."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def console() -> PlainConsole:
    """For people: bars and colours on a terminal, plain text elsewhere."""
    return PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
