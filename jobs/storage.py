"""Where data is looked for, and where the driver of a Ray job writes.

That driver runs on a machine that nobody chose, usually the cluster's head, in a copy of the working directory that Ray
removes with the job. What the user names by `--out` must outlive that.

1. A file is no folder, nor is what would lie below one.
2. Of a Ray job, a folder inside the copy is refused.
3. So is one whose parent is not there: it was meant for another machine. (A driver that was started by hand makes it.)
4. A folder on that machine's own disk is taken, and said: nobody else will see it.
"""

import os
import socket
from pathlib import Path

from sequor.errors import BadInput

RELEASED = "data/released"
"""Where `fetch` puts the released data, and where it is looked for."""

OWN_DISKS = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
"""File systems that are one machine's alone, by their names in /proc/self/mounts."""


def is_ray_job() -> bool:
    """Whether this process was started by `ray job submit`."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def check_out(out: Path) -> str:
    """Rules 1 to 4: what is to be said, empty where there is nothing. Raises BadInput."""
    path, here = out.absolute(), socket.gethostname()
    there = next(place for place in (path, *path.parents) if place.exists())
    if not there.is_dir():
        raise BadInput(f"--out {out}: {'' if there == path else f'{there} is '}not a folder")
    if not is_ray_job():
        return ""
    if "working_dir_files" in path.parts:
        raise BadInput(f"--out {out}: lies in Ray's copy of the working directory, which goes with the job; {NAME}")
    if not path.parent.is_dir():
        raise BadInput(f"--out {out}: {path.parent} is not there on {here}, where the driver runs; {NAME}")
    kind = file_system(path.parent)
    return f"{out} lies on a disk of {here} alone ({kind})" if kind in OWN_DISKS else ""


NAME = "name a folder on storage that the cluster shares"


def file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Type of the file system that holds a folder; empty where the system does not tell."""
    try:
        table = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    holding = [(point, kind) for _, point, kind, *_ in table if real.is_relative_to(_unescaped(point))]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else ""


def _unescaped(point: str) -> str:
    """Blanks stand there as octal numbers."""
    return point.encode().decode("unicode_escape")
