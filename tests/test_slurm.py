"""slurm/job.sh under a real Slurm on this machine: one node and several, the queue, limits, losses, errors in words."""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurmcluster import ENDED, Slurm, can_hide, missing, slurm
from test_run import keys, lines, run, scores
from tiny import tiny_model

ROOT = Path(__file__).resolve().parents[1]
TINY = ("run", "configs/tiny.yaml", "turns=40")

slow = pytest.mark.skipif("SEQUOR_SLOW" not in os.environ, reason="takes minutes; SEQUOR_SLOW=1 asks for it")
RELEASE = Path(os.environ.get("SEQUOR_RELEASE", Path(__file__).parents[2] / "shared" / "sequor-release"))

pytestmark = [pytest.mark.ray, pytest.mark.skipif(bool(missing()), reason=missing())]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    """Three nodes. The folder's name is short: sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="slurm.", dir="/tmp"))
    try:
        with slurm(folder, ROOT, nodes=3) as started:
            yield started
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(out)
    return out


def complete(out: Path, like: Path) -> None:
    """Every record once, the scores of the undisturbed run, nothing left beside the run's folder."""
    assert scores(out) == scores(like)
    for name, fields in (
        ("turns.jsonl", ("test_set", "dialogue", "turn")),
        ("judgements.jsonl", ("test_set", "dialogue", "turn", "constraint", "judge")),
    ):
        found = keys(out / name, *fields)
        assert len(found) == len(set(found)) == lines(like / name)
    assert not list(out.parent.glob(".*.slurm-*"))


def played(out: Path, turns: int, job: str, cluster: Slurm) -> None:
    """Wait until so many turns are on disk."""
    deadline = time.time() + 90
    while lines(out / "turns.jsonl") < turns:
        assert time.time() < deadline and cluster.job(job)["JobState"] not in ENDED, cluster.log(job)
        time.sleep(0.05)


def test_a_run_on_two_nodes_is_the_run_of_one_machine(cluster, undisturbed, tmp_path):
    """With a GPU's worth of resources for each engine, so that both nodes are needed."""
    out = tmp_path / "run"
    stray = {"RAY_ADDRESS": "127.0.0.1:1"}  # a cluster that the user's shell was at work with, long gone
    job = cluster.submit(
        "-N2", "-c2", "-t5", "--gpus-per-node=2", "slurm/job.sh", *TINY, "candidate.gpus=1", "judge.gpus=1",
        "--out", out, env=stray,
    )  # fmt: skip
    state = cluster.ended(job)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), cluster.log(job)
    complete(out, undisturbed)
    logs = list((out / "logs" / "ray").glob(f"{job}.0/*"))
    assert len(logs) == 2
    assert all(list(node.glob("raylet.out")) and list(node.glob("python-core-worker-*")) for node in logs)
    assert json.loads((out / "run.json").read_bytes())["config"]["ray_address"] is None  # it will not be there again
    assert not list(Path("/tmp").glob(f"sq.{job}.*"))


@pytest.mark.engine
@pytest.mark.skipif(not (RELEASE / "testsets").is_dir(), reason=f"no released data at {RELEASE} (SEQUOR_RELEASE)")
def test_the_real_engine_on_two_nodes_plays_the_released_dialogues(cluster, tmp_path):
    """A core on each node, and an engine takes one: the candidate's is on one node, the judge's on the other."""
    model, out = tiny_model(tmp_path / "model", max_position_embeddings=8192), tmp_path / "run"
    words = [f"data={RELEASE}", "sets=[single,add_5]", "dialogues=1", "turns=6", "candidate.sampling.max_tokens=32"]
    words += ['judge.sampling={max_tokens: 16, choices: ["Final verdict: yes", "Final verdict: no"]}']
    words += [f"{role}.engine_args={{kv_cache_memory_bytes: 200000000}}" for role in ("candidate", "judge")]
    words += ["judge.max_model_len=4096", "-m", model, "-j", model, "--out", out]  # else one engine would do for both
    job = cluster.submit("-w", "n[1,2]", "-N2", "-c1", "-t10", "slurm/job.sh", "run", *words)
    state = cluster.ended(job, timeout=400)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), cluster.log(job)
    turns = keys(out / "turns.jsonl", "test_set", "dialogue", "turn")
    assert len(turns) == len(set(turns)) == 2 * 6
    assert "lost=0 repeated=0" in cluster.log(job)
    hosts = [node for node in (out / "logs" / "ray" / f"{job}.0").iterdir() if list(node.glob("worker-*.out"))]
    assert len(hosts) == 2
    assert all(list((out / "logs").glob(f"{role}-0.0.log")) for role in ("candidate", "judge"))


def test_tasks_of_an_array_share_a_node_and_what_killed_jobs_left_is_swept_away(cluster, undisturbed, tmp_path):
    models = tmp_path / "models.txt"
    models.write_text(f"--out {tmp_path}/one\n--out '{tmp_path}/an other' candidate.replicas=1\n")
    left = [Path(tempfile.mkdtemp(prefix="sq.1.4194305.", dir="/tmp")), tmp_path / ".one.slurm-999999.0"]  # no such pid
    left[1].mkdir()
    job = cluster.submit("-w", "n1", "-c2", "-t5", "--array=1-2", "slurm/job.sh", models, *TINY)
    both = (f"{job}_1", f"{job}_2")
    assert [cluster.ended(task)["JobState"] for task in both] == ["COMPLETED"] * 2, cluster.log(job)
    started, ended = (sorted(cluster.job(task)[key] for task in both) for key in ("StartTime", "EndTime"))
    assert started[1] < ended[0]  # at the same time
    complete(tmp_path / "one", undisturbed)
    complete(tmp_path / "an other", undisturbed)
    assert not any(path.exists() for path in left)


def test_a_job_told_of_its_time_limit_is_requeued_and_loses_nothing(cluster, undisturbed, tmp_path):
    out = tmp_path / "run"
    job = cluster.submit("-c2", "-t5", "slurm/job.sh", *TINY, "--out", out)
    played(out, 150, job, cluster)
    cluster.call("scancel", "--signal=USR1", "--batch", job)  # what --signal=B:USR1@120 does, two minutes ahead
    state = cluster.ended(job)
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "1"), cluster.log(job)
    assert "stopped ahead of the time limit; back into the queue" in cluster.log(job)
    complete(out, undisturbed)
    assert {path.name for path in (out / "logs" / "ray").iterdir()} == {f"{job}.0", f"{job}.1"}


@slow
def test_a_cancelled_job_is_gone_and_its_run_goes_on_where_it_was(cluster, undisturbed, tmp_path):
    """Slurm's signal goes to Ray as well: engines and driver end at once, and what is on disk is on disk."""
    out = tmp_path / "run"
    job = cluster.submit("-c2", "-t5", "slurm/job.sh", *TINY, "--out", out)
    played(out, 100, job, cluster)
    cluster.call("scancel", job)
    state = cluster.ended(job)
    assert (state["JobState"], state["Restarts"]) == ("CANCELLED", "0"), cluster.log(job)
    deadline = time.time() + 30  # the state is the controller's; the node's part takes longer
    while (alive := cluster.processes(f"SLURM_JOB_ID={job}")) and time.time() < deadline:
        time.sleep(0.2)
    assert not alive
    before = lines(out / "turns.jsonl")
    again = cluster.submit("-c2", "-t5", "slurm/job.sh", *TINY, "--out", out)
    assert cluster.ended(again)["JobState"] == "COMPLETED", cluster.log(again)
    assert 100 <= before < lines(out / "turns.jsonl")
    complete(out, undisturbed)


def test_slurm_itself_refuses_a_wrong_partition(cluster):
    done = cluster.call("sbatch", "-p", "nowhere", "slurm/job.sh", *TINY)
    assert done.returncode != 0
    assert "invalid partition specified: nowhere" in done.stderr


@pytest.mark.parametrize(
    ("options", "words", "says"),
    [
        ([], [*TINY], "name the run's folder, on storage that all nodes share: --out FOLDER"),
        (["--array=3"], ["no-such.txt", *TINY], "no-such.txt: no such file; line N of it holds the words of task N"),
        (["--array=99"], ["pyproject.toml", *TINY], "pyproject.toml: line 99, of task 99, is empty or not there"),
    ],
)
def test_a_job_without_the_words_it_needs_ends_with_2_and_says_so(cluster, options, words, says):
    job = cluster.submit("-t5", *options, "slurm/job.sh", *words)
    state = cluster.ended(job)
    assert (state["JobState"], state["ExitCode"]) == ("FAILED", "2:0")
    assert says in cluster.log(job)


def test_a_verb_that_refuses_its_input_ends_the_job_with_its_code_and_its_line(cluster, tmp_path):
    job = cluster.submit("-t5", "slurm/job.sh", "run", "no-such.yaml", "--out", tmp_path / "run")
    assert cluster.ended(job)["ExitCode"] == "2:0"
    assert "sequor: no-such.yaml: no such config" in cluster.log(job)
    assert not list(tmp_path.iterdir())


def test_a_node_without_ray_is_named_at_once(cluster, tmp_path):
    job = cluster.submit(
        "-t5", "slurm/job.sh", *TINY, "--out", tmp_path / "run", env={"SEQUOR_PYTHON": "/usr/bin/python3 -S"}
    )
    assert cluster.ended(job)["ExitCode"] == "4:0"
    assert re.search(r"sequor: n\d: Ray did not start", cluster.log(job))
    assert "No module named" in cluster.log(job)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not missing() and not can_hide(), reason="no process may have mounts of its own here")
def test_storage_that_a_node_does_not_share_is_found_before_anything_starts(cluster, tmp_path):
    """Node n3 sees an empty folder where the others see the run's."""
    job = cluster.submit(
        "-w", "n[1,3]", "-N2", "-t5", "slurm/job.sh", *TINY, "--out", cluster.folder / "hidden" / "run"
    )
    assert cluster.ended(job)["ExitCode"] == "2:0", cluster.log(job)
    said = cluster.log(job)
    assert f"sequor: n3 does not see {cluster.folder}/hidden/" in said
    assert "must lie on storage that all nodes share" in said


@slow
def test_a_job_at_its_time_limit_is_requeued_until_it_is_done(cluster, undisturbed, tmp_path):
    """Two minutes at a time, for a run of more than that. Slurm may give its signal up to a minute early."""
    out = tmp_path / "run"
    slowly = (
        "candidate.script=sequor.scripts:unhurried",
        "candidate.replicas=1",
        "candidate.engine_args.max_num_seqs=2",
    )
    job = cluster.submit("-c2", "-t2", "--signal=B:USR1@25", "slurm/job.sh", *TINY, *slowly, "--out", out)
    state = cluster.ended(job, timeout=600)
    assert state["JobState"] == "COMPLETED", cluster.log(job)
    assert int(state["Restarts"]) >= 1
    complete(out, undisturbed)


@slow
def test_a_lost_node_costs_its_engines_and_nothing_else(cluster, undisturbed, tmp_path):
    out = tmp_path / "run"
    words = (
        "candidate.replicas=4",
        "candidate.gpus=0.25",
        "judge.gpus=0.25",
        "candidate.script=sequor.scripts:unhurried",
    )
    job = cluster.submit(
        "-w", "n[1,2]", "-N2", "-c2", "-t5", "--gpus-per-node=1", "slurm/job.sh", *TINY, *words, "--out", out
    )
    played(out, 200, job, cluster)
    cluster.kill_node("n2")
    state = cluster.ended(job, timeout=240)
    assert (state["JobState"], state["Restarts"]) == ("COMPLETED", "0"), cluster.log(job)
    assert "is lost" in (out / "logs" / "driver.log").read_text()
    complete(out, undisturbed)
