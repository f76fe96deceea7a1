"""How long a pool's replicas lived, and how long they had something to do. Pure: the time is an argument, in seconds.

A replica is busy while at least one request is with it; what the engine does with it meanwhile is the engine's affair.
"""

from dataclasses import dataclass, field

from msgspec import Struct


class Spent(Struct, frozen=True):
    """Seconds, summed over replicas but for `ready_s`."""

    ready_s: float = 0.0
    """Since the pool's first replica came up."""
    alive_s: float = 0.0
    busy_s: float = 0.0
    in_flight_s: float = 0.0
    """Summed over requests: divided by `alive_s`, how many a replica had at a time."""

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


@dataclass(slots=True)
class _Life:
    since: float
    """What lies before is counted."""
    in_flight: int = 0


@dataclass(slots=True)
class Occupancy:
    _lives: dict[str, _Life] = field(default_factory=dict)
    _first: float | None = None
    _last: float | None = None
    _alive_s: float = 0.0
    _busy_s: float = 0.0
    _in_flight_s: float = 0.0

    def born(self, replica: str, now: float) -> None:
        self._first = now if self._first is None else self._first
        self._lives[replica] = _Life(now)

    def died(self, replica: str, now: float) -> None:
        if (life := self._lives.get(replica)) is not None:
            self._count(life, now)
            del self._lives[replica]

    def sent(self, replica: str, now: float) -> None:
        self._change(replica, 1, now)

    def answered(self, replica: str, now: float) -> None:
        self._change(replica, -1, now)

    def over(self, now: float) -> None:
        """The pool is given up: what comes now is the end of its replicas."""
        for replica in list(self._lives):
            self.died(replica, now)
        self._last = now

    def spent(self, now: float) -> Spent:
        for life in self._lives.values():
            self._count(life, now)
        end = now if self._last is None else self._last
        ready_s = 0.0 if self._first is None else end - self._first
        return Spent(ready_s, self._alive_s, self._busy_s, self._in_flight_s)

    def _change(self, replica: str, by: int, now: float) -> None:
        if (life := self._lives.get(replica)) is not None:  # an answer may come after its replica's death
            self._count(life, now)
            life.in_flight += by

    def _count(self, life: _Life, now: float) -> None:
        seconds, life.since = now - life.since, now
        self._alive_s += seconds
        self._busy_s += seconds if life.in_flight else 0.0
        self._in_flight_s += seconds * life.in_flight
