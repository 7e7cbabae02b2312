"""Passwords, verified off the loop.

argon2 takes some 20 ms of a core for each password, so it runs in a small pool of threads (it releases the
GIL) with a bounded waiting list. What was verified once is remembered for a short while, failures are
counted, and who has too many of them is turned away without computing.

Failures count for a minute, each for several keys. Who is turned away:

- A stranger, after `attempts` as this user from this address, or `address_attempts` from this address, or as this user.
- Somebody at an address from which this user has logged in before, after `address_attempts` as this user from it.
- A device that was here before (this user has a session with this client identifier, or has logged in with it), after
  `attempts` of this device from this address, and then like the others.

So nobody elsewhere, and no other user behind the same address, can lock out a device that was here before. Those who
were here before also have a waiting list of their own, which comes first and in which users take turns: neither a flood
of guesses nor another user who was here keeps a device waiting. A device that has as many attempts under way as it may
fail is told to try again.

- `verify` never blocks. `answer` is called on the loop thread: through `call` when something was computed,
  and directly, before `verify` returns, when the outcome is known at once (remembered, plain and right,
  LIMITED, BUSY).
- Nobody learns from the time taken which users exist: a user that is unknown, or whose stored value cannot be
  used, costs as much as a real one. (Hashes made with unequal parameters can still be told apart.)
- Passwords and user names are not kept. Memory holds BLAKE2b digests with a key of this process; a digest
  covers the stored hash, so a changed password forgets the old one by itself.
- A hash of Mosquitto's costs an argon2 hash as well, right or wrong; if the password is right, `on_rehash` is told that
  hash on the loop thread, to store it instead.
- The limit comes before the memory: otherwise somebody who is turned away could go on guessing against it.

It will not look users up, not lock accounts for longer than a minute, and not decide what a user may do.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

import structlog

from tidegate.addresses import network
from tidegate.authentication import mosquitto_hashes
from tidegate.authentication.fair_queue import FairQueue
from tidegate.give_way import give_way
from tidegate.lazy import LazyModule

if TYPE_CHECKING:
    import argon2
    from argon2 import exceptions
else:
    argon2 = LazyModule("argon2")
    exceptions = LazyModule("argon2.exceptions")

PLAIN = "plain:"
MINUTE = 60.0
KNOWN = 30 * 86400.0  # seconds that a login is remembered: from which address, and with which client identifier
ENTRIES = 65_536  # most entries of each memory; the oldest go first

log = structlog.get_logger(__name__)

NICE = 10  # where the loop and passwords share a core, passwords get a tenth of it while the loop is busy
_NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$dGlkZWdhdGUgbm9ib2R5cw$Jt2HVbNyDhRqoBYJUoQKKSZhRJ0kmRaxWhu7cFmEE9E"


class Outcome(Enum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    BUSY = "busy"  # nothing was computed: too many are waiting
    LIMITED = "limited"  # nothing was computed: too many failures from this address or of this user


@cache
def _hasher() -> argon2.PasswordHasher:
    """With OWASP's smallest recommendation for argon2id: enough for a broker that many devices join at once."""
    return argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: bytes) -> str:
    """The argon2id hash to store for a password. Takes some 20 ms."""
    return _hasher().hash(password)


class Passwords:
    """Verifies passwords in threads. All methods belong to the loop thread."""

    def __init__(
        self,
        call: Callable[[Callable[[], None]], object],
        workers: int = 2,
        waiting: int = 1000,
        cache: float = 60.0,
        attempts: int = 60,
        address_attempts: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`call` runs a function on the loop thread (`loop.call_soon_threadsafe`). `cache`: seconds that a
        verified password is remembered, 0 for never. `attempts` and `address_attempts`: failures in a minute before
        LIMITED; see the module. `waiting`: of strangers, and as many of each user who was here before. `clock` is also
        read by the workers."""
        self._call = call
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="password", initializer=give_way, initargs=(NICE,))
        self._room = workers + waiting
        self._pending = {True: 0, False: 0}  # by whether they were here before
        self._trying: Counter[bytes] = Counter()  # attempts of devices that wait or are computed, by login
        self._closed = False
        self._key = secrets.token_bytes(32)
        # Shared with the workers, which look again before they compute: many may wait for one answer.
        self._lock = threading.Lock()
        self._returning: FairQueue[Waiting] = FairQueue(self._room)
        self._strangers: deque[Waiting] = deque()
        self._verified = Memory(cache)
        self._known = Memory(KNOWN)
        self._failures = Memory(MINUTE, renewed=False)
        self._attempts = attempts
        self._address_attempts = address_attempts
        self._reported: set[bytes] = set()
        self._stranger = _NOBODY
        self.on_rehash: Callable[[str, str, str], None] = lambda user, stored, hashed: None
        """Called on the loop with a user, the stored hash of Mosquitto's, and the argon2 hash of the same password."""

    @property
    def pending(self) -> int:
        """Attempts that wait or are computed."""
        return sum(self._pending.values())

    def verify(
        self,
        user: str,
        password: bytes,
        stored: str | None,
        address: str,
        answer: Callable[[Outcome], None],
        *,
        client: str = "",
        session: bool = False,
    ) -> None:
        """Calls `answer` once with what became of it; see the module for where and when.

        `stored` is an argon2 hash or `plain:` and the password, None for a user that does not exist. `session`: this
        user has one with this client identifier.
        """
        attempt = Attempt(self._key, user, password, stored, address, client, session=session)
        with self._lock:
            early = self._early(attempt)
            device = self._is_device(attempt, self._clock())
            returning = device or self._known.holds(attempt.place, self._clock())
        if early is None and attempt.plainly_right():
            self._remember(attempt)
            early = Outcome.ACCEPTED
        full = self._trying[attempt.login] >= self._attempts if device else False
        if early is None and (self._closed or full or (not returning and self._pending[False] >= self._room)):
            early = Outcome.BUSY
        if early is not None:
            answer(early)
            return
        waiting = Waiting(attempt, answer, returning=returning, device=device)
        self._pending[returning] += 1
        if device:
            self._trying[attempt.login] += 1
        dropped = None
        with self._lock:
            if returning:
                share = attempt.login if device else attempt.place
                dropped = self._returning.put(attempt.name, share, waiting)
            else:
                self._strangers.append(waiting)
        if dropped is not None:
            loser = dropped
            self._call(lambda: self._done(loser, Outcome.BUSY))
        self._pool.submit(self._work)

    def turns_away(self, user: str, address: str) -> bool:
        """Whether somebody has failed too often to be asked for a password that another place verifies."""
        with self._lock:
            return self._limited(self._elsewhere(user, address), self._clock())

    def failed(self, user: str, address: str) -> None:
        """Such a password was wrong."""
        with self._lock:
            self._count_failure(self._elsewhere(user, address), self._clock())

    def _elsewhere(self, user: str, address: str) -> Attempt:
        return Attempt(self._key, user, b"", None, address, "", session=False)

    def close(self) -> None:
        """Stops the threads, waiting for what is being computed. Answers not given yet are never given."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _early(self, attempt: Attempt) -> Outcome | None:
        """The outcome if it needs no computing. The lock is held."""
        now = self._clock()
        if self._limited(attempt, now):
            return Outcome.LIMITED
        return Outcome.ACCEPTED if self._verified.holds(attempt.pair, now) else None

    def _limited(self, attempt: Attempt, now: float) -> bool:
        """Whether too many have failed; the module has the table."""
        few, many, failed = self._attempts, self._address_attempts, self._failures.count
        if self._is_device(attempt, now) and failed(attempt.login, now) < few:
            return False
        if self._known.holds(attempt.place, now):
            return failed(attempt.place, now) >= many
        if failed(attempt.place, now) >= few:
            return True
        return failed(attempt.network, now) >= many or failed(attempt.name, now) >= many

    def _is_device(self, attempt: Attempt, now: float) -> bool:
        return attempt.session or (attempt.device is not None and self._known.holds(attempt.device, now))

    def _work(self) -> None:
        """In a worker thread: answers one of those that wait, those who were here before first."""
        with self._lock:
            waiting = self._returning.take()
            if waiting is None:
                if not self._strangers:
                    return  # somebody had to go
                waiting = self._strangers.popleft()
            attempt = waiting.attempt
            outcome = self._early(attempt)
        if outcome is None:
            try:
                right = self._compute(attempt)
            except Exception:  # somebody waits for an answer, and it cannot be yes
                log.exception("verifying a password failed", user=attempt.user)
                right = False
            outcome = Outcome.ACCEPTED if right else Outcome.REFUSED
            if right:
                self._remember(attempt)
            else:
                with self._lock:
                    self._count_failure(attempt, self._clock())
        self._call(lambda: self._done(waiting, outcome))

    def _count_failure(self, attempt: Attempt, now: float) -> None:
        for key in (attempt.network, attempt.name, attempt.place):
            self._failures.add(key, now)
        if self._is_device(attempt, now):
            self._failures.add(attempt.login, now)

    def _done(self, waiting: Waiting, outcome: Outcome) -> None:
        self._pending[waiting.returning] -= 1
        if waiting.device:
            login = waiting.attempt.login
            self._trying[login] -= 1
            if not self._trying[login]:
                del self._trying[login]
        if not self._closed:
            waiting.answer(outcome)

    def _remember(self, attempt: Attempt) -> None:
        with self._lock:
            now = self._clock()
            self._verified.add(attempt.pair, now)
            self._known.add(attempt.place, now)
            if attempt.device is not None:
                self._known.add(attempt.device, now)

    def _compute(self, attempt: Attempt) -> bool:
        stored = attempt.stored
        if stored is None or stored.startswith(PLAIN):  # plain and right was seen before
            self._burn(attempt)
            return False
        try:
            if stored.startswith(mosquitto_hashes.PREFIXES):
                return self._compute_foreign(attempt, stored)
            if not stored.startswith("$argon2"):
                raise exceptions.InvalidHashError("neither an argon2 hash nor plain:")
            matches: bool = _hasher().verify(stored, attempt.password)
        except exceptions.VerifyMismatchError:
            matches = False
        except (exceptions.VerificationError, ValueError) as error:  # ValueError: also a hash that is not ASCII
            self._report(attempt, str(error) or "not an argon2 hash")
            self._burn(attempt)
            return False
        self._stranger = stored  # strangers cost what members cost
        return matches

    def _compute_foreign(self, attempt: Attempt, stored: str) -> bool:
        if not mosquitto_hashes.matches(stored, attempt.password):
            self._burn(attempt)
            return False
        hashed = hash_password(attempt.password)
        self._call(lambda: self.on_rehash(attempt.user, stored, hashed))
        return True

    def _burn(self, attempt: Attempt) -> None:
        try:
            _hasher().verify(self._stranger, attempt.password)
        except exceptions.VerificationError:
            pass  # as expected: only the time matters

    def _report(self, attempt: Attempt, what: str) -> None:
        with self._lock:
            if attempt.entry in self._reported or len(self._reported) >= ENTRIES:
                return
            self._reported.add(attempt.entry)
        log.error("stored password cannot be used", user=attempt.user, reason=what, remedy="tidegate passwd")


class Attempt:
    """One attempt, with the keys under which its outcome is remembered."""

    def __init__(
        self, key: bytes, user: str, password: bytes, stored: str | None, address: str, client: str, *, session: bool
    ) -> None:
        self.user = user
        self.password = password
        self.stored = stored
        self.session = session
        name = user.encode("utf-8", "surrogatepass")
        secret = b"" if stored is None else stored.encode("utf-8", "surrogatepass")
        net = network(address).encode()
        self.name = _digest(key, b"name", name)
        self.network = _digest(key, b"network", net)
        self.place = _digest(key, b"place", name, net)
        identifier = client.encode("utf-8", "surrogatepass")
        self.device = _digest(key, b"device", name, identifier) if client else None  # the node makes up one for it
        self.login = _digest(key, b"login", name, net, identifier)
        self.entry = _digest(key, b"entry", name, secret)
        self.pair = _digest(key, b"pair", name, secret, password)

    def plainly_right(self) -> bool:
        if self.stored is None or not self.stored.startswith(PLAIN):
            return False
        right = self.stored.removeprefix(PLAIN).encode("utf-8", "surrogatepass")
        return hmac.compare_digest(right, self.password)


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt that waits to be computed."""

    attempt: Attempt
    answer: Callable[[Outcome], None]
    returning: bool = field(kw_only=True)  # it was here before
    device: bool = field(kw_only=True)  # and with this client identifier


class Memory:
    """How often each key was added in the last seconds, for no more than `ENTRIES` keys; the oldest go first.

    The seconds of a key begin with its last time if it is `renewed`, else with its first.
    """

    __slots__ = ("_entries", "_renewed", "_seconds")

    def __init__(self, seconds: float, *, renewed: bool = True) -> None:
        self._seconds = seconds
        self._renewed = renewed
        self._entries: dict[bytes, tuple[float, int]] = {}  # until when, and how often; in order of time

    def add(self, key: bytes, now: float) -> None:
        until, count = self._entries.get(key, (now, 0))
        if self._renewed or until <= now:
            self._entries.pop(key, None)
            until, count = now + self._seconds, 0
        self._entries[key] = (until, count + 1)
        while self._entries:
            oldest = next(iter(self._entries))
            if self._entries[oldest][0] > now and len(self._entries) <= ENTRIES:
                break
            del self._entries[oldest]

    def count(self, key: bytes, now: float) -> int:
        until, count = self._entries.get(key, (now, 0))
        return count if until > now else 0

    def holds(self, key: bytes, now: float) -> bool:
        return self.count(key, now) > 0

    def __len__(self) -> int:
        return len(self._entries)


def _digest(key: bytes, *parts: bytes) -> bytes:
    digest = hashlib.blake2b(key=key, digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big"))  # so that no two lists of parts read the same
        digest.update(part)
    return digest.digest()
