"""tuples: pool -> tuples that one answer can follow together, in the release's format, with figures 20 to 22.

compatibility/   the judges on every sampled tuple
answers/         the answering models on the compatible ones
verdicts/        the judges on these answers
"""

from pathlib import Path

import msgspec
from msgspec.structs import replace
from rich.console import Console

from jobs.conduct import STOPPED
from jobs.curation import TuplesConfig
from jobs.data import data_folder
from jobs.panel import Panel, Step
from sequor import released
from sequor.curation import figures
from sequor.curation import tuples as rules
from sequor.curation.ratings import VERDICTS, vote_of
from sequor.curation.samples import Tasks
from sequor.curation.select import bins, category_counts, kept_at
from sequor.curation.tuples import Plan
from sequor.curation.votes import Count, Tally
from sequor.errors import BadInput
from sequor.parsing import DEFAULT_PARSER
from sequor.prompts.render import digest
from sequor.run_folder import write_atomically
from sequor.types import Constraint, ConstraintTuple

THRESHOLDS = tuple(float(percent) for percent in range(101))


def tuples(config: TuplesConfig, out: Path, console: Console) -> int:
    """Returns an exit code. Raises BadInput before anything is written, ClusterError for a judge nobody understands."""
    pool, plan = _plan(config)
    panel = Panel("tuples", config, out, console)
    facts = {"tasks": plan.tasks.digest}
    judged = facts | {"parser": DEFAULT_PARSER}
    panel.ask(
        Step("compatibility", "judge", judged | {"prompt": digest("compatible")}, vote_of, VERDICTS),
        lambda judge: rules.compatibility_questions(plan, judge),
    )
    counts = rules.compatibility(plan, panel.records("compatibility"))
    compatible = [d for d, c in zip(plan.tuples, counts, strict=True) if _at_least(c, config.compatible_at_least)]
    further = replace(plan, tuples=tuple(compatible))
    if compatible and panel.code != STOPPED:
        panel.ask(
            Step("answers", "answerer", facts | {"prompt": digest("constrained")}),
            lambda name: rules.answer_questions(further, name),
        )
        panel.ask(
            Step("verdicts", "judge", judged | {"prompt": digest("judge")}, vote_of, VERDICTS),
            lambda judge: rules.verdict_questions(further, panel.records("answers"), judge),
        )
    tallies = rules.answered(further, panel.records("verdicts"))
    found = dict(zip((drawn.key for drawn in compatible), tallies, strict=True))
    kept = _write(out, plan, counts, found, config)
    _figures(out / "figures", pool, tallies, kept, config.answered_at_least)
    _show(out, plan, counts, found, kept, config, console)
    return panel.code


def _plan(config: TuplesConfig) -> tuple[tuple[Constraint, ...], Plan]:
    if not config.judges or not config.answerers:
        missing = "judges" if not config.judges else "answerers"
        raise BadInput(f"{missing}: none is named; {missing}.NAME.model=MODEL names one")
    pool = released.load_constraints(Path(config.input).expanduser())
    if faulty := next((c.id for c in pool if "|" in c.id or "+" in c.id), None):
        raise BadInput(f"{config.input}: id {faulty!r}: an id has no | and no +")
    tasks = Tasks(released.load_tasks(data_folder(config.data)))
    drawn = rules.sample(pool, config.size, config.triples, config.near, config.seed)
    plan = Plan(drawn, tasks, config.tasks, config.seed, tuple(config.judges), tuple(config.answerers))
    plan.drawn("answers", "")  # too few tasks are found out before anything starts
    return pool, plan


def _at_least(count: Count, threshold: float) -> bool:
    percent = count.all_yes.percent
    return percent is not None and percent >= threshold


def _write(
    out: Path, plan: Plan, counts: list[Count], found: dict[str, Tally], config: TuplesConfig
) -> list[ConstraintTuple]:
    """sampled.jsonl: every sampled tuple with its percentages and why it goes; the kept ones in the release's format,
    with none of these in it when there is none."""
    kept, rows = [], []
    for drawn, count in zip(plan.tuples, counts, strict=True):
        tally = found.get(drawn.key)
        reason = _reason(count, tally, config)
        if reason is None:
            kept.append(ConstraintTuple(f"tuple{config.size}-{len(kept) + 1:05d}", drawn.constraints))
        row = {"constraint_ids": [c.id for c in drawn.constraints], "constraints": [c.text for c in drawn.constraints]}
        row |= {"compatible": count.all_yes.percent, "answered": tally.percent if tally else None, "dropped": reason}
        rows.append(row | {"votes": {"compatible": count, "answered": tally}})
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / "sampled.jsonl", msgspec.json.Encoder().encode_lines(rows))
    if kept:
        released.write_tuples(out, kept)
    else:
        (out / "constraints" / f"{config.size}.jsonl").unlink(missing_ok=True)
    return kept


def _reason(count: Count, tally: Tally | None, config: TuplesConfig) -> str | None:
    percent = count.all_yes.percent
    if percent is None:
        return "compatibility: no readable vote of all judges"
    if tally is None:
        return f"compatible in {percent:g}% of the tasks, below {config.compatible_at_least:g}"
    if tally.percent is None:
        return "answers: no task is decided"
    if tally.percent < config.answered_at_least:
        return f"an answer in {tally.percent:g}% of the tasks, below {config.answered_at_least:g}"
    return None


def _figures(
    folder: Path, pool: tuple[Constraint, ...], tallies: list[Tally], kept: list[ConstraintTuple], threshold: float
) -> None:
    values = [tally.percent for tally in tallies]
    figures.kept_against_threshold(
        folder, 20, "tuples with an answer", THRESHOLDS, kept_at(values, THRESHOLDS), threshold
    )
    figures.distribution(folder, 21, "compatible tuples", bins(values))
    category = {constraint.id: constraint.category for constraint in pool}
    parts = {
        "constraints": category_counts(category.values()),
        "in tuples": category_counts(category[c.id] for t in kept for c in t.constraints),
    }
    figures.categories(folder, 22, parts)


def _show(
    out: Path,
    plan: Plan,
    counts: list[Count],
    found: dict[str, Tally],
    kept: list[ConstraintTuple],
    config: TuplesConfig,
    console: Console,
) -> None:
    unreadable = sum(tally.unreadable for count in counts for tally in count.judges.values())
    undecided = sum(tally.unreadable for tally in found.values())
    sampled = len(plan.tuples)
    best, low, high = rules.needed(sampled, len(kept), config.wanted)
    if best is None:
        text = f"none of {sampled:,} kept: {config.wanted:,} kept want more than {low:,} sampled"
    else:
        text = f"{config.wanted:,} kept want about {best:,} sampled ({low:,} to {high:,}); triples=N continues"
    console.print(f"{out}: constraints/{config.size}.jsonl, sampled.jsonl, figures/")
    console.print(f"unreadable votes on compatibility: {unreadable:,}; tasks left undecided by answers: {undecided:,}")
    console.print(text)
    console.print(f"sampled={sampled} compatible={len(found)} kept={len(kept)}")
