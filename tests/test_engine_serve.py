"""The same dialogues through a real `vllm serve` and on an engine of our own: the same greedy answers."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from conftest import GREEDY

from cluster.api import ApiEngine
from cluster.conversation import Exchange, Request
from cluster.engine import ENVIRONMENT, FEW_CORES, vllm_args
from cluster.machine import physical_cores
from cluster.settings import ApiSettings, EngineSettings

SETTINGS = EngineSettings("tiny", sampling=GREEDY, max_model_len=1024)
SYSTEM = "You are a small model in a test, and you answer whatever you like to answer. "


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """URL of a server that is up. It gets the arguments that our engine gets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = vllm_args(SETTINGS, str(model), on_cpu=True) | {
        "host": "127.0.0.1",
        "port": port,
        "served_model_name": "tiny",
    }
    args["kv_cache_memory_bytes"] = 2**28
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in args.items():
        option = name.replace("_", "-")
        command += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    few = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(physical_cores())}
    environment = os.environ | ENVIRONMENT | (few if physical_cores() < FEW_CORES else {})
    log = tmp_path_factory.mktemp("serve") / "log"
    with open(log, "wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        _end(server)


def _wait(url: str, server: subprocess.Popen, log) -> None:
    for _ in range(600):
        assert server.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-4000:])


def _end(server: subprocess.Popen) -> None:
    """Also its engine: a process of its own, in the session that began with the server."""
    server.terminate()
    with suppress(subprocess.TimeoutExpired):
        server.wait(timeout=60)
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def played(run, ask, turns: int = 4) -> list:
    """Dialogues one turn after the other, so that no batch differs; (status, answer, prompt tokens) of each turn."""
    found = []
    for name in "abc":
        history: tuple[Exchange, ...] = ()
        for turn in range(turns):
            user = f"Please write a short story about the sea, the sky, {name} and {turn}."
            # a key of its own each turn: no history is remembered, all is rendered from text, as an endpoint does
            outcome = run(ask(Request(f"{name}{turn}", turn, history, user, SYSTEM, seed=1, last=True)))
            history = (*history, Exchange(user, getattr(outcome, "text", None)))
            found.append((outcome.status, history[-1].answer, outcome.usage.prompt_tokens))
    return found


@pytest.mark.engine
def test_an_endpoint_and_our_own_engine_give_the_same_greedy_answers(served, engine, model, run):
    api = ApiSettings(base_url=served, key_env=None, tokenizer=str(model))
    there = ApiEngine(EngineSettings("tiny", engine="api", sampling=GREEDY, max_model_len=1024, api=api))
    try:
        theirs = played(run, there.generate)
    finally:
        run(there.close())
    ours = played(run, engine.generate)
    assert len(ours) == 12 and len({answer for _, answer, _ in ours}) > 6
    assert theirs == ours
