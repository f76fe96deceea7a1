"""What is known of a model: configs/models/*.yaml, a file each, found by the repository name that stands in it.

A known model brings its reasoning parser, engine arguments and the like; what a config says stands over them. An
unknown one runs with the defaults.

How many GPUs a replica takes depends on their memory: `tensor_parallel_size: {80: 4, 140: 2}` is four GPUs of 80 GB or
two of 140 GB and more. Those of this machine count; where it has none, as on the head of a cluster, the smallest.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.machine import this_machine

GB_A_GIB = 1.073741824
SLACK_GB = 2.0
"""What a GPU sold as 80 GB may lack: an H100 reports 79.6 GiB, an A100 79.3 (85 GB both), a card with ECC less."""

FOLDER = Path(__file__).resolve().parents[1] / "configs" / "models"


def with_known(engine: dict[str, Any]) -> dict[str, Any]:
    """The raw settings of one engine over those of its model's file, if it has one."""
    return over(known_settings(str(engine.get("model"))), engine)


def known_settings(model: str) -> dict[str, Any]:
    """Of the model's file, as it is for this machine's GPUs; empty where it has none."""
    found = _known().get(model, {})
    sizes = found.get("engine_args", {}).get("tensor_parallel_size")
    if not isinstance(sizes, dict):
        return found
    args = {name: value for name, value in found["engine_args"].items() if name != "tensor_parallel_size"}
    size = parallel_size(sizes, _gpu_memory())
    return found | {"engine_args": args | ({"tensor_parallel_size": size} if size > 1 else {})}


def parallel_size(sizes: dict[int, int], memory_gib: float | None) -> int:
    """`sizes`: GB of one GPU -> GPUs of one replica. `memory_gib`: of the GPUs that are there; None: there are none."""
    fitting = [gb for gb in sizes if memory_gib is not None and gb <= memory_gib * GB_A_GIB + SLACK_GB]
    return sizes[max(fitting, default=min(sizes))]


@cache
def _gpu_memory() -> float | None:
    """GiB of the smallest GPU of this machine."""
    return min((gpu.memory_gib for gpu in this_machine().gpus), default=None)


@cache
def _known() -> dict[str, dict[str, Any]]:
    settings = (yaml.safe_load(path.read_bytes()) for path in sorted(FOLDER.glob("*.yaml")))
    return {known["model"]: known for known in settings}


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Two nested mappings as one; where both have a value, the upper one's."""
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = over(merged[key], value) if both else value
    return merged
