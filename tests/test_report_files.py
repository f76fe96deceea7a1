"""The folder that a report leaves: figures, tables, Parquet; the command; what cannot be reported."""

import csv
import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from madeup import write_run

from sequor.report.report import Options, write_report
from sequor.report.sample import write_runs
from sequor.report.statistics import Estimate
from sequor.report.tables import Column, Table

ROOT = Path(__file__).resolve().parents[1]
ROWS = {"a": "s s v v", "b": "s u v s", "c": "s v v v", "d": "s s s s"}
SMALL = {"single": ROWS}


def sequor(*words: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "jobs", "report", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def refused(*words: object) -> str:
    """Asserts exit code 2 and returns the one line."""
    done = sequor(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.splitlines()
    return line


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> tuple[Path, list[Path]]:
    folder = tmp_path_factory.mktemp("sample")
    runs = write_runs(folder / "runs", models=2, dialogues=6, turns=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_report(runs, folder / "out", Options(resamples=200))
    return folder / "out", runs


def test_every_figure_is_there_three_times_and_every_table_too(sample):
    out, _ = sample
    figures = {path.stem for path in (out / "figures").iterdir()}
    wanted = {"figure-05-accuracy-per-turn", "figure-06-first-and-last-turn", "figure-07-everything"}
    wanted |= {
        f"figure-{n}-heatmap-{s}" for n, s in enumerate("single tuples_3 replace_5 replace_10 add_5 add_10".split(), 25)
    }
    assert wanted <= figures
    assert sorted(path.name for path in (out / "figures").iterdir()) == sorted(
        f"{f}.{e}" for f in figures for e in ("csv", "pdf", "png")
    )
    tables = {path.stem for path in (out / "tables").iterdir()}
    assert {
        "main",
        "ranking",
        "table-5-last-minus-first",
        "table-6-worst-minus-best",
        "table-7-tokens",
        "differences",
    } <= tables
    assert len(list((out / "tables").iterdir())) == 3 * len(tables)
    assert all((out / "figures" / f"{f}.pdf").read_bytes().startswith(b"%PDF") for f in figures)


def test_the_same_records_give_the_same_bytes(sample, tmp_path):
    out, runs = sample
    write_report(runs, tmp_path / "again", Options(resamples=200, processes=1))
    files = [path.relative_to(out) for path in out.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert [file for file in files if (tmp_path / "again" / file).read_bytes() != (out / file).read_bytes()] == []


def test_a_dialogue_is_a_file_and_the_index_small(sample):
    out, _ = sample
    assert len(list((out / "data").glob("r*/*/[0-9]*.js"))) == 2 * 7 * 6
    text = (out / "data" / "r0" / "0" / "0.js").read_text()
    assert text.startswith('sequor.put("r0/0/0",') and text.endswith(");\n")
    dialogue = json.loads(text[len('sequor.put("r0/0/0",') : -3])
    assert len(dialogue["turns"]) == 12 and dialogue["turns"][0]["rules"][0]["verdicts"][0]["reply"]


def test_parquet_is_read_by_duckdb(sample):
    duckdb = pytest.importorskip("duckdb")
    _, runs = sample
    turns, judgements = (str(runs[0].parent / "*" / "results" / f"{name}.parquet") for name in ("turns", "judgements"))
    assert duckdb.sql(f"SELECT count(*), count(DISTINCT model) FROM '{turns}'").fetchall() == [(2 * 7 * 6 * 12, 2)]
    ours = duckdb.sql(
        f"SELECT count(*) FILTER (result = 'passed'), count(*) FILTER (result = 'failed') FROM '{turns}' "
        f"WHERE run = '{runs[0].name}' AND test_set = 'single' AND turn = 3"
    ).fetchall()[0]
    with open(sample[0] / "figures" / "figure-25-heatmap-single.csv") as file:
        model = duckdb.sql(f"SELECT any_value(model) FROM '{turns}' WHERE run = '{runs[0].name}'").fetchall()[0][0]
        [row] = [row for row in csv.DictReader(file) if row["model"] == model and row["turn"] == "3"]
    assert 100 * ours[0] / sum(ours) == pytest.approx(float(row["accuracy"]), abs=0.01)
    lines = sum((run / "judgements.jsonl").read_bytes().count(b"\n") for run in runs)
    assert duckdb.sql(f"SELECT count(*) FROM '{judgements}'").fetchall() == [(lines,)]
    assert duckdb.sql(f"SELECT min(given), max(in_force) FROM '{judgements}'").fetchall() == [(1, 3)]


def test_parquet_is_read_by_datasets(sample, tmp_path):
    datasets = pytest.importorskip("datasets")
    _, runs = sample
    files = str(runs[0] / "results" / "turns.parquet")
    found = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    assert (
        len(found) == 7 * 6 * 12 and found[0]["turn"] == 1 and found[0]["result"] in ("passed", "failed", "undecided")
    )


def test_every_column_of_the_parquet_is_explained(sample):
    import pyarrow.parquet as pq

    for name in ("turns", "judgements"):
        schema = pq.read_schema(sample[1][0] / "results" / f"{name}.parquet")
        assert all(field.metadata[b"description"] for field in schema)


def table(kind="percent") -> Table:
    columns = (Column("model"), Column("a|b", kind, True))
    return Table("t", "100% & more", columns, [["x_1 | <i> $y$", Estimate(0.5, 0.25, 0.75)], ["z", None]], "note")


def test_a_table_in_three_ways():
    assert "| x\\_1 \\| \\<i\\> $y$ | 50.0 [25.0, 75.0] |" in table().markdown()
    assert table().csv() == "model,a|b,a|b low,a|b high\nx_1 | <i> $y$,50.0,25.0,75.0\nz,,,\n"
    assert r"x\_1 | <i> \$y\$ & 50.0 [25.0, 75.0] \\" in table().latex()
    assert r"\caption{100\% \& more. note}" in table().latex()


def test_points_carry_their_sign():
    t = Table("t", "t", (Column("d", "points", True),), [[Estimate(-0.125, -0.2, 0.1)], [Estimate(0.0, 0, 0)]])
    assert t.shown() == [["−12.5 [−20.0, +10.0]"], ["0.0 [0.0, 0.0]"]]
    assert "$-$12.5 [$-$20.0, +10.0]" in t.latex() and "\n-12.5,-20.0,10.0\n" in t.csv()


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ({"everything": {"a": "s"}}, {}),
        ({"single": {"a": "u u", "b": "u u"}}, {}),
        ({"single": {"a": "s - -"}}, {"turns": {("single", "a", n): None for n in (2, 3)}}),
        (SMALL, {"judge": None}),
        ({"replace_7": ROWS, "add_2": ROWS}, {}),
    ],
    ids=["one turn", "nothing readable", "half a run", "not judged", "other sets"],
)
def test_a_report_of_little_is_a_report(tmp_path, rows, more):
    run = write_run(tmp_path / "run", rows, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = write_report([run], None, Options(resamples=50, processes=1))
    assert made.out == run / "report" and (made.out / "index.html").exists() and made.tables >= 2


def test_the_command_says_what_it_made(tmp_path):
    folder = write_run(tmp_path / "run", SMALL, model="Qwen/Qwen3-4B-Instruct-2507")
    done = sequor(folder, "--compare-paper", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    figures, tables = (
        len(list((tmp_path / "out/figures").glob("*.pdf"))),
        len(list((tmp_path / "out/tables").glob("*.md"))),
    )
    assert done.stdout.splitlines()[-1] == f"{tmp_path}/out figures={figures} tables={tables}"
    assert "Qwen3-4B-Inst" in (tmp_path / "out/tables/paper-table-5.md").read_text()


def test_a_folder_of_runs_is_all_of_them(tmp_path):
    for name in "mn":
        write_run(tmp_path / "runs" / name, SMALL, model=name)
    made = write_report([tmp_path / "runs"], tmp_path / "out", Options(resamples=50, processes=1))
    assert made.dialogues == 8


def test_what_cannot_be_reported_is_one_line(tmp_path):
    folder = write_run(tmp_path / "run", SMALL)
    assert "which run" in refused()
    assert "is this the folder of a run" in refused(tmp_path / "nothing")
    assert "no verdict of the judge nobody; there are those of judge" in refused(folder, "--judge", "nobody")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").touch()
    assert "not empty, and no report in it" in refused(folder, "--out", tmp_path / "mine")
    (tmp_path / "pool.jsonl").write_text('{"id": "c0"}\n')
    assert "pool.jsonl:1: not a JSON object" in refused(folder, "--categories", tmp_path / "pool.jsonl")


def test_an_empty_run_is_refused_and_the_old_report_stays(tmp_path):
    folder = write_run(tmp_path / "run", SMALL)
    out = write_report([folder], None, Options(resamples=50, processes=1)).out
    (folder / "turns.jsonl").write_text("")
    assert "no turn in it" in refused(folder)
    assert (out / "index.html").exists() and not list(folder.glob(".report*"))


def test_categories_come_from_a_pool(tmp_path):
    folder = write_run(tmp_path / "run", SMALL)
    (tmp_path / "pool.jsonl").write_text('{"id": "c0", "category": "style_rules"}\n')
    assert sequor(folder, "--categories", tmp_path / "pool.jsonl").returncode == 0
    assert "style_rules" in (folder / "report/figures/more-06-category.csv").read_text()


def test_inspect_is_asked_for_only_where_it_is(tmp_path):
    folder = write_run(tmp_path / "run", SMALL)
    if importlib.util.find_spec("inspect_ai") is None:
        assert "pip install 'sequor[inspect]'" in refused(folder, "--inspect")
    else:
        assert sequor(folder, "--inspect").returncode == 0


def test_inspect_reads_the_transcripts(tmp_path):
    inspect_log = pytest.importorskip("inspect_ai.log")
    turns = {("single", "a", 2): {"reasoning": "Hm."}}
    folder = write_run(tmp_path / "run", SMALL | {"add_5": {"a": "u u"}}, turns=turns)
    write_report([folder], None, Options(resamples=50, processes=1, inspect=True))
    log = inspect_log.read_eval_log(str(folder / "results/inspect/single.eval"))
    assert log.status == "success" and [sample.id for sample in log.samples] == ["a", "b", "c", "d"]
    assert len(log.samples[0].messages) == 8 and log.samples[0].messages[3].content[0].reasoning == "Hm."
    assert log.samples[0].scores["judge"].value == 0.5
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(9 / 15)
    assert (folder / "results/inspect/add_5.eval").exists()
