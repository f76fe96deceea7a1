"""rate: candidates -> ratings.jsonl: satisfiability, triviality, subjectivity, by any number of judges.

satisfiability/   the judges' rubrics
answers/          the answering models, without a constraint and with one
verdicts/         the judges on these answers
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from jobs.conduct import STOPPED
from jobs.curation import RateConfig
from jobs.data import data_folder
from jobs.panel import Panel, Step
from sequor import released
from sequor.curation import ratings, rubrics
from sequor.curation.candidates import read_candidates
from sequor.curation.ratings import Plan, Votes
from sequor.curation.samples import Tasks
from sequor.curation.select import MEASURES
from sequor.curation.votes import Tally
from sequor.errors import BadInput
from sequor.parsing import DEFAULT_PARSER
from sequor.prompts.render import digest
from sequor.run_folder import write_atomically


def rate(config: RateConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written, ClusterError for a judge nobody understands."""
    plan = _plan(config)
    panel = Panel("rate", config, out, console)
    steps = _steps(plan)
    panel.ask(steps["satisfiability"], lambda judge: ratings.satisfiability_questions(plan, judge))
    votes = Votes(plan)
    votes.take_rubrics(panel.records("satisfiability"))
    further = _further(plan, votes, config.satisfiable_at_least)
    if further.candidates and panel.code != STOPPED:
        panel.ask(steps["answers"], lambda name: ratings.answer_questions(further, name))
        panel.ask(steps["verdicts"], _verdicts(panel, further))
    votes.take_verdicts(panel.records("verdicts"))
    _write(out, plan, votes)
    _show(plan, votes, len(further.candidates), out, console)
    return panel.code


def _plan(config: RateConfig) -> Plan:
    if not config.judges or not config.answerers:
        missing = "judges" if not config.judges else "answerers"
        raise BadInput(f"{missing}: none is named; {missing}.NAME.model=MODEL names one")
    candidates = tuple(read_candidates(_source(config.input)))[: config.count]
    tasks = Tasks(released.load_tasks(data_folder(config.data)))
    plan = Plan(candidates, tasks, config.tasks, config.seed, tuple(config.judges), tuple(config.answerers))
    plan.drawn("triviality")  # too few tasks are found out before anything starts
    return plan


def _source(name: str) -> Path:
    """Of a folder, what `filter` kept there or else what `extract` found."""
    path = Path(name).expanduser()
    return path / "kept.jsonl" if (path / "kept.jsonl").exists() else path


def _steps(plan: Plan) -> dict[str, Step]:
    tasks = {"tasks": plan.tasks.digest}
    rubric_facts = {"prompt": digest("rubrics"), "parser": rubrics.PARSER}
    sharing = {"prompt": digest("constrained"), "answerers": ", ".join(plan.answerers)}
    verdict_facts = {"prompt": digest("judge"), "parser": DEFAULT_PARSER}
    return {
        "satisfiability": Step(
            "satisfiability", "judge", tasks | rubric_facts, ratings.rubric_vote_of, rubrics.CHOICES
        ),
        "answers": Step("answers", "answerer", tasks | sharing),
        "verdicts": Step("verdicts", "judge", tasks | verdict_facts, ratings.vote_of, ratings.VERDICTS),
    }


def _further(plan: Plan, votes: Votes, at_least: float) -> Plan:
    """The plan for what is worth more questions."""
    if not at_least:
        return plan
    kept = [
        candidate
        for at, candidate in enumerate(plan.candidates)
        if (lowest := votes.satisfiability.count(at).lowest) is not None and lowest >= at_least
    ]
    return replace(plan, candidates=tuple(kept))


def _verdicts(panel: Panel, plan: Plan) -> Callable:
    return lambda judge: ratings.verdict_questions(plan, panel.records("answers"), judge)


def _write(out: Path, plan: Plan, votes: Votes) -> None:
    """In the candidates' order: percentages under the release's names, readable votes behind them, and every tally."""
    encoder, lines = msgspec.json.Encoder(), []
    for at, candidate in enumerate(plan.candidates):
        counts = votes.counts(at)
        row = msgspec.to_builtins(candidate) | ratings.percents(counts)
        row |= {"n": ratings.votes_behind(counts), "votes": msgspec.to_builtins(counts)}
        lines.append(row)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "ratings.jsonl", encoder.encode_lines(lines))


def _show(plan: Plan, votes: Votes, further: int, out: Path, console: Console) -> None:
    table = Table(title="votes, over all constraints", title_justify="left", box=None, pad_edge=False)
    for column in ("measure", "judge", "yes", "readable", "%", "unreadable"):
        table.add_column(column, justify="left" if column in ("measure", "judge") else "right")
    counts = [votes.counts(at) for at in range(len(plan.candidates))]
    unreadable = 0
    for measure in MEASURES:
        for judge in plan.judges:
            total = _sum([count[measure].judges[judge] for count in counts])
            unreadable += total.unreadable
            table.add_row(measure, judge, *_cells(total))
        table.add_row(measure, "all say so", *_cells(_sum([count[measure].all_yes for count in counts])))
        table.add_row(measure, "all agree", *_cells(_sum([count[measure].all_agree for count in counts])))
    console.print(table)
    rated = sum(None not in ratings.percents(count).values() for count in counts)
    console.print(f"{out}: ratings.jsonl")
    console.print(f"in={len(counts)} rated_further={further} rated={rated} unreadable={unreadable}")


def _sum(tallies: list[Tally]) -> Tally:
    return Tally(sum(t.yes for t in tallies), sum(t.n for t in tallies), sum(t.unreadable for t in tallies))


def _cells(tally: Tally) -> list[str]:
    percent = "-" if tally.percent is None else f"{tally.percent:.1f}"
    return [f"{tally.yes:,}", f"{tally.n:,}", percent, f"{tally.unreadable:,}"]
