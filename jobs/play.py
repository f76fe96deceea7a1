"""run, respond, judge as the command line sees them: play, then score and say what came out."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cluster.rayenv import prepare
from jobs.conduct import COMPLETE, INCOMPLETE, STOPPED
from jobs.config import RunConfig, SynthesisConfig, convert, load, override
from jobs.progress import console
from jobs.score import show
from sequor.errors import BadInput
from sequor.run_folder import RunFolder
from sequor.scoring import score

if TYPE_CHECKING:
    from jobs.run import Run


def play(config: RunConfig, out: Path, verbs: tuple[str, ...], again: bool = False) -> int:
    """Returns the exit code."""
    return play_all({"": config}, out, verbs, again)


def play_all(configs: dict[str, RunConfig], out: Path, verbs: tuple[str, ...], again: bool = False) -> int:
    """Name -> config of a run, each in a folder of its name below `out`. Returns the worst exit code. `again`: what no
    judge could say is asked once more."""
    first = next(iter(configs.values()))
    if "judge" in verbs and first.judge is None:
        raise BadInput("judge.model: missing; name a judge with --judge, or use `sequor respond`")
    prepare(first.ray_address)
    from jobs.campaign import Campaign  # brings ray, which reads what was just prepared
    from jobs.run import Run

    screen = console()
    runs = [Run(config, out / name, verbs, name, again) for name, config in configs.items()]
    for run in runs:
        run.prepare()
        if run.done:
            screen.print(f"{run.folder.path}: nothing is left to {'judge' if verbs == ('judge',) else 'play'}")
    code = Campaign(runs, out, screen).play()
    for run in runs:
        if len(runs) > 1:
            screen.rule(run.name, align="left")
        low = _show(run, code, screen)
        code = INCOMPLETE if code == COMPLETE and low else code
    return code


def _show(run: "Run", code: int, screen: Console) -> bool:
    """What came out. `code`: of all that was played. Returns whether too little of it is decided."""
    out, evaluation, tally = run.folder.path, run.evaluation, None
    if evaluation.turns_done:
        scores, tally = score(out)
        show(scores, tally, screen)
    if summary := run.summary():
        screen.print(summary)
    if run.failed:
        screen.print(f"FAILED: {run.failed}")
    elif not run.done and code == STOPPED:
        screen.print("stopped; everything finished is saved. The same command continues.")
    elif not run.done:
        screen.print(f"incomplete: {out}/failures.jsonl says why. The same command asks again what is missing.")
        reasons = Counter(f"{failure.status}: {failure.detail}" for failure in run.folder.failures)
        for reason, count in reasons.most_common(3):
            screen.print(f"  {count:,} x {reason}")
    missing = evaluation.turns_total - evaluation.turns_done
    if run.done and missing:
        screen.print(f"every answer is judged; {missing:,} turns have none yet (sequor respond, or run, continues)")
    screen.print(f"{out}: " + ("complete" if evaluation.complete else "not complete"))
    screen.print(str(tally) if tally else "no turn is finished yet; nothing to score")
    return bool(tally and tally.low and evaluation.complete)


def judge_again(out: Path, settings: list[str], model: str | None, again: bool = False) -> int:
    """The judges' part of the run in `out`, with its own config and whatever is set over it; `model`: of that judge
    alone. Another judge than the run's begins with nothing but its name: what was set for the others is not meant for
    it. `again`: what no judge could say is asked once more. Raises BadInput."""
    if stray := [word for word in settings if "=" not in word]:
        raise BadInput(f"command line: {stray[0]}: judge takes KEY=VALUE; the config is the run's own, {out}/run.json")
    raw = RunFolder(out).read().config
    raw.pop("ray_address", None)  # that cluster may be gone
    for word in settings:
        if word.startswith("judge.model="):
            model = word.partition("=")[2]
    if model:
        known = {judge["model"]: judge for judge in (raw.get("judge"), *raw.get("more_judges", ())) if judge}
        if model not in known:
            raw.pop("judge_parser", None)
        raw |= {"judge": known.get(model, {"model": model}), "more_judges": []}
    for word in settings:
        override(raw, word)
    return play(convert(raw, str(out / "run.json")), out, ("judge",), again)


def synthesize(path: Path | None, words: list[str], out: Path) -> int:
    """Returns the exit code."""
    config = load(path, words, SynthesisConfig)
    prepare(config.ray_address)
    from jobs.synthesize import synthesize

    return synthesize(config, out, console())
