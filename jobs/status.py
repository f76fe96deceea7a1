"""status: where a run stands, from its folder alone, from any machine that sees it."""

import time
from pathlib import Path

from rich.console import Console

from sequor.run_folder import RunFolder, read_json

STALE_S = 30.0
"""status.json is replaced every two seconds while a run lives."""


def show(out: Path, console: Console) -> None:
    """Raises BadInput when the folder is no run."""
    RunFolder(out).read()
    s = read_json(out / "status.json", dict, "the run has not started to play")
    age = max(0.0, time.time() - s["updated"])
    state = s["state"]
    if state == "running" and age > STALE_S:
        state = f"dead (silent for {age:.0f} s; run the same command again to continue)"
    console.print(f"{out}: {state}" + (f": {s['detail']}" if s["detail"] else ""))
    console.print(f"  turns {s['turns']}/{s['turns_total']}, judgements {s['judgements']}/{s['judgements_total']}, failures {s['failures']}")
    console.print(f"  {s['turns_per_s']:g} turns/s, {s['judgements_per_s']:g} judgements/s; updated {age:.0f} s ago by {s['pid']} on {s['host']}")
    for name, p in s["pools"].items():
        hit = "" if p["hit_rate"] is None else f", cache hit {100 * p['hit_rate']:.1f}%"
        ideal = "" if p["prefill_over_ideal"] is None else f", prefill/ideal {p['prefill_over_ideal']:g}"
        console.print(
            f"  {name}: {p['replicas']} replicas, {p['live']} live, {p['paused']} paused, {p['unfinished']} unfinished; "
            f"{p['output_tokens_per_s']:g} output tokens/s{hit}{ideal}"
        )
