"""A set of keys that grows to millions in 8 bytes each: it holds 64 bits of each key's hash, sorted.

Of n keys, a new one is taken for one that is there with probability n / 2^64: one in ten million million for a million.
"""

from hashlib import blake2b

import numpy as np

FRESH = 65_536
"""Keys that are held unsorted before they are merged in."""


class KeySet:
    def __init__(self):
        self._sorted = np.empty(0, dtype=np.uint64)
        self._fresh: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._fresh)

    def __contains__(self, key: str) -> bool:
        return self._has(_hash(key))

    def add(self, key: str) -> bool:
        """Whether it is new."""
        number = _hash(key)
        if self._has(number):
            return False
        self._fresh.add(number)
        if len(self._fresh) >= FRESH:
            fresh = np.fromiter(self._fresh, dtype=np.uint64, count=len(self._fresh))
            self._sorted = np.sort(np.concatenate([self._sorted, fresh]))
            self._fresh.clear()
        return True

    def _has(self, number: int) -> bool:
        if number in self._fresh:
            return True
        value = np.uint64(number)
        at = int(np.searchsorted(self._sorted, value))
        return at < len(self._sorted) and self._sorted[at] == value


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
