"""Run folders whose answers are made up: to see a report before there is a run, and to measure the report at full size.

1. Seeded: same arguments, same bytes. Models, answers and verdicts are invented and mean nothing; the shape is that of
   the paper's results: accuracy falls with the turns since a constraint was given and with the number in force, a
   broken constraint tends to stay broken, and models differ in all of it.
2. Everything that a real run can hold is in it: cut and empty answers, unreadable verdicts, a window that drops turns,
   reasoning, a second judge, task completion.
"""

from collections.abc import Iterator
from math import log
from pathlib import Path
from random import Random

import msgspec
import numpy as np
from msgspec import Struct

from sequor import released, testsets
from sequor.records import JudgementRecord, TurnRecord
from sequor.run_folder import RunFile, write_json
from sequor.types import TASK_COMPLETION, TEST_SETS, Dialogue, TestSet

DEMO = Path(testsets.__file__).parent / "demo"
NAMES = (
    "Aster-120B",
    "Birch-70B",
    "Cedar-27B",
    "Dahlia-235B",
    "Elm-30B",
    "Fern-12B",
    "Ginkgo-Flash",
    "Hazel-20B",
    "Iris-Lite",
    "Juniper-4B",
    "Kelp-4B",
)
JUDGE, SECOND = "Lark-120B", "Mole-235B"
SENTENCES = (
    "Start with what you can see from the window, and only then look at the forecast.",
    "A small pan, a lid and ten minutes are enough.",
    "Most people notice the change after two or three weeks, so keep notes.",
    "If it creaks, it wants oil; if it rattles, it wants a screw.",
    "Ask the person at the counter, who has heard the question before.",
    "There are three ways to go about this, and the dull one works best.",
    "Put the heavier things at the bottom and leave a hand's width of air above.",
    "In spring the light is low enough to show every scratch in the varnish.",
    "Write it down on the day itself, because by Friday the order of things is gone.",
    "It depends on the salt, the wind and how long the rope has been lying there.",
    "Half an hour early is better than five minutes late.",
    "The older ones are heavier but easier to mend.",
)


class Invented(Struct, frozen=True):
    """A made-up model."""

    name: str
    skill: float
    """Log odds of following a constraint at the turn that gives it."""
    fade: float
    """How much of that is lost with the logarithm of the turns since."""
    load: float
    """How much is lost with each further constraint in force."""
    window: int
    """Tokens of context."""
    words: int
    reasons: bool


def invented(number: int) -> Invented:
    rng = Random(number)
    return Invented(
        name=NAMES[number % len(NAMES)],
        skill=3.6 - 0.14 * number + rng.uniform(-0.2, 0.2),
        fade=0.42 + 0.07 * number % 0.5 + rng.uniform(-0.1, 0.1),
        load=0.35 + rng.uniform(0, 0.35),
        window=(131072, 4096, 8192)[number % 3],
        words=(150, 60, 110)[number % 3],
        reasons=number % 3 == 0,
    )


def write_runs(
    out: Path,
    models: int = 3,
    dialogues: int = 20,
    turns: int = 50,
    judges: int = 2,
    answer_words: int | None = None,
    completion: bool = True,
    seed: int = 0,
) -> list[Path]:
    """Run folders below `out`, one a model. `answer_words`: mean length of an answer instead of the model's own."""
    sets = invented_sets(dialogues, turns, seed)
    paths = []
    for number in range(models):
        model = invented(number)
        path = out / model.name.lower()
        path.mkdir(parents=True, exist_ok=True)
        names = (JUDGE, SECOND)[:judges]
        _write_run(path, model, sets, names, answer_words or model.words, completion, seed + number)
        paths.append(path)
    return paths


def invented_sets(dialogues: int, turns: int, seed: int = 0) -> list[TestSet]:
    """The seven test sets over the demo's constraints; each persona asks tasks of any demo persona."""
    pool = [task for tasks in released.load_tasks(DEMO).values() for task in tasks]
    rng = Random(seed)
    tasks = {f"persona_{n}": rng.sample(pool, min(len(pool), turns)) for n in range(1, dialogues + 1)}
    recipe = testsets.Recipe(seed=seed, test_sets=TEST_SETS, turns=turns)
    return list(testsets.build(tasks, released.load_constraints(DEMO), released.load_tuples(DEMO), recipe))


def _write_run(
    path: Path, model: Invented, sets: list[TestSet], judges: tuple[str, ...], words: int, completion: bool, seed: int
) -> None:
    encoder = msgspec.json.Encoder()
    with open(path / "dialogues.jsonl", "wb") as file:
        file.write(encoder.encode_lines([d for test_set in sets for d in test_set.dialogues]))
    with open(path / "turns.jsonl", "wb") as turns, open(path / "judgements.jsonl", "wb") as judgements:
        for test_set in sets:
            for row, dialogue in enumerate(test_set.dialogues):
                rng = np.random.default_rng([seed, TEST_SETS.index(test_set.name), row])
                records = list(_play(dialogue, model, words, rng))
                turns.write(encoder.encode_lines(records))
                judgements.write(encoder.encode_lines(list(_judge(dialogue, records, model, judges, completion, rng))))
    config = {"candidate": {"model": model.name}, "judge": {"model": judges[0]}, "invented": True}
    write_json(path / "run.json", RunFile(config, {"invented": "sequor.report.sample"}, {"sequor": "sample"}))


def _play(dialogue: Dialogue, model: Invented, words: int, rng: np.random.Generator) -> Iterator[TurnRecord]:
    sizes: list[int] = []
    for number, user in enumerate(dialogue.turns, 1):
        fate = rng.random()
        status = "empty" if fate < 0.002 else "truncated" if fate < 0.008 else "ok"
        answer = None if status == "empty" else _text(rng, words)
        thoughts = "The rule still holds. " + _text(rng, words // 2) if model.reasons else None
        asked, dropped = len(user.prompt) // 4, 0
        history = sum(sizes)
        while history + asked > model.window * 7 // 8 and dropped < len(sizes):
            history -= sizes[dropped]
            dropped += 1
        output = len(answer or "") // 4 + len(thoughts or "") // 4
        sizes.append(asked + len(answer or "") // 4)
        yield TurnRecord(
            test_set=dialogue.test_set,
            dialogue=dialogue.id,
            turn=number,
            status=status,
            answer=answer,
            reasoning=thoughts,
            dropped_turns=dropped,
            history="bridged" if number > 1 else "first",
            prompt_tokens=history + asked,
            cached_tokens=history,
            output_tokens=output,
        )


def _text(rng: np.random.Generator, words: int) -> str:
    count = max(1, int(rng.normal(words, words / 4)) // 13)
    picked = [SENTENCES[at] for at in rng.integers(len(SENTENCES), size=count)]
    return "\n\n".join(" ".join(picked[at : at + 4]) for at in range(0, count, 4))


def _judge(
    dialogue: Dialogue,
    records: list[TurnRecord],
    model: Invented,
    judges: tuple[str, ...],
    completion: bool,
    rng: np.random.Generator,
) -> Iterator[JudgementRecord]:
    luck: dict[str, float] = {}
    given: dict[str, int] = {}
    for record, user in zip(records, dialogue.turns, strict=True):
        given = {c.id: given.get(c.id, record.turn) for c in user.in_force}
        luck = {id: _drift(luck.get(id), rng) for id in given}
        if record.answer is None:
            continue
        for c in user.in_force:
            kept = luck[c.id] < _odds(model, c.id, record, given[c.id], len(given))
            for judge in judges:
                yield _verdict(record, c.id, judge, kept, f"{c.text!r}", rng)
        if completion:
            done = rng.random() > 0.02 + 0.001 * record.turn
            yield _verdict(record, TASK_COMPLETION, judges[0], done, "the task", rng)


def _drift(before: float | None, rng: np.random.Generator) -> float:
    """A random walk that returns to zero, with unit variance: what makes a broken constraint stay broken."""
    return rng.normal() if before is None else 0.9 * before + rng.normal() * (1 - 0.9**2) ** 0.5


def _odds(model: Invented, constraint: str, record: TurnRecord, given: int, count: int) -> float:
    hardness = (sum(constraint.encode()) % 17 - 8) / 6
    lost = 1.2 if given <= record.dropped_turns else 0
    odds = model.skill - model.fade * log(1 + record.turn - given) - model.load * (count - 1) - hardness - lost
    return odds / 1.8


def _verdict(
    record: TurnRecord, constraint: str, judge: str, kept: bool, what: str, rng: np.random.Generator
) -> JudgementRecord:
    fate = rng.random()
    said = kept != (judge == SECOND and fate > 0.94)
    unreadable = fate < 0.003
    seen = f"The rule is {what}. The answer {'does so throughout' if said else 'does not, from its first sentence on'}."
    return JudgementRecord(
        test_set=record.test_set,
        dialogue=record.dialogue,
        turn=record.turn,
        constraint=constraint,
        judge=judge,
        status="unreadable" if unreadable else "satisfied" if said else "violated",
        parser="strict/2",
        reply=seen if unreadable else f"{seen}\nFinal verdict: {'yes' if said else 'no'}",
        prompt_tokens=400,
        output_tokens=30,
    )
