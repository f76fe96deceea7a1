"""Benchmarks run and count right. Nothing here asserts a time."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_overhead_benchmark_plays_every_turn_and_ends_with_its_line():
    words = [sys.executable, "benchmarks/overhead.py", "--dialogues", "20", "--turns", "5"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.strip().splitlines()
    assert first.startswith("100 turns in ")
    assert re.fullmatch(r"decide_ms_per_turn=\d+\.\d{3} drive_ms_per_turn=\d+\.\d{3}", last)
