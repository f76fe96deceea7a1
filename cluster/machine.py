"""What this machine has: cores, memory, GPUs. Asked of the system and the GPU's driver; nothing is started."""

import os
import subprocess
from pathlib import Path

from msgspec import Struct

GIB = 2**30


class Gpu(Struct, frozen=True):
    name: str
    memory_gib: float


class Machine(Struct, frozen=True):
    cores: int
    memory_gib: float
    gpus: tuple[Gpu, ...]

    def __str__(self) -> str:
        gpus = ", ".join(f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in self.gpus) or "no GPU"
        return f"{self.cores} cores, {self.memory_gib:.0f} GiB of memory, {gpus}"


def this_machine() -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return Machine(len(os.sched_getaffinity(0)), memory, _gpus(memory))


def physical_cores() -> int:
    """Of those that this process may use, each once, whatever the number of its threads."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    return len(cores)


def _gpus(memory_gib: float) -> tuple[Gpu, ...]:
    """By nvidia-smi; none where it is not there. `memory_gib`: of the machine, which some GPUs share ([N/A])."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = (line.rpartition(",") for line in listed.splitlines() if line.strip())
    return tuple(
        Gpu(name.strip(), float(memory) / 1024 if memory.strip().isdecimal() else memory_gib)
        for name, _, memory in rows
    )
