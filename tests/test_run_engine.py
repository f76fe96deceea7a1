"""A whole run on the real vLLM engine behind real Ray, with a tiny random model: killed, continued, windows sliding."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_run import descendants, keys, lines, title
from tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
SETS = "sets=[single,add_5]"

pytestmark = [pytest.mark.engine, pytest.mark.ray]


@pytest.fixture(scope="module")
def killed_and_continued(tmp_path_factory) -> tuple[Path, str, list[int]]:
    """(the run's folder, what the second command printed, the first one's engine processes that are left)."""
    work = tmp_path_factory.mktemp("engine")
    model = tiny_model(work / "model")
    settings = ["data=demo", SETS, "dialogues=2", "turns=9", "candidate.sampling.max_tokens=64"]
    settings += ["candidate.max_model_len=1024", "judge.max_model_len=2048"]
    settings += ['judge.sampling={max_tokens: 16, choices: ["Final verdict: yes", "Final verdict: no"]}']
    for role in ("candidate", "judge"):
        settings.append(f"{role}.engine_args={{kv_cache_memory_bytes: 200000000}}")
    words = [
        sys.executable,
        "-m",
        "jobs",
        "run",
        *settings,
        "-m",
        str(model),
        "-j",
        str(model),
        "-o",
        str(work / "run"),
    ]
    first = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while lines(work / "run" / "judgements.jsonl") < 6 and first.poll() is None:
        time.sleep(0.05)
    engines = [pid for pid in descendants(first.pid) if "VLLM" in title(pid) or "ray::Replica" in title(pid)]
    assert engines
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert second.returncode == 0, second.stdout + second.stderr
    left = [pid for pid in engines if "VLLM" in title(pid) or "ray::Replica" in title(pid)]
    return work / "run", second.stdout, left


def test_the_run_is_complete_and_each_record_is_there_once(killed_and_continued):
    out, printed, _ = killed_and_continued
    assert printed.strip().splitlines()[-1].startswith("turns=36 ")
    assert printed.strip().endswith("lost=0 repeated=0")
    turns = keys(out / "turns.jsonl", "test_set", "dialogue", "turn")
    judgements = keys(out / "judgements.jsonl", "test_set", "dialogue", "turn", "constraint", "judge", "attempt")
    assert len(set(turns)) == len(turns) == 36
    assert len(set(judgements)) == len(judgements)


def test_the_oldest_turns_go_first_and_no_request_is_refused_for_its_length(killed_and_continued):
    out, _, _ = killed_and_continued
    records = [json.loads(line) for line in (out / "turns.jsonl").read_text().splitlines()]
    assert {record["status"] for record in records} <= {"ok", "truncated", "empty"}
    assert max(record["dropped_turns"] for record in records) > 0
    assert all(record["prompt_tokens"] + 64 <= 1024 for record in records)
    assert (out / "failures.jsonl").read_text() == ""
    assert all(record["history"] == "rendered" for record in records if record["dropped_turns"])


def test_no_engine_outlives_a_killed_driver(killed_and_continued):
    assert killed_and_continued[2] == []


def test_the_folder_says_what_the_engines_were(killed_and_continued):
    engines = json.loads((killed_and_continued[0] / "run.json").read_bytes())["engines"]
    assert set(engines) == {"candidate", "judge"}
    assert engines["candidate"]["context_tokens"] == 1024
    assert engines["candidate"]["resolved"]["kv_cache_size_tokens"] == engines["candidate"]["kv_cache_tokens"]
