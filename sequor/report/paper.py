"""Numbers that the paper prints, to stand beside ours (arXiv 2605.06353, appendix F). Points of accuracy.

A run's model is found by its name: the last part of a repository's name, without case, marks and words of release
(`Qwen/Qwen3-4B-Instruct-2507` is Qwen3-4B-Inst, `google/gemma-3-12b-it` is Gemma3-12B).
"""

import re

COLUMNS = ("single", "tuples_3", "replace_10", "add_10", "everything")
"""Sets that tables 5 and 6 have."""

LAST_MINUS_FIRST: dict[str, tuple[float, ...]] = {
    "Gemini-3.1-Flash-Lite": (-10.5, -24.42, -11.5, -40.0, -9.0),
    "Qwen3-235B-A22B-Inst": (-16.0, -33.0, -7.5, -50.0, -13.0),
    "GPT-oss-120B": (-35.5, -41.5, -45.5, -59.5, -41.0),
    "Llama-3.3-70B-Inst": (-30.0, -44.5, -18.0, -72.0, -22.0),
    "Qwen3-30B-A3B-Inst": (-15.0, -30.5, -21.5, -65.5, -27.0),
    "GLM-4.7-Flash": (-4.5, -16.5, -9.26, -40.5, -16.0),
    "Gemma3-27B": (-40.0, -54.5, -19.0, -78.5, -30.5),
    "GPT-oss-20B": (-34.5, -23.5, -35.5, -67.5, -32.0),
    "Gemma3-12B": (-34.0, -54.0, -14.5, -81.0, -27.0),
    "Qwen3-4B-Inst": (-12.5, -28.5, -23.0, -71.5, -34.0),
    "Gemma3-4B": (-54.5, -62.0, -44.5, -93.5, -48.0),
    "Average": (-26.09, -37.54, -22.71, -65.41, -27.23),
}
"""Table 5."""

WORST_MINUS_BEST: dict[str, tuple[float, ...]] = {
    "Gemini-3.1-Flash-Lite": (-16.0, -24.42, -13.5, -40.5, -16.0),
    "Qwen3-235B-A22B-Inst": (-17.0, -36.0, -12.0, -55.0, -18.0),
    "GPT-oss-120B": (-37.5, -42.0, -47.0, -66.36, -44.0),
    "Llama-3.3-70B-Inst": (-30.5, -45.5, -22.5, -72.0, -29.5),
    "Qwen3-30B-A3B-Inst": (-15.0, -36.0, -25.0, -73.0, -33.5),
    "GLM-4.7-Flash": (-9.5, -22.0, -17.0, -48.5, -20.0),
    "Gemma3-27B": (-41.0, -56.5, -35.5, -80.0, -31.5),
    "GPT-oss-20B": (-36.5, -27.5, -41.0, -67.5, -33.5),
    "Gemma3-12B": (-39.0, -59.0, -28.5, -83.5, -29.0),
    "Qwen3-4B-Inst": (-16.5, -28.5, -23.5, -74.5, -35.5),
    "Gemma3-4B": (-56.0, -63.0, -53.5, -93.5, -52.0),
    "Average": (-28.59, -40.04, -29.0, -68.58, -31.14),
}
"""Table 6."""

_NOISE = re.compile(r"(instruct|inst|chat|it|preview|fp8|bf16|awq|gptq|\d{4})")


def find(model: str) -> str | None:
    """The paper's name of a model, None when it has no such model."""
    names = {_plain(name): name for name in LAST_MINUS_FIRST if name != "Average"}
    return names.get(_plain(model))


def _plain(model: str) -> str:
    words = re.split(r"[^a-z0-9.]+", model.rstrip("/").rpartition("/")[2].lower())
    return "".join(word for word in words if not _NOISE.fullmatch(word))
