"""demo: seven regimes on the shipped data with the embedded model, in minutes, on a laptop's CPU."""

from pathlib import Path

from jobs.config import load
from jobs.play import play
from jobs.progress import console

CONFIG = Path(__file__).parent / "demo.yaml"


def demo(settings: list[str], out: Path) -> int:
    screen = console()
    screen.print("Sequor demo: seven regimes, played and judged by SmolLM2-135M-Instruct on this machine's CPU.")
    screen.print(
        "The engine takes half a minute to start; the first time, its weights are unpacked before.", style="dim"
    )
    code = play(load(CONFIG, settings), out, ("candidate", "judge"))
    screen.print()
    screen.print(
        "A judge of 135 million parameters cannot tell whether a rule was followed: these scores mean NOTHING about\n"
        "the model. They show that the machinery works. For a real run: sequor run --model ... --judge ...",
        style="bold yellow",
    )
    return code
