"""Why an engine failed, in one line. vLLM works in processes of its own: its exceptions say that the reason was logged.

So those processes log their errors into a file as well, which is read when an exception comes. No vllm is imported.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class EngineLog:
    """What vLLM's processes log as errors. Its exceptions only say that the reason was logged."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sequor-engine-", ignore_cleanup_errors=True)
        self._errors = Path(self._folder.name) / "errors"

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Processes started within log their errors here as well, unless the environment has a logging of its own."""
        name = "VLLM_LOGGING_CONFIG_PATH"
        if os.environ.get(name):
            yield
            return
        config = Path(self._folder.name) / "logging.json"
        config.write_text(json.dumps(self._config()))
        os.environ[name] = str(config)
        try:
            yield
        finally:
            del os.environ[name]

    def first_error(self) -> str | None:
        """The first error's own line: the root, as those that follow only pass it on."""
        try:
            lines = self._errors.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return None
        raised = (re.fullmatch(r"(?:\w+\.)*\w*(?:Error|Exception): (.+)", line.strip()) for line in lines)
        return next((found[1] for found in raised if found), None)

    def close(self) -> None:
        self._folder.cleanup()

    def _config(self) -> dict[str, Any]:
        level = os.environ["VLLM_LOGGING_LEVEL"]
        shown = {"class": "logging.StreamHandler", "level": level, "formatter": "line"}
        kept = {"class": "logging.FileHandler", "level": "ERROR", "filename": str(self._errors)}
        return {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"format": "%(processName)s %(levelname)s %(asctime)s %(name)s: %(message)s"}},
            "handlers": {"shown": shown, "kept": kept},
            "loggers": {"vllm": {"handlers": ["shown", "kept"], "level": level, "propagate": False}},
        }


def useful_line(error: BaseException) -> str:
    """The line of an error that says what is wrong. pydantic's first one only counts the errors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "validation error" in lines[0] and len(lines) > 1:
        lines = lines[1:] if lines[1].startswith("Value error") else [f"{lines[1]}: {lines[-1]}"]
    return lines[0].removeprefix("Value error, ").split(" [type=")[0]
