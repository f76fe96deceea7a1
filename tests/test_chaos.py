"""Seeded kills of engines, nodes and drivers in mid-run (chaos.py): scores as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.ray
def test_runs_that_are_killed_at_any_moment_end_as_the_one_that_was_left_alone():
    command = [sys.executable, "tests/chaos.py", "--runs", "6"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, totals, last = done.stdout.strip().splitlines()
    assert last == "runs=6 lost=0 repeated=0 identical=6"
    assert int(totals.split()[0]) > 0, totals  # something was hit
