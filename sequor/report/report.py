"""Run folders -> a folder of figures, tables and pages, and Parquet files beside each run.

    OUT/index.html  data/     pages, opened from disk
    OUT/figures/              PDF, PNG and the CSV behind each
    OUT/tables/               Markdown, CSV and LaTeX of each
    RUN/results/              turns.parquet, judgements.parquet; inspect/*.eval where asked for

1. Each run is read by a process of its own, one a core; what comes back is columns, never text.
2. Everything is written again from the records each time; the same records give the same bytes. A report that was there
   is replaced when the new one is whole.
"""

import csv
import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sequor.errors import BadInput
from sequor.report import figures, figures_more, inspect_log, tables_of, transcripts
from sequor.report.analysis import Analysis
from sequor.report.figure_parts import Figure
from sequor.report.frame import Run
from sequor.report.reading import model_of, read
from sequor.report.statistics import RESAMPLES
from sequor.report.tables import Table
from sequor.report.truth import Truth
from sequor.run_folder import RunFolder, write_atomically

MARK = ".sequor-report"
"""Stands in a folder that a report made, so that nothing else is ever cleared."""


class Options(Struct, frozen=True, kw_only=True):
    judge: str | None = None
    compare_paper: bool = False
    categories: Mapping[str, str] = {}
    """Constraint id -> category."""
    resamples: int = RESAMPLES
    seed: int = 0
    processes: int | None = None
    inspect: bool = False


class Made(Struct, frozen=True):
    out: Path
    figures: int
    tables: int
    dialogues: int
    notes: list[str]


def write_report(paths: list[Path], out: Path | None, options: Options) -> Made:
    """Raises BadInput."""
    if not paths:
        raise BadInput("report: which run? Name one folder or several")
    paths = list(dict.fromkeys(run.resolve() for path in paths for run in _runs_in(path)))
    labels = _labels(paths)
    if options.inspect:
        inspect_log.require()
    out = out or _default_out(paths)
    _refuse_other(out)
    place = out.resolve()  # `.` has no name
    part = place.with_name(f".{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (part / MARK).touch()
    try:
        made = _write(paths, labels, part, options)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    if place.exists():
        shutil.rmtree(place)
    part.replace(place)
    return replace(made, out=out)


def _write(paths: list[Path], labels: list[str], out: Path, options: Options) -> Made:
    keys = [f"r{number}" for number in range(len(paths))]
    runs = _read_all(paths, labels, keys, out, options)
    if not any(frame.turns.status.any() for run in runs for frame in run.sets.values()):
        raise BadInput(f"{paths[0]}/turns.jsonl: no turn in it; nothing to report yet")
    key_of = {run.path: key for run, key in zip(runs, keys, strict=True)}
    analysis = Analysis(runs, options.resamples, options.seed)
    tables = list(tables_of.all_tables(analysis, options.categories, options.compare_paper))
    drawn = _write_figures(out / "figures", analysis, options)
    _write_tables(out / "tables", tables)
    from sequor.report.page import write_page

    title = analysis.labels[0] if len(runs) == 1 else f"{len(runs)} models"
    write_page(out, analysis, [key_of[run.path] for run in analysis.runs], drawn, tables, title)
    count = sum(len(frame.dialogues) for run in runs for frame in run.sets.values())
    return Made(out, len(drawn), len(tables), count, analysis.notes)


def _runs_in(path: Path) -> list[Path]:
    """The folder itself, or the runs in it, when it holds runs and is none."""
    below = sorted(file.parent for file in path.glob("*/run.json")) if path.is_dir() else []
    return below if below and not (path / "run.json").exists() else [path]


def _labels(paths: list[Path]) -> list[str]:
    """The model's name without its owner; with the folder's name where two runs have the same."""
    files = [RunFolder(path).read() for path in paths]
    short = [
        model_of(file).rstrip("/").rpartition("/")[2] or path.name for file, path in zip(files, paths, strict=True)
    ]
    twice = Counter(short)
    long = [f"{name} ({path.name})" if twice[name] > 1 else name for name, path in zip(short, paths, strict=True)]
    twice = Counter(long)
    return [name if twice[name] == 1 else f"{name} {number}" for number, name in enumerate(long, 1)]


def _default_out(paths: list[Path]) -> Path:
    return paths[0] / "report" if len(paths) == 1 else Path("runs") / "report"


def _refuse_other(out: Path) -> None:
    """Raises BadInput when something else than a report stands there."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out}: a file, not a folder")
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise BadInput(f"{out}: not empty, and no report in it; --out names another folder")


def _read_all(paths: list[Path], labels: list[str], keys: list[str], out: Path, options: Options) -> list[Run]:
    work = [
        (path, label, out / "data" / key, key, options) for path, label, key in zip(paths, labels, keys, strict=True)
    ]
    processes = min(len(work), options.processes or os.cpu_count() or 1)
    if processes == 1:
        return [_take(*arguments) for arguments in work]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_take, *zip(*work, strict=True)))


def _take(path: Path, label: str, folder: Path, key: str, options: Options) -> Run:
    """Read one run; write its transcripts and its Parquet files."""
    from sequor.report.parquet import Writer

    found = read(path, label, options.judge)
    run, records = found.run, transcripts.Records.open(path)
    sheets = Writer(run, path / "results")
    for number, frame in enumerate(run.sets.values()):
        transcripts.write_set(folder / str(number), f"{key}/{number}", run, frame)
    slots = {name: transcripts.first_slots(frame) for name, frame in run.sets.items()}
    results = {name: {judge: frame.results(judge) for judge in run.judges} for name, frame in run.sets.items()}
    truth = Truth(run)
    logs = inspect_log.Writer(run, path / "results" / "inspect") if options.inspect else None
    for number, frame, row, dialogue in transcripts.dialogues(found):
        told = transcripts.tell(found, frame, row, records, slots[frame.name])
        truth.fill(frame, row, told, slots[frame.name])
        file = folder / str(number) / f"{row}.js"
        transcripts.write_dialogue(file, f"{key}/{number}/{row}", dialogue, told, frame, run.judges)
        codes = {judge: rows[row] for judge, rows in results[frame.name].items()}
        sheets.add(frame, row, dialogue, told, codes.get(run.judge or ""))
        if logs:
            logs.add(frame, row, dialogue, told, codes)
    sheets.close()
    if logs:
        logs.close()
    records.close()
    return run


def _figures(analysis: Analysis, options: Options) -> Iterator[Figure]:
    yield from figures.paper_figures(analysis)
    yield from figures_more.more_figures(analysis, options.categories)


def _write_figures(folder: Path, analysis: Analysis, options: Options) -> list[Figure]:
    from sequor.report.plot import save

    drawn = []
    for figure in _figures(analysis, options):
        save(figure.draw, folder / figure.name)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(figure.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in figure.rows)
        (folder / f"{figure.name}.csv").write_text(text.getvalue(), "utf-8")
        drawn.append(figure)
    return drawn


def _write_tables(folder: Path, tables: list[Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        for ending, text in (("md", table.markdown()), ("csv", table.csv()), ("tex", table.latex())):
            write_atomically(folder / f"{table.name}.{ending}", text.encode())
