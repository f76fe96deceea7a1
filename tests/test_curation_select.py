"""Thresholds: who stays, who goes, and what other thresholds would leave."""

import csv
import json
import os
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from jobs.progress import console
from jobs.select import select
from sequor import released
from sequor.curation.select import MEASURES, Rated, bins, category_counts, kept_at, losses, read_ratings, sweep, thin
from sequor.errors import BadInput

RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))
needs_release = pytest.mark.skipif(
    not (RELEASE / "constraints").is_dir(), reason=f"no released data at {RELEASE}; name it in SEQUOR_RELEASE"
)
SEVENTY = dict.fromkeys(MEASURES, 70.0)


def rated(id: str = "a", satisfiability=90.0, triviality=90.0, subjectivity=90.0, **more) -> Rated:
    return Rated(f"Text of {id}", id, satisfiability, triviality, subjectivity, **more)


def write(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_70_is_kept_and_69_9_is_dropped():
    assert losses(rated(satisfiability=70.0), SEVENTY) == []
    assert losses(rated(satisfiability=69.9), SEVENTY) == ["satisfiability: 69.9 below 70"]
    assert losses(rated(triviality=100 * 7 / 10, subjectivity=100 * 21 / 30), SEVENTY) == []
    assert losses(rated(subjectivity=69.9), SEVENTY | {"subjectivity": 69.9}) == []


def test_what_has_no_rating_or_too_few_votes_does_not_stay():
    assert losses(rated(triviality=None), SEVENTY) == ["triviality: no rating"]
    few = rated(n={"satisfiability": 3, "triviality": 10, "subjectivity": 10})
    assert losses(few, SEVENTY, votes=3) == []
    assert losses(few, SEVENTY, votes=4) == ["satisfiability: 3 readable votes, 4 wanted"]


def test_a_hundred_percent_of_few_votes_is_said(tmp_path, capsys):
    """Unreadable or missing votes leave the denominator."""
    whole, few = ({measure: count for measure in MEASURES} for count in (10, 8))
    found = [rated("a", n=whole), rated("b", n=few), rated("c", n=whole | {"triviality": 9}), rated("d")]
    assert thin(found, found) == (1, 9) and thin(found, found[:1]) == (0, 9) and thin([], []) == (0, 0)
    path = write(tmp_path / "ratings.jsonl", *(msgspec.to_builtins(row) for row in found))
    for votes, says in ((1, True), (9, False)):
        select(path, tmp_path / "pool", SEVENTY, votes, console())
        assert ("WARNING: 1 of the kept rest on less than 90%" in capsys.readouterr().out) == says


def test_bins_hold_their_lower_end_and_the_last_one_both():
    found = {(low, high): count for low, high, count in bins([0, 4.99, 5, 95, 99.9, 100, None])}
    assert found[0, 5] == 2 and found[5, 10] == 1 and found[95, 100] == 3 and sum(found.values()) == 6
    assert len(found) == 20


def test_a_sweep_counts_each_measure_alone_and_all_together():
    rows = [rated("a", 80, 90, 100), rated("b", 70, 100, 75), rated("c", 100, None, 90)]
    assert sweep(rows, [70, 80, 100]) == [(70, 3, 2, 3, 2), (80, 2, 2, 2, 1), (100, 1, 1, 1, 0)]
    assert kept_at([None, 70.0], [70]) == [1]


def test_categories_outside_the_four_are_counted_as_none():
    found = category_counts(["style rules", "style rules", "topic", None])
    assert (found["style rules"], found["none"], found["number limitations"]) == (2, 2, 0)


@needs_release
def test_the_released_percentages_give_the_counts_that_the_file_gives(tmp_path, capsys):
    source = RELEASE / "constraints" / "single.jsonl"
    raw = [json.loads(line) for line in source.read_text().splitlines()]
    select(source, tmp_path, SEVENTY, 1, console())
    assert capsys.readouterr().out.splitlines()[-1] == (
        "in=1446 satisfiability=0 triviality=0 subjectivity=0 kept=1446"
    )
    with open(tmp_path / "sweep.csv") as file:
        table = {int(row["threshold"]): row for row in csv.DictReader(file)}
    for threshold in range(70, 101):
        for measure in MEASURES:
            assert int(table[threshold][measure]) == sum(row[measure] >= threshold for row in raw)
        assert int(table[threshold]["all"]) == sum(min(row[m] for m in MEASURES) >= threshold for row in raw)
    assert [int(table[t]["all"]) for t in (70, 80, 90, 100)] == [1446, 744, 202, 0]  # counted with another program
    assert (tmp_path / "constraints" / "single.jsonl").read_bytes() == source.read_bytes()


@needs_release
def test_figures_are_drawn_from_the_numbers_beside_them(tmp_path):
    select(RELEASE / "constraints" / "single.jsonl", tmp_path, SEVENTY | {"triviality": 95.0}, 1, console())
    folder = tmp_path / "figures"
    for number in (*range(12, 18), 22):
        assert (folder / f"figure_{number}.pdf").read_bytes()[:4] == b"%PDF"
        assert (folder / f"figure_{number}.png").stat().st_size > 10_000
    with open(folder / "figure_14.csv") as file:
        counts = {row["threshold"]: int(row["kept"]) for row in csv.DictReader(file)}
    assert counts["70"] == 1446 and counts["95"] == 995
    with open(folder / "figure_13.csv") as file:
        assert sum(int(row["count"]) for row in csv.DictReader(file)) == 1446
    kept = released.load_constraints(tmp_path)
    assert len(kept) == 995
    reasons = Counter(json.loads(line)["reasons"][0][:18] for line in (tmp_path / "dropped.jsonl").open())
    assert reasons.total() == 451 and all(reason.startswith("triviality") for reason in reasons)


def test_the_same_ratings_give_the_same_bytes(tmp_path):
    rows = [{"constraint": f"Text {n}", "id": f"c{n}", **dict.fromkeys(MEASURES, 60.0 + n)} for n in range(40)]
    source = write(tmp_path / "r.jsonl", *rows)
    for name in ("one", "two"):
        select(source, tmp_path / name, SEVENTY, 1, console())
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert len(files) > 20
    for file in files:
        if file.suffix != ".png":
            assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"constraint": "x y", "id": "a"}], "none of its constraints has satisfiability"),
        ([{"constraint": "x y", "id": "a", "triviality": 170}], ":1: triviality 170.0 is no percentage"),
        ([{"constraint": "x", "id": "a", "triviality": 1}] * 2, ":2: id a stands here for the second time"),
        ([], "holds no constraint"),
        ([{"constraint": "x", "id": "a", "triviality": "high"}], ":1: Expected `float"),
    ],
)
def test_ratings_that_cannot_be_used_are_named(tmp_path, rows, says):
    with pytest.raises(BadInput, match=says):
        read_ratings(write(tmp_path / "r.jsonl", *rows))
