"""A run's folder: everything that a run is. Whoever has the folder needs nothing else to read, score or continue it.

    run.json          resolved config, fingerprints, versions, seed, what each engine said of itself
    dialogues.jsonl   what is played: the user turns and the constraints in force, once
    turns.jsonl       answers            \\
    judgements.jsonl  verdicts            > append-only, the only truth
    failures.jsonl    a log of what the machinery failed to bring; asked again by the next run
    status.json       where the run stands; replaced as a whole
    scores/ logs/

1. A fingerprint is what can change a result. A folder made under another one is refused, and the difference printed.
2. One driver a folder. Its claim is status.json: on the same machine its process is looked for, from another one its
   counter is watched for a while. Neither needs a lock, so a network file system will do, nor an agreement of clocks.
"""

import hashlib
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sequor.errors import BadInput
from sequor.records import FailureRecord, Journal, JudgementRecord, TurnRecord
from sequor.types import Dialogue, TestSet

WATCH_S = 12.0
"""How long a claim from another machine is watched. status.json is written every two seconds while a run lives."""


class RunFile(Struct, frozen=True):
    """run.json."""

    config: dict[str, Any]
    fingerprint: dict[str, str]
    versions: dict[str, str]
    engines: dict[str, dict[str, Any]] = {}
    """Pool -> settings, versions and hashes as its engine resolved them."""


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

    def start(self, run: RunFile, test_sets: Iterable[TestSet]) -> RunFile:
        """Make the folder, or take it up again. Raises BadInput when it holds a run of another configuration, or
        something else than a run."""
        if not self.exists:
            if self.path.exists() and not all(_begun(path) for path in self.path.iterdir()):
                raise BadInput(f"{self.path}: not empty, and no run.json in it: not the folder of a run")
            self.path.mkdir(parents=True, exist_ok=True)
            encoder = msgspec.json.Encoder()
            lines = encoder.encode_lines([d for test_set in test_sets for d in test_set.dialogues])
            write_atomically(self._dialogues, lines)
            self.write(run)
            return run
        old = self.read()
        refuse_difference(self.path, old.fingerprint, run.fingerprint)
        merged = RunFile(run.config, old.fingerprint | run.fingerprint, run.versions, old.engines)
        self.write(merged)
        return merged

    def test_sets(self) -> list[TestSet]:
        """What the run plays, in its own order. Raises BadInput."""
        by_name: dict[str, list[Dialogue]] = {}
        for dialogue in Journal(self._dialogues, Dialogue):
            by_name.setdefault(dialogue.test_set, []).append(dialogue)
        if not by_name:
            raise BadInput(f"{self._dialogues}: no dialogue in it")
        return [TestSet(name, tuple(dialogues)) for name, dialogues in by_name.items()]

    def claim(self) -> None:
        """Raises BadInput while another driver works in this folder."""
        claim_folder(self.path)

    def status(self) -> dict[str, Any]:
        """The last one written; empty before the first."""
        path = self.path / "status.json"
        return read_json(path, dict) if path.exists() else {}

    def write_status(self, status: dict[str, Any]) -> None:
        write_status(self.path, status)


def claim_folder(folder: Path) -> None:
    """Raises BadInput while another driver works in this folder (rule 2)."""
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
    """With who writes it. `status` needs `state`, and `beat`, a counter, while the state is `running`."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "born": process_start(os.getpid())}
    write_json(folder / "status.json", status | me)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, msgspec.json.format(msgspec.json.encode(value), indent=2))


def _begun(path: Path) -> bool:
    """Whether this was left by a start that was killed before run.json, the last of its files, was there."""
    return path.name == "dialogues.jsonl" or path.name.startswith((".dialogues.jsonl.", ".run.json."))


def refuse_difference(path: Path, old: dict[str, str], new: dict[str, str]) -> None:
    """Raises BadInput naming every key that both have and that differs."""
    differing = [
        f"{key}: {old[key]} there, {new[key]} now" for key in sorted(new) if old.get(key, new[key]) != new[key]
    ]
    if differing:
        raise BadInput(f"{path}: holds a run of another configuration ({'; '.join(differing)})")


def content_digest(test_set: TestSet) -> str:
    """Names the prompts and constraints of a test set, whatever file they came from."""
    return hashlib.sha256(msgspec.json.encode(test_set)).hexdigest()[:16]


def write_atomically(path: Path, data: bytes) -> None:
    """The old content or the new one, never half of it; also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path, kind: Any, hint: str = "") -> Any:
    """Raises BadInput, one line that names the file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise BadInput(f"{path}: not there" + (f"; {hint}" if hint else "")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
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
    except (ProcessLookupError, PermissionError, OverflowError):
        return False
    return born is None or process_start(pid) == born
