"""extract: conversations -> candidates.jsonl, one question to a model for each."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from rich.console import Console

from cluster.conversation import Conversation
from jobs import models, pools
from jobs.conduct import COMPLETE
from jobs.curation import ExtractConfig
from jobs.fingerprint import engine_fingerprint
from jobs.run import versions
from jobs.stage import Stage
from sequor.curation import extract as reader
from sequor.curation.chats import Chat, Skipped, chat_files, content_id, read_chats
from sequor.curation.language import Language, model_file
from sequor.errors import BadInput
from sequor.keyset import KeySet
from sequor.prompts.render import digest
from sequor.run_folder import RunFile

LOOKED_AT = 2000
"""Characters of user turns that the language is told from."""


class Source:
    """The conversations to be asked about, one at a time, and a count of those that are not."""

    def __init__(self, config: ExtractConfig):
        """Raises BadInput."""
        self.files = chat_files(config.inputs)
        for path in self.files:  # one that cannot be read is found out before anything starts
            next(read_chats(path))
        self._config = config
        self._language = Language(model_file(config.language_model)) if config.languages == "english" else None
        self._seen = KeySet()
        self.counts: Counter[str] = Counter()

    def questions(self) -> Iterator[Conversation]:
        """Raises BadInput when a file holds no conversation."""
        for path in self.files:
            for chat in read_chats(path):
                if self._config.count is not None and self.counts["asked"] >= self._config.count:
                    return
                self.counts["conversations"] += 1
                if isinstance(chat, Skipped):
                    self.counts[chat.reason] += 1
                elif not self._english(chat):
                    self.counts["not English"] += 1
                elif (named := self._named(chat)) is None:
                    self.counts["repeated"] += 1
                else:
                    question, cut = reader.question(named, self._config.longest)
                    self.counts["asked"] += 1
                    self.counts["cut"] += cut
                    yield question

    def _english(self, chat: Chat) -> bool:
        if self._language is None:
            return True
        if chat.language is not None:
            return chat.language.strip().casefold() in ("english", "en", "eng")
        return self._language.scores(" ".join(chat.user_turns)[:LOOKED_AT])[1] == "en"

    def _named(self, chat: Chat) -> Chat | None:
        """Under an id of its own. None: the same id and the same turns were there before."""
        own = f"{chat.id}.{content_id(chat.user_turns)}"
        first, new = self._seen.add(chat.id), self._seen.add(own)
        if not new:
            return None
        return chat if first else Chat(own, chat.user_turns, chat.language)


def extract(config: ExtractConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written, or where a file stops being one."""
    source = Source(config)
    files = models.find("model", config.model)
    parts = {"stage": "extract", "seed": str(config.seed), "longest": str(config.longest)}
    parts |= {"prompt": digest("extract"), "parser": reader.PARSER}
    parts |= engine_fingerprint("model", config.model, files)

    def make_pool(lane: str):
        return pools.one("model", config.model, files, config.scheduler, config.seed, out / "logs")

    stage = Stage(out, make_pool, config.ray_address, console, live=config.live)
    run_file = RunFile(msgspec.to_builtins(config), parts, versions())
    code = stage.run(run_file, {"model": source.questions()})
    if not (out / "replies.jsonl").exists():
        raise BadInput(f"{', '.join(config.inputs)}: no conversation to ask about ({_counted(source.counts)})")
    readings, candidates, dropped = _write(stage, out)
    console.print(f"conversations: {_counted(source.counts)}")
    console.print(f"replies: {_counted(readings)}")
    console.print(f"{out}: candidates.jsonl, dropped.jsonl; the replies themselves in replies.jsonl")
    unread = readings["no JSON"] + readings["no answer"]
    missing = stage.counts.asked - stage.counts.done if code != COMPLETE else 0
    console.print(
        f"conversations={source.counts['conversations']} replies={readings.total()} unreadable={unread} "
        f"candidates={candidates} dropped={dropped} missing={missing}"
    )
    return code


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _write(stage: Stage, out: Path) -> tuple[Counter[str], int, int]:
    """candidates.jsonl and dropped.jsonl from all replies so far: what was read, candidates, dropped."""
    readings: Counter[str] = Counter()
    candidates = dropped = 0
    encode = msgspec.json.encode
    names = ("candidates.jsonl", "dropped.jsonl")
    with open(out / f".{names[0]}", "wb") as kept_file, open(out / f".{names[1]}", "wb") as dropped_file:
        for record in stage.records():
            found = reader.reading(record)
            readings[found.status] += 1
            candidates += len(found.candidates)
            kept_file.writelines(encode(candidate) + b"\n" for candidate in found.candidates)
            rows = [{"reply": record.key, "text": text, "reason": reason} for text, reason in found.dropped]
            if found.status in ("no JSON", "no answer"):
                rows.append({"reply": record.key, "text": record.reply, "reason": found.status})
            dropped += len(found.dropped)
            dropped_file.writelines(encode(row) + b"\n" for row in rows)
    for name in names:
        (out / f".{name}").replace(out / name)
    return readings, candidates, dropped
