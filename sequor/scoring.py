"""A run's folder -> its scores, and how complete they are. Reads the records once, a line at a time."""

from collections import Counter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sequor import metrics
from sequor.errors import BadInput
from sequor.judging import read_again
from sequor.metrics import SetScore
from sequor.parsing import PARSERS
from sequor.run_folder import RunFile, RunFolder
from sequor.tables import SET_COLUMNS, TURN_COLUMNS, set_rows, turn_rows, write_csv
from sequor.types import TASK_COMPLETION, TestSet


class Tally(Struct, frozen=True):
    """Records against what there should be. `lost`: turns and judgements that have no record yet."""

    turns: int
    judgements: int
    coverage: float
    lost: int
    repeated: int
    outcomes: dict[str, Counter[str]]
    reread: int = 0
    """Replies that another parser than the run's own reads otherwise, of `replies`."""
    replies: int = 0
    """Records of judgements, those of further attempts included."""
    min_coverage: float = metrics.MIN_COVERAGE
    low: tuple[tuple[str, str], ...] = ()
    """(judge, test set) of which too little is decided for a headline."""
    chosen: bool = False
    """The judge was made to choose a verdict (`judge.sampling.choices`): it could not leave one out, nor reason."""

    def __str__(self) -> str:
        return (
            f"turns={self.turns} judgements={self.judgements} coverage={self.coverage:.4f} "
            f"lost={self.lost} repeated={self.repeated}"
        )


Key = tuple[str, str, int]
"""(test set, dialogue, turn)"""


class _Turns:
    """What turns.jsonl holds."""

    def __init__(self, folder: RunFolder, outcomes: dict[str, Counter[str]]):
        self.answered: set[Key] = set()
        self.seen: set[Key] = set()
        self.repeated = 0
        for record in folder.turns:
            key = (record.test_set, record.dialogue, record.turn)
            if key in self.seen:
                self.repeated += 1
                continue
            self.seen.add(key)
            outcomes[record.test_set][f"turn {record.status}"] += 1
            if record.status in metrics.ANSWERED:
                self.answered.add(key)


class _Judgements:
    """What judgements.jsonl holds: judge -> turn -> constraint -> status. `parser`: reads the replies once more."""

    def __init__(self, folder: RunFolder, outcomes: dict[str, Counter[str]], parser: str | None):
        self.reread = self.replies = 0
        self.verdicts: dict[str, dict[Key, dict[str, str]]] = {}
        self.count = self.repeated = 0
        self.completing: set[str] = set()
        """Judges who were asked about task completion."""
        attempts: dict[str, int] = {}
        """Of keys that were asked again."""
        for record in folder.judgements:
            turns = self.verdicts.setdefault(record.judge, {})
            statuses = turns.setdefault((record.test_set, record.dialogue, record.turn), {})
            before = statuses.get(record.constraint)
            if before is not None and record.attempt <= attempts.get(record.key, 1):
                self.repeated += 1
                continue
            kind = "judgement"
            if record.constraint == TASK_COMPLETION:
                kind = "completion"
                self.completing.add(record.judge)
            if before is not None:
                attempts[record.key] = record.attempt
                outcomes[record.test_set][f"{kind} {before}"] -= 1
            self.count += before is None
            status = record.status if parser is None else read_again(record, parser)
            self.replies += 1
            self.reread += status != record.status
            statuses[record.constraint] = counted = metrics.better(before, status)
            outcomes[record.test_set][f"{kind} {counted}"] += 1


def score(out: Path, parser: str | None = None, min_coverage: float | None = None) -> tuple[list[SetScore], Tally]:
    """Writes scores/*.csv. `parser`: read the judges' replies with this one instead, into scores/PARSER/; the records
    stay as they are. `min_coverage`: instead of the run's own. Raises BadInput when the folder is no run, or holds
    nothing to score, or for an unknown parser."""
    if parser is not None and parser not in PARSERS:
        raise BadInput(f"--parser: {parser!r} is none of {', '.join(PARSERS)}")
    folder = RunFolder(out)
    run = folder.read()
    chosen = any(run.fingerprint.get(f"judge[{j}].sampling.choices", "none") != "none" for j in run.judges)
    order = metrics.in_table_order(t.name for t in folder.test_sets())
    test_sets = sorted(folder.test_sets(), key=lambda t: order.index(t.name))
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in order}
    turns = _Turns(folder, outcomes)
    if not turns.seen:
        raise BadInput(f"{folder.turns.path}: no turn in it; nothing to score yet")
    judgements = _Judgements(folder, outcomes, parser)
    scores = [
        metrics.score(test_set, by_turn, judge)
        for judge, by_turn in sorted(judgements.verdicts.items())
        for test_set in test_sets
    ]
    tally = replace(_tally(test_sets, turns, judgements, scores, outcomes, run), chosen=chosen)
    least = float(run.config.get("min_coverage", metrics.MIN_COVERAGE)) if min_coverage is None else min_coverage
    low = tuple((s.judge, s.test_set) for s in scores if s.overall.coverage < least)
    tally = replace(tally, reread=judgements.reread, replies=judgements.replies, min_coverage=least, low=low)
    _write(out / "scores" / (parser or "").replace("/", "-"), scores, tally)
    return scores, tally


def _tally(
    test_sets: list[TestSet],
    turns: _Turns,
    judgements: _Judgements,
    scores: list[SetScore],
    outcomes: dict[str, Counter[str]],
    run: RunFile,
) -> Tally:
    """Verdicts of judges that belong to the run are lost where they are not there."""
    expected = {
        (t.name, d.id, number): len(turn.in_force)
        for t in test_sets
        for d in t.dialogues
        for number, turn in enumerate(d.turns, 1)
    }
    judges = len(run.judges | judgements.verdicts.keys())
    in_force = sum(count for key, count in expected.items() if key in turns.answered)
    to_judge = in_force * judges + len(turns.answered & expected.keys()) * len(
        run.completion_judges | judgements.completing
    )
    decided = sum(s.overall.passed + s.overall.failed for s in scores)
    possible = sum(s.overall.dialogues for s in scores)
    return Tally(
        turns=len(turns.seen),
        judgements=judgements.count,
        coverage=decided / possible if possible else 0.0,
        lost=len(expected) - len(turns.seen) + to_judge - judgements.count,
        repeated=turns.repeated + judgements.repeated,
        outcomes=outcomes,
    )


def _write(folder: Path, scores: list[SetScore], tally: Tally) -> None:
    write_csv(folder / "turns.csv", TURN_COLUMNS, turn_rows(scores))
    write_csv(folder / "sets.csv", SET_COLUMNS, set_rows(scores, tally.low))
    rows = [
        [name, outcome.split()[0], outcome.split()[1], str(count)]
        for name in metrics.in_table_order(tally.outcomes)
        for outcome, count in sorted(tally.outcomes[name].items())
        if count
    ]
    write_csv(folder / "outcomes.csv", ["test_set", "kind", "status", "count"], rows)
