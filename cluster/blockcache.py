"""A prefix cache of KV blocks as vLLM keeps it, counted instead of stored. Pure; for the simulation.

1. Blocks of `BLOCK` tokens. A conversation's cached blocks are a prefix of its tokens; conversations share none.
2. Blocks of running requests are pinned. Those of the others stay until room is needed: the least recently used
   conversation loses blocks first, its tail before its head.
3. Only full blocks can be found again, and the KV of a request's last token is never made: of n tokens, (n - 1) // 16
   blocks stay.
4. A request takes all the blocks that it will ever need when it starts, or waits. (vLLM takes them as it goes and
   preempts when there are none left; the outcome is the same but for the work that preemption throws away.)
"""

from collections import OrderedDict

BLOCK = 16


def blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)


class PrefixCache:
    """`capacity` in tokens."""

    def __init__(self, capacity: int):
        self.capacity = capacity // BLOCK
        self._idle: OrderedDict[str, int] = OrderedDict()
        """Conversation -> cached blocks, least recently used first."""
        self._idle_blocks = 0
        self._pinned: dict[str, int] = {}
        """Conversation -> tokens of its request when it is done."""
        self._pinned_blocks = 0

    def start(self, key: str, prompt: int, total: int) -> int | None:
        """Pin the blocks of a request with that many prompt tokens and tokens in all. Returns how many prompt tokens
        were cached (full blocks, never all of them: the last one has to be computed), or None when it has to wait."""
        needed = blocks(total)
        if self._pinned_blocks + needed > self.capacity:
            return None
        held = self._idle.pop(key, 0)
        self._idle_blocks -= held
        hit = min(held, (prompt - 1) // BLOCK)
        self._evict(self._pinned_blocks + needed + self._idle_blocks - self.capacity)
        self._pinned[key] = total
        self._pinned_blocks += needed
        return hit * BLOCK

    def finish(self, key: str) -> None:
        """The request is over: its full blocks stay as long as nobody needs the room."""
        total = self._pinned.pop(key)
        self._pinned_blocks -= blocks(total)
        held = (total - 1) // BLOCK
        if not held:
            return
        self._idle[key] = held
        self._idle_blocks += held

    def _evict(self, excess: int) -> None:
        while excess > 0:
            key, held = next(iter(self._idle.items()))
            lost = min(held, excess)
            excess -= lost
            self._idle_blocks -= lost
            if lost == held:
                del self._idle[key]
            else:
                self._idle[key] = held - lost
