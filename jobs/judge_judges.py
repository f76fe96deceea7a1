"""judge-judges: judges on gold answers -> the paper's table 1, with intervals, cost and speed (sequor/gold.py).

verdicts/    their replies, continued like a run
tables/      judges, by-writer, differences: Markdown, CSV, LaTeX
"""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table as Shown

from cluster.occupancy import Spent
from cluster.replicas import gpus_of
from jobs.conduct import STOPPED
from jobs.curation import JudgeJudgesConfig
from jobs.gold import truth_line
from jobs.panel import Panel, Step
from jobs.stage import spent
from sequor.curation.ratings import VERDICTS, vote_of
from sequor.errors import BadInput
from sequor.gold import RESULTS, GoldAnswer, Judged, judged, judging
from sequor.jsonl import rows
from sequor.parsing import DEFAULT_PARSER
from sequor.prompts.render import digest
from sequor.records import ReplyRecord
from sequor.report.tables import Column, Table
from sequor.run_folder import write_atomically

PARTS = (("yes", "gold yes"), ("no", "gold no"), ("overall", "overall"))


def judge_judges(config: JudgeJudgesConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written, ClusterError for a judge nobody understands."""
    if not config.judges:
        raise BadInput("judges: none is named; judges.NAME.model=MODEL names one")
    answers, name = _read(config.input)
    panel = Panel("judge-judges", config, out, console)
    facts = {"gold": name, "prompt": digest("judge"), "parser": DEFAULT_PARSER}
    panel.ask(Step("verdicts", "judge", facts, vote_of, VERDICTS), lambda judge: judging(answers, judge))
    found = judged(answers, panel.records("verdicts"), tuple(config.judges))
    judges = [judge for judge in config.judges if found.judged(judge)]
    if judges:
        costs = _costs(config, out / "verdicts", panel.records("verdicts"))
        tables = [_main(found, judges, costs), _by_writer(found, judges), _differences(found, judges)]
        for table in (table for table in tables if table.rows):
            _write(out / "tables", table)
            _show(table, console)
    console.print(truth_line(answers))
    asked, seen = len(answers) * len(config.judges), sum(found.judged(judge) for judge in config.judges)
    unreadable = sum(int(found.counts[judge][..., RESULTS.index("unreadable")].sum()) for judge in config.judges)
    console.print(f"{out}: tables/" + (" (choice mode)" if config.choose else ""))
    console.print(f"gold={len(answers)} judges={len(config.judges)} judged={seen} of={asked} unreadable={unreadable}")
    return panel.code if seen == asked or panel.code == STOPPED else max(panel.code, 3)


def _read(name: str) -> tuple[list[GoldAnswer], str]:
    """The answers, and the digest that names them. Raises BadInput."""
    path = Path(name).expanduser()
    source = path / "gold.jsonl" if path.is_dir() else path
    answers: dict[str, GoldAnswer] = {}
    for number, gold in rows(source, GoldAnswer):
        for key in ("pair", "writer"):
            if not getattr(gold, key) or (key == "writer" and "|" in gold.writer):
                raise BadInput(f"{source}:{number}: {key}: {getattr(gold, key)!r} is no name")
        if gold.key in answers:
            raise BadInput(f"{source}:{number}: {gold.key} stands here for the second time")
        answers[gold.key] = gold
    if not answers:
        raise BadInput(f"{source}: holds no gold answer")
    found = list(answers.values())
    return found, sha256(msgspec.json.encode(found)).hexdigest()[:16]


class _Cost(msgspec.Struct):
    """Of one judge. Tokens, seconds, and what its price comes to."""

    replies: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    seconds: float = 0.0
    cost: float | None = None


def _costs(config: JudgeJudgesConfig, folder: Path, records: Iterator[ReplyRecord]) -> dict[str, _Cost]:
    found = {judge: _Cost() for judge in config.judges}
    for record in records:
        if (one := found.get(record.key.rpartition("|")[2])) is not None:
            one.replies += 1
            one.prompt += record.prompt_tokens
            one.cached += record.cached_tokens
            one.output += record.output_tokens
    seconds = spent(folder)
    for judge, one in found.items():
        settings, of_judge = config.judges[judge], seconds.get(judge, Spent())
        one.seconds = of_judge.ready_s
        if settings.price is not None:
            gpu_seconds = of_judge.alive_s * gpus_of(settings)
            one.cost = settings.price.of(one.prompt, one.cached, one.output, gpu_seconds)
    return found


def _main(found: Judged, judges: list[str], costs: dict[str, _Cost]) -> Table:
    columns = [Column("judge"), Column("answers", "count"), *_result_columns()]
    columns += [Column("tokens a verdict", "number"), Column("verdicts/s", "number"), Column("cost", "number")]
    rows = []
    for judge in judges:
        of = costs[judge]
        speed = of.replies / of.seconds if of.seconds else None
        rows.append(
            [
                judge,
                found.judged(judge),
                *_result_cells(found, judge),
                of.output / of.replies if of.replies else None,
                speed,
                of.cost,
            ]
        )
    note = "Percent of the gold answers; 95% bootstrap intervals over constraint-task pairs."
    return Table("judges", "Judges on gold answers", tuple(columns), rows, note)


def _by_writer(found: Judged, judges: list[str]) -> Table:
    columns = (Column("judge"), Column("written by"), *_result_columns())
    several = found.writers if len(found.writers) > 1 else ()
    rows = [[judge, writer, *_result_cells(found, judge, writer)] for judge in judges for writer in several]
    return Table("by-writer", "Judges on each writer's gold answers", columns, rows)


def _differences(found: Judged, judges: list[str]) -> Table:
    columns = (Column("judge"), Column("against"), Column("points", "points", interval=True), Column("tie"))
    rows = []
    for at, judge in enumerate(judges):
        for other in judges[at + 1 :]:
            points = found.difference(judge, other)
            rows.append([judge, other, points, "yes" if points.low <= 0 <= points.high else "no"])
    note = "Of correct verdicts, overall; a tie where the interval holds zero."
    return Table("differences", "Differences between judges", columns, rows, note)


def _result_columns() -> list[Column]:
    names = [(f"{title}: {result}", result) for _, title in PARTS for result in RESULTS]
    return [Column(name, "percent", interval=result == "correct") for name, result in names]


def _result_cells(found: Judged, judge: str, writer: str | None = None) -> list:
    estimates = found.estimates(judge, writer)
    return [
        estimates[part][result] if result == "correct" else estimates[part][result].value
        for part, _ in PARTS
        for result in RESULTS
    ]


def _write(folder: Path, table: Table) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for ending, text in (("md", table.markdown()), ("csv", table.csv()), ("tex", table.latex())):
        write_atomically(folder / f"{table.name}.{ending}", text.encode())


def _show(table: Table, console: Console) -> None:
    shown = Shown(title=table.title, title_justify="left", box=None, pad_edge=False)
    for column in table.columns:
        shown.add_column(column.title, justify="left" if column.kind == "text" else "right")
    for row in table.shown():
        shown.add_row(*row)
    console.print(shown)
