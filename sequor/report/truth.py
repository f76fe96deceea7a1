"""What a program finds where it can decide a constraint (sequor/checkable.py), beside what the judges said."""

import numpy as np

from sequor.checkable import Check, Detect, holds, recognise
from sequor.curation.language import COMPRESSED, Language, model_file
from sequor.errors import BadInput
from sequor.report.frame import BROKEN, HOLDS, Run, SetFrame
from sequor.report.transcripts import Told


class Truth:
    """Of one run."""

    def __init__(self, run: Run):
        self._checks: list[Check | None] = [recognise(c.text) for c in run.constraints]
        self._detect = _language() if any(c and c.kind == "language" for c in self._checks) else None

    def fill(self, frame: SetFrame, row: int, told: list[Told], slots: np.ndarray) -> None:
        """`frame.truth` of one dialogue. `slots`: the first slot of each dialogue, and the end."""
        answers = {said.turn - 1: said.record.answer for said in told if said.record is not None}
        for slot in range(int(slots[row]), int(slots[row + 1])):
            check = self._checks[frame.slots.constraint[slot]]
            answer = answers.get(int(frame.slots.turn[slot]))
            held = None if check is None or answer is None else holds(check, answer, self._detect)
            if held is not None:
                frame.truth[slot] = HOLDS if held else BROKEN


def _language() -> Detect | None:
    """None where lid.176 is not installed: then languages are not checked."""
    try:
        language = Language(model_file(COMPRESSED))
    except BadInput:
        return None
    return lambda text: language.scores(text)[1]
