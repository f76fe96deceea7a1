"""filter: candidates -> kept.jsonl and dropped.jsonl, through the datatrove pipeline of sequor/curation/pipeline.py."""

import os
import urllib.error
import urllib.request
from collections import deque
from hashlib import sha256
from pathlib import Path

import msgspec
from rich.console import Console

from jobs.conduct import COMPLETE, INCOMPLETE
from jobs.curation import FilterConfig
from sequor.curation.candidates import read_candidates
from sequor.curation.filters import WORD_LIST, read_list
from sequor.curation.language import COMPRESSED, FULL, model_digest, model_file
from sequor.curation.shards import write_shards
from sequor.errors import BadInput
from sequor.run_folder import RunFile, read_json, refuse_difference, write_atomically, write_json

SHOWN = 3
"""Examples of each reason on the screen."""


def filter(config: FilterConfig, out: Path, console: Console) -> int:
    """Returns an exit code: 3 when there was no word list to be had. Raises BadInput before anything is written."""
    model = model_file(config.language_model)
    words, note = _words(config)
    sequences = read_list(Path(config.sequences)) if config.sequences else []
    source = Path(config.input).expanduser()
    file = source / "candidates.jsonl" if source.is_dir() else source
    parts = {
        "stage": "filter",
        "input": _digest(file),
        "language_model": model_digest(model),
        "english_at_least": str(config.english_at_least),
        "words": sha256("\n".join(words).encode()).hexdigest()[:16] if words else "none",
        "sequences": sha256("\n".join(sequences).encode()).hexdigest()[:16] if sequences else "none",
    }
    if _done(out, parts) is None:
        _work(config, out, parts, str(model), (words, sequences))
    counts = _done(out, parts)
    if counts is None:
        console.print(f"{out}: submitted to Slurm; the same command shows the result when the jobs have ended")
        return INCOMPLETE
    _show(out, config, counts, note, console)
    return INCOMPLETE if note else COMPLETE


def _done(out: Path, parts: dict[str, str]) -> dict[str, int] | None:
    """The counts, when this has been done already. Raises BadInput for a folder of something else."""
    if not (out / "run.json").exists():
        if out.exists() and any(not path.name.startswith(".") for path in out.iterdir()):
            raise BadInput(f"{out}: not empty, and no run.json in it: not the folder of a stage")
        return None
    old = read_json(out / "run.json", RunFile).fingerprint
    if old.get("words") == "none":  # what had no word list may be done again with one
        refuse_difference(out, old | {"words": parts["words"]}, parts)
    else:
        refuse_difference(out, {"stage": "none"} | old, parts)
    done = (out / "counts.json").exists() and old == parts
    return read_json(out / "counts.json", dict[str, int]) if done else None


def _work(
    config: FilterConfig, out: Path, parts: dict[str, str], model: str, lists: tuple[list[str], list[str]]
) -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("LOGURU_LEVEL", "ERROR")
    from jobs.run import versions
    from sequor.curation import pipeline  # brings datatrove, which reads what was just set

    again = (out / "run.json").exists() and read_json(out / "run.json", RunFile).fingerprint == parts
    shards = _shards(out, config, again)
    if not again or not shards:
        source = Path(config.input).expanduser()
        deque(read_candidates(source), maxlen=0)  # what is wrong in it is found before anything is written
        said = msgspec.to_builtins(config)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "run.json", RunFile(said, parts, versions()))
        pipeline.forget(out)
        shards = write_shards(out, read_candidates(source), config.shard)
        write_json(out / "run.json", RunFile(said, parts, versions(), {"filter": {"shards": shards}}))
    filtering = pipeline.Filtering(
        str(out.resolve()),
        shards,
        config.workers or os.cpu_count() or 1,
        model,
        config.english_at_least,
        tuple(lists[0]),
        tuple(lists[1]),
        config.executor,
        config.slurm,
    )
    if config.executor == "ray":
        from cluster import replicas

        replicas.connect(config.ray_address)
        try:
            pipeline.run(filtering)
        finally:
            replicas.disconnect()
    else:
        pipeline.run(filtering)


def _shards(out: Path, config: FilterConfig, again: bool) -> int:
    """How many shards an earlier start has written; 0 when it did not get so far. Raises BadInput when its jobs may
    still be running."""
    if not again or not (out / "work" / "shards").is_dir():
        return 0
    if config.executor == "slurm" and (out / "logs" / "language" / "slurm_logs").exists() and not config.resubmit:
        raise BadInput(f"{out}: submitted before and not ended; see squeue, or submit again with resubmit=true")
    return int(read_json(out / "run.json", RunFile).engines.get("filter", {}).get("shards", 0))


def _words(config: FilterConfig) -> tuple[list[str], str]:
    """The list of bad words, and what is wrong when there is none."""
    if config.words is not None:
        return read_list(Path(config.words).expanduser()), ""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "sequor" / "badwords_en.txt"
    if not cache.exists():
        try:
            with urllib.request.urlopen(WORD_LIST, timeout=20) as answer:
                data = answer.read()
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(cache, data)
        except (urllib.error.URLError, OSError) as error:
            why = getattr(error, "reason", error)
            return [], f"bad words are NOT filtered: {WORD_LIST} cannot be downloaded ({why}); words=FILE names a list"
    return read_list(cache), ""


def _digest(file: Path) -> str:
    digest = sha256()
    try:
        with open(file, "rb") as data:
            while block := data.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from None
    return digest.hexdigest()[:16]


def _show(out: Path, config: FilterConfig, counts: dict[str, int], note: str, console: Console) -> None:
    shown: dict[str, int] = {}
    with open(out / "dropped.jsonl", "rb") as lines:
        for line in lines:
            row = msgspec.json.decode(line)
            shown[row["reason"]] = shown.get(row["reason"], 0) + 1
            if shown[row["reason"]] <= SHOWN:
                text = f"dropped, {row['reason']}: {row['constraint'][:70]!r} ({row['detail'][:80]})"
                console.print(text)
    console.print(f"{out}: kept.jsonl, and dropped.jsonl with every reason and score")
    if config.language_model == COMPRESSED:
        other = f"language_model=FILE takes the full {FULL}, which scores short texts otherwise"
        console.print(f"language by {COMPRESSED}, English >= {config.english_at_least:g}; {other}")
    else:
        console.print(f"language by {config.language_model}, English >= {config.english_at_least:g}")
    if note:
        console.print(note)
    console.print(" ".join(f"{key}={value}" for key, value in counts.items()))
