"""One run's transcripts as scripts that a page loads when it shows them: an index a test set, a file a dialogue.

1. A page that was opened from disk may not fetch, but it may load scripts; so each file is one call,
   `sequor.put(key, data)`, and the data is JSON. What a model wrote is only ever inside a JSON string.
2. Nothing that comes from outside is a key of an object or part of a file's name: names are numbers, and records are
   found by position.
3. Records are read back from their place in the files, a dialogue at a time.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from sequor.metrics import RESULTS
from sequor.records import JudgementRecord, TurnRecord
from sequor.report.frame import VERDICTS, Run, SetFrame
from sequor.report.reading import ABSENT, Place, Read
from sequor.types import Dialogue

RESULT_LETTERS = "".join(name[0] for name in RESULTS)
"""p, f, u"""
VERDICT_LETTERS = "svuem"
"""In the order of VERDICTS: satisfied, violated, unreadable, judge_error, missing; a dot where it is not in force."""

_encode = msgspec.json.Encoder().encode


class Records(Struct):
    """Open files of a run, and how to find a record in them."""

    turns: int
    judgements: int

    @classmethod
    def open(cls, path: Path) -> "Records":
        return cls(*(_open(path / f"{name}.jsonl") for name in ("turns", "judgements")))

    def close(self) -> None:
        for file in (self.turns, self.judgements):
            if file >= 0:
                os.close(file)

    def turn(self, place: Place, at: Any) -> TurnRecord | None:
        return _turn(_line(self.turns, place, at)) if place.start[at] != ABSENT else None

    def judgement(self, place: Place, at: Any) -> JudgementRecord | None:
        return _judgement(_line(self.judgements, place, at)) if place.start[at] != ABSENT else None


_turn = msgspec.json.Decoder(TurnRecord).decode
_judgement = msgspec.json.Decoder(JudgementRecord).decode


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY) if path.exists() else -1


def _line(file: int, place: Place, at: Any) -> bytes:
    return os.pread(file, int(place.size[at]), int(place.start[at]))


class Told(Struct, frozen=True):
    """One turn of a dialogue with all that was said about it."""

    turn: int
    record: TurnRecord | None
    judgements: list[JudgementRecord]
    completion: list[JudgementRecord]


def tell(read: Read, frame: SetFrame, row: int, records: Records, slots: np.ndarray) -> list[Told]:
    """A dialogue's records. `slots`: the first slot of each dialogue, and the end."""
    places, told = read.places, []
    by_turn: dict[int, list[JudgementRecord]] = {}
    for slot in range(int(slots[row]), int(slots[row + 1])):
        for judge in places.judgements[frame.name].values():
            found = records.judgement(judge, slot)
            if found:
                by_turn.setdefault(int(frame.slots.turn[slot]), []).append(found)
    for turn in range(frame.length):
        done = [records.judgement(place, (row, turn)) for place in places.completion[frame.name].values()]
        told.append(
            Told(
                turn + 1,
                records.turn(places.turns[frame.name], (row, turn)),
                by_turn.get(turn, []),
                [record for record in done if record],
            )
        )
    return told


def first_slots(frame: SetFrame) -> np.ndarray:
    return np.searchsorted(frame.slots.dialogue, np.arange(len(frame.dialogues) + 1))


def write_set(folder: Path, key: str, run: Run, frame: SetFrame) -> None:
    """`folder`/index.js: what is needed to choose a dialogue."""
    judges = [_marks(run, frame, judge) for judge in run.judges]
    used = sorted({int(c) for c in np.unique(frame.slots.constraint)})
    place = {c: at for at, c in enumerate(used)}
    for judge in judges:
        judge["marks"] = [[[place[c], marks] for c, marks in row] for row in judge["marks"]]
    constraints = [{"id": run.constraints[c].id, "text": run.constraints[c].text} for c in used]
    status = ["".join(str(code) for code in row) for row in frame.turns.status.tolist()]
    index = {
        "ids": frame.dialogues,
        "turns": frame.length,
        "constraints": constraints,
        "judges": judges,
        "status": status,
    }
    put(folder / "index.js", key, index)


def _marks(run: Run, frame: SetFrame, judge: str) -> dict[str, Any]:
    """Results as a string a dialogue, and each constraint's verdicts as a string over the turns."""
    codes, slots = frame.verdicts[judge], frame.slots
    results = ["".join(RESULT_LETTERS[code] for code in row) for row in frame.results(judge).tolist()]
    rows: list[dict[int, list[str]]] = [{} for _ in frame.dialogues]
    columns = (slots.dialogue.tolist(), slots.turn.tolist(), slots.constraint.tolist(), codes.tolist())
    for row, turn, constraint, code in zip(*columns, strict=True):
        rows[row].setdefault(constraint, ["."] * frame.length)[turn] = VERDICT_LETTERS[code]
    return {"judge": judge, "results": results, "marks": [[[c, "".join(m)] for c, m in row.items()] for row in rows]}


def write_dialogue(
    path: Path, key: str, dialogue: Dialogue, told: list[Told], frame: SetFrame, judges: tuple[str, ...]
) -> None:
    turns = []
    for user, said in zip(dialogue.turns, told, strict=True):
        r = said.record
        rules = [
            {"id": c.id, "text": c.text, "verdicts": _verdicts(said.judgements, c.id, judges)} for c in user.in_force
        ]
        turn: dict[str, Any] = {"user": user.prompt, "rules": rules, "status": r.status if r else "missing"}
        if r:
            turn |= {"answer": r.answer, "reasoning": r.reasoning, "detail": r.detail, "dropped": r.dropped_turns}
            turn["tokens"] = [r.prompt_tokens, r.cached_tokens, r.output_tokens]
        if said.completion:
            turn["task"] = _verdicts(said.completion, None, judges)
        turns.append(turn)
    put(path, key, {"id": dialogue.id, "turns": turns})


def _verdicts(found: list[JudgementRecord], constraint: str | None, judges: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "judge": judges.index(j.judge),
            "status": j.status,
            "reply": j.reply,
            "reasoning": j.reasoning,
            "detail": j.detail,
        }
        for j in found
        if constraint is None or j.constraint == constraint
    ]


def put(path: Path, key: str, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"sequor.put(" + _encode(key) + b"," + _encode(data) + b");\n")


def dialogues(read: Read) -> Iterator[tuple[int, SetFrame, int, Dialogue]]:
    """Every dialogue: number of its set, the set, its row, and what the user said."""
    for number, test_set in enumerate(read.test_sets):
        for row, dialogue in enumerate(test_set.dialogues):
            yield number, read.run.sets[test_set.name], row, dialogue


assert len(VERDICT_LETTERS) == len(VERDICTS)
