"""status: where a run stands, from its folder alone, from any machine that sees it."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console

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
    age = max(0.0, time.time() - s["updated"])
    state = s["state"]
    if state == "running" and age > STALE_S:
        state = f"dead (silent for {age:.0f} s; run the same command again to continue)"
    console.print(f"{out}: {state}" + (f": {s['detail']}" if s.get("detail") else ""), soft_wrap=True)
    counts = [f"{what} {s[what]:,}/{s[total]:,}" for what, total in TOTALS.items() if what in s]
    console.print(f"  {', '.join(counts)}, failures {s['failures']:,}")
    console.print(f"  updated {age:.0f} s ago by process {s['pid']} on {s['host']}")
    if "turns" in s:
        speed = f"{s['turns_per_s']:g} turns/s, {s['judgements_per_s']:g} judgements/s"
        console.print(f"  {speed} in the {s['elapsed_s']:.0f} s since it was last started")
    for name, pool in s.get("pools", {}).items():
        console.print(f"  {name}: {_pool(pool)}", soft_wrap=True)


def _pool(p: dict[str, Any]) -> str:
    hit = "" if p["hit_rate"] is None else f", cache hit {100 * p['hit_rate']:.1f}%"
    ideal = "" if p["prefill_over_ideal"] is None else f", prefill/ideal {p['prefill_over_ideal']:g}"
    work = f"{p['live']} live, {p['paused']} paused, {p['unfinished']} unfinished"
    return f"{p['replicas']} replicas, {work}; {p['output_tokens_per_s']:g} output tokens/s{hit}{ideal}"
