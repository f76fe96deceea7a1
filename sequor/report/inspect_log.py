"""A run as logs of Inspect (https://inspect.aisi.org.uk), a file a test set, so that its viewer shows the transcripts.

    RUN/results/inspect/SET.eval        `inspect view --log-dir RUN/results/inspect`

1. A dialogue is a sample: its messages are the dialogue's, reasoning apart from the answer; a score for each judge is
   the share of passed turns among those decided, with the judge's words on every violated constraint.
2. Each answer's metadata hold what Sequor knows of its turn: result, verdicts, tokens, turns that the window dropped.
3. Inspect is optional (`pip install 'sequor[inspect]'`) and imported here alone, inside functions.
"""

from datetime import UTC, datetime
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sequor.errors import BadInput
from sequor.metrics import FAILED, PASSED, RESULTS
from sequor.report.frame import Run, SetFrame
from sequor.report.transcripts import Told
from sequor.types import Dialogue


def require() -> None:
    """Raises BadInput when Inspect is not installed."""
    if find_spec("inspect_ai") is None:
        raise BadInput("--inspect: Inspect is not installed; pip install 'sequor[inspect]'")


class Writer:
    """Logs of one run; dialogues are handed over set by set."""

    def __init__(self, run: Run, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self._run, self._folder = run, folder
        self._set: SetFrame | None = None
        self._samples: list[Any] = []

    def add(
        self, frame: SetFrame, row: int, dialogue: Dialogue, told: list[Told], results: dict[str, np.ndarray]
    ) -> None:
        """`results`: judge -> codes of this dialogue's turns."""
        if self._set is not None and self._set.name != frame.name:
            self._flush()
        self._set = frame
        self._samples.append(_sample(self._run, dialogue, told, results))

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSpec, EvalStats, write_eval_log

        frame, samples = self._set, self._samples
        if frame is None or not samples:
            return
        file = Path(self._run.path) / "turns.jsonl"
        when = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
        name = sha256(f"{self._run.path}/{frame.name}".encode()).hexdigest()[:22]
        spec = EvalSpec(
            created=when,
            eval_id=name,
            run_id=name,
            task_id=name,
            task=f"sequor/{frame.name}",
            model=self._run.model,
            dataset=EvalDataset(name=f"sequor/{frame.name}", samples=len(samples), sample_ids=[s.id for s in samples]),
            config=EvalConfig(),
            metadata={"judge": self._run.judge, "turns": frame.length},
        )
        log = EvalLog(
            eval=spec,
            status="success",
            results=_results(frame, self._run),
            samples=samples,
            stats=EvalStats(started_at=when, completed_at=when),
        )
        write_eval_log(log, str(self._folder / f"{frame.name}.eval"))
        self._samples = []


def _sample(run: Run, dialogue: Dialogue, told: list[Told], results: dict[str, np.ndarray]) -> Any:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ContentReasoning, ContentText, ModelOutput

    messages: list[Any] = []
    for user, said in zip(dialogue.turns, told, strict=True):
        messages.append(
            ChatMessageUser(
                content=user.prompt, metadata={"turn": said.turn, "in_force": [c.text for c in user.in_force]}
            )
        )
        r = said.record
        content: list[Any] = [ContentReasoning(reasoning=r.reasoning)] if r and r.reasoning else []
        content.append(ContentText(text=(r.answer or "") if r else ""))
        metadata: dict[str, Any] = {"turn": said.turn, "status": r.status if r else "missing"}
        metadata["result"] = {judge: RESULTS[codes[said.turn - 1]] for judge, codes in results.items()}
        metadata["verdicts"] = [
            {"constraint": j.constraint, "judge": j.judge, "verdict": j.status} for j in said.judgements
        ]
        if r:
            metadata |= {
                "dropped_turns": r.dropped_turns,
                "prompt_tokens": r.prompt_tokens,
                "output_tokens": r.output_tokens,
            }
        messages.append(ChatMessageAssistant(content=content, model=run.model, metadata=metadata))
    return EvalSample(
        id=dialogue.id,
        epoch=1,
        input=messages[0].content,
        target="every constraint in force satisfied at every turn",
        messages=messages,
        output=ModelOutput.from_content(run.model, messages[-1].text),
        scores={judge: _score(judge, codes, dialogue, told) for judge, codes in results.items()},
        metadata={
            "first_failed_turn": {
                j: int(np.argmax(c == FAILED)) + 1 if (c == FAILED).any() else None for j, c in results.items()
            }
        },
    )


def _score(judge: str, codes: np.ndarray, dialogue: Dialogue, told: list[Told]) -> Any:
    from inspect_ai.scorer import Score

    decided = int((codes <= FAILED).sum())
    texts = {c.id: c.text for turn in dialogue.turns for c in turn.in_force}
    words = [
        f"Turn {said.turn}: {texts.get(j.constraint, j.constraint)}\n{j.reply or j.detail or ''}"
        for said in told
        for j in said.judgements
        if j.judge == judge and j.status == "violated"
    ]
    value = float((codes == PASSED).sum() / decided) if decided else float("nan")
    return Score(
        value=value,
        answer=f"{int((codes == PASSED).sum())} of {decided} decided turns passed",
        explanation="\n\n".join(words),
    )


def _results(frame: SetFrame, run: Run) -> Any:
    """Accuracy over all decided turns of the set, by judge."""
    from inspect_ai.log import EvalMetric, EvalResults, EvalScore

    scores = []
    for judge in run.judges:
        codes = frame.results(judge)
        decided = int((codes <= FAILED).sum())
        if decided:
            metric = EvalMetric(name="accuracy", value=float((codes == PASSED).sum() / decided))
            scores.append(EvalScore(name=judge, scorer=judge, metrics={"accuracy": metric}))
    count = len(frame.dialogues)
    return EvalResults(total_samples=count, completed_samples=count, scores=scores)
