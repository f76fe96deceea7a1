"""The shards of a filter on disk: what its steps pass on, and what becomes of it in the end. No datatrove here.

A line is {"text", "id", "metadata"}; a shard is one file, named by its rank, in the folder of the step that wrote it.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sequor.curation.candidates import Candidate
from sequor.curation.filters import similarity
from sequor.run_folder import write_atomically

CLUSTER = "minhash_cluster_id"
"""datatrove's name for it; below 0: near nobody."""


class Doc(Struct):
    text: str
    id: str
    metadata: dict[str, Any] = {}


class Lines:
    """One JSON lines file a rank in a folder. As datatrove's writers: a context for what a filter drops."""

    def __init__(self, folder: str):
        self.folder = folder
        self._file = None

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def open(self, rank: int) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        self._file = open(Path(self.folder) / f"{rank:05d}.jsonl", "wb")  # noqa: SIM115

    def write(self, doc: Doc, rank: int = 0) -> None:
        if self._file is None:
            self.open(rank)
        self._file.write(msgspec.json.encode({"text": doc.text, "id": doc.id, "metadata": doc.metadata}) + b"\n")


def write_shards(folder: Path, candidates: Iterable[Candidate], size: int) -> int:
    """Candidates into work/shards, `size` in each; returns the number of shards."""
    target = folder / "work" / "shards"
    shutil.rmtree(folder / "work", ignore_errors=True)
    lines, shards = Lines(str(target)), 0
    for number, candidate in enumerate(candidates):
        if number % size == 0:
            lines.__exit__()
            lines.open(shards)
            shards += 1
        fields = msgspec.to_builtins(candidate)
        lines.write(Doc(fields.pop("constraint"), fields.pop("id"), metadata=fields))
    lines.__exit__()
    return shards


def read(folder: Path, shard: int) -> Iterator[Doc]:
    """Nothing, where the step had nothing to write."""
    path, decoder = folder / f"{shard:05d}.jsonl", msgspec.json.Decoder(Doc)
    if path.exists():
        with open(path, "rb") as lines:
            yield from map(decoder.decode, lines)


def collect(out: Path, shards: int) -> None:
    """kept.jsonl, dropped.jsonl and then counts.json, in the order of the candidates; the shards go."""
    work = out / "work"
    counts = dict.fromkeys(("in", "language", "duplicates", "badwords", "kept"), 0)
    stays = {doc.metadata[CLUSTER]: doc for doc in _survivors(work, shards)}
    with open(out / "kept.jsonl", "wb") as kept, open(out / "dropped.jsonl", "wb") as dropped:
        for shard in range(shards):
            counts["in"] += sum(1 for _ in read(work / "shards", shard))
            for doc in read(work / "kept", shard):
                kept.write(_line(doc))
                counts["kept"] += 1
            for step, name in (("not_english", "language"), ("duplicates", "duplicates"), ("bad", "badwords")):
                for doc in read(work / step, shard):
                    dropped.write(_line(_explained(doc, stays)))
                    counts[name] += 1
    write_atomically(out / "counts.json", msgspec.json.format(msgspec.json.encode(counts), indent=2))
    shutil.rmtree(work)


def _survivors(work: Path, shards: int) -> Iterator[Doc]:
    """Those that stay of clusters of more than one. A bad word may have taken them since."""
    for shard in range(shards):
        for folder in ("kept", "bad"):
            yield from (doc for doc in read(work / folder, shard) if doc.metadata[CLUSTER] >= 0)


def _explained(doc: Doc, stays: dict[int, Doc]) -> Doc:
    """A duplicate names the one that stays. Their own similarity can be low: a cluster is held together by chains."""
    if "reason" not in doc.metadata:
        other = stays[doc.metadata[CLUSTER]]
        score = round(similarity(doc.text, other.text), 4)
        doc.metadata |= {"reason": "duplicate", "detail": f"{other.id}: {other.text}", "score": score}
    return doc


def _line(doc: Doc) -> bytes:
    said = {key: value for key, value in doc.metadata.items() if not key.startswith("minhash_")}
    return msgspec.json.encode({"id": doc.id, "constraint": doc.text} | said) + b"\n"
