"""One real engine for all tests that only ask it something: it takes half a minute to start."""

import asyncio
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
