"""Where a model's files are, and what names their content. No weights are loaded here.

The digest goes into a run's fingerprint. For a hub's repository it is the commit. For a local folder it covers the
small files that decide what the model is shown and how it samples (config, tokenizer, chat template, generation config)
byte by byte, and of each weight file its name, its size and `SAMPLES` blocks spread over it, the first with the header:
a checkpoint trained on differs in nearly every block. Anything else in the folder, a README or a log, is left out.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cluster.settings import ApiSettings, EngineSettings

SMALL = (
    "*config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
    "*.jinja",
    "*.model",
    "*.tiktoken",
    "*.py",
)
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
SAMPLES = 16
BLOCK_BYTES = 65536


class ModelNotFound(Exception):
    """One line: which model, and what would help."""


class ModelFiles(Struct, frozen=True):
    path: str
    """Folder, or repository name for vLLM to load from its hub."""
    digest: str


def find(settings: EngineSettings) -> ModelFiles:
    """Raises ModelNotFound."""
    if settings.engine == "scripted":
        return ModelFiles(settings.model, f"script {settings.script}")
    if settings.engine == "api":
        return ModelFiles(settings.model, f"endpoint {(settings.api or ApiSettings()).base_url}")
    if settings.model == "embedded":
        from cluster.embedded import embedded_model

        folder = embedded_model()
        return ModelFiles(str(folder), folder_digest(folder))
    folder = Path(settings.model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise ModelNotFound(f"model {settings.model}: no config.json in that folder")
        return ModelFiles(str(folder.resolve()), folder_digest(folder))
    if settings.model.startswith((".", "/", "~")) or settings.model.count("/") != 1:
        raise ModelNotFound(f"model {settings.model}: no such folder")
    return _on_hub(settings.model, settings.revision)


def folder_digest(folder: Path) -> str:
    digest = sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        heavy = any(file.match(pattern) for pattern in WEIGHTS)
        if not heavy and not any(file.match(pattern) for pattern in SMALL):
            continue
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(_sample(file) if heavy else file.read_bytes())
    return digest.hexdigest()[:16]


def _sample(file: Path) -> bytes:
    """Blocks at equal distances, the first and the last bytes among them."""
    last = max(0, file.stat().st_size - BLOCK_BYTES)
    blocks = []
    with open(file, "rb") as data:
        for n in range(SAMPLES):
            data.seek(last * n // (SAMPLES - 1))
            blocks.append(data.read(BLOCK_BYTES))
    return b"".join(blocks)


def chat_template(settings: EngineSettings) -> str | None:
    """Text of the template that the settings name; None: the model's own. Raises OSError."""
    return Path(settings.chat_template).expanduser().read_text("utf-8") if settings.chat_template else None


def weight_bytes(files: ModelFiles) -> int | None:
    """Size of the weight files, or None where they are not on this machine yet."""
    folder = Path(files.path)
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")] if folder.is_dir() else []
    return sum(sizes) or None


def context_tokens(files: ModelFiles) -> int | None:
    """The context that the model's config.json names, or None where it cannot be told without loading anything."""
    config = model_config(files)
    return None if config is None else (config.get("text_config") or config).get("max_position_embeddings")


def model_config(files: ModelFiles) -> dict[str, Any] | None:
    """The model's config.json, or None where it is neither here nor on a hub that answers."""
    folder = Path(files.path)
    if not folder.is_dir() and files.digest.startswith("commit "):
        from huggingface_hub import hf_hub_download

        try:
            folder = Path(
                hf_hub_download(files.path, "config.json", revision=files.digest.removeprefix("commit "))
            ).parent
        except (OSError, ValueError, RuntimeError):  # no network, or no such file: the engine will tell
            return None
    if not (folder / "config.json").exists():
        return None
    return msgspec.json.decode((folder / "config.json").read_bytes())


def _on_hub(repository: str, revision: str | None) -> ModelFiles:
    """The commit, asked of the hub; without a network, the commit of the copy in the hub's cache."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        commit = HfApi().model_info(repository, revision=revision, timeout=20).sha
        return ModelFiles(repository, f"commit {commit}")
    except HfHubHTTPError as error:
        reason = str(error).splitlines()[0]
        if error.response is None or not (error.response.status_code == 429 or error.response.status_code >= 500):
            raise ModelNotFound(f"model {repository}: {reason}") from None
    except Exception as error:  # no network: what is raised is the HTTP client's own, and the hub's library changes its
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    try:
        snapshot = Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, OSError, ValueError):
        raise ModelNotFound(
            f"model {repository}: not a folder, not in the hub's cache, and no hub answers: {reason}"
        ) from None
    return ModelFiles(str(snapshot), f"commit {snapshot.name}")
