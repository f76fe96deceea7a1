"""The loop: what is saved before what is sent, what stops it, and that nothing is left hanging."""

import asyncio

import pytest
from local import LocalHost

from cluster.conversation import Conversation, Failure, Response
from cluster.driver import Driver, EngineStartError, Pool, ReplicaDied, Stalled
from cluster.scheduler import ConversationScheduler
from jobs.conduct import conduct


def dialogue(key: str, turns: int = 3) -> Conversation:
    return Conversation(key, tuple(f"{key}{n}" for n in range(turns)))


def play(host, *conversations, keep=None, timeout: float = 5.0):
    """Returns (played to the end, saved turns in order)."""
    saved = []

    async def write(saves):
        saved.extend(turn for _, turn in saves)
        return []

    async def run() -> bool:
        pool = Pool("p", ConversationScheduler(), host, turn_timeout_s=timeout)
        driver = Driver([pool], keep or write)
        driver.add(pool, conversations)
        return await driver.play()

    return asyncio.run(asyncio.wait_for(run(), 20)), saved


def echo(request):
    return Response(request.user.upper())


def test_everything_is_played_and_saved_once_in_order():
    complete, saved = play(LocalHost(echo, replicas=3), *(dialogue(k) for k in "abcd"))
    assert complete
    for key in "abcd":
        assert [(t.index, t.outcome.text) for t in saved if t.key == key] == [
            (n, f"{key}{n}".upper()) for n in range(3)
        ]


def test_nothing_to_do_is_done_at_once():
    assert play(LocalHost(echo)) == (True, [])


def test_no_turn_is_asked_before_the_one_before_it_is_written():
    host, written = LocalHost(echo), []

    async def slow(saves):
        await asyncio.sleep(0.01)
        written.extend((turn.key, turn.index) for _, turn in saves)
        for request in host.asked:
            assert all((request.key, n) in written for n in range(request.index))
        return []

    complete, _ = play(host, dialogue("a"), dialogue("b"), keep=slow)
    assert complete and len(written) == 6


def test_what_follows_from_a_saved_turn_is_played_too():
    asked = []

    async def run() -> None:
        candidate = Pool("candidate", ConversationScheduler(), LocalHost(echo))
        judge = Pool("judge", ConversationScheduler(), LocalHost(echo), fed_by=(candidate,))

        async def keep(saves):
            asked.extend(turn.key for pool, turn in saves if pool is judge)
            return [(judge, tuple(Conversation(f"{t.key}?{t.index}", ("q",)) for p, t in saves if p is candidate))]

        driver = Driver([candidate, judge], keep)
        driver.add(candidate, [dialogue("a"), dialogue("b")])
        assert await driver.play()

    asyncio.run(run())
    assert sorted(asked) == [f"{key}?{n}" for key in "ab" for n in range(3)]


def test_a_turn_without_an_answer_in_time_is_a_timeout_and_the_others_go_on():
    async def stuck(request):
        if request.key == "a":
            await asyncio.sleep(60)
        return echo(request)

    complete, saved = play(LocalHost(stuck), dialogue("a"), dialogue("b"), timeout=0.05)
    assert complete
    assert [t.outcome for t in saved if t.key == "a"] == [Failure("timeout", "no answer within 0.05 s")]
    assert len([t for t in saved if t.key == "b"]) == 3


def test_a_dead_replica_costs_no_finished_turn():
    deaths = iter(range(2))

    def dies_twice(request):
        if request.index == 1 and next(deaths, None) is not None:
            raise ReplicaDied("killed")
        return echo(request)

    complete, saved = play(LocalHost(dies_twice), dialogue("a"), dialogue("b"))
    assert complete
    assert sorted((t.key, t.index) for t in saved) == [(key, n) for key in "ab" for n in range(3)]


def test_stop_leaves_with_what_is_saved():
    async def run():
        pool = Pool("p", ConversationScheduler(), LocalHost(echo))
        saved = []

        async def keep(saves):
            saved.extend(saves)
            if len(saved) >= 4:
                driver.stop()
                driver.stop()
            return []

        driver = Driver([pool], keep)
        driver.add(pool, [dialogue("a", 50)])
        return await driver.play(), saved

    complete, saved = asyncio.run(run())
    assert not complete and 4 <= len(saved) < 50


class Never(LocalHost):
    def __init__(self, error: Exception | None = None):
        super().__init__(echo)
        self.error = error

    async def run(self, ready, lost) -> str:
        if self.error:
            raise self.error
        return "out of memory"


def test_a_pool_that_can_have_no_replica_stalls_instead_of_waiting():
    with pytest.raises(Stalled, match="pool p: no replica is left, 2 conversations are unfinished: out of memory"):
        play(Never(), dialogue("a"), dialogue("b"))


def test_an_engine_that_cannot_start_ends_the_run_with_its_own_words():
    with pytest.raises(EngineStartError, match="no such model"):
        play(Never(EngineStartError("no such model")), dialogue("a"))


def test_a_full_disk_ends_the_run():
    async def full(saves):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        play(LocalHost(echo), dialogue("a"), keep=full)


class Sick(LocalHost):
    """Its first replica answers nothing but errors."""

    async def ask(self, replica: str, request):
        await asyncio.sleep(0)
        return Failure("engine_error", "boom") if replica == "r1" else echo(request)


def test_a_replica_that_always_errors_is_replaced_and_costs_no_conversation():
    host = Sick(echo, replicas=2, max_running=8)
    complete, saved = play(host, *(dialogue(f"d{n}") for n in range(40)))
    assert complete and host.retired == ["r1"]
    assert len(saved) == 120 and all(isinstance(turn.outcome, Response) for turn in saved)


def test_an_observer_that_breaks_stops_the_run():
    async def run():
        pool = Pool("p", ConversationScheduler(), LocalHost(echo))

        async def keep(saves):
            await asyncio.sleep(0.005)
            return []

        async def watching():
            raise KeyError("a bug")

        driver = Driver([pool], keep)
        driver.add(pool, [dialogue("a", 500)])
        await conduct(driver, watching())

    with pytest.raises(KeyError, match="a bug"):
        asyncio.run(run())


class Noted(LocalHost):
    """Writes down when it starts and when it is closed."""

    def __init__(self, name: str, notes: list[str]):
        super().__init__(echo)
        self.name, self.notes = name, notes

    async def run(self, ready, lost) -> str:
        self.notes.append(f"{self.name} starts")
        return await super().run(ready, lost)

    async def close(self) -> None:
        self.notes.append(f"{self.name} closes")


def play_pools(gpus: float, **needs: float) -> list[str]:
    """Three candidates and what follows from their answers; returns starts and ends in their order."""
    notes: list[str] = []
    judge = Pool("judge", ConversationScheduler(), Noted("judge", notes), gpus=needs.pop("judge"))
    candidates = [Pool(name, ConversationScheduler(), Noted(name, notes), gpus=need) for name, need in needs.items()]
    judge.fed_by = tuple(candidates)
    judged = []

    async def keep(saves):
        judged.extend(turn for pool, turn in saves if pool is judge)
        return [(judge, tuple(Conversation(f"{p.name}/{t.key}/{t.index}", ("q",)) for p, t in saves if p is not judge))]

    async def run() -> None:
        together = judge.gpus + max(p.gpus for p in candidates) <= gpus
        pools = [judge, *candidates] if together else [*candidates, judge]
        driver = Driver(pools, keep, gpus=gpus)
        for pool in candidates:
            driver.add(pool, [dialogue("a"), dialogue("b")])
        assert await driver.play()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert len(judged) == 3 * 6
    return notes


def test_pools_wait_in_their_order_for_gpus_and_free_them_when_they_are_over():
    assert play_pools(3, judge=1, x=2, y=1, z=1) == [
        "judge starts",
        "x starts",
        "x closes",
        "y starts",
        "z starts",
        "y closes",
        "z closes",
    ]


def test_where_judge_and_candidate_do_not_fit_together_the_judge_comes_last():
    notes = play_pools(2, judge=2, x=2, y=1, z=1)
    assert notes[-2:] == ["z closes", "judge starts"] or notes[-2:] == ["y closes", "judge starts"]


def test_the_others_go_on_without_a_pool_that_is_given_up():
    given_up = []

    async def run():
        bad = Pool("bad", ConversationScheduler(), Never(EngineStartError("no such model")), gpus=1)
        good = Pool("good", ConversationScheduler(), LocalHost(echo), gpus=1)
        saved = []

        async def keep(saves):
            saved.extend(saves)
            return []

        driver = Driver([bad, good], keep, gpus=1, give_up=lambda p, e: not given_up.append((p.name, str(e))))
        driver.add(bad, [dialogue("a")])
        driver.add(good, [dialogue("a")])
        assert await driver.play()
        return saved

    assert len(asyncio.run(asyncio.wait_for(run(), 20))) == 3
    assert given_up == [("bad", "no such model")]
