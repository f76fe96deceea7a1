"""1,400 dialogues on simulated engines: ours against lockstep and a semaphore client (cluster/policies.py).

    python benchmarks/simulation.py [--kv 1] [--dialogues 1400] [--turns 50] [--replicas 1] [--seed 0]
                                    [--kv-cache-dtype auto]

`--kv`: millions of KV tokens of each replica, several with commas. `--kv-cache-dtype fp8` halves what decoding reads.
The clock is made up (cluster/simulation.py: Cost); what it shows is ratios. The last line is of the last size.
"""

import argparse
import sys
import time

from cluster.machine import this_machine
from cluster.policies import Dialogue, Lockstep, Scheduled, Semaphore, ceiling, dialogues, ideal_prefill
from cluster.settings import SchedulerSettings
from cluster.simulation import Cost, Result, SimulatedEngine, simulate

IN_FLIGHT = 100


def play(name: str, played: list[Dialogue], capacity: int, replicas: int, cost: Cost) -> Result:
    engines = [SimulatedEngine(capacity, cost) for _ in range(replicas)]
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
    arguments.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    chosen = arguments.parse_args()
    cost = Cost().with_fp8_cache() if chosen.kv_cache_dtype == "fp8" else Cost()
    played = dialogues(chosen.dialogues, chosen.turns, chosen.seed)
    ideal = ideal_prefill(played)
    print(f"`python {' '.join(sys.argv)}` on {this_machine()}, Python {sys.version.split()[0]}\n")
    print(f"Losing every history makes a run about {ceiling(played, cost):.2f} times longer at these costs.\n")
    print("| KV tokens (M) | policy | makespan (h) | against admission | hit rate | prefill/ideal | pauses | took |")
    print("|---|---|---|---|---|---|---|---|")
    for size in map(float, chosen.kv.split(",")):
        found: dict[str, Result] = {}
        for name in ("admission", "rounds", "semaphore", "lockstep"):
            begun = time.perf_counter()
            result = found[name] = play(name, played, int(size * 1e6), chosen.replicas, cost)
            assert result.turns == chosen.dialogues * chosen.turns, f"{name}: {result.turns} turns"
            ratios = f"{result.seconds / found['admission'].seconds:.2f} | {100 * result.hit_rate:.1f}%"
            cells = f"{result.seconds / 3600:.2f} | {ratios} | {result.prefilled_tokens / ideal:.1f} | {result.pauses}"
            print(f"| {size:g} | {name} | {cells} | {time.perf_counter() - begun:.1f} s |", flush=True)
    ours = found["admission"]
    against = {name: found[name].seconds / ours.seconds for name in ("lockstep", "semaphore")}
    print(
        f"\nadmission_vs_lockstep={against['lockstep']:.2f} admission_vs_semaphore={against['semaphore']:.2f} "
        f"hit={ours.hit_rate:.4f} prefill_over_ideal={ours.prefilled_tokens / ideal:.2f}"
    )


if __name__ == "__main__":
    main()
