"""status: where a run stands, from its folder alone, from any machine that sees it."""

import time
from pathlib import Path

from rich.console import Console

from jobs.counters import events, speed
from sequor.errors import BadInput
from sequor.run_folder import read_json

TOTALS = {"turns": "turns_total", "judgements": "judgements_total", "replies": "asked"}

STALE_S = 30.0
"""status.json is replaced every two seconds while a run lives."""


def show(out: Path, console: Console) -> None:
    """Raises BadInput when the folder is no run."""
    if not (out / "run.json").exists():
        raise BadInput(f"{out}/run.json: not there; is this the folder of a run?")
    s = read_json(out / "status.json", dict, "the run has not started to play")
    if "updated" not in s:
        raise BadInput(f"{out}/status.json: the run has not started to play")
    age = max(0.0, time.time() - s["updated"])
    state = s["state"]
    if state == "running" and age > STALE_S:
        state = f"dead (silent for {age:.0f} s; run the same command again to continue)"
    console.print(f"{out}: {state}" + (f": {s['detail']}" if s.get("detail") else ""))
    counts = [f"{what} {s[what]:,}/{s[total]:,}" for what, total in TOTALS.items() if what in s]
    console.print(f"  {', '.join(counts)}, failures {s['failures']:,}")
    console.print(f"  updated {age:.0f} s ago by process {s['pid']} on {s['host']}")
    if "turns" in s:
        pace = f"{s['turns_per_s']:g} turns/s, {s['judgements_per_s']:g} judgements/s"
        console.print(f"  {pace} in the {s['elapsed_s']:.0f} s since it was last started")
    for name, pool in s.get("pools", {}).items():
        now = f"{pool['replicas']} replicas, {pool['live']} live, {pool['paused']} paused"
        console.print(f"  {name}: {now}, {pool['unfinished']} unfinished")
        console.print(f"    so far {speed(pool)}; {events(pool)}")
        if pool.get("warning"):
            console.print(f"    WARNING: {pool['warning']}")
