"""gold: models write an answer that follows a rule and one that breaks it, for constraint-task pairs -> gold.jsonl.

answers/     their replies, continued like a run
"""

from pathlib import Path

import msgspec
from rich.console import Console

from jobs.curation import GoldConfig
from jobs.data import data_folder
from jobs.panel import Panel, Step
from sequor import released
from sequor.curation.language import COMPRESSED, Language, model_file
from sequor.curation.samples import Tasks
from sequor.errors import BadInput
from sequor.gold import GoldAnswer, Pair, pairs, truth, writing, written
from sequor.prompts.render import digest
from sequor.run_folder import write_atomically


def gold(config: GoldConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written."""
    if not config.answerers:
        raise BadInput("answerers: none is named; answerers.NAME.model=MODEL names one")
    pool = released.load_constraints(data_folder(config.constraints or config.data))
    tasks = Tasks(released.load_tasks(data_folder(config.data)))
    drawn = pairs(pool, tasks, config.count, config.seed)
    panel = Panel("gold", config, out, console)
    facts = {"tasks": tasks.digest, "prompt": digest("gold")}
    panel.ask(Step("answers", "answerer", facts), lambda name: writing(drawn, name))
    answers, dropped = written(drawn, (r for r in panel.records("answers") if _writer(r.key) in config.answerers))
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "gold.jsonl", msgspec.json.Encoder().encode_lines(answers))
    _show(out, config, drawn, answers, dropped, console)
    return panel.code


def _writer(key: str) -> str:
    return key.rpartition("|")[2]


def _show(
    out: Path,
    config: GoldConfig,
    drawn: tuple[Pair, ...],
    answers: list[GoldAnswer],
    dropped: dict[str, int],
    console: Console,
) -> None:
    console.print(truth_line(answers))
    console.print(f"{out}: gold.jsonl")
    why = "".join(f", {count:,} {status}" for status, count in sorted(dropped.items()))
    missing = 2 * len(drawn) * len(config.answerers) - len(answers) - sum(dropped.values())
    left_out = sum(dropped.values())
    console.print(f"left out: {left_out:,}{' (' + why.removeprefix(', ') + ')' if why else ''}; not there: {missing:,}")
    console.print(f"pairs={len(drawn)} writers={len(config.answerers)} gold={len(answers)} left_out={left_out}")


def truth_line(answers: list[GoldAnswer]) -> str:
    """How far the labels can be trusted, in one line."""
    language = Language(model_file(COMPRESSED))
    found = truth(answers, lambda text: language.scores(text)[1])
    if not found:
        return "no constraint here can be decided by a program: how true the labels are cannot be told"
    parts = [
        f"{writer} told to {'satisfy' if label == 'yes' else 'violate'} did in {counts.right} of "
        f"{counts.right + counts.wrong}"
        for (writer, label), counts in sorted(found.items(), key=lambda item: (item[0][0], item[0][1] != "yes"))
    ]
    return "labels against the truth, where a program can tell: " + "; ".join(parts)
