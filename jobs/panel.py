"""The judges and the answering models of curation: named engines that take turns on the same GPUs, or live together."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from cluster.conversation import Conversation
from cluster.driver import ClusterError
from cluster.settings import EngineSettings
from jobs import models, pools
from jobs.conduct import COMPLETE, STOPPED
from jobs.curation import PanelConfig
from jobs.fingerprint import engine_fingerprint
from jobs.run import versions
from jobs.stage import Stage
from sequor.records import Journal, ReplyRecord
from sequor.run_folder import RunFile

Vote = Callable[[ReplyRecord], bool | None]


class Step(Struct, frozen=True):
    """One kind of question. `name`: its folder's. `role`: judge or answerer, the first word of its fingerprint's
    groups. `facts`: what else can change a reply."""

    name: str
    role: str
    facts: dict[str, str]
    vote: Vote | None = None
    """How a judge's reply is read; None: it is no vote."""
    choices: tuple[str, ...] = ()
    """Replies between which a judge chooses when the config says so."""


class Panel:
    """Asks one step after the other, each in its own folder below `out`."""

    def __init__(self, verb: str, config: PanelConfig, out: Path, console: Console):
        """Raises BadInput for a model that is not there."""
        self.verb, self.config, self.out, self._console = verb, config, out, console
        self._files = {
            role: {name: models.find(f"{role}s.{name}", engine) for name, engine in engines.items()}
            for role, engines in (("judge", config.judges), ("answerer", config.answerers))
        }
        self.code = COMPLETE
        """The worst so far; nothing is asked any more after a stop."""

    def ask(self, step: Step, questions: Callable[[str], Iterable[Conversation]]) -> None:
        """`questions(name)`: those to that model. Raises BadInput, and ClusterError for a judge whose replies cannot be
        read."""
        names = list(self._engines(step.role))
        for together in [names] if self.config.together else [[name] for name in names]:
            if self.code == STOPPED:
                return
            legible = Legible(step, self.config)
            stage = Stage(
                self.out / step.name,
                lambda name: self._pool(step, name),
                self.config.ray_address,
                self._console,
                live=self.config.live,
                look=legible.look if step.vote else None,
            )
            run_file = RunFile(msgspec.to_builtins(self.config), self._fingerprint(step), versions())
            code = stage.run(run_file, {name: self._asked(step, name, questions(name)) for name in together})
            self.code = code if code == STOPPED else max(self.code, code)
            done = f"{step.name}, {', '.join(together)}: {stage.counts.done:,} replies in the folder"
            self._console.print(done + (f", {stage.counts.failures:,} failed" if stage.counts.failures else ""))

    def _asked(self, step: Step, name: str, questions: Iterable[Conversation]) -> Iterator[Conversation]:
        if not (self.config.choose and step.choices):
            yield from questions
            return
        sampling = replace(self._engines(step.role)[name].sampling, choices=step.choices)
        for question in questions:
            yield replace(question, sampling=sampling)

    def records(self, step: str) -> Iterator[ReplyRecord]:
        return iter(Journal(self.out / step / "replies.jsonl", ReplyRecord))

    def _engines(self, role: str) -> Mapping[str, EngineSettings]:
        return self.config.judges if role == "judge" else self.config.answerers

    def _pool(self, step: Step, name: str):
        settings, files = self._engines(step.role)[name], self._files[step.role][name]
        logs = self.out / step.name / "logs"
        return pools.one(name, settings, files, self.config.scheduler, self.config.seed, logs)

    def _fingerprint(self, step: Step) -> dict[str, str]:
        parts = {"stage": f"{self.verb}/{step.name}", "seed": str(self.config.seed)} | step.facts
        if step.choices:
            parts["choose"] = str(self.config.choose)
        for name, engine in self._engines(step.role).items():
            parts |= engine_fingerprint(f"{step.role}[{name}]", engine, self._files[step.role][name])
        return parts


class Legible:
    """Stops a step whose judge says nothing that can be read."""

    def __init__(self, step: Step, config: PanelConfig):
        self._step, self._config = step, config
        self._seen: Counter[str] = Counter()
        self._unreadable: Counter[str] = Counter()

    def look(self, record: ReplyRecord) -> None:
        """Raises ClusterError."""
        name = record.key.rpartition("|")[2]
        self._seen[name] += 1
        self._unreadable[name] += self._step.vote(record) is None
        seen, unreadable = self._seen[name], self._unreadable[name]
        if seen >= self._config.unreadable_after and unreadable > self._config.most_unreadable * seen:
            share = f"{unreadable} of {seen} replies cannot be read ({100 * unreadable / seen:.0f}%)"
            limit = f"most_unreadable={self._config.most_unreadable:g} is the limit"
            raise ClusterError(f"{self._step.name}: judge {name}: {share}; {limit}; its replies are in the folder")
