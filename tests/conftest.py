"""What several tests share: one real engine, which takes half a minute to start; a disk that is soon full."""

import asyncio
import os
import shutil
import subprocess
from importlib.util import find_spec

import pytest
from tiny import tiny_model

from cluster.engine import VllmEngine
from cluster.settings import EngineSettings, Sampling

GREEDY = Sampling(max_tokens=24, temperature=0)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a tiny random model."""
    if find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def run():
    """The event loop that the engine lives in."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def engine(model, run):
    started = run(VllmEngine.start(EngineSettings("tiny", sampling=GREEDY, max_model_len=1024), str(model)))
    yield started
    run(started.close())


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own: (folder, to resize or remount it)."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=192k", "none", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield folder, lambda how: subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
