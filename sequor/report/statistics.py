"""Bootstrap over dialogues, and what is decided with it: intervals, differences, ranks. Pure numpy.

1. What is drawn anew is dialogues, never turns: the turns of one dialogue hang together. A resample is how often each
   dialogue was drawn (a multinomial count), so that any ratio of sums is two matrix products.
2. The draws depend on nothing but the seed and the dialogues' names. So models that played the same dialogues, and the
   seven sets (whose dialogues are the same personas), are always resampled together: differences are paired.
3. Intervals are percentile intervals. A resample in which nothing was decided is left out of them.
4. Two models tie when the interval of their difference holds zero.
"""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from msgspec import Struct

RESAMPLES = 5000
LEVEL = 0.95


class Estimate(Struct, frozen=True):
    """A value and its interval; NaN where there is none."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return bool(np.isfinite(self.value))


UNKNOWN = Estimate(float("nan"), float("nan"), float("nan"))


def weights(dialogues: Sequence[str], resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """How often each dialogue was drawn; float32, shape (resamples, dialogues), rows sum to the number of dialogues."""
    count = len(dialogues)
    digest = sha256("\0".join([str(seed), *dialogues]).encode("utf-8", "surrogatepass")).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    return rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float32)


def ratios(drawn: np.ndarray, hits: np.ndarray, tries: np.ndarray) -> np.ndarray:
    """Sum of hits over sum of tries in each resample; NaN where there are no tries.

    drawn: (resamples, dialogues); hits and tries: (dialogues, ...) -> (resamples, ...)
    """
    flat = hits.reshape(len(hits), -1).astype(np.float32), tries.reshape(len(tries), -1).astype(np.float32)
    over, under = drawn @ flat[0], drawn @ flat[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(under > 0, over / under, np.nan).reshape(len(drawn), *hits.shape[1:])


def ratio(hits: np.ndarray, tries: np.ndarray) -> np.ndarray:
    """The same without resampling: sums over axis 0."""
    over, under = hits.sum(axis=0, dtype=float), tries.sum(axis=0, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(under > 0, over / under, np.nan)


def interval(samples: np.ndarray, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval over axis 0, NaN left out (rule 3); NaN where nothing is left."""
    tail = (1 - level) / 2
    if not np.isnan(samples).any():
        low, high = np.quantile(samples, [tail, 1 - tail], axis=0)
        return low, high
    flat = samples.reshape(len(samples), -1)
    bounds = np.full((2, flat.shape[1]), np.nan)
    for column in range(flat.shape[1]):
        known = flat[:, column][~np.isnan(flat[:, column])]
        if len(known):
            bounds[:, column] = np.quantile(known, [tail, 1 - tail])
    return bounds[0].reshape(samples.shape[1:]), bounds[1].reshape(samples.shape[1:])


def estimate(value: float, samples: np.ndarray, level: float = LEVEL) -> Estimate:
    if not np.isfinite(value):
        return UNKNOWN
    low, high = interval(samples, level)
    return Estimate(float(value), float(low), float(high))


def mean_of_known(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean over what is not NaN; NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, np.where(known, values, 0).sum(axis=axis) / count, np.nan)


def two_sided(samples: np.ndarray) -> float:
    """Share of the resampled differences on the far side of zero, doubled; never below 1/(resamples + 1)."""
    known = samples[~np.isnan(samples)]
    far = min((known <= 0).sum(), (known >= 0).sum())
    return min(1.0, float(2 * (far + 1) / (len(known) + 1)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction for so many comparisons (step-down, family-wise)."""
    order = np.argsort(p)
    adjusted, highest = np.empty(len(p)), 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[at]))
        adjusted[at] = highest
    return adjusted.tolist()


def borda(scores: np.ndarray) -> np.ndarray:
    """Points: over all columns (test sets), how many models each beats, half a point for a tie (Colombo et al., 2022:
    the sum of ranks, told from the other end). A NaN beats nothing and is beaten by all that is known.

    scores: (..., models, sets) -> (..., models)
    """
    filled = np.where(np.isnan(scores), -np.inf, scores)
    mine, other = filled[..., :, None, :], filled[..., None, :, :]
    beaten = (mine > other) + 0.5 * (mine == other)
    return beaten.sum(axis=(-1, -2)) - 0.5 * scores.shape[-1]  # nobody ties with himself


def ranks(points: np.ndarray) -> np.ndarray:
    """1 for the most points; equals share the best of their ranks. (..., models) -> (..., models)"""
    return 1 + (points[..., None, :] > points[..., :, None]).sum(axis=-1)


def kappa(first: np.ndarray, second: np.ndarray) -> float:
    """Cohen's kappa of two series of true and false; NaN when both always say the same one thing."""
    if not len(first):
        return float("nan")
    agree = float((first == second).mean())
    a, b = float(first.mean()), float(second.mean())
    chance = a * b + (1 - a) * (1 - b)
    return (agree - chance) / (1 - chance) if chance < 1 else float("nan")
