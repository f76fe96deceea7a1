"""Configs of the verbs that ask single questions (extract, rate, tuples, gold, judge-judges), and of filter: YAML and
settings over it, as in config.py."""

import re
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from msgspec import Meta, Struct
from msgspec.structs import replace

from cluster.rayenv import prepare
from cluster.settings import EngineSettings, Positive, SchedulerSettings
from jobs.config import greedy, load
from jobs.progress import console
from jobs.storage import RELEASED
from sequor.curation.filters import ENGLISH_AT_LEAST
from sequor.curation.language import COMPRESSED
from sequor.errors import BadInput

Share = Annotated[float, Meta(ge=0, le=1)]
NAME = re.compile(r"[\w.-]+")
"""What the user calls a model: it stands in keys and file names."""


class FilterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    input: str
    """Candidates of `extract` (file or folder), or any JSON lines with `constraint`."""
    language_model: str = COMPRESSED
    """lid.176.ftz, which comes along, or the path of lid.176.bin."""
    english_at_least: Share = ENGLISH_AT_LEAST
    words: str | None = None
    """File of bad words; left out, the English list of LDNOOBW, downloaded once."""
    sequences: str | None = None
    """File of bad sequences of characters."""
    shard: Positive = 25_000
    """Candidates in a shard: what one task of the pipeline works on."""
    workers: Positive | None = None
    """Shards at the same time; left out, one for each CPU."""
    executor: Literal["local", "slurm", "ray"] = "local"
    slurm: dict[str, Any] = {}
    """Arguments of datatrove's SlurmPipelineExecutor: partition, time, qos, venv_path, cpus_per_task ..."""
    resubmit: bool = False
    """Submit to Slurm again what was submitted before and has not ended."""
    ray_address: str | None = None


class ExtractConfig(Struct, frozen=True, forbid_unknown_fields=True):
    model: EngineSettings
    inputs: tuple[str, ...]
    """Files or folders of conversations: *.parquet, *.jsonl, *.json."""
    languages: Literal["english", "all"] = "english"
    """english: what says it is, or what lid.176 takes for it where nothing is said."""
    language_model: str = COMPRESSED
    count: Positive | None = None
    """The first so many conversations; left out, all."""
    longest: Positive = 24_000
    """Characters of user turns that are shown; the rest of a longer conversation is cut, and counted."""
    live: Positive = 2048
    """Conversations held in memory at the same time."""
    seed: int = 0
    scheduler: SchedulerSettings = SchedulerSettings()
    ray_address: str | None = None


class PanelConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Judges and answering models, each under a name of its own."""

    judges: dict[str, EngineSettings] = {}
    answerers: dict[str, EngineSettings] = {}
    together: bool = False
    """All models of a step live at the same time; else they take turns on the same GPUs."""
    most_unreadable: Share = 0.5
    """A judge more of whose replies than this cannot be read is stopped."""
    unreadable_after: Positive = 200
    """That is looked at from so many replies on."""
    choose: bool = False
    """Judges are made to choose between readable replies, by constrained decoding: for models too small to come to a
    verdict by themselves."""
    live: Positive = 4096
    """Questions held in memory at the same time."""
    seed: int = 0
    scheduler: SchedulerSettings = SchedulerSettings()
    ray_address: str | None = None


class GoldConfig(PanelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`answerers` write the gold answers."""

    data: str = RELEASED
    """Folder with constraints/ and tasks/."""
    constraints: str | None = None
    """Another pool: a folder or a file."""
    count: Positive = 500
    """Pairs of a constraint and a task (paper, table 1: 500)."""


class JudgeJudgesConfig(PanelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    input: str
    """What `gold` wrote (folder or file)."""


class JudgedConfig(PanelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What rate and tuples have in common."""

    data: str
    """Folder with tasks/, or of task files."""
    tasks: Positive = 100
    """Tasks for each constraint or tuple, drawn by seed."""


class RateConfig(JudgedConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    input: str
    """Candidates: what `filter` kept (file or folder), or any JSON lines with `constraint`."""
    count: Positive | None = None
    satisfiable_at_least: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Percent: what a judge finds satisfiable in fewer tasks is rated no further. 0 rates everything."""


class TuplesConfig(JudgedConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    input: str
    """The pool: a folder with constraints/single.jsonl, or a file like it."""
    triples: Positive = 1000
    """Sampled; more continue a folder."""
    size: Annotated[int, Meta(ge=2)] = 3
    near: Annotated[float, Meta(gt=0, le=1)] = 0.34
    """Similarity of two constraints from which on they do not stand in one triple: where half of such pairs would meet
    in the filter's MinHash."""
    compatible_at_least: Annotated[float, Meta(ge=0, le=100)] = 70.0
    answered_at_least: Annotated[float, Meta(ge=0, le=100)] = 70.0
    wanted: Positive = 948
    """Tuples that are to be left in the end, for the estimate (948: the paper's)."""


def curate(verb: str, words: list[str], out: Path, **given: Any) -> int:
    """Run a verb that asks models; returns the exit code. Raises BadInput, ClusterError and OSError."""
    config = words_to_config(words, KINDS[verb], **given)
    prepare(config.ray_address)
    module = import_module(f"jobs.{verb.replace('-', '_')}")  # brings ray, which reads what was just prepared
    return getattr(module, verb.replace("-", "_"))(config, out, console())


def words_to_config(words: list[str], kind: type, **given: Any) -> Any:
    """A config from the command line's words: *.yaml is a file, KEY=VALUE a setting over it, anything else an input.
    Models that configs/models/ knows bring their own settings. Raises BadInput."""
    files = [word for word in words if word.endswith((".yaml", ".yml")) and "=" not in word]
    inputs = [word for word in words if word not in files and "=" not in word]
    settings = [word for word in words if "=" in word]
    if len(files) > 1:
        raise BadInput(f"command line: one config at a time, not {' and '.join(files)}")
    if "inputs" in kind.__struct_fields__:
        settings += [f"inputs={yaml.safe_dump(inputs, default_flow_style=True).strip()}"] if inputs else []
    elif len(inputs) > 1:
        raise BadInput(f"command line: one input at a time, not {' and '.join(inputs)}")
    elif inputs and "input" not in kind.__struct_fields__:
        raise BadInput(f"command line: {inputs[0]}: this verb takes a config (*.yaml) and settings (KEY=VALUE)")
    else:
        settings += [f"input={inputs[0]}"] if inputs else []
    settings += [f"{key}={value}" for key, value in given.items() if value is not None]
    config = load(Path(files[0]) if files else None, settings, kind)
    return _checked(config) if isinstance(config, PanelConfig) else config


KINDS = {
    "extract": ExtractConfig,
    "rate": RateConfig,
    "tuples": TuplesConfig,
    "gold": GoldConfig,
    "judge-judges": JudgeJudgesConfig,
}


def _checked(config: PanelConfig) -> PanelConfig:
    """With judges who judge greedily, as in a run (config.py). Raises BadInput."""
    for group in ("judges", "answerers"):
        if faulty := next((name for name in getattr(config, group) if not NAME.fullmatch(name)), None):
            raise BadInput(f"{group}: the name {faulty!r} is not made of letters, digits, dots, lines and underscores")
    return replace(config, judges={name: greedy(judge) for name, judge in config.judges.items()})
