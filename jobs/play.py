"""run, respond, judge as the command line sees them: play, then score and say what came out."""

from pathlib import Path

from cluster.rayenv import prepare
from jobs.conduct import COMPLETE, INCOMPLETE, STOPPED
from jobs.config import RunConfig, SynthesisConfig, convert, load, override
from jobs.progress import console
from jobs.score import show
from sequor.errors import BadInput
from sequor.run_folder import RunFolder
from sequor.scoring import score


def play(config: RunConfig, out: Path, roles: tuple[str, ...]) -> int:
    """Returns the exit code."""
    if "judge" in roles and config.judge is None:
        raise BadInput("judge.model: missing; name a judge with --judge, or use `sequor respond`")
    prepare(config.ray_address)
    from jobs.run import Play  # brings ray, which reads what was just prepared

    screen = console()
    run = Play(config, out, roles, screen)
    code = run.run()
    if run.evaluation.turns_done:
        scores, tally = score(out)
        show(scores, tally, screen)
    if summary := run.summary():
        screen.print(summary)
    if code == STOPPED:
        screen.print("stopped; everything finished is saved. The same command continues.")
    if code == INCOMPLETE:
        screen.print(f"incomplete: {out}/failures.jsonl says why. The same command asks again what is missing.")
    missing = run.evaluation.turns_total - run.evaluation.turns_done
    if code == COMPLETE and missing:
        screen.print(f"every answer is judged; {missing:,} turns have none yet (sequor respond, or run, continues)")
    screen.print(f"{out}: " + ("complete" if code == COMPLETE and not missing else "not complete"))
    screen.print(str(tally) if run.evaluation.turns_done else "no turn is finished yet; nothing to score")
    return code


def judge_again(out: Path, settings: list[str], model: str | None) -> int:
    """The judge's part of the run in `out`, with its own config and whatever is set over it. Another judge than the
    run's begins with nothing but its name: what was set for the first one is not meant for it. Raises BadInput."""
    if stray := [word for word in settings if "=" not in word]:
        raise BadInput(f"command line: {stray[0]}: judge takes KEY=VALUE; the config is the run's own, {out}/run.json")
    raw = RunFolder(out).read().config
    old = (raw.get("judge") or {}).get("model")
    named = {"model": model} if model else {}
    for word in settings:
        if word.startswith("judge.model="):
            named = {"model": word.partition("=")[2]}
    if named and named["model"] != old:
        raw = {key: value for key, value in raw.items() if key != "judge_parser"} | {"judge": named}
    for word in settings:
        override(raw, word)
    return play(convert(raw, str(out / "run.json")), out, ("judge",))


def synthesize(path: Path | None, words: list[str], out: Path) -> int:
    """Returns the exit code."""
    config = load(path, words, SynthesisConfig)
    prepare(config.ray_address)
    from jobs.synthesize import synthesize

    return synthesize(config, out, console())
