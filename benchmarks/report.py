"""A report of made-up runs: the sample (3 models, 20 dialogues a set), or with `--models 11 --dialogues 200` the
paper's size.

    python benchmarks/report.py [--models N] [--dialogues N] [--turns N] [--judges N] [--out DIR]

Prints what making the runs and making the report took, and the most memory that all processes of the report had at
once. The last line is the folder of the report, and the number of figures and tables in it.
"""

import argparse
import os
import shutil
import threading
import time
from pathlib import Path

from sequor import released
from sequor.report.report import Options, write_report
from sequor.report.sample import DEMO, write_runs

MARK = "made-up-runs"


class Memory(threading.Thread):
    """Most memory of this process and those it started, at once: proportional set size, bytes; Linux."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0

    def run(self) -> None:
        while True:
            self.peak = max(self.peak, sum(_memory(pid) for pid in _family(os.getpid())))
            time.sleep(0.3)


def _family(pid: int) -> list[int]:
    try:
        children = [
            int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()
        ]
    except OSError:
        return [pid]
    return [pid, *(below for child in children for below in _family(child))]


def _memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--dialogues", type=int, default=20, help="a test set")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--judges", type=int, default=2, choices=(1, 2))
    parser.add_argument("--out", type=Path, default=Path("runs/report-sample"))
    asked = parser.parse_args()
    if asked.out.exists():
        if not (asked.out / MARK).exists():
            raise SystemExit(f"{asked.out}: there already, and not made by this")
        shutil.rmtree(asked.out)
    asked.out.mkdir(parents=True)
    (asked.out / MARK).touch()
    started = time.perf_counter()
    runs = write_runs(asked.out, asked.models, asked.dialogues, asked.turns, asked.judges)
    print(f"{len(runs)} made-up runs in {time.perf_counter() - started:.1f} s; their numbers mean nothing")
    memory, started, cpu = Memory(), time.perf_counter(), os.times()
    memory.start()
    categories = {c.id: c.category for c in released.load_constraints(DEMO) if c.category}
    made = write_report(runs, asked.out / "report", Options(categories=categories))
    spent = sum(now - then for now, then in zip(os.times()[:4], cpu[:4], strict=True))
    took = time.perf_counter() - started
    print(f"report in {took:.1f} s ({spent:.1f} s of processor time), {memory.peak / 1e6:.0f} MB at most")
    print(f"open {made.out}/index.html")
    print(f"{made.out} figures={made.figures} tables={made.tables}")


if __name__ == "__main__":
    main()
