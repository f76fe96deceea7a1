"""A run's records as Parquet, for DuckDB, pandas and `datasets.load_dataset`. One row group per some thousand rows.

RUN/results/turns.parquet       a row a turn
RUN/results/judgements.parquet  a row a verdict, of every judge

Every column has its meaning in the file's own metadata (`description` of each field). The columns `run` and `model`
make the files of several runs one table: `SELECT model, avg(...) FROM 'runs/*/results/turns.parquet' GROUP BY model`.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sequor.metrics import RESULTS
from sequor.report.frame import Run, SetFrame
from sequor.report.transcripts import Told
from sequor.types import TASK_COMPLETION, Dialogue

ROWS = 5000

KEYS = [
    ("run", pa.string(), "the run folder's name"),
    ("model", pa.string(), "the candidate, as the run was asked for it"),
    ("test_set", pa.string(), "single, tuples_3, replace_5, replace_10, add_5, add_10, everything"),
    ("dialogue", pa.string(), "id of the dialogue within its test set: the persona"),
    ("turn", pa.int32(), "counts from 1"),
]
TURN_COLUMNS = [
    *KEYS,
    ("user", pa.string(), "what the user said: introduction of constraints, if any, and the task"),
    ("constraints", pa.list_(pa.string()), "ids of the constraints in force, in the order given"),
    (
        "status",
        pa.string(),
        "ok, truncated, empty, reasoning_unfinished, context_overflow, template_error; missing: not played",
    ),
    ("answer", pa.string(), "null where there is none"),
    ("reasoning", pa.string(), "never sent back as history, never judged"),
    ("judge", pa.string(), "the judge that `result` goes by; null where nothing was judged"),
    ("result", pa.string(), "passed, failed, undecided; null where nothing was judged"),
    ("dropped_turns", pa.int32(), "earliest turns that the sliding window left out of the prompt"),
    ("prompt_tokens", pa.int32(), "tokens of the prompt"),
    ("cached_tokens", pa.int32(), "of them found in the engine's prefix cache"),
    ("output_tokens", pa.int32(), "tokens generated, reasoning included"),
]
JUDGEMENT_COLUMNS = [
    *KEYS,
    ("constraint", pa.string(), f"id of the constraint; {TASK_COMPLETION}: whether the answer does the task"),
    ("text", pa.string(), "the constraint's text; null for task completion"),
    ("position", pa.int32(), "1 for the constraint given first among those in force"),
    ("in_force", pa.int32(), "constraints in force at that turn"),
    ("given", pa.int32(), "turn at which the constraint was given"),
    ("out_of_window", pa.bool_(), "whether the sliding window had dropped that turn"),
    ("judge", pa.string(), "who judged"),
    ("verdict", pa.string(), "satisfied, violated, unreadable, judge_error"),
    ("reply", pa.string(), "the judge's words"),
    ("reasoning", pa.string(), "the judge's reasoning"),
    ("parser", pa.string(), "name and version of the parser of the reply"),
    ("output_tokens", pa.int32(), "tokens of the judge's reply, reasoning included"),
]


def schema(columns: list[tuple[str, pa.DataType, str]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, metadata={"description": what}) for name, kind, what in columns])


class Writer:
    """Both files of one run; rows are handed over a dialogue at a time."""

    def __init__(self, run: Run, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.run, self.name = run, Path(run.path).resolve().name
        self._sheets = [
            _Sheet(folder / "turns.parquet", TURN_COLUMNS),
            _Sheet(folder / "judgements.parquet", JUDGEMENT_COLUMNS),
        ]

    def add(self, frame: SetFrame, row: int, dialogue: Dialogue, told: list[Told], results: Any) -> None:
        """`results`: codes of this dialogue's turns by the main judge, None where nothing was judged."""
        given: dict[str, int] = {}
        for user, said in zip(dialogue.turns, told, strict=True):
            given = {c.id: given.get(c.id, said.turn) for c in user.in_force}
            keys = (self.name, self.run.model, frame.name, dialogue.id, said.turn)
            r = said.record
            result = None if results is None else RESULTS[results[said.turn - 1]]
            texts = (r.status, r.answer, r.reasoning) if r else ("missing", None, None)
            numbers = (r.dropped_turns, r.prompt_tokens, r.cached_tokens, r.output_tokens) if r else (None,) * 4
            self._sheets[0].add((*keys, user.prompt, list(given), *texts, self.run.judge, result, *numbers))
            places = {c.id: (c.text, at) for at, c in enumerate(user.in_force, 1)}
            dropped = r.dropped_turns if r else 0
            for j in (*said.judgements, *said.completion):
                text, at = places.get(j.constraint, (None, None))
                since = given.get(j.constraint)
                about = (j.constraint, text, at, len(places), since, since is not None and since <= dropped)
                self._sheets[1].add((*keys, *about, j.judge, j.status, j.reply, j.reasoning, j.parser, j.output_tokens))

    def close(self) -> None:
        for sheet in self._sheets:
            sheet.close()


class _Sheet:
    """One file, written beside its place and put there when it is whole."""

    def __init__(self, path: Path, columns: list[tuple[str, pa.DataType, str]]):
        self._path, self._schema = path, schema(columns)
        self._unfinished = path.with_name(f".{path.name}.part")
        self._writer = pq.ParquetWriter(self._unfinished, self._schema, compression="zstd", compression_level=1)
        self._rows: list[tuple] = []

    def add(self, row: tuple) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()
        self._unfinished.replace(self._path)
