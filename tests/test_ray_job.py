"""`ray job submit` against a real cluster with a dashboard; and clusters that cannot be joined, in words."""

import http.server
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurmcluster import free_ports
from test_run import lines, run, scores

from cluster.rayenv import cluster_address, prepare
from jobs.storage import check_out, file_system
from sequor.errors import BadInput

ROOT = Path(__file__).resolve().parents[1]
HOST = "127.0.0.3"
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


@pytest.fixture(scope="module")
def standing() -> Iterator[tuple[str, dict[str, str], Path]]:
    """A cluster as an administrator starts it: (address, environment of its users, its temporary folder)."""
    folder = Path(tempfile.mkdtemp(prefix="ray.", dir="/tmp"))
    token = folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    client, dashboard = free_ports(2)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {
        "RAY_API_SERVER_ADDRESS": f"http://{HOST}:{dashboard}",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "1",
    }
    ports = [f"--ray-client-server-port={client}", f"--dashboard-port={dashboard}", "--dashboard-agent-listen-port=0"]
    ports += ["--port=0", "--min-worker-port=0", "--max-worker-port=0"]
    where = [f"--node-ip-address={HOST}", f"--dashboard-host={HOST}", f"--temp-dir={folder}", "--num-cpus=2"]
    with open(folder / "start.log", "w") as log:
        head = subprocess.Popen([*RAY, "start", "--head", "--block", *ports, *where], env=environment, stdout=log)
    try:
        address = folder / "ray_current_cluster"  # Ray writes it after "Ray runtime started"
        while not (address.exists() and address.read_text()):
            assert head.poll() is None, (folder / "start.log").read_text()
            time.sleep(0.2)
        yield address.read_text().strip(), environment, folder
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def submit(home: Path, environment: dict[str, str], *words: str) -> tuple[int, str]:
    command = [*RAY, "job", "submit", "--working-dir", ".", "--", *words]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=180)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def laptop(tmp_path) -> Path:
    """A checkout with what collects there: data, runs, weights, an environment, none of which may travel."""
    home = tmp_path / "laptop"
    shutil.copytree(ROOT, home, ignore=shutil.ignore_patterns(".git", ".venv", "runs", ".*_cache", ".hypothesis"))
    for name in ("data/released/x.jsonl", "runs/old/turns.jsonl", "model/model.safetensors", ".venv/lib/x.so"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(os.urandom(2_000_000))
    return home


@pytest.mark.ray
def test_a_submitted_run_is_the_run_of_one_machine_and_only_the_program_travels(standing, laptop, tmp_path):
    _, environment, folder = standing
    out = tmp_path / "run"
    code, said = submit(laptop, environment, "python", "-m", "jobs", "run", "configs/tiny.yaml", "--out", str(out))
    assert code == 0, said
    assert "lost=0 repeated=0" in said
    run(tmp_path / "here", "turns=25")
    assert scores(out) == scores(tmp_path / "here")
    copies = list(folder.glob("session_2*/runtime_resources/working_dir_files/_ray_pkg_*/"))
    travelled = [path for copy in copies for path in copy.rglob("*") if path.is_file()]
    assert any(path.name == "tiny.yaml" for path in travelled)
    assert not {"data", "runs", "model", ".venv", "tests"} & {
        path.relative_to(copies[0]).parts[0] for path in travelled
    }
    assert sum(path.stat().st_size for path in travelled) < 5_000_000


@pytest.mark.ray
def test_a_folder_in_the_copy_that_travelled_is_refused(standing, laptop):
    code, said = submit(laptop, standing[1], "python", "-m", "jobs", "run", "configs/tiny.yaml", "--out", "runs/x")
    assert code == 1  # of any failure of a job
    assert "--out runs/x: lies in Ray's copy of the working directory, which goes with the job" in said


@pytest.mark.ray
def test_a_wrong_token_is_refused_in_seconds_and_in_words(standing, tmp_path):
    address, environment, _ = standing
    wrong = tmp_path / "token"
    wrong.write_text(secrets.token_hex(32))
    code, said = joined(address, environment | {"RAY_AUTH_TOKEN_PATH": str(wrong)}, tmp_path / "run")
    assert code == 2, said
    assert said.splitlines()[-1].startswith(f"sequor: no Ray cluster at {address}: ")
    assert "RAY_AUTH_TOKEN_PATH" in said.splitlines()[-1]


def test_a_port_of_another_program_is_refused_at_once(tmp_path):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        code, said = joined(address, dict(os.environ), tmp_path / "run")
        server.shutdown()
    assert code == 2
    assert f"sequor: no Ray cluster at {address}: another program listens there" in said
    assert lines(tmp_path / "run" / "turns.jsonl") == 0


def test_a_cluster_that_is_gone_is_refused_at_once(tmp_path):
    [port] = free_ports(1)
    code, said = joined(f"127.0.0.1:{port}", dict(os.environ), tmp_path / "run")
    assert (code, said.strip()) == (2, f"sequor: no Ray cluster at 127.0.0.1:{port}: [Errno 111] Connection refused")


def joined(address: str, environment: dict[str, str], out: Path) -> tuple[int, str]:
    """By RAY_ADDRESS, as in a job."""
    command = [sys.executable, "-m", "jobs", "run", "configs/tiny.yaml", "--out", str(out)]
    environment = environment | {"RAY_ADDRESS": address}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_the_config_names_the_cluster_before_the_environment_does(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_address(None) is None
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert cluster_address(None) == "head:6379"
    assert cluster_address("other:6379") == "other:6379"
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")  # a dashboard's, for `ray job submit`
    assert cluster_address(None) is None


def test_a_cluster_of_our_own_has_a_token_and_one_that_is_joined_keeps_its_own(monkeypatch):
    monkeypatch.setattr(os, "environ", {"RAY_ADDRESS": "head:6379"})
    prepare(None)
    assert "RAY_AUTH_TOKEN" not in os.environ
    monkeypatch.setattr(os, "environ", {})
    prepare(None)
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


def test_what_is_said_of_a_folder_in_a_ray_job(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert check_out(tmp_path / "not" / "there") == ""  # started by hand: made as needed
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(BadInput, match="is not there on"):
        check_out(tmp_path / "not" / "there")
    monkeypatch.setattr("jobs.storage.file_system", lambda _: "nfs4")
    assert check_out(tmp_path / "run") == ""
    monkeypatch.setattr("jobs.storage.file_system", lambda _: "ext4")
    assert check_out(tmp_path / "run").endswith(" alone (ext4)")


def test_the_innermost_mount_holds_a_folder(tmp_path):
    inner = tmp_path / "a b"
    inner.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"d / ext4 rw 0 0\ns {tmp_path}/a\\040b nfs4 rw 0 0\nt {tmp_path}/a tmpfs rw 0 0\n")
    assert (file_system(inner, mounts), file_system(tmp_path, mounts)) == ("nfs4", "ext4")
    assert file_system(tmp_path, tmp_path / "none") == ""
