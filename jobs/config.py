"""One frozen config a job: YAML and dotted overrides into structs. An unknown key is an error that names it.

Nothing is changed after `load`. What a field left out means is resolved here, once.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct
from msgspec.structs import replace

from cluster.settings import EngineSettings, Positive, Sampling, SchedulerSettings
from jobs.known import known_settings, over, with_known
from jobs.storage import RELEASED
from sequor.errors import BadInput
from sequor.metrics import MIN_COVERAGE
from sequor.parsing import PARSERS
from sequor.regimes import is_name
from sequor.synthesis import Synthesis
from sequor.types import TEST_SETS


class RunConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A run: which dialogues, which candidate, which judge."""

    candidate: EngineSettings
    judge: EngineSettings | None = None
    """The judge whose verdicts are the run's scores."""
    more_judges: tuple[EngineSettings, ...] = ()
    """Their verdicts stand beside the first one's. A model's name is enough for one."""
    task_completion: bool = False
    """The judges are asked as well whether an answer does its task, constraints aside."""
    data: str = RELEASED
    """Folder of test sets in the release's layout; `demo` builds small ones from what the project ships."""
    sets: tuple[str, ...] = TEST_SETS
    dialogues: Positive | None = None
    """The first so many of each set; left out, all."""
    turns: Positive = 50
    seed: int = 0
    judge_parser: Literal["strict/2", "released/1"] = "strict/2"
    min_coverage: Annotated[float, Meta(ge=0, le=1)] = MIN_COVERAGE
    """Share of a set's turns that must be decided for it to have a headline, and the run exit code 0."""
    scheduler: SchedulerSettings = SchedulerSettings()
    order: Literal["together", "phases"] = "together"
    """`phases`: the judge's engines start when all is answered and the candidate's are closed; for one GPU."""
    ray_address: str | None = None
    """HOST:PORT of a running Ray cluster; left out, a Ray of our own on this machine."""

    @property
    def judges(self) -> dict[str, EngineSettings]:
        """By role: judge, judge2, judge3 ..."""
        if self.judge is None:
            return {}
        named = {f"judge{number}": judge for number, judge in enumerate(self.more_judges, 2)}
        return {"judge": self.judge} | named

    def engine(self, role: str) -> EngineSettings:
        """Of `candidate` or one of `judges`."""
        return self.candidate if role == "candidate" else self.judges[role]

    def roles(self, *verbs: str) -> tuple[str, ...]:
        """The roles of a verb that answers (`candidate`), judges (`judge`), or both."""
        return ("candidate",) * ("candidate" in verbs) + (tuple(self.judges) if "judge" in verbs else ())


class SynthesisConfig(Struct, frozen=True, forbid_unknown_fields=True):
    model: EngineSettings
    personas: str
    """JSON lines: {"persona": text}, as in Persona Hub, with an "id" where there is one."""
    count: Positive | None = None
    """The first so many personas; left out, all."""
    synthesis: Synthesis = Synthesis()
    seed: int = 0
    scheduler: SchedulerSettings = SchedulerSettings()
    ray_address: str | None = None


def load(path: Path | None, overrides: list[str], kind: type = RunConfig) -> Any:
    """A config of that kind. Raises BadInput: one line that names file and key."""
    name = str(path) if path else "command line"
    raw = _read(path) if path else {}
    for word in overrides:
        override(raw, word)
    return convert(raw, name, kind)


def load_all(path: Path | None, overrides: list[str], only: str | None = None) -> dict[str, RunConfig]:
    """Name -> config: one, without a name, or one for each of `candidates`, or for the `only` one of them.

    An entry of `candidates` is a model's name, or settings as below `candidate`, which itself holds what all of them
    share. A run's name is its model's, fit for a folder. Raises BadInput.
    """
    name = str(path) if path else "command line"
    raw = _read(path) if path else {}
    for word in overrides:
        override(raw, word)
    if "candidates" not in raw:
        return {"": convert(raw, name)}
    entries = raw.pop("candidates")
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{name}: candidates: not a list of models")
    shared, found = raw.get("candidate") or {}, {}
    for place, entry in enumerate(entries):
        own = {"model": entry} if isinstance(entry, str) else entry
        if not isinstance(own, dict) or not isinstance(own.get("model"), str):
            raise BadInput(f"{name}: candidates[{place}]: neither a model's name nor settings with a `model`")
        if only is not None and own["model"] != only:
            continue
        run = folder_name(own["model"])
        if run.casefold() in {other.casefold() for other in found}:
            raise BadInput(f"{name}: candidates[{place}]: a second {run}; give it a config and a folder of its own")
        found[run] = convert(raw | {"candidate": over(over(known_settings(own["model"]), shared), own)}, name)
    if not found:
        raise BadInput(f"{name}: candidates: {only} is none of them")
    return found


def folder_name(model: str) -> str:
    """A model's name as one part of a path: letters, digits, dots and dashes stay, a slash becomes two dashes."""
    name = re.sub(r"[^\w.-]", "_", model.strip("/~. ").replace("/", "--"))
    return name[-120:] or "model"


def convert(raw: dict[str, Any], name: str, kind: type = RunConfig) -> Any:
    """Raises BadInput. `name` is where the raw mapping came from."""
    for role in ("candidate", "judge", "model"):
        if isinstance(raw.get(role), dict):
            raw = raw | {role: with_known(raw[role])}
    if isinstance(entries := raw.get("more_judges"), list):
        listed = [{"model": entry} if isinstance(entry, str) else entry for entry in entries]
        raw = raw | {"more_judges": [with_known(e) if isinstance(e, dict) else e for e in listed]}
    for group in ("judges", "answerers"):
        if isinstance(raw.get(group), dict):
            named = raw[group].items()
            raw = raw | {group: {name: with_known(e) if isinstance(e, dict) else e for name, e in named}}
    try:
        config = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{name}: {readable(error)}") from None
    except UnicodeEncodeError as error:  # bytes that are no UTF-8 come from the command line as half characters
        raise BadInput(f"{name}: {ascii(error.object[:80])} is no UTF-8") from None
    return _resolve(config, name) if kind is RunConfig else config


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path}: no such config") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; thousands of brackets
        raise BadInput(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: not a mapping of keys to values")
    return raw


def override(raw: dict[str, Any], word: str) -> None:
    """`candidate.sampling.max_tokens=64` into the nested mapping; the value is YAML."""
    dotted, _, text = word.partition("=")
    *parents, last = dotted.split(".")
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise BadInput(f"command line: {word}: the value is no YAML") from None
    for parent in parents:
        below = raw[parent] = {} if raw.get(parent) is None else raw[parent]
        if not isinstance(below, dict):
            raise BadInput(f"command line: {word}: {parent} is no group of keys")
        raw = below
    raw[last] = value


def readable(error: msgspec.ValidationError) -> str:
    """msgspec's message with the key as it stands in the file: `candidate.model` instead of `$.candidate.model`."""
    message, _, where = str(error).partition(" - at `")
    key = where.rstrip("`").removeprefix("$").lstrip(".")
    if message.startswith("Object contains unknown field `"):
        field = message.split("`")[1]
        return f"unknown key {'.'.join(filter(None, [key, field]))}"
    if message.startswith("Object missing required field `"):
        field = message.split("`")[1]
        return f"missing key {'.'.join(filter(None, [key, field]))}"
    return f"{key}: {message}" if key else message


def _resolve(config: RunConfig, name: str) -> RunConfig:
    unknown = [test_set for test_set in config.sets if not is_name(test_set)]
    if unknown:
        known = f"{', '.join(TEST_SETS)} (any step: replace_7, add_20)"
        raise BadInput(f"{name}: sets: {unknown[0]!r} is none of {known}")
    if twice := [test_set for test_set in config.sets if config.sets.count(test_set) > 1]:
        raise BadInput(f"{name}: sets: {twice[0]!r} is named twice")
    if not config.sets:
        raise BadInput(f"{name}: sets: no test set is named")
    if config.candidate.engine == "api" and config.candidate.reasoning_history != "none":
        raise BadInput(f"{name}: candidate.reasoning_history: an endpoint's template is its own affair; only none")
    for role, engine in {"candidate": config.candidate, **config.judges}.items():
        if engine.engine == "api" and engine.chat_template is not None:
            raise BadInput(f"{name}: {where(role)}.chat_template: an endpoint's template is its own affair")
    if config.judge is None:
        if config.more_judges:
            raise BadInput(f"{name}: more_judges: there is no judge before them")
        return config
    models = [judge.model for judge in config.judges.values()]
    if twice := next((model for model in models if models.count(model) > 1), None):
        raise BadInput(f"{name}: more_judges: {twice} judges already; verdicts are told apart by the model's name")
    for role, judge in config.judges.items():
        _check_choices(judge, config.judge_parser, f"{name}: {where(role)}.sampling.choices")
    return replace(config, judge=greedy(config.judge), more_judges=tuple(map(greedy, config.more_judges)))


def where(role: str) -> str:
    """The role's key in a config: `judge2` is `more_judges[0]`."""
    number = role.removeprefix("judge")
    return f"more_judges[{int(number) - 2}]" if number.isdecimal() else role


def greedy(judge: EngineSettings) -> EngineSettings:
    """Unless it is told otherwise, whatever the model's own generation config says: a verdict is to be repeatable
    (paper, section 3.2)."""
    if judge.sampling.temperature is not None:
        return judge
    return replace(judge, sampling=replace(judge.sampling, temperature=0.0))


def _check_choices(judge: EngineSettings, parser: str, key: str) -> None:
    """A judge that is made to choose must be able to say both, and be understood. Raises BadInput."""
    choices = judge.sampling.choices
    if not choices:
        return
    verdicts = {choice: PARSERS[parser](choice) for choice in choices}
    for choice, verdict in verdicts.items():
        if verdict == "unreadable":
            raise BadInput(f"{key}: {choice!r} is no verdict for parser {parser}")
    if len(set(verdicts.values())) < 2:
        raise BadInput(f"{key}: every choice is {verdicts[choices[0]]}; both must be there")


def one_pool(candidate: EngineSettings, judge: EngineSettings) -> bool:
    """Whether the same replicas can serve both: everything but sampling, their number and what a history holds is the
    same. The last is a conversation's affair, and a question to a judge has no history."""
    same = {"sampling": Sampling(), "replicas": 1, "reasoning_history": "none"}
    return replace(candidate, **same) == replace(judge, **same)


def shared(config: RunConfig, roles: Collection[str]) -> str | None:
    """The judge whose pool serves the candidate too, since the model and its settings are the same."""
    if "candidate" not in roles:
        return None
    judges = (role for role in roles if role != "candidate")
    return next((role for role in judges if one_pool(config.candidate, config.engine(role))), None)
