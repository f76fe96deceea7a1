"""Benchmarks run and count right. Nothing here asserts a time."""

import importlib.util
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


def test_the_simulation_ends_with_its_line():
    words = [sys.executable, "benchmarks/simulation.py", "--dialogues", "20", "--turns", "5", "--kv", "0.02,0.05"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    names = ("admission_vs_lockstep", "admission_vs_semaphore", "hit", "prefill_over_ideal")
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(" ".join(rf"{name}=\d+\.\d+" for name in names), last)


def test_other_ways_show_the_model_the_same_messages():
    """Imported by path: benchmarks are no package."""
    spec = importlib.util.spec_from_file_location("contenders", ROOT / "benchmarks" / "contenders.py")
    contenders = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contenders)
    messages = contenders.history(["one", "two", "three"], ["1", "2"])
    assert [m["content"] for m in messages] == ["one", "1", "two", "2", "three"]
    assert messages[-1]["role"] == "user"
