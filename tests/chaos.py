"""Runs that are killed at seeded moments, against one that is left alone. `make chaos` does ten.

    python tests/chaos.py [--runs 10] [--seed 0] [--side-by-side 3] [--out DIR] [--real]

A Ray cluster of a head and two worker nodes on loopback, scripted engines of a fifth of a second an answer; with
`--real` the candidate is a tiny model on vLLM. Each run is hit one to four times: an engine's process killed, a node
killed (another one joins), the driver killed or told to stop. A driver that is gone is started again with the same
command, until it says that the run is complete. Then its scores must be the undisturbed run's, byte for byte, and every
key must be there once.
Ends with `runs=N lost=N repeated=N identical=N`; exit status 1 where they are not all whole.
"""

import argparse
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from raycluster import HOST, token

WORDS = [
    "data=demo",
    "dialogues=2",
    "turns=8",
    "candidate.engine=scripted",
    "candidate.model=c",
    "candidate.script=sequor.scripts:unhurried",
    "candidate.replicas=2",
    "judge.engine=scripted",
    "judge.model=j",
    "judge.script=sequor.scripts:judge",
    "candidate.hang_timeout_s=5",
]
TURNS = 7 * 2 * 8
REAL = ["candidate.engine=vllm", "candidate.replicas=1", "candidate.max_model_len=1024"]
REAL += ["candidate.sampling={max_tokens: 8, min_tokens: 8, temperature: 0}", "candidate.hang_timeout_s=60"]
"""A tiny random model. Every answer is cut, so that scores cannot hang on what it says."""
HITS = ("replica", "replica", "node", "driver", "stop")
FAST_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 300,
    "health_check_failure_threshold": 3,
}
SCORES = ("turns.csv", "sets.csv", "outcomes.csv")
KEYS = {
    "turns.jsonl": ("test_set", "dialogue", "turn"),
    "judgements.jsonl": ("test_set", "dialogue", "turn", "constraint", "judge", "attempt"),
}
LIVES = 12
"""Starts of a driver, after which a run counts as lost."""


def drive(out: str, words: list[str]) -> None:
    """The driver, in a process of its own."""
    with open(f"{out}.log", "ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from jobs.cli import main

    sys.argv = ["sequor", "run", *words, "--out", out]
    main()


class Cluster:
    """Ray's own cluster for tests, with what can be done to it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 4, "node_ip_address": HOST, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head | {"_system_config": FAST_HEALTH})
        self.address = self._cluster.address
        self.workers = [self._join(), self._join()]

    def _join(self):
        return self._cluster.add_node(wait=False, num_cpus=4, include_dashboard=False, node_ip_address=HOST)

    def kill_node(self, rng: random.Random) -> None:
        node = self.workers.pop(rng.randrange(len(self.workers)))
        self._cluster.remove_node(node, allow_graceful=False)
        self.workers.append(self._join())

    def kill_replica(self, rng: random.Random, spared: int | None) -> None:
        """`spared`: the process whose own engines are left alone."""
        left_alone = set(descendants(spared)) if spared else set()
        found = set(descendants(os.getpid())) - left_alone
        replicas = sorted(pid for pid in found if "ray::Replica" in title(pid))
        if replicas:
            kill(rng.choice(replicas), signal.SIGKILL)

    def end(self) -> None:
        self._cluster.shutdown()


class Disturbed:
    """One run, its driver, and what is still to happen to it."""

    def __init__(self, seed: int, out: Path, words: list[str], processes):
        self.rng = random.Random(seed)
        self.out, self._words, self._processes = out, words, processes
        moments = sorted(self.rng.randrange(1, TURNS * 3 // 4) for _ in range(self.rng.randint(1, 4)))
        self.hits = [(moment, self.rng.choice(HITS)) for moment in moments]
        self.happened: list[str] = []
        self.lives = 0
        self.complete = False
        self._start()

    def _start(self) -> None:
        self.lives += 1
        self.driver = self._processes.Process(target=drive, args=(str(self.out), self._words))
        self.driver.start()

    def step(self, cluster: Cluster, spared: int | None = None) -> bool:
        """Returns False when it is over. `spared`: as in kill_replica."""
        if not self.driver.is_alive():
            self.complete = self.driver.exitcode == 0
            if self.complete or self.lives == LIVES:
                return False
            self._start()
        if self.hits and lines(self.out / "turns.jsonl") >= self.hits[0][0]:
            _, hit = self.hits.pop(0)
            self.happened.append(hit)
            if hit == "replica":
                cluster.kill_replica(self.rng, spared)
            elif hit == "node":
                cluster.kill_node(self.rng)
            else:
                kill(self.driver.pid, signal.SIGKILL if hit == "driver" else signal.SIGTERM)
        return True

    @property
    def lost_engines(self) -> int:
        log = self.out / "logs" / "driver.log"
        return log.read_text().count(" is lost: ") if log.exists() else 0

    def faults(self, reference: list[bytes]) -> tuple[int, int, bool]:
        """Lost runs (0 or 1), repeated keys, and whether the scores are the reference's."""
        repeated = sum(repeats(self.out / file, fields) for file, fields in KEYS.items())
        same = self.complete and scores(self.out) == reference
        return int(not self.complete), repeated, same


def scores(out: Path) -> list[bytes]:
    return [(out / "scores" / name).read_bytes() for name in SCORES]


def repeats(path: Path, fields: tuple[str, ...]) -> int:
    records = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    counts = Counter(tuple(record[field] for field in fields) for record in records)
    return sum(count - 1 for count in counts.values())


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text().split()]
        except OSError:
            continue
        found += children + [below for child in children for below in descendants(child)]
    return found


def chaos(runs: int, seed: int, side_by_side: int, folder: Path, real: bool) -> bool:
    """Prints what happened and the last line. Returns whether every run is whole."""
    os.environ |= token()
    processes = multiprocessing.get_context("forkserver")  # so that a driver's start costs no import
    processes.set_forkserver_preload(["jobs.cli", "jobs.play", "jobs.campaign", "jobs.run"])
    logging.getLogger("ray").setLevel(logging.ERROR)
    begun, words = time.monotonic(), list(WORDS)
    if real:
        from tiny import tiny_model

        words += [*REAL, f"candidate.model={tiny_model(folder / 'model')}"]
    alone = Disturbed(seed, folder / "alone", words, processes)  # on a Ray of its own, where nothing is killed
    alone.hits = []
    cluster = Cluster()
    try:
        words = [*words, f"ray_address={cluster.address}"]
        going, over = [alone], []
        waiting = [(n, folder / f"run-{n}") for n in range(seed + 1, seed + runs + 1)]
        while waiting or going:
            while waiting and len(going) < side_by_side:
                number, out = waiting.pop(0)
                going.append(Disturbed(number, out, words, processes))
            for run in [run for run in going if not run.step(cluster, alone.driver.pid)]:
                going.remove(run)
                over.append(run)
                what = ", ".join(run.happened) or ("nothing in time" if run is not alone else "left alone")
                print(f"{run.out.name}: {what}; {run.lives} drivers", flush=True)
            time.sleep(0.01)
    finally:
        cluster.end()
    return told(alone, [run for run in over if run is not alone], time.monotonic() - begun)


def told(alone: Disturbed, runs: list[Disturbed], seconds: float) -> bool:
    """Prints what came of it."""
    reference = scores(alone.out) if alone.complete else []
    lost = repeated = identical = 0
    for run in runs:
        gone, twice, same = run.faults(reference)
        lost, repeated, identical = lost + gone, repeated + twice, identical + same
        if not same:
            print(f"{run.out.name}: NOT WHOLE")
    engines, drivers = sum(run.lost_engines for run in runs), sum(run.lives for run in runs)
    print(f"{engines} engines lost, {drivers} drivers started, {seconds:.0f} s")
    print(f"runs={len(runs)} lost={lost} repeated={repeated} identical={identical}")
    return lost == repeated == 0 and identical == len(runs)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("runs", 10), ("seed", 0), ("side-by-side", 3)):
        arguments.add_argument(f"--{name}", type=int, default=default)
    arguments.add_argument("--out", type=Path, help="Left out: a temporary folder.")
    arguments.add_argument("--real", action="store_true")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = chosen.out or Path(temporary)
        whole = chaos(chosen.runs, chosen.seed, 1 if chosen.real else chosen.side_by_side, out, chosen.real)
    sys.exit(not whole)


if __name__ == "__main__":
    main()
