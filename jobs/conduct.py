"""What every verb that plays has in common: signals, an observer, and engines that are closed whatever happens."""

import asyncio
import logging
import signal
from collections.abc import Coroutine
from pathlib import Path

from cluster.driver import Driver

COMPLETE, INCOMPLETE, FAILED, STOPPED = 0, 3, 4, 75


def stopping_signals() -> tuple[signal.Signals, ...]:
    """SIGHUP too, the end of a terminal or a connection, unless whoever started us (nohup) has it ignored."""
    hung_up = () if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, *hung_up


async def conduct(driver: Driver, watching: Coroutine) -> bool:
    """Play to the end (True), or to a signal (False). `watching` runs beside it until then.

    Raises what Driver.play and `watching` raise: a run that nobody can look at any more is stopped.
    """
    for signum in stopping_signals():
        asyncio.get_running_loop().add_signal_handler(signum, driver.stop)
    watcher = asyncio.create_task(watching)
    watcher.add_done_callback(lambda _: driver.stop())
    try:
        played = await driver.play()
        if watcher.done():
            watcher.result()
        return played
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        for pool in driver.pools:
            await pool.host.close()


def no_more_signals() -> None:
    """After a stop: what is left takes seconds, and a second Ctrl-C in it would leave by another exit code."""
    for signum in stopping_signals():
        signal.signal(signum, signal.SIG_IGN)


def log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=path, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
