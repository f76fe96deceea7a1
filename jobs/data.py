"""The test sets that a config asks for."""

from pathlib import Path

from jobs.config import RunConfig
from jobs.storage import RELEASED, is_ray_job
from sequor import released, testsets
from sequor.errors import BadInput
from sequor.types import TestSet

DEMO = Path(testsets.__file__).parent / "demo"
"""Personas, tasks and constraints that the project ships, in the release's layout but for the test sets."""


def data_folder(name: str) -> Path:
    """Of the config's `data`: a folder, or `demo`. Raises BadInput where there is none."""
    folder = DEMO if name == "demo" else Path(name).expanduser()
    if folder.exists():
        return folder
    if is_ray_job() and not folder.is_absolute():
        raise BadInput(f"data: {name}: data does not travel with a Ray job; name a folder of the cluster")
    raise BadInput(f"data: {name}: no such folder" + "; sequor fetch brings the released data" * (name == RELEASED))


def load_test_sets(config: RunConfig) -> list[TestSet]:
    """Raises BadInput."""
    if config.data != "demo":
        folder = data_folder(config.data)
        return [released.load_test_set(folder, name, config.turns, config.dialogues) for name in config.sets]
    recipe = testsets.Recipe(seed=config.seed, test_sets=config.sets, turns=config.turns, dialogues=config.dialogues)
    tasks, constraints = released.load_tasks(DEMO), released.load_constraints(DEMO)
    return list(testsets.build(tasks, constraints, released.load_tuples(DEMO), recipe))
