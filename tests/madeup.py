"""Run folders from verdicts written down by hand, for the tests of the report."""

from pathlib import Path
from typing import Any

import msgspec

from sequor.records import JudgementRecord, TurnRecord
from sequor.run_folder import RunFile, write_json
from sequor.types import Constraint, Dialogue, UserTurn

STATUS = {"s": "satisfied", "v": "violated", "u": "unreadable", "e": "judge_error"}

Verdicts = dict[str, dict[str, str]]
"""Test set -> dialogue -> turns, separated by blanks; a turn has a letter for each constraint: s, v, u, e, `-` for no
record, `.` for not in force. The first letter is constraint c0's, the second c1's."""


def write_run(path: Path, verdicts: Verdicts, model: str = "a/model", judge: str | None = "judge", **more: Any) -> Path:
    """`more`: `turns`: (test set, dialogue, turn) -> fields of that turn's record, None for no record; `user`,
    `texts` (constraint id -> text), `others` (judge -> verdicts)."""
    path.mkdir(parents=True, exist_ok=True)
    turns, user, texts = more.get("turns", {}), more.get("user", "Why {turn}?"), more.get("texts", {})
    dialogues, records, judgements = [], [], []
    for test_set, rows in verdicts.items():
        for name, row in rows.items():
            letters = row.split()
            said = [_user(cells, user.format(turn=number), texts) for number, cells in enumerate(letters, 1)]
            dialogues.append(Dialogue(test_set, name, tuple(said)))
            for number in range(1, len(letters) + 1):
                fields = turns.get((test_set, name, number), {})
                if fields is not None:
                    plain: dict[str, Any] = {
                        "status": "ok",
                        "answer": f"Answer {number}.",
                        "prompt_tokens": 10 * number,
                    }
                    records.append(TurnRecord(test_set=test_set, dialogue=name, turn=number, **(plain | fields)))
    for name, table in (({judge: verdicts} if judge else {}) | more.get("others", {})).items():
        judgements += _judgements(name, table)
    encoder = msgspec.json.Encoder()
    for file, lines in (("dialogues", dialogues), ("turns", records), ("judgements", judgements)):
        (path / f"{file}.jsonl").write_bytes(encoder.encode_lines(lines))
    config = {"candidate": {"model": model}, "judge": {"model": judge} if judge else None}
    write_json(path / "run.json", RunFile(config, {}, {}))
    return path


def _user(cells: str, prompt: str, texts: dict[str, str]) -> UserTurn:
    force = tuple(
        Constraint(f"c{at}", texts.get(f"c{at}", f"Rule {at}.")) for at, cell in enumerate(cells) if cell != "."
    )
    return UserTurn(prompt, force)


def _judgements(judge: str, table: Verdicts) -> list[JudgementRecord]:
    return [
        JudgementRecord(
            test_set=test_set,
            dialogue=name,
            turn=number,
            constraint=f"c{at}",
            judge=judge,
            status=STATUS[cell],  # type: ignore[arg-type]
            parser="strict/2",
            reply=f"I looked. Final verdict: {'yes' if cell == 's' else 'no'}",
        )
        for test_set, rows in table.items()
        for name, row in rows.items()
        for number, cells in enumerate(row.split(), 1)
        for at, cell in enumerate(cells)
        if cell in STATUS
    ]
