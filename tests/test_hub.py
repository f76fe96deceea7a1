"""Models that a hub has: the real loading code, against a hub on loopback."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from fake_hub import COMMIT, REPOSITORY, Hub

ROOT = Path(__file__).parent.parent
WORDS = ["data=demo", "sets=[single]", "dialogues=2", "turns=2", "candidate.max_model_len=1024"]
WORDS += ["candidate.sampling.max_tokens=8", f"candidate.model={REPOSITORY}"]
WORDS += ["judge.engine=scripted", "judge.model=j", "judge.script=sequor.scripts:judge"]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def sequor(home: Path, endpoint: str, *words: str) -> subprocess.CompletedProcess:
    """One command of somebody whose hub is at `endpoint` and whose cache of it is in `home`."""
    hub = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    command = [sys.executable, "-m", "jobs", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=kept | hub)


def with_hub(model: Path, use):
    """`use(hub, url)`, in a thread beside the hub."""

    async def serve():
        hub = Hub(model)
        async with TestServer(hub.app()) as server:
            return await asyncio.to_thread(use, hub, str(server.make_url("")).rstrip("/"))

    return asyncio.run(serve())


def test_a_run_of_a_hubs_model_loads_it_at_the_commit_that_its_fingerprint_names(model, home, tmp_path):
    out = tmp_path / "run"

    def use(hub, url):
        checked = sequor(home, url, "check", *WORDS)
        assert checked.returncode == 0, checked.stderr
        assert "model.safetensors" not in hub.downloaded
        played = sequor(home, url, "run", *WORDS, "--out", str(out))
        assert played.returncode == 0, played.stderr + played.stdout
        assert hub.downloaded["model.safetensors"] == 1

    with_hub(model, use)
    assert f"commit {COMMIT}" in json.dumps(json.loads((out / "run.json").read_text())["fingerprint"])
    # the hub is gone, and what is in the cache is the same model
    again = sequor(home, NOBODY, "run", *WORDS, "--out", str(out))
    assert again.returncode == 0 and "lost=0" in again.stdout, again.stderr
    checked = sequor(home, NOBODY, "check", *WORDS)
    assert checked.returncode == 0 and "what the model sees:" in checked.stdout, checked.stderr


@pytest.mark.parametrize(
    "revision, status, said",
    [
        ("main", 503, "and no hub answers: Server error '503 Service Unavailable'"),
        ("main", 401, "Client error '401 Unauthorized'"),
        ("no-such-branch", 200, "404 Client Error"),
    ],
)
def test_what_a_hub_refuses_is_one_line_that_names_the_key(model, home, revision, status, said):
    def use(hub, url):
        hub.status = status
        return sequor(home, url, "check", *WORDS, f"candidate.revision={revision}")

    refused = with_hub(model, use)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and f"candidate.model: model {REPOSITORY}: " in refused.stderr
    assert said in refused.stderr


def test_a_hub_that_nobody_answers_for_is_one_line_that_says_why(home):
    refused = sequor(home, NOBODY, "check", *WORDS)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1 and f"candidate.model: model {REPOSITORY}: " in refused.stderr
    assert "not a folder, not in the hub's cache, and no hub answers: " in refused.stderr
    assert "Connection refused" in refused.stderr or "connect" in refused.stderr.lower()
