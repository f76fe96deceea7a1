"""A run's folder: everything that a run is. Whoever has the folder needs nothing else to read, score or continue it.

    run.json          resolved config, fingerprints, versions, seed, what each engine said of itself
    dialogues.jsonl   what is played: the user turns and the constraints in force, once
    turns.jsonl       answers            \\
    judgements.jsonl  verdicts            > append-only, the only truth
    failures.jsonl    a log of what the machinery failed to bring; asked again by the next run
    status.json       where the run stands; replaced as a whole
    scores/ logs/

1. A fingerprint is what can change a result. A folder made under another one is refused, and the difference printed;
   but not for what no record in it rests on: whoever mends what kept an engine from starting goes on in the folder.
2. One driver a folder. Its claim is status.json: on the same machine its process is looked for, from another one its
   counter is watched for a while. Neither needs a lock, so a network file system will do, nor an agreement of clocks.
   Of two that claim at the same moment the last to write has it; the other one finds out at its next status and stops.
"""

import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sequor.errors import NOT_JSON, BadInput
from sequor.records import FailureRecord, Journal, JudgementRecord, TurnRecord
from sequor.types import TASK_COMPLETION, Dialogue, TestSet

COMPLETION = "completion"
"""Begins a judge's group in the fingerprint, as `judge` does: what it is asked beside the constraints."""

TOLD = 6
"""Differences that are named; the others are counted."""

WATCH_S = 12.0
"""How long a claim from another machine is watched. status.json is written every two seconds while a run lives."""


class Start(Struct, frozen=True):
    """What one start of a run worked with."""

    config: dict[str, Any]
    versions: dict[str, str]
    engines: dict[str, dict[str, Any]] = {}
    """Pool -> settings, versions and hashes as its engine resolved them."""


class RunFile(Struct, frozen=True):
    """run.json. Config, versions and engines are those of the latest start."""

    config: dict[str, Any]
    fingerprint: dict[str, str]
    versions: dict[str, str]
    engines: dict[str, dict[str, Any]] = {}
    """Pool -> settings, versions and hashes as its engine resolved them."""
    earlier: tuple[Start, ...] = ()
    """Starts that brought an engine up, the first one first, where they worked with something else than the next."""

    def again(self, new: "RunFile") -> "RunFile":
        """The same run, started once more. Of the fingerprint, `new` replaces the groups that it has."""
        last = Start({**self.config, "ray_address": None}, self.versions, self.engines)  # where is no matter
        earlier = self.earlier if not self.engines or self.earlier[-1:] == (last,) else (*self.earlier, last)
        config = merged(self.config, new.config)
        anew = {_group(key) for key in new.fingerprint}
        kept = {key: value for key, value in self.fingerprint.items() if _group(key) not in anew}
        return RunFile(config, kept | new.fingerprint, new.versions, {}, earlier)

    @property
    def judges(self) -> set[str]:
        """Models that have judged here, or begun to."""
        return _models(self.fingerprint, "judge")

    @property
    def completion_judges(self) -> set[str]:
        """Those that were asked about task completion as well."""
        return _models(self.fingerprint, COMPLETION)


def _models(fingerprint: dict[str, str], group: str) -> set[str]:
    return {key.partition("[")[2].rpartition("]")[0] for key in fingerprint if key.startswith(f"{group}[")}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two starts' configs as one. A role that the new start has no use for keeps its settings; a judge that was there
    stays, in its place, and the first one remains the first."""
    config = {key: old.get(key) if value is None else value for key, value in new.items()}
    if old.get("judge") is None:
        return config
    judges: dict[str, dict[str, Any]] = {}
    for start in (old, new):
        for judge in (start.get("judge"), *start.get("more_judges", ())):
            if judge is not None:
                judges[judge["model"]] = judge
    first, *others = judges.values()
    asked = bool(old.get("task_completion")) or bool(new.get("task_completion"))
    kept = {"judge_parser": old["judge_parser"]} if "judge_parser" in old else {}
    return config | {"judge": first, "more_judges": others, "task_completion": asked} | kept


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.turns = Journal(path / "turns.jsonl", TurnRecord)
        self.judgements = Journal(path / "judgements.jsonl", JudgementRecord)
        self.failures = Journal(path / "failures.jsonl", FailureRecord)
        self._dialogues = path / "dialogues.jsonl"

    @property
    def exists(self) -> bool:
        return (self.path / "run.json").exists()

    def read(self) -> RunFile:
        """Raises BadInput when this is no run's folder."""
        return read_json(self.path / "run.json", RunFile, "is this the folder of a run?")

    def write(self, run: RunFile) -> None:
        write_json(self.path / "run.json", run)

    @property
    def recorded(self) -> bool:
        """Whether it holds a record."""
        return any(True for journal in (self.turns, self.judgements) for _ in journal)

    def refuse_difference(self, fingerprint: dict[str, str]) -> None:
        """Raises BadInput when records in it were made under another one."""
        refuse_difference(self.path, self.read().fingerprint, fingerprint, self._rests_on)

    def _rests_on(self, group: str) -> bool:
        """Whether a record rests on that group of the fingerprint."""
        what, _, judge = group.removesuffix("]").partition("[")
        if not judge:
            return self.recorded
        of_judge = (record for record in self.judgements if record.judge == judge)
        return any(what != COMPLETION or record.constraint == TASK_COMPLETION for record in of_judge)

    def start(self, run: RunFile, test_sets: Iterable[TestSet]) -> RunFile:
        """Make the folder, or take it up again; either way it is claimed from here on. Raises BadInput when it holds a
        run of another configuration, or something else than a run, or when another driver works in it."""
        if self.exists:
            self.refuse_difference(run.fingerprint)
        elif self.path.exists() and not all(_begun(path) for path in self.path.iterdir()):
            raise BadInput(f"{self.path}: not empty, and no run.json in it: not the folder of a run")
        self.path.mkdir(parents=True, exist_ok=True)
        claim_folder(self.path)
        if self.exists and self.recorded:
            run = self.read().again(run)
        else:
            lines = msgspec.json.Encoder().encode_lines([d for test_set in test_sets for d in test_set.dialogues])
            write_atomically(self._dialogues, lines)
        self.write(run)
        return run

    def test_sets(self) -> list[TestSet]:
        """What the run plays, in its own order. Raises BadInput."""
        by_name: dict[str, list[Dialogue]] = {}
        seen: set[str] = set()
        for dialogue in Journal(self._dialogues, Dialogue):
            if dialogue.key in seen:
                raise BadInput(f"{self._dialogues}: {dialogue.key} stands there twice")
            seen.add(dialogue.key)
            by_name.setdefault(dialogue.test_set, []).append(dialogue)
        if not by_name:
            raise BadInput(f"{self._dialogues}: no dialogue in it")
        return [TestSet(name, tuple(dialogues)) for name, dialogues in by_name.items()]

    def refuse_claimed(self) -> None:
        """Raises BadInput while another driver works in this folder."""
        refuse_claimed(self.path)

    def status(self) -> dict[str, Any]:
        """The last one written; empty before the first."""
        path = self.path / "status.json"
        return read_json(path, dict) if path.exists() else {}

    def write_status(self, status: dict[str, Any]) -> None:
        write_status(self.path, status)


def claim_folder(folder: Path) -> None:
    """It is ours from here on (rule 2). Raises BadInput while another driver works in it."""
    refuse_claimed(folder)
    path = folder / "status.json"
    before = read_json(path, dict) if path.exists() else {}
    write_json(path, before | {"state": "running", "detail": "", "beat": 0} | _me())


def refuse_claimed(folder: Path) -> None:
    """Raises BadInput while another driver works in this folder."""
    path = folder / "status.json"
    if not path.exists():
        return
    before = read_json(path, dict)
    if before.get("state") != "running":
        return
    here = before.get("host") == socket.gethostname()
    if here and not _alive(int(before.get("pid", 0)), before.get("born")):
        return
    if not here:
        time.sleep(WATCH_S)
        if read_json(path, dict).get("beat") == before.get("beat"):
            return
    raise BadInput(f"{folder}: process {before.get('pid')} on {before.get('host')} works in this folder")


def write_status(folder: Path, status: dict[str, Any]) -> None:
    """With who writes it. `status` needs `state`, and `beat`, a counter, while the state is `running`. Raises BadInput
    when another driver has claimed the folder since, and OSError."""
    path, me = folder / "status.json", _me()
    there = msgspec.json.decode(path.read_bytes()) if path.exists() else me
    if any(there.get(key) != value for key, value in me.items()):
        raise BadInput(f"{folder}: taken over by process {there.get('pid')} on {there.get('host')}")
    write_json(path, status | me)


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "born": process_start(os.getpid())}


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=2))


def _begun(path: Path) -> bool:
    """Whether this was left by a start that was killed before run.json, the last of its files, was there."""
    begun = "dialogues.jsonl", "status.json"
    return path.name in begun or path.name.startswith((".dialogues.jsonl.", ".run.json.", ".status.json."))


def refuse_difference(
    path: Path, old: dict[str, str], new: dict[str, str], rests_on: Callable[[str], bool] = lambda group: True
) -> None:
    """Raises BadInput naming what differs, of the groups that both have and that a record rests on.

    A group's name is a key's beginning: `candidate` of `candidate.model`, `judge[a/b]` of `judge[a/b].model`, and
    nothing of a key without a dot. `stage` says what kind of folder it is, whatever is in it.
    """
    both = {_group(key) for key in old} & {_group(key) for key in new}
    differing = [key for key in old.keys() | new.keys() if _group(key) in both and old.get(key) != new.get(key)]
    differing.sort(key=lambda key: (key.startswith("test_set."), key))  # which follow from others, most of the time
    resting = {group for group in {_group(key) for key in differing} if rests_on(group)}
    told = [
        f"{key}: {old.get(key, 'nothing')} there, {new.get(key, 'nothing')} now"
        for key in differing
        if _group(key) in resting or key == "stage"
    ]
    if told:
        more = f"; and {len(told) - TOLD} more" if len(told) > TOLD else ""
        raise BadInput(f"{path}: holds a run of another configuration ({'; '.join(told[:TOLD])}{more})")


def _group(key: str) -> str:
    head, bracket, _ = key.partition("].")
    if bracket:
        return head + "]"
    return key.partition(".")[0] if "." in key else ""


def content_digest(test_set: TestSet) -> str:
    """Names the prompts and constraints of a test set, whatever file they came from."""
    return hashlib.sha256(msgspec.json.encode(test_set)).hexdigest()[:16]


def write_atomically(path: Path, data: bytes) -> None:
    """The old content or the new one, never half of it; also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk names no file


def read_json(path: Path, kind: Any, hint: str = "") -> Any:
    """Raises BadInput, one line that names the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise BadInput(f"{path}: not there" + (f"; {hint}" if hint else "")) from None
    except (*NOT_JSON, OSError) as error:
        raise BadInput(f"{path}: {error}") from None


def process_start(pid: int) -> str | None:
    """When the process started, in the kernel's own count, so that a reused pid is not taken for it. Linux only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _alive(pid: int, born: str | None) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:  # somebody else's, and alive
        pass
    except (ProcessLookupError, OverflowError):
        return False
    return born is None or process_start(pid) == born
