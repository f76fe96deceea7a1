"""Who gets which GPUs, when, and what is said where there are too few. Ray's GPUs are made up."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from raycluster import ray_cluster

from cluster.engine import vllm_args
from cluster.settings import EngineSettings
from jobs.preflight import check_gpus, check_nodes
from sequor.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]


def wants(**gpus: float) -> dict[str, EngineSettings]:
    return {name: EngineSettings("m", engine="scripted", gpus=count) for name, count in gpus.items()}


@pytest.mark.parametrize(
    ("pools", "order", "available"),
    [
        ({"candidate": 1, "judge": 1}, "together", 2),
        ({"candidate": 1, "judge": 1}, "phases", 1),
        ({"candidate": 0.5, "judge": 0.5}, "together", 1),
        ({"a": 1, "b": 2, "judge": 2}, "together", 4),
        ({"candidate": 0, "judge": 0}, "together", 0),
        ({"candidate": 4}, "together", 4),
    ],
)
def test_what_fits_may_start(pools, order, available):
    check_gpus(wants(**pools), {"judge"} & set(pools), order, available)


@pytest.mark.parametrize(
    ("pools", "order", "available", "says"),
    [
        ({"candidate": 1, "judge": 1}, "together", 1, "asks for 2 GPUs (candidate 1, judge 1); the Ray cluster has 1"),
        ({"candidate": 1, "judge": 1}, "together", 1, "; order=phases would judge when all is answered, and needs 1"),
        ({"candidate": 4, "judge": 1}, "phases", 2, "asks for 4 GPUs (candidate 4, judge 1); the Ray cluster has 2"),
        ({"a": 1, "b": 3, "judge": 2}, "together", 4, "asks for 5 GPUs (b 3, judge 2); the Ray cluster has 4"),
    ],
)
def test_what_is_missing_is_said(pools, order, available, says):
    with pytest.raises(BadInput) as error:
        check_gpus(wants(**pools), {"judge"}, order, available)
    assert says in str(error.value)


def test_a_replica_larger_than_a_node_must_be_told_to_spread():
    with pytest.raises(BadInput, match="candidate: a replica takes 8 GPUs and no node has more than 4; "):
        check_nodes("candidate", wants(candidate=8)["candidate"], 4)
    spread = EngineSettings("m", gpus=8, engine_args={"distributed_executor_backend": "ray"})
    check_nodes("candidate", spread, 4)


def test_engines_that_share_a_gpu_share_its_memory():
    assert vllm_args(EngineSettings("m", gpus=0.5), "m", on_cpu=False)["gpu_memory_utilization"] == 0.45
    assert "gpu_memory_utilization" not in vllm_args(EngineSettings("m", gpus=1), "m", on_cpu=False)
    own = EngineSettings("m", gpus=0.5, engine_args={"gpu_memory_utilization": 0.3})
    assert vllm_args(own, "m", on_cpu=False)["gpu_memory_utilization"] == 0.3


@pytest.fixture(scope="module")
def two_gpus():
    with ray_cluster({"num_gpus": 2}) as cluster:
        yield cluster


def run(cluster: tuple[str, dict[str, str]], out: Path, *words: str) -> subprocess.CompletedProcess:
    address, environment = cluster
    own = [f"ray_address={address}", "data=demo", "sets=[single]", "dialogues=2", "turns=3"]
    own += ["candidate.engine=scripted"]
    own += ["judge.model=j", "judge.engine=scripted", "judge.script=sequor.scripts:judge", "judge.gpus=1"]
    command = [sys.executable, "-m", "jobs", "run", *own, *words, "--out", str(out)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)


def ready(said: str) -> list[str]:
    """Pools in the order in which their engines came up."""
    return re.findall(r"^(\S+): engine ready", said, re.MULTILINE)


@pytest.mark.ray
def test_candidates_take_turns_beside_the_judge(two_gpus, tmp_path):
    slow = "{model: a, gpus: 1, script: 'sequor.scripts:unhurried'}"
    done = run(two_gpus, tmp_path / "run", f"candidates=[{slow}, {{model: b, gpus: 1}}]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(ready(done.stdout)[:2]) == ["a", "judge"]
    assert ready(done.stdout)[2] == "b"


@pytest.mark.ray
def test_one_after_the_other_where_both_do_not_fit(two_gpus, tmp_path):
    words = ["candidate.model=c", "candidate.gpus=2"]
    done = run(two_gpus, tmp_path / "run", *words)
    assert done.returncode == 2 and "the run asks for 3 GPUs (candidate 2, judge 1)" in done.stderr
    assert "order=phases would judge when all is answered, and needs 2" in done.stderr
    assert not (tmp_path / "run").exists()
    done = run(two_gpus, tmp_path / "run", *words, "order=phases")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ready(done.stdout) == ["candidate", "judge"]


@pytest.mark.ray
def test_a_replica_over_several_gpus_by_placement_group(two_gpus, tmp_path):
    words = ["candidate.model=c", "candidate.gpus=1", "candidate.engine_args.distributed_executor_backend=ray"]
    done = run(two_gpus, tmp_path / "run", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(ready(done.stdout)) == ["candidate", "judge"]
