"""Decides which conversation's turn goes to which replica, and when. Pure: no I/O, no clock, no randomness.

`handle(*events) -> [actions]`. Rules:

1. A conversation stays on the replica that holds its prefix until it ends, the replica is lost, or fails it (rule 7).
2. Admission is by KV tokens (admission.py): on each replica the contexts of the live conversations, with the turn that
   is expected next, stay below `kv_share` of the engine's KV cache. When they outgrow it, the youngest-started one
   pauses at its turn's end. The oldest paused resumes first; only then does a waiting one start. The oldest live one
   is never paused, so that every replica makes progress.
3. The conversations of a lost replica go to the front of the queue with every turn they have finished.
4. A turn is saved exactly once, before the next one is sent. An answer to a forgotten ticket is ignored.
5. Pacing `continuous`: a next turn leaves as its answer arrives. Pacing `rounds`: the live conversations of a replica
   advance in step; the next round leaves when the last answer of this one is in.
6. Conversations of one group start side by side on one replica, and urgent ones before those that are not.
7. A failure of the machinery is asked again, on another replica where there is one, `attempts` times in all; then it
   is saved as what it is and ends its conversation for this run. Any other outcome, failure or not, is final and the
   conversation goes on. A replica that fails `FAILURES_FATAL` conversations with no good outcome between is retired.
8. A conversation in flight when its replica died is suspected from the second death on, and plays its next turn alone
   on an empty replica. One that was there at three deaths in a row is taken for the cause and fails; a finished turn
   clears it. So a poisoned conversation fails alone.
"""

from collections import deque
from hashlib import blake2b

from cluster.admission import Book, Play
from cluster.conversation import Conversation, Exchange, Failure, Outcome, Request, Response, Turn
from cluster.counts import Counts, thinks_aloud
from cluster.events import (
    Action,
    ConversationsAdded,
    Event,
    ReplicaLost,
    ReplicaReady,
    RetireReplica,
    SaveTurn,
    SendTurn,
    TurnFinished,
)
from cluster.settings import SchedulerSettings

DEATHS_FATAL = 3
FAILURES_FATAL = 5
DEFAULTS = SchedulerSettings()


def sampling_seed(seed: int, key: str, index: int) -> int:
    """31 bits from (run seed, conversation, turn), so that order and placement never change what is sampled."""
    digest = blake2b(f"{seed}\0{key}\0{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1


class ConversationScheduler:
    """The state machine of one pool. It keeps what waits or is live; what is finished is forgotten."""

    def __init__(self, settings: SchedulerSettings = DEFAULTS, seed: int = 0, expected_output: int = 512):
        self.settings = settings
        self.seed = seed
        self.counts = Counts()
        self._expected_output = float(expected_output)
        """Running mean of the answers' tokens; the argument is where it starts from."""
        self._waiting: deque[list[Play]] = deque()
        self._urgent: deque[list[Play]] = deque()
        self._suspects: deque[Play] = deque()
        self._books: dict[str, Book] = {}
        self._tickets: dict[int, tuple[Play, Book]] = {}
        self._next_ticket = 0
        self._next_start = 0
        self._unfinished: set[str] = set()

    @property
    def unfinished(self) -> int:
        """Conversations that wait, are live or paused."""
        return len(self._unfinished)

    @property
    def finished(self) -> bool:
        return not self._unfinished

    @property
    def live(self) -> int:
        return sum(len(book.live) for book in self._books.values())

    @property
    def paused(self) -> int:
        return sum(len(book.paused) for book in self._books.values())

    def handle(self, *events: Event) -> list[Action]:
        """Take what has happened, return what is to be done, in order. Raises ValueError on a replica's name that is
        announced twice, and on a conversation's key that is being played already."""
        actions: list[Action] = []
        for event in events:
            match event:
                case TurnFinished():
                    self._turn_finished(event, actions)
                case ConversationsAdded():
                    self._added(event.conversations)
                case ReplicaReady():
                    self._replica_ready(event)
                case ReplicaLost():
                    self._replica_lost(event, actions)
        for book in self._books.values():
            self._pause_overgrown(book)
        self._admit()
        for book in self._books.values():
            self._send_ready(book, actions)
        return actions

    # what happened

    def _added(self, conversations: tuple[Conversation, ...]) -> None:
        groups: dict[str, list[Play]] = {}
        for conversation in conversations:
            play = Play(conversation, list(conversation.finished))
            if play.over:
                continue
            if play.key in self._unfinished:
                raise ValueError(f"conversation {play.key} is being played already")
            self._unfinished.add(play.key)
            if conversation.group in groups:
                groups[conversation.group].append(play)
                continue
            self._queue(play).append(members := [play])
            if conversation.group is not None:
                groups[conversation.group] = members

    def _replica_ready(self, event: ReplicaReady) -> None:
        if event.replica in self._books:
            raise ValueError(f"replica {event.replica} announced twice")
        budget = int(event.kv_cache_tokens * self.settings.kv_share)
        self._books[event.replica] = Book(event.replica, budget, event.max_running)

    def _replica_lost(self, event: ReplicaLost, actions: list[Action], retired: bool = False) -> None:
        """`retired`: it was slow or failing, so that what was in flight is not to blame for its end."""
        book = self._books.pop(event.replica, None)
        if book is None:
            return
        orphans = sorted([*book.live.values(), *book.paused], key=lambda play: play.started, reverse=True)
        for play in orphans:
            self.counts.moved += 1
            play.context = 0  # nobody holds its prefix now: admission goes by its text again
            if play.ticket is not None:
                del self._tickets[play.ticket]
                play.ticket = None
                play.attempts -= 1
                play.deaths += not retired
            if play.deaths >= DEATHS_FATAL:
                reason = f"in flight at the death of {play.deaths} engines; the last one: {event.reason}"
                self._save(play, Failure("engine_error", reason), event.replica, actions)
                self._unfinished.discard(play.key)
            else:
                self._requeue(play)

    def _turn_finished(self, event: TurnFinished, actions: list[Action]) -> None:
        play, book = self._tickets.pop(event.ticket, (None, None))
        if play is None or book is None:
            self.counts.ignored += 1
            return
        play.ticket = None
        book.in_flight -= 1
        outcome = event.outcome
        if isinstance(outcome, Failure) and outcome.retryable:
            self._failed(play, book, outcome, actions)
            return
        book.failing.clear()
        self._save(play, outcome, book.name, actions)
        self._learn(outcome.usage.output_tokens)
        book.leave(play)
        play.attempts, play.deaths, play.avoid = 0, 0, ""
        answer = outcome.text if isinstance(outcome, Response) else None
        kept = play.conversation.keeps_reasoning and answer is not None
        play.exchanges.append(Exchange(play.user, answer, outcome.reasoning if kept else None))
        if play.over:
            self._unfinished.discard(play.key)
            return
        play.context = outcome.usage.prompt_tokens + outcome.usage.output_tokens
        play.need = play.estimate(self._expected_output)
        book.enter(play)

    def _failed(self, play: Play, book: Book, failure: Failure, actions: list[Action]) -> None:
        """Rule 7. Its prefix may be there still, but what has failed once in this place is tried in another."""
        book.leave(play)
        book.failing.add(play.key)
        if play.attempts < self.settings.attempts:
            self.counts.retries += 1
            play.context, play.avoid = 0, book.name
            self._requeue(play)
        else:
            self._save(play, failure, book.name, actions)
            self._unfinished.discard(play.key)
        if len(book.failing) >= FAILURES_FATAL:
            reason = f"{len(book.failing)} conversations failed on it in a row; the last one: {failure.detail}"
            actions.append(RetireReplica(book.name, reason))
            self._replica_lost(ReplicaLost(book.name, reason), actions, retired=True)

    def _requeue(self, play: Play) -> None:
        """To the front."""
        if play.suspected:
            self._suspects.appendleft(play)
        else:
            self._queue(play).appendleft([play])

    def _save(self, play: Play, outcome: Outcome, replica: str, actions: list[Action]) -> None:
        failed = isinstance(outcome, Failure)
        how = {"dropped_turns": outcome.dropped_turns, "history": outcome.history}
        thought = not failed and thinks_aloud(outcome.text, outcome.reasoning)
        self.counts.add(outcome.usage, play.context, failed=failed, thought=thought, **how)
        actions.append(SaveTurn(Turn(play.key, play.index, outcome, replica)))

    def _learn(self, output_tokens: int) -> None:
        if output_tokens:
            self._expected_output += (output_tokens - self._expected_output) / min(1000, self.counts.turns + 1)

    def _queue(self, play: Play) -> deque[list[Play]]:
        return self._urgent if play.conversation.urgent else self._waiting

    # what is to be done

    def _admit(self) -> None:
        for book in self._books.values():
            self._start_suspect(book)
            self._resume(book)
        while queue := self._urgent or self._waiting:
            if not self._start_first(queue):
                return

    def _start_suspect(self, book: Book) -> None:
        """Rule 8. A suspect that has just cleared itself makes room for the next one."""
        if not self._suspects:
            return
        if len(book.live) == 1 and book.ready:
            book.pause(book.ready.pop())
        if not book.live:
            play = self._suspects.popleft()
            play.need = play.estimate(self._expected_output)
            book.enter(play)

    def _resume(self, book: Book) -> None:
        while book.paused and book.fits(book.paused[0].need, 1, self._expected_output):
            book.enter(book.paused.pop(0))

    def _start_first(self, queue: deque[list[Play]]) -> bool:
        """Start the queue's first group on the replica with most room. False when it has to wait."""
        group = queue[0]
        for play in group:
            play.need = play.estimate(self._expected_output)
        need, others = sum(play.need for play in group), len(self._books) > 1
        fitting = [
            book
            for book in self._books.values()
            if (not book.paused or queue is self._urgent)
            and not (others and book.name == group[0].avoid)
            and book.fits(need, len(group), self._expected_output)
        ]
        if not fitting:
            return False
        book = max(fitting, key=lambda book: (book.budget - book.need, -len(book.live)))
        queue.popleft()
        room = max(1, book.places - len(book.live))
        if group[room:]:
            queue.appendleft(group[room:])
        for play in group[:room]:
            if play.started < 0:
                play.started = self._next_start
                self._next_start += 1
            book.enter(play)
        return True

    def _at_rest(self, book: Book) -> bool:
        """Whether its next turns may leave now (rule 5)."""
        return not (self.settings.pacing == "rounds" and book.in_flight)

    def _pause_overgrown(self, book: Book) -> None:
        """Before anything is admitted: what leaves makes room."""
        if self._at_rest(book):
            for play in book.overgrown():
                book.ready.remove(play)
                book.pause(play)
                self.counts.pauses += 1

    def _send_ready(self, book: Book, actions: list[Action]) -> None:
        if not self._at_rest(book):
            return
        for play in sorted(book.ready, key=lambda play: play.started):
            play.ticket = self._next_ticket
            play.attempts += 1
            self._next_ticket += 1
            self._tickets[play.ticket] = play, book
            book.in_flight += 1
            actions.append(SendTurn(play.ticket, book.name, self._request(play)))
        book.ready.clear()

    def _request(self, play: Play) -> Request:
        return Request(
            key=play.key,
            index=play.index,
            history=tuple(play.exchanges),
            user=play.user,
            system=play.conversation.system,
            seed=sampling_seed(self.seed, play.conversation.seed_key or play.key, play.index),
            sampling=play.conversation.sampling,
            last=play.index + 1 == len(play.conversation.user_turns),
        )
