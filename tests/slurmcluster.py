"""A real Slurm of several nodes on this machine: everything in one folder, no systemd, nothing in /etc or /run.

Needs root and Debian's slurm-wlm and munge. Its daemons are ended by their pids.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY")

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=10
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=10
KillWait=10
OverTimeLimit=0
GresTypes=gpu
StateSaveLocation={folder}/ctld
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PartitionName=test Nodes=ALL Default=YES MaxTime=01:00:00 State=UP
"""
NODE = (
    "NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.{ip} Port={port} CPUs=8 Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket=8 ThreadsPerCore=1 RealMemory=8000 Gres=gpu:2 State=UNKNOWN\n"
)


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    absent = [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]
    return f"Slurm is not installed ({', '.join(absent)}): apt-get install slurm-wlm munge" if absent else ""


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Slurm:
    """`home`: where jobs are submitted from. Folders beside it are what nodes share."""

    def __init__(self, folder: Path, home: Path):
        self.folder, self.home = folder, home
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))
        } | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}

    def call(self, *words: object, **more) -> subprocess.CompletedProcess:
        environment = self.environment | more.pop("env", {})
        return subprocess.run(
            [*map(str, words)], cwd=self.home, env=environment, capture_output=True, text=True, timeout=60, **more
        )

    def submit(self, *words: object, env: dict[str, str] | None = None) -> str:
        """sbatch -> job id. All tasks of an array log into one file."""
        log = f"--output={self.folder}/%A.log"
        done = self.call("sbatch", "--parsable", log, *words, env=env or {})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def log(self, job: str) -> str:
        path = self.folder / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def job(self, job: str) -> dict[str, str]:
        """What Slurm says of it: JobState, Restarts, ExitCode, ..."""
        said = self.call("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(re.findall(r"(\w+)=(\S+)", said))

    def ended(self, job: str, timeout: float = 120) -> dict[str, str]:
        """Wait for a job's end. Its last state."""
        deadline = time.time() + timeout
        while (state := self.job(job)).get("JobState") not in ENDED:
            assert time.time() < deadline, f"{state}\n{self.log(job)}"
            time.sleep(0.3)
        return state

    def processes(self, variable: str) -> list[Path]:
        """/proc/PID of this cluster's jobs that have `variable` ("NAME=VALUE") in their environment."""
        mine, found = {variable, f"SLURM_CONF={self.folder}/slurm.conf"}, []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mine <= set(path.read_bytes().decode(errors="replace").split("\0")):
                    found.append(path.parent)
            except OSError:
                continue
        return found

    def kill_node(self, name: str) -> None:
        """As a machine does that loses its power: slurmd, its steps, and whatever they have started."""
        theirs = self.processes(f"SLURMD_NODENAME={name}")
        pids = {int(path.name) for path in theirs} | {_step_above(path) for path in theirs}
        for pid in {int((self.folder / f"slurmd.{name}.pid").read_text()), *pids} - {0}:
            _kill(pid, signal.SIGKILL)


def _step_above(process: Path) -> int:
    """The slurmstepd that started a process; 0 where its parent is none."""
    parent = Path("/proc") / (process / "stat").read_text().rpartition(")")[2].split()[1]
    return int(parent.name) if "slurmstepd" in (parent / "cmdline").read_text() else 0


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return


@contextmanager
def slurm(folder: Path, home: Path, nodes: int) -> Iterator[Slurm]:
    """Nodes n1, n2, ... The last one finds FOLDER/hidden empty, where this machine lets it have mounts of its own."""
    (folder / "ctld").mkdir(parents=True)
    (folder / "hidden").mkdir()
    environment = Slurm(folder, home).environment
    try:
        _start(folder, nodes, environment)
        yield Slurm(folder, home)
    finally:
        for path in [*folder.glob("slurmctld.pid"), *folder.glob("slurmd.*.pid"), *folder.glob("munged.pid")]:
            _end(int(path.read_text()))


def _start(folder: Path, nodes: int, environment: dict[str, str]) -> None:
    host = socket.gethostname().partition(".")[0]
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    ports = free_ports(nodes + 1)
    for gpu in range(2):
        os.mknod(folder / f"gpu{gpu}", 0o20666, os.makedev(1, 3))  # devices that are none: /dev/null
    lines = [NODE.format(n=n, host=host, ip=10 + n, port=ports[n]) for n in range(1, nodes + 1)]
    (folder / "slurm.conf").write_text(CONF.format(host=host, ctld=ports[0], folder=folder) + "".join(lines))
    (folder / "gres.conf").write_text(f"NodeName=n[1-{nodes}] Name=gpu File={folder}/gpu[0-1]\n")
    munge = [f"--{name}={folder}/{file}" for name, file in MUNGE.items()]
    daemons = [["munged", "--force", *munge], ["slurmctld"], *(["slurmd", "-N", f"n{n}"] for n in range(1, nodes + 1))]
    if can_hide():
        hide = f'mount -t tmpfs none {folder}/hidden && exec "$@"'
        daemons[-1] = ["unshare", "--mount", "sh", "-c", hide, "-", *daemons[-1]]
    for words in daemons:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{words[0]}: {done.stderr}"
    deadline = time.time() + 30
    idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
    while subprocess.run(idle, env=environment, capture_output=True, text=True).stdout.strip() != str(nodes):
        assert time.time() < deadline, "\n".join(path.read_text()[-1000:] for path in folder.glob("*.log"))
        time.sleep(0.1)


MUNGE = {
    "key-file": "munge.key",
    "socket": "munge.sock",
    "pid-file": "munged.pid",
    "log-file": "munged.log",
    "seed-file": "munge.seed",
}


def can_hide() -> bool:
    """Whether a process may have mounts of its own; not in every container."""
    return (
        subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode
        == 0
    )


def free_ports(count: int) -> list[int]:
    """Below Linux's range of ports that are given out by themselves, where a client's end could take one any time."""
    found: list[int] = []
    for port in range(17000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as there:
            if there.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            break
    return found


def _end(pid: int) -> None:
    _kill(pid, signal.SIGTERM)
    for _ in range(100):
        if not _runs(pid):
            return
        time.sleep(0.1)
    _kill(pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    """Not one that has ended and whose parent, this machine's first process, has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
