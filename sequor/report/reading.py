"""A run's folder -> columns, and where each record stands in its file. The records are read once, a line at a time.

1. Texts are skipped, not kept: a full run has gigabytes of them. What the transcripts and Parquet files need is read
   again from its place in the file (`Places`), dialogue by dialogue.
2. As everywhere: of several attempts at one judgement the first readable one counts, of several records of anything
   else the first; a torn last line is left out, a broken line anywhere
   else is an error that names file and line.
3. The main judge is the one that the run's configuration names, or else the one with most verdicts.
"""

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from sequor.errors import NOT_JSON, BadInput
from sequor.metrics import MIN_COVERAGE, better, in_table_order
from sequor.report.frame import MISSING, STATUSES, UNTOLD, VERDICTS, Run, SetFrame, Slots, Turns
from sequor.run_folder import RunFile, RunFolder
from sequor.types import TASK_COMPLETION, Constraint, TestSet

ABSENT = -1


class _Turn(Struct):
    test_set: str
    dialogue: str
    turn: int
    status: str
    answer: Raw = Raw(b"null")
    reasoning: Raw = Raw(b"null")
    dropped_turns: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0


class _Judgement(Struct):
    test_set: str
    dialogue: str
    turn: int
    constraint: str
    judge: str
    status: str
    attempt: int = 1


class Place(Struct, frozen=True):
    """Offsets and lengths of lines in one file; int64, ABSENT where there is no record."""

    start: np.ndarray
    size: np.ndarray


class Places(Struct, frozen=True):
    turns: dict[str, Place]
    """Test set -> shape (dialogues, turns)."""
    judgements: dict[str, dict[str, Place]]
    """Test set -> judge -> one a slot."""
    completion: dict[str, dict[str, Place]]
    """Test set -> judge -> shape (dialogues, turns)."""


class Read(Struct, frozen=True):
    run: Run
    places: Places
    test_sets: tuple[TestSet, ...]


def read(path: Path, label: str, judge: str | None = None) -> Read:
    """`judge`: the one to go by, instead of rule 3. Raises BadInput."""
    folder = RunFolder(path)
    file = folder.read()
    found = {t.name: t for t in folder.test_sets()}
    test_sets = tuple(found[name] for name in in_table_order(found))
    constraints: dict[str, Constraint] = {}
    layouts = {t.name: _Layout(t, constraints, folder.path / "dialogues.jsonl") for t in test_sets}
    repeated = sum(layouts[r.test_set].add_turn(r, at, n) for r, at, n in _checked(folder, "turns", _Turn, layouts))
    for record, at, size in _checked(folder, "judgements", _Judgement, layouts):
        repeated += layouts[record.test_set].add_judgement(record, at, size)
    counts: dict[str, int] = {}
    for layout in layouts.values():
        for name, codes in layout.verdicts.items():
            counts[name] = counts.get(name, 0) + int((codes != MISSING).sum())
    if judge is not None and judge not in counts:
        raise BadInput(f"{path}: no verdict of the judge {judge}; there are those of {', '.join(counts) or 'none'}")
    judges = tuple(sorted(counts))
    run = Run(
        path=str(path),
        label=label,
        model=model_of(file),
        judge=judge or _main_judge(file, counts),
        judges=judges,
        sets={name: layout.frame(judges) for name, layout in layouts.items()},
        constraints=tuple(constraints.values()),
        repeated=repeated,
        chosen=any(
            key.endswith(".sampling.choices") and key.startswith("judge[") and value != "none"
            for key, value in file.fingerprint.items()
        ),
        min_coverage=float(file.config.get("min_coverage", MIN_COVERAGE)),
    )
    places = Places(
        {name: Place(layout.turn_start, layout.turn_size) for name, layout in layouts.items()},
        {name: {j: Place(*both) for j, both in layout.judgement_at.items()} for name, layout in layouts.items()},
        {name: {j: Place(*both) for j, both in layout.completion_at.items()} for name, layout in layouts.items()},
    )
    return Read(run, places, test_sets)


def model_of(file: RunFile) -> str:
    """The candidate's name as the run was asked for it."""
    candidate: Any = file.config.get("candidate")
    return str(candidate.get("model") or "?") if isinstance(candidate, dict) else "?"


def _main_judge(file: RunFile, counts: dict[str, int]) -> str | None:
    """Rule 3."""
    judge: Any = file.config.get("judge")
    named = judge.get("model") if isinstance(judge, dict) else None
    if named in counts:
        return named
    return max(counts, key=lambda name: (counts[name], name), default=None)


def lines(path: Path, kind: type[Any]) -> Iterator[tuple[Any, int, int]]:
    """Every whole record with its offset and length. Rule 2; raises BadInput."""
    if not path.exists():
        return
    decode, at = msgspec.json.Decoder(kind).decode, 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            start, at = at, at + len(line)
            if not line.strip():
                continue
            try:
                record = decode(line)
            except NOT_JSON as error:
                if line.endswith(b"\n"):
                    raise BadInput(f"{path}:{number}: {error}") from None
                return
            yield record, start, len(line)


def _checked(folder: RunFolder, name: str, kind: type[Any], layouts: dict) -> Iterator[tuple[Any, int, int]]:
    path = folder.path / f"{name}.jsonl"
    for record, at, size in lines(path, kind):
        if record.test_set not in layouts or record.dialogue not in layouts[record.test_set].rows:
            raise BadInput(f"{path}: {record.test_set}/{record.dialogue}: no such dialogue in dialogues.jsonl")
        if not 1 <= record.turn <= layouts[record.test_set].shape[1]:
            raise BadInput(f"{path}: {record.test_set}/{record.dialogue}/{record.turn}: no such turn")
        yield record, at, size


class _Layout:
    """One test set's columns while they are filled."""

    def __init__(self, test_set: TestSet, constraints: dict[str, Constraint], path: Path):
        lengths = {len(d.turns) for d in test_set.dialogues}
        if len(lengths) != 1:
            raise BadInput(f"{path}: dialogues of {test_set.name} have {min(lengths)} to {max(lengths)} turns")
        self.name = test_set.name
        self.ids = tuple(d.id for d in test_set.dialogues)
        self.rows = {id: row for row, id in enumerate(self.ids)}
        self.shape = len(self.ids), lengths.pop()
        numbers = {id: number for number, id in enumerate(constraints)}
        self._lay_slots(test_set, constraints, numbers)
        self.status = np.zeros(self.shape, np.int8)
        self.dropped, self.prompt, self.output, self.answer, self.reasoning = (
            np.zeros(self.shape, np.int32) for _ in range(5)
        )
        self.turn_start = np.full(self.shape, ABSENT, np.int64)
        self.turn_size = np.zeros(self.shape, np.int64)
        self.verdicts: dict[str, np.ndarray] = {}
        self.completion: dict[str, np.ndarray] = {}
        self.judgement_at: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.completion_at: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._attempts: dict[tuple[str, bool, Any], int] = {}
        """Of what was asked again: (judge, whether task completion, cell) -> the last attempt."""

    def _lay_slots(self, test_set: TestSet, constraints: dict[str, Constraint], numbers: dict[str, int]) -> None:
        self.user = np.zeros(self.shape, np.int32)
        self.digest = np.zeros(self.shape, np.uint64)
        self._slot_of: list[dict[tuple[int, str], int]] = []
        columns: list[tuple[int, ...]] = []
        for row, dialogue in enumerate(test_set.dialogues):
            slots: dict[tuple[int, str], int] = {}
            given: dict[str, int] = {}
            hashed = blake2b(digest_size=8)
            for turn, user in enumerate(dialogue.turns):
                given = {c.id: given.get(c.id, turn) for c in user.in_force}
                hashed.update(msgspec.json.encode((user.prompt, [c.id for c in user.in_force])))
                self.digest[row, turn] = int.from_bytes(hashed.digest(), "big")
                self.user[row, turn] = len(user.prompt)
                for position, c in enumerate(user.in_force):
                    if c.id not in numbers:
                        numbers[c.id], constraints[c.id] = len(numbers), c
                    slots[turn, c.id] = len(columns)
                    columns.append((row, turn, numbers[c.id], position, len(user.in_force), given[c.id]))
            self._slot_of.append(slots)
        table = np.array(columns, np.int32).reshape(len(columns), 6).T
        self.slots = Slots(*(np.ascontiguousarray(column) for column in table))

    def add_turn(self, record: _Turn, at: int, size: int) -> int:
        """How many records this one repeats: 0 or 1."""
        cell = self.rows[record.dialogue], record.turn - 1
        if self.status[cell]:
            return 1
        self.status[cell] = STATUSES.index(record.status if record.status in STATUSES else "other")
        self.dropped[cell], self.prompt[cell] = record.dropped_turns, record.prompt_tokens
        self.output[cell] = record.output_tokens
        self.answer[cell], self.reasoning[cell] = _size(record.answer), _size(record.reasoning)
        self.turn_start[cell], self.turn_size[cell] = at, size
        return 0

    def add_judgement(self, record: _Judgement, at: int, size: int) -> int:
        """Likewise. A judgement of a constraint that is not in force there is left out."""
        cell: Any = self.rows[record.dialogue], record.turn - 1
        if record.judge not in self.verdicts:
            count = len(self.slots)
            self.verdicts[record.judge] = np.full(count, MISSING, np.int8)
            self.judgement_at[record.judge] = np.full(count, ABSENT, np.int64), np.zeros(count, np.int64)
        codes, (start, length) = self.verdicts[record.judge], self.judgement_at[record.judge]
        if record.constraint == TASK_COMPLETION:
            if record.judge not in self.completion:
                self.completion[record.judge] = np.full(self.shape, MISSING, np.int8)
                self.completion_at[record.judge] = np.full(self.shape, ABSENT, np.int64), np.zeros(self.shape, np.int64)
            codes, (start, length) = self.completion[record.judge], self.completion_at[record.judge]
        else:
            cell = self._slot_of[cell[0]].get((cell[1], record.constraint))
            if cell is None:
                return 0
        if codes[cell] != MISSING:
            place = record.judge, record.constraint == TASK_COMPLETION, cell
            if record.attempt <= self._attempts.get(place, 1):
                return 1
            self._attempts[place] = record.attempt
            if better(VERDICTS[codes[cell]], record.status) != record.status:
                return 0
        codes[cell] = VERDICTS.index(record.status) if record.status in VERDICTS else MISSING
        start[cell], length[cell] = at, size
        return 0

    def frame(self, judges: tuple[str, ...]) -> SetFrame:
        turns = Turns(
            status=self.status,
            dropped=self.dropped,
            prompt_tokens=self.prompt,
            output_tokens=self.output,
            answer_size=self.answer,
            reasoning_size=self.reasoning,
            user_size=self.user,
            digest=self.digest,
        )
        none = np.full(len(self.slots), MISSING, np.int8)
        verdicts = {judge: self.verdicts.get(judge, none) for judge in judges}
        truth = np.full(len(self.slots), UNTOLD, np.int8)
        return SetFrame(self.name, self.ids, turns, self.slots, verdicts, self.completion, truth)


def _size(text: Raw) -> int:
    """0 for null."""
    size = len(bytes(text))
    return 0 if size <= 4 and bytes(text) == b"null" else size
