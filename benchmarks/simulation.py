"""1,400 dialogues on simulated engines: ours against lockstep and a semaphore client (cluster/policies.py).

    python benchmarks/simulation.py [--kv 1] [--dialogues 1400] [--turns 50] [--replicas 1] [--seed 0]

`--kv`: millions of KV tokens of each replica, several with commas. The clock is made up (cluster/simulation.py: Cost);
what it shows is ratios. The last line is of the last size.
"""

import argparse
import os
import sys
import time

from cluster.policies import Dialogue, Lockstep, Scheduled, Semaphore, dialogues, ideal_prefill
from cluster.settings import SchedulerSettings
from cluster.simulation import Result, SimulatedEngine, simulate

IN_FLIGHT = 100


def play(name: str, played: list[Dialogue], capacity: int, replicas: int) -> Result:
    engines = [SimulatedEngine(capacity) for _ in range(replicas)]
    if name == "lockstep":
        return simulate(Lockstep(played, replicas), engines)
    if name == "semaphore":
        return simulate(Semaphore(played, IN_FLIGHT, replicas), engines)
    pacing = "continuous" if name == "admission" else "rounds"
    return simulate(Scheduled(played, engines, SchedulerSettings(pacing=pacing)), engines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kv", default="1")
    for name, default in (("dialogues", 1400), ("turns", 50), ("replicas", 1), ("seed", 0)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    chosen = arguments.parse_args()
    played = dialogues(chosen.dialogues, chosen.turns, chosen.seed)
    ideal = ideal_prefill(played)
    print(f"`python {' '.join(sys.argv)}` on {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    print("| KV tokens (M) | policy | makespan (h) | against admission | hit rate | prefill/ideal | simulated in |")
    print("|---|---|---|---|---|---|---|")
    for size in map(float, chosen.kv.split(",")):
        found: dict[str, Result] = {}
        for name in ("admission", "rounds", "semaphore", "lockstep"):
            begun = time.perf_counter()
            result = found[name] = play(name, played, int(size * 1e6), chosen.replicas)
            assert result.turns == chosen.dialogues * chosen.turns, f"{name}: {result.turns} turns"
            ratios = f"{result.seconds / found['admission'].seconds:.2f} | {100 * result.hit_rate:.1f}%"
            cells = f"{result.seconds / 3600:.2f} | {ratios} | {result.prefilled_tokens / ideal:.1f}"
            print(f"| {size:g} | {name} | {cells} | {time.perf_counter() - begun:.1f} s |", flush=True)
    ours = found["admission"]
    against = {name: found[name].seconds / ours.seconds for name in ("lockstep", "semaphore")}
    print(
        f"\nadmission_vs_lockstep={against['lockstep']:.2f} admission_vs_semaphore={against['semaphore']:.2f} "
        f"hit={ours.hit_rate:.4f} prefill_over_ideal={ours.prefilled_tokens / ideal:.2f}"
    )


if __name__ == "__main__":
    main()
