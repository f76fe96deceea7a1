"""What is known of a model: configs/models/*.yaml, a file each, found by the repository name that stands in it.

A known model brings its reasoning parser, engine arguments and the like; what a config says stands over them. An
unknown one runs with the defaults.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "configs" / "models"


def with_known(engine: dict[str, Any]) -> dict[str, Any]:
    """The raw settings of one engine over those of its model's file, if it has one."""
    return over(known_settings(str(engine.get("model"))), engine)


def known_settings(model: str) -> dict[str, Any]:
    """Of the model's file; empty where it has none."""
    return _known().get(model, {})


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
