"""synthesize: personas -> tasks/*.jsonl in the release's layout, with what was dropped and why."""

from pathlib import Path

import msgspec
from rich.console import Console

from jobs import models, pools
from jobs.conduct import COMPLETE, INCOMPLETE
from jobs.config import SynthesisConfig
from jobs.fingerprint import engine_fingerprint
from jobs.run import versions
from jobs.stage import Stage
from sequor import listing, released
from sequor.errors import BadInput
from sequor.personas import load_personas
from sequor.records import ReplyRecord
from sequor.run_folder import RunFile, write_atomically
from sequor.synthesis import Synthesis, Yield, agenda_of, following, prompts_digest, yield_of


def synthesize(config: SynthesisConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written."""
    if config.synthesis.tasks > config.synthesis.most:
        asked = f"{config.synthesis.activities} activities of {config.synthesis.questions} questions"
        raise BadInput(f"synthesis.tasks: {config.synthesis.tasks} is more than {asked} can give")
    personas = load_personas(Path(config.personas).expanduser())[: config.count]
    if config.count is not None and len(personas) < config.count:
        raise BadInput(f"{config.personas}: {len(personas)} personas, {config.count} asked for")
    files = models.find("model", config.model)
    parts = {"stage": "synthesize", "seed": str(config.seed), "prompts": prompts_digest(), "parser": listing.PARSER}
    parts |= engine_fingerprint("model", config.model, files)
    parts |= {f"synthesis.{key}": str(value) for key, value in msgspec.to_builtins(config.synthesis).items()}
    by_id = {persona.id: persona for persona in personas}

    def follow(record: ReplyRecord) -> list:
        return following(by_id[record.key.partition("/")[0]], record, stage.replies, config.synthesis)

    def make_pool(lane: str):
        return pools.one("model", config.model, files, config.scheduler, config.seed, out / "logs")

    stage = Stage(out, make_pool, config.ray_address, console)
    run_file = RunFile(msgspec.to_builtins(config), parts, versions())
    roots = [agenda_of(persona, config.synthesis) for persona in personas]
    code = stage.run(run_file, {"model": roots}, follow)
    yields = [yield_of(persona, stage.replies, config.synthesis) for persona in personas]
    short = _write(out, yields, config.synthesis)
    _show(out, yields, short, config.synthesis, console)
    return INCOMPLETE if code == COMPLETE and short else code


def _write(out: Path, yields: list[Yield], synthesis: Synthesis) -> list[Yield]:
    """Returns the personas with too few tasks; their tasks are written too, if there are any."""
    released.write_tasks(out, {found.persona.id: found.tasks for found in yields if found.tasks})
    rows = [{"reply": key, "text": d.text, "reason": d.reason} for found in yields for key, d in found.dropped]
    write_atomically(out / "dropped.jsonl", msgspec.json.Encoder().encode_lines(rows))
    return [found for found in yields if len(found.tasks) < synthesis.tasks]


def _show(out: Path, yields: list[Yield], short: list[Yield], synthesis: Synthesis, console: Console) -> None:
    replies, usable = sum(found.replies for found in yields), sum(found.usable for found in yields)
    tasks, dropped = sum(len(found.tasks) for found in yields), sum(len(found.dropped) for found in yields)
    console.print(f"{out}: {len(yields)} personas, {tasks:,} tasks; {dropped:,} items dropped (dropped.jsonl says why)")
    for found in short[:20]:
        console.print(f"too few tasks: {found.persona.id} has {len(found.tasks)} of {synthesis.tasks}")
    if short[20:]:
        console.print(f"... and {len(short) - 20} more personas with too few tasks")
    console.print(f"replies={replies} usable={usable} tasks={tasks} dropped={dropped} short={len(short)}")
