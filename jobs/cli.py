"""sequor VERB: the verbs joined. `python -m jobs VERB` is the same.

Exit codes: 0 complete; 2 bad config or input, nothing started; 3 finished but incomplete, run it again; 4 engine or
cluster failed; 75 stopped by a signal, state saved, run it again. An error is one line on standard error.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from cluster.driver import ClusterError, Unreachable
from jobs.conduct import stopping_signals
from jobs.storage import RELEASED, check_out
from sequor.errors import BadInput
from sequor.types import TEST_SETS

BAD_INPUT, ENGINE_FAILED, STOPPED = 2, 4, 75
TYPERS_INTERRUPTED = 130

app = typer.Typer(
    help="Does a language model still follow its user's rules after fifty turns?",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...", help="A YAML file, and settings over it: turns=10 candidate.replicas=8"
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[INPUT] [CONFIG.yaml] [KEY=VALUE]...", help="What to read, and settings as above."),
]


def _checked(out: Path | None) -> Path | None:
    """A driver may run where its folder is not (jobs/storage.py). Raises BadInput."""
    if out is not None and (note := check_out(out)):
        print(f"sequor: note: {note}", file=sys.stderr)
    return out


def _out(help: str):
    return typer.Option("--out", "-o", callback=_checked, help=help)


Out = Annotated[Path, _out("The run's folder; one that is there already is continued.")]
Run = Annotated[Path, typer.Argument(help="A run's folder.")]
Model = Annotated[str | None, typer.Option("--model", "-m", help="Candidate: a hub's repository name or a folder.")]
Judge = Annotated[str | None, typer.Option("--judge", "-j", help="Judge: likewise.")]
Judges = Annotated[
    list[str] | None,
    typer.Option("--judge", "-j", help="Judge: likewise. Given again, more judges; the scores are the first one's."),
]


def _config(settings: list[str] | None, model: str | None = None, judges: list[str] | None = None):
    """The one config. Raises BadInput where there are several."""
    configs = _configs(settings, model, judges)
    if len(configs) > 1:
        raise BadInput(f"{len(configs)} candidates, and this verb takes one: name it with --model")
    return next(iter(configs.values()))


def _configs(settings: list[str] | None, model: str | None = None, judges: list[str] | None = None):
    """Name -> config. `model`: that one alone, also of a config with a list."""
    from jobs.config import load_all

    words = list(settings or [])
    words += [f"candidate.model={model}"] if model else []
    if judges:
        words += [f"judge.model={judges[0]}"] + [f"more_judges={json.dumps(judges[1:])}"] * (len(judges) > 1)
    return load_all(*_files(words), only=model)


def _files(words: list[str]) -> tuple[Path | None, list[str]]:
    """The config file, if one is named, and the settings over it."""
    files = [word for word in words if "=" not in word]
    if len(files) > 1:
        raise BadInput(f"command line: one config at a time, not {' and '.join(files)}")
    return Path(files[0]) if files else None, [word for word in words if "=" in word]


def _play(configs, out: Path, roles: tuple[str, ...]) -> None:
    from jobs.play import play_all

    raise typer.Exit(play_all(configs, out, roles))


@app.command()
def run(settings: Settings = None, out: Out = Path("runs/run"), model: Model = None, judge: Judges = None) -> None:
    """Play every dialogue, judge every answer as it arrives, score. The main verb."""
    _play(_configs(settings, model, judge), out, ("candidate", "judge"))


@app.command()
def respond(settings: Settings = None, out: Out = Path("runs/run"), model: Model = None) -> None:
    """Only the candidate's part of a run."""
    _play(_configs(settings, model), out, ("candidate",))


@app.command()
def judge(
    settings: Settings = None,
    out: Out = Path("runs/run"),
    judge: Judge = None,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="Ask once more where a judge gave no readable verdict.")
    ] = False,
) -> None:
    """Only the judges' part: what is answered and not yet judged. Settings default to the run's own; another judge's
    verdicts stand beside the first one's."""
    from jobs.play import judge_again

    raise typer.Exit(judge_again(out, settings or [], judge, only_failed))


@app.command()
def score(
    run: Run,
    parser: Annotated[
        str | None, typer.Option(help="Read the judges' replies with another parser: released/1.")
    ] = None,
    min_coverage: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of decided turns that a headline needs; the run's own.")
    ] = None,
) -> None:
    """Records to scores/*.csv and a table. Needs no GPU, no Ray, no network."""
    from jobs.progress import console
    from jobs.score import show
    from sequor.scoring import score

    screen = console()
    scores, tally = score(run, parser, min_coverage)
    show(scores, tally, screen)
    if parser is not None:
        screen.print(f"{parser} reads {tally.reread:,} of {tally.replies:,} replies otherwise than the run's own")
    screen.print(str(tally))
    raise typer.Exit(3 if tally.lost or tally.low else 0)


@app.command()
def checkable(
    path: Annotated[Path, typer.Argument(help="A pool of constraints (JSON lines), a data folder, or a run's folder.")],
) -> None:
    """Constraints that a program can decide; of a run, how often its judge agrees with the truth."""
    from jobs.checkable import show
    from jobs.progress import console

    show(path, console())


@app.command()
def status(run: Run) -> None:
    """Where a run stands, from its folder alone, from any machine."""
    from jobs.progress import console
    from jobs.status import show

    show(run, console())


@app.command()
def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN...", help="One run's folder or several.")] = None,
    out: Annotated[Path | None, _out("Default: RUN/report of one run, runs/report of several.")] = None,
    judge: Annotated[str | None, typer.Option("--judge", "-j", help="Whose verdicts count, of several.")] = None,
    categories: Annotated[
        Path | None, typer.Option(help='Categories of constraints: JSON lines of {"id", "category"}, such as a pool.')
    ] = None,
    compare_paper: Annotated[bool, typer.Option("--compare-paper", help="Tables 5 and 6 beside the paper's.")] = False,
    inspect: Annotated[bool, typer.Option("--inspect", help="Also RUN/results/inspect, for Inspect's viewer.")] = False,
) -> None:
    """Figures, tables and pages of one run or many; RUN/results/*.parquet. Needs no GPU, no Ray, no network."""
    from jobs.progress import console
    from jobs.report import report

    report(runs or [], out, judge, categories, compare_paper, inspect, console())


@app.command()
def check(settings: Settings = None, model: Model = None, judge: Judges = None) -> None:
    """Before a run: what it needs and what the model will really see. Starts nothing."""
    from jobs.check import check
    from jobs.progress import console

    check(_config(settings, model, judge), console())


@app.command()
def plan(
    settings: Settings = None,
    model: Model = None,
    judge: Judges = None,
    gpu_memory: Annotated[float, typer.Option(min=1, help="GiB of one GPU.")] = 80.0,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Expected length of an answer.")] = 780,
    verdict_tokens: Annotated[int, typer.Option(min=1, help="Expected length of a judge's reply.")] = 300,
    speed: Annotated[float, typer.Option(min=1, help="Output tokens/s of one candidate replica.")] = 2000.0,
    judge_speed: Annotated[float, typer.Option(min=1, help="Likewise of a judge's.")] = 2000.0,
) -> None:
    """Tokens, KV cache, how many dialogues are live, expected hours. Starts nothing."""
    from jobs.plan import Assumed, plan
    from jobs.progress import console

    assumed = Assumed(gpu_memory, answer_tokens, verdict_tokens, speed, judge_speed)
    plan(_config(settings, model, judge), assumed, console())


@app.command()
def fetch(
    out: Annotated[Path, _out("Where to put it.")] = Path(RELEASED),
    source: Annotated[Path | None, typer.Option("--from", help="A local copy instead of the download.")] = None,
) -> None:
    """The released data (constraints, tasks, 1,400 dialogues) into data/released."""
    from jobs.fetch import fetch
    from jobs.progress import console

    fetch(source, out, console())


@app.command()
def demo(settings: Settings = None, out: Out = Path("runs/demo")) -> None:
    """The whole run, small, on this machine, with the embedded model as candidate and judge."""
    from jobs.demo import demo

    raise typer.Exit(demo(settings or [], out))


@app.command()
def validate(
    folder: Annotated[Path, typer.Argument(help="A folder of test sets, ours or the released one.")],
    turns: Annotated[int, typer.Option(help="Facts are counted over the first so many turns.")] = 50,
) -> None:
    """A folder of test sets: its facts, its faults."""
    from jobs.progress import console
    from jobs.validate import show

    show(folder, turns, console())


@app.command()
def build(
    out: Annotated[Path, _out("Where the test sets go; a new folder.")],
    data: Annotated[Path, typer.Option(help="Folder with tasks/ and constraints/; demo: the demo's.")] = Path(RELEASED),
    tasks: Annotated[Path | None, typer.Option(help="Another folder of tasks.")] = None,
    constraints: Annotated[Path | None, typer.Option(help="Another pool: a JSON lines file.")] = None,
    tuples: Annotated[Path | None, typer.Option(help="Other tuples: a JSON lines file.")] = None,
    introductions: Annotated[Path | None, typer.Option(help="Templates of the introductions: a YAML file.")] = None,
    sets: Annotated[str, typer.Option(help="With commas; any step: replace_7, add_20.")] = ",".join(TEST_SETS),
    turns: Annotated[int, typer.Option(min=1)] = 50,
    dialogues: Annotated[int | None, typer.Option(min=1, help="The first so many personas.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most constraints in force in Add and Everything.")] = 3,
    rhythm: Annotated[Literal["release", "paper"], typer.Option(help="When Everything changes.")] = "release",
    seed: int = 0,
) -> None:
    """Tasks, constraints and tuples into test sets. Same seed, same bytes."""
    from jobs.build import build
    from jobs.data import data_folder
    from jobs.progress import console
    from sequor.testsets import Recipe

    recipe = Recipe(
        seed=seed, test_sets=tuple(sets.split(",")), turns=turns, dialogues=dialogues, limit=limit, rhythm=rhythm
    )
    rest = data if tasks and constraints and tuples else data_folder(str(data))
    build(tasks or rest, constraints or rest, tuples or rest, introductions, recipe, out, console())


@app.command()
def synthesize(
    settings: Settings = None,
    out: Out = Path("runs/tasks"),
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Who writes: a hub's repository or a folder.")
    ] = None,
    personas: Annotated[Path | None, typer.Option("--personas", "-p", help='JSON lines: {"persona": text}.')] = None,
) -> None:
    """Personas into tasks: agenda, activities, questions."""
    words = [word for word in settings or []]
    words += [f"model.model={model}"] if model else []
    words += [f"personas={personas}"] if personas else []
    from jobs.play import synthesize

    raise typer.Exit(synthesize(*_files(words), out))


@app.command()
def filter(
    words: Words = None,
    out: Annotated[Path, _out("Where kept.jsonl and dropped.jsonl go.")] = Path("runs/filtered"),
) -> None:
    """Candidates without other languages, near-duplicates and bad words (datatrove). Needs no model of ours."""
    from jobs.curation import FilterConfig, words_to_config
    from jobs.filter import filter
    from jobs.progress import console

    raise typer.Exit(filter(words_to_config(words or [], FilterConfig), out, console()))


@app.command()
def select(
    ratings: Annotated[Path, typer.Argument(help="What rate wrote (folder or file), or the release's single.jsonl.")],
    out: Annotated[Path, _out("Where the pool goes.")] = Path("runs/pool"),
    threshold: Annotated[float, typer.Option(min=0, max=100, help="Percent; for all three.")] = 70.0,
    satisfiability: Annotated[float | None, typer.Option(min=0, max=100, help="Another one for this alone.")] = None,
    triviality: Annotated[float | None, typer.Option(min=0, max=100)] = None,
    subjectivity: Annotated[float | None, typer.Option(min=0, max=100)] = None,
    votes: Annotated[int, typer.Option(min=1, help="Readable votes that each judge must have given.")] = 1,
) -> None:
    """Ratings into the pool, with the sweeps over thresholds. Asks no model."""
    from jobs.progress import console
    from jobs.select import select

    own = {"satisfiability": satisfiability, "triviality": triviality, "subjectivity": subjectivity}
    thresholds = {measure: threshold if value is None else value for measure, value in own.items()}
    select(ratings, out, thresholds, votes, console())


@app.command()
def extract(
    words: Words = None,
    out: Out = Path("runs/extracted"),
    model: Annotated[str | None, typer.Option("--model", "-m", help="Who reads: a hub's repository.")] = None,
) -> None:
    """Chat logs (Parquet, JSON lines, ShareGPT) into candidates for constraints."""
    from jobs.curation import curate

    raise typer.Exit(curate("extract", words or [], out, **({"model.model": model} if model else {})))


@app.command()
def rate(words: Words = None, out: Out = Path("runs/rated")) -> None:
    """Candidates judged: satisfiable, not trivial, objective. Settings name judges and answering models."""
    from jobs.curation import curate

    raise typer.Exit(curate("rate", words or [], out))


@app.command()
def tuples(words: Words = None, out: Out = Path("runs/tuples")) -> None:
    """The pool into tuples of constraints that one answer can follow together."""
    from jobs.curation import curate

    raise typer.Exit(curate("tuples", words or [], out))


@app.command()
def gold(words: Words = None, out: Out = Path("runs/gold")) -> None:
    """Models write answers that follow a rule, and answers that break it: gold for judges."""
    from jobs.curation import curate

    raise typer.Exit(curate("gold", words or [], out))


@app.command()
def judge_judges(words: Words = None, out: Out = Path("runs/judges")) -> None:
    """Judges on gold answers: how often each is right, with intervals, cost and speed."""
    from jobs.curation import curate

    raise typer.Exit(curate("judge-judges", words or [], out))


def main() -> None:
    """Turns the errors that a user can act on into one line and an exit code; anything else keeps its traceback."""
    if broken := next((word for word in sys.argv if not word.isascii() and _is_no_utf8(word)), None):
        _die(f"command line: {ascii(broken)} is no UTF-8", BAD_INPUT)
    for stream in (sys.stdout, sys.stderr):  # a terminal's encoding may lack what a model's name or a path has
        stream.reconfigure(errors="backslashreplace")
    for signum in stopping_signals():
        signal.signal(signum, signal.default_int_handler)  # until a run takes it over
    try:
        app()
    except KeyboardInterrupt:
        _die("interrupted", STOPPED)
    except SystemExit as end:
        if end.code != TYPERS_INTERRUPTED:
            raise
        _die("interrupted; what was finished is saved", STOPPED)
    except (BadInput, Unreachable) as error:
        _die(str(error), BAD_INPUT)
    except ClusterError as error:
        _die(str(error), ENGINE_FAILED)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        _die(f"{error.filename or 'writing'}: {os.strerror(error.errno)}", ENGINE_FAILED)


def _is_no_utf8(word: str) -> bool:
    """Bytes that are none come as half characters, which no file of a run could hold."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


def _die(message: str, code: int) -> None:
    print(f"sequor: {message}", file=sys.stderr)
    sys.exit(code)
