"""The filter as datatrove pipelines (Penedo et al. 2024): the only file that imports datatrove.

    shards/       candidates, as they came                 one file a rank
    1  language   shards -> english/, and MinHash signatures of what stays
    2  buckets    signatures -> pairs that meet in a bucket
    3  clusters   pairs -> who goes: of each cluster one stays
    4  words      english -> kept/, without duplicates and bad words
    5  collect    -> kept.jsonl, dropped.jsonl, counts.json, which is written last

1. Same files, same order, same ranks in 1 and 4: a document's number in its shard is its name in 2 and 3.
2. What is dropped is written down by the step that drops it, with reason and score.
3. A rank that was killed starts its shard again, over what it had written; one that was finished is not run again.
4. Hash function, precision and seed are datatrove's own defaults (64-bit xxhash, seed 1). They decide which pairs meet:
   with them, and only with them, the released pool holds no two constraints that do.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor, RayPipelineExecutor, SlurmPipelineExecutor
from datatrove.pipeline.base import PipelineStep
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.stats import PipelineStats
from datatrove.utils.typeshelper import StatHints
from datatrove.utils.word_tokenizers import WhitespaceTokenizer
from msgspec import Struct

from sequor.curation.filters import BUCKETS, HASHES_PER_BUCKET, NGRAM, BadWords, grams
from sequor.curation.language import Language
from sequor.curation.shards import CLUSTER, Lines, collect

MINHASH = MinhashConfig(
    n_grams=NGRAM, num_buckets=BUCKETS, hashes_per_bucket=HASHES_PER_BUCKET, hash_config=HashConfig(64, "xxhash")
)
NO_TOKENIZER = WhitespaceTokenizer()
"""Instead of English's, which is spaCy; the words are those of rule 3 of filters.py."""
BUFFERED = 20_000
"""Signatures read at a time: 40 bytes each."""

Executor = Literal["local", "slurm", "ray"]


class Filtering(Struct, frozen=True):
    """What the pipeline needs, as plain values: it travels to other machines."""

    folder: str
    shards: int
    workers: int
    language_model: str
    english_at_least: float
    words: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()
    executor: Executor = "local"
    slurm: dict[str, Any] = {}
    """Arguments of datatrove's SlurmPipelineExecutor: partition, time, venv_path ..."""


class ReadShard(PipelineStep):
    """Exactly the rank's own file, which need not hold anything."""

    type, name = "READER", "shard"

    def __init__(self, folder: str):
        super().__init__()
        self.folder = folder

    def run(self, data: object = None, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        decoder = msgspec.json.Decoder()
        with open(Path(self.folder) / f"{rank:05d}.jsonl", "rb") as lines:
            for line in lines:
                self.stat_update(StatHints.total)
                yield Document(**decoder.decode(line))


class WriteShard(PipelineStep):
    """Writes what passes, and lets it pass."""

    type, name = "WRITER", "shard"

    def __init__(self, folder: str):
        super().__init__()
        self.lines = Lines(folder)

    def run(self, data: Iterable[Document], rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        with self.lines as lines:
            lines.open(rank)
            for doc in data:
                lines.write(doc, rank)
                yield doc


class English(BaseFilter):
    """Rule 1 of filters.py. The model is loaded where the step runs."""

    name = "English"

    def __init__(self, model: str, at_least: float, exclusion_writer: Lines):
        super().__init__(exclusion_writer)
        self.model, self.at_least = model, at_least
        self._language: Language | None = None

    def filter(self, doc: Document) -> bool:
        if self._language is None:
            self._language = Language(Path(self.model))
        english, best, chance = self._language.scores(doc.text)
        if english >= self.at_least:
            return True
        guess = f"English at {english:.2f}" if best == "en" else f"looks like {best} ({chance:.2f})"
        doc.metadata |= {"reason": "language", "detail": guess, "score": round(english, 4)}
        return False


class NoBadWords(BaseFilter):
    """Rule 2 of filters.py."""

    name = "bad words"

    def __init__(self, words: tuple[str, ...], sequences: tuple[str, ...], exclusion_writer: Lines):
        super().__init__(exclusion_writer)
        self.bad = BadWords(words, sequences)

    def filter(self, doc: Document) -> bool:
        loss = self.bad.loss(doc.text)
        if loss is not None:
            doc.metadata |= {"reason": loss.reason, "detail": loss.detail}
        return loss is None


class Signatures(MinhashDedupSignature):
    """datatrove's, over the shingles of rule 3 of filters.py."""

    def get_shingles(self, text: str):
        import numpy as np

        hashes = [self._hash_func(gram) for gram in sorted(grams(text))]
        return np.array(hashes, dtype=np.uint64).reshape((-1, 1))


class Collect(PipelineStep):
    """The last one: collect() of shards.py."""

    type, name = "WRITER", "collect"

    def __init__(self, folder: str, shards: int):
        super().__init__()
        self.folder, self.shards = folder, shards

    def run(self, data: object = None, rank: int = 0, world_size: int = 1) -> None:
        collect(Path(self.folder), self.shards)


def forget(folder: Path) -> None:
    """What datatrove has noted as done: it belongs to other shards."""
    shutil.rmtree(folder / "logs", ignore_errors=True)
    (folder / "counts.json").unlink(missing_ok=True)


def run(filtering: Filtering) -> None:
    """All five, in turn. With Slurm it returns when the jobs are submitted; else when they are done."""
    last = None
    for name, steps, tasks in _stages(filtering):
        last = _executor(filtering, name, steps, tasks, last)
        if filtering.executor != "slurm":
            last.run()
    if filtering.executor == "slurm":
        last.run()


def _stages(f: Filtering) -> list[tuple[str, list[PipelineStep], int]]:
    def at(name: str) -> str:
        return str(Path(f.folder) / "work" / name)

    language = [
        ReadShard(at("shards")),
        English(f.language_model, f.english_at_least, Lines(at("not_english"))),
        WriteShard(at("english")),
        Signatures(at("signatures"), MINHASH, NO_TOKENIZER),
    ]
    buckets = [MinhashDedupBuckets(at("signatures"), at("pairs"), config=MINHASH, lines_to_buffer=BUFFERED)]
    clusters = [
        MinhashDedupCluster(at("pairs"), at("clusters"), MINHASH, save_cluster_id=True, lines_to_buffer=BUFFERED)
    ]
    words = [
        ReadShard(at("english")),
        Unique(at("clusters"), Lines(at("duplicates"))),
        NoBadWords(f.words, f.sequences, Lines(at("bad"))),
        WriteShard(at("kept")),
    ]
    return [
        ("language", language, f.shards),
        ("buckets", buckets, BUCKETS),
        ("clusters", clusters, 1),
        ("words", words, f.shards),
        ("collect", [Collect(f.folder, f.shards)], 1),
    ]


class Unique(MinhashDedupFilter):
    """datatrove's, which wants files of clusters in every shard; one without duplicates has none."""

    def __init__(self, input_folder: str, exclusion_writer: Lines):
        super().__init__(input_folder, exclusion_writer, load_cluster_ids=True, lines_to_buffer=BUFFERED)

    def run(self, data: Iterable[Document], rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        if self.data_folder.isfile(f"{rank:06d}.remove") and self.data_folder.isfile(f"{rank:06d}.clusters"):
            yield from super().run(data, rank, world_size)
            return
        ids = self._cluster_ids(rank)
        for at, doc in enumerate(data):
            doc.metadata[CLUSTER] = ids.get(at, -1)
            yield doc

    def _cluster_ids(self, rank: int) -> dict[int, int]:
        """Document -> cluster, of a shard where every cluster's document stays."""
        name = f"{rank:06d}.clusters"
        if not self.data_folder.isfile(name):
            return {}
        import numpy as np

        with self.data_folder.open(name, "rb") as file:
            pairs = np.frombuffer(file.read(), dtype="<u4").reshape(-1, 2)
        return dict(pairs.tolist())


def _executor(f: Filtering, name: str, steps: list[PipelineStep], tasks: int, depends: Any) -> Any:
    logs = str(Path(f.folder) / "logs" / name)
    if f.executor == "slurm":
        return SlurmPipelineExecutor(
            steps, tasks, logging_dir=logs, depends=depends, job_name=f"sequor-{name}", mail_type="NONE", **f.slurm
        )
    if f.executor == "ray":
        return RayPipelineExecutor(steps, tasks, workers=f.workers, logging_dir=logs)
    return Local(steps, tasks, workers=min(f.workers, tasks), logging_dir=logs)


class Local(LocalPipelineExecutor):
    """datatrove's, which shows its first worker's log on the screen; here all log to the folder."""

    def _run_for_rank(self, rank: int, local_rank: int = 0, node_rank: int = -1) -> PipelineStats:
        return super()._run_for_rank(rank, local_rank + 1, node_rank)
