"""Passwords with a queue in place of the loop and a clock that the test turns."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import pbkdf2_hmac, sha512
from typing import Any

import pytest
from argon2 import PasswordHasher, extract_parameters
from structlog.testing import capture_logs

from tidegate.authentication import passwords
from tidegate.authentication.passwords import Outcome, Passwords, hash_password

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SECRET = CHEAP.hash(b"secret")
OTHER = CHEAP.hash(b"other")
REAL = hash_password(b"real")


class Desk:
    """Asks and collects the answers; the queue stands for the loop."""

    def __init__(self, **options: Any) -> None:
        self.now = 1000.0
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.passwords = Passwords(self.calls.put, clock=lambda: self.now, **options)

    def start(
        self,
        user: str = "mary",
        password: bytes = b"secret",
        stored: str | None = SECRET,
        at: str = "10.0.0.1",
        **device: Any,
    ) -> list[Outcome]:
        answers: list[Outcome] = []
        self.passwords.verify(user, password, stored, at, answers.append, **device)
        return answers

    def turn(self) -> None:
        self.calls.get(timeout=20)()

    def ask(self, *args: Any, **kwargs: Any) -> Outcome:
        answers = self.start(*args, **kwargs)
        if not answers:
            self.turn()
        assert len(answers) == 1
        return answers[0]

    def at_once(self, *args: Any, **kwargs: Any) -> Outcome | None:
        answers = self.start(*args, **kwargs)
        return answers[0] if answers else None


@pytest.fixture
def desk() -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**options: Any) -> Desk:
        made.append(Desk(**options))
        return made[-1]

    yield make
    for each in made:
        each.passwords.close()


class Recorder:
    """argon2, remembering what it was asked; and, if told to, waiting."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.started = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def verify(self, stored: str, password: bytes) -> bool:
        self.hashes.append(stored)
        self.started.release()
        assert self.go.wait(20)
        return CHEAP.verify(stored, password)


@pytest.fixture
def argon(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(passwords, "_hasher", lambda: recorder)
    return recorder


def test_hashes_are_argon2id_with_the_stated_parameters(desk: Callable[..., Desk]) -> None:
    stored = hash_password(b"wonder\xff\x00")
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert stored != hash_password(b"wonder\xff\x00")
    one = desk()
    assert one.ask(password=b"wonder\xff\x00", stored=stored) is Outcome.ACCEPTED
    assert one.ask(password=b"wonder\xff", stored=stored) is Outcome.REFUSED
    assert one.ask(password=b"", stored=stored) is Outcome.REFUSED


def test_answers_come_through_call(desk: Callable[..., Desk]) -> None:
    one = desk()
    answers = one.start()
    later = one.calls.get(timeout=20)
    assert answers == []
    assert one.passwords.pending == 1
    later()
    assert answers == [Outcome.ACCEPTED]
    assert one.passwords.pending == 0


def test_plain(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert one.at_once("alice", "wönder".encode(), "plain:wönder") is Outcome.ACCEPTED
    assert one.at_once("alice", b"", "plain:") is Outcome.ACCEPTED
    assert one.ask("alice", b"wonder", "plain:wönder") is Outcome.REFUSED
    assert one.ask("alice", b"plain:wonder", "plain:wonder") is Outcome.REFUSED
    assert one.ask("alice", b"", "plain:wonder") is Outcome.REFUSED


def test_a_verified_password_is_remembered_for_a_while(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(cache=60.0)
    assert one.ask() is Outcome.ACCEPTED
    one.now += 59.9
    assert one.at_once(at="10.0.0.2") is Outcome.ACCEPTED
    assert len(argon.hashes) == 1
    assert one.ask(password=b"Secret") is Outcome.REFUSED
    assert one.ask("john", b"secret") is Outcome.ACCEPTED  # same password, another user: computed
    assert one.ask(stored=OTHER) is Outcome.REFUSED  # a changed password is not remembered
    assert len(argon.hashes) == 4
    one.now += 0.2
    assert one.at_once() is None
    one.turn()
    assert len(argon.hashes) == 5


def test_refusals_are_not_remembered(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk()
    for _ in range(3):
        assert one.ask(password=b"no") is Outcome.REFUSED
    assert len(argon.hashes) == 3


def test_no_memory_when_told_so(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(cache=0.0)
    assert one.ask() is Outcome.ACCEPTED
    assert one.ask() is Outcome.ACCEPTED
    assert len(argon.hashes) == 2


def test_nothing_secret_is_kept(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert one.ask("mary", b"tr0ub4dor", CHEAP.hash(b"tr0ub4dor")) is Outcome.ACCEPTED
    assert one.ask("mary", b"wrong-guess") is Outcome.REFUSED
    kept = repr(
        [
            getattr(part, name)
            for part in (one.passwords._verified, one.passwords._known, one.passwords._failures)
            for name in part.__slots__
        ]
    )
    for secret in ("tr0ub4dor", "wrong-guess", "mary", "argon2"):
        assert secret not in kept
    assert one.passwords._key != desk().passwords._key


@pytest.mark.parametrize(
    "stored",
    [
        None,
        "plain:x",
        "",
        "md5:abc",
        "$argon2id$",
        "$argon2id$v=19$m=8,t=1,p=1$é",
        "$argon2id$v=19$m=1,t=1,p=1$YWFhYWFhYWE$YQ",
    ],
)
def test_who_does_not_exist_costs_as_much(desk: Callable[..., Desk], argon: Recorder, stored: str | None) -> None:
    """The last thing computed is a hash like everybody's, and right or wrong it stays refused."""
    one = desk()
    assert one.ask("ghost", b"secret", stored) is Outcome.REFUSED
    assert extract_parameters(argon.hashes[-1]) == extract_parameters(REAL)
    assert one.ask("mary") is Outcome.ACCEPTED
    assert one.ask("ghost", b"secret", stored) is Outcome.REFUSED  # a member's password opens nothing
    assert argon.hashes[-1] == SECRET


def test_a_damaged_hash_is_reported_once(desk: Callable[..., Desk]) -> None:
    one = desk()
    with capture_logs() as logs:
        for stored in ("$argon2id$oops", "md5:abc", "$argon2id$oops"):
            assert one.ask("mary", b"secret", stored) is Outcome.REFUSED
        assert one.ask("ghost", b"secret", None) is Outcome.REFUSED
    assert [entry["user"] for entry in logs] == ["mary", "mary"]
    assert "secret" not in repr(logs)
    assert "oops" not in repr(logs)


def test_a_surprise_is_a_refusal(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def verify(self, stored: str, password: bytes) -> bool:
            raise MemoryError

    monkeypatch.setattr(passwords, "_hasher", Broken)
    one = desk()
    with capture_logs() as logs:
        assert one.ask() is Outcome.REFUSED
    assert [entry["log_level"] for entry in logs] == ["error"]


def test_too_many_failures_from_an_address(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=2, address_attempts=3)
    for number in range(3):
        assert one.ask(f"user{number}", b"guess") is Outcome.REFUSED
        one.now += 10
    assert one.at_once("user9") is Outcome.LIMITED
    assert one.at_once("user9") is Outcome.LIMITED
    assert len(argon.hashes) == 3
    assert one.ask("user9", at="10.0.0.2") is Outcome.ACCEPTED
    assert one.at_once("user9") is Outcome.LIMITED  # although remembered: else one could guess on
    one.now += 30
    assert one.at_once("user9") is Outcome.ACCEPTED


def test_too_many_failures_of_a_user_from_one_address(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=3)
    for _ in range(3):
        assert one.ask(password=b"guess", at="192.0.2.1") is Outcome.REFUSED
    assert one.at_once(at="192.0.2.1") is Outcome.LIMITED
    assert one.ask(at="192.0.2.2") is Outcome.ACCEPTED
    assert one.at_once(at="192.0.2.1") is Outcome.LIMITED  # although remembered
    assert one.ask("john", at="192.0.2.1") is Outcome.ACCEPTED
    one.now += 61
    assert one.ask(at="192.0.2.1") is Outcome.ACCEPTED


def test_too_many_failures_of_a_user_from_everywhere(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=3, address_attempts=5)
    assert one.ask(at="10.0.0.1", client="watch") is Outcome.ACCEPTED
    one.now += 61
    for number in range(5):
        assert one.ask(password=b"guess", at=f"192.0.2.{number}") is Outcome.REFUSED
    assert one.at_once(at="192.0.2.77") is Outcome.LIMITED
    assert one.ask(at="10.0.0.1") is Outcome.ACCEPTED  # where mary is known she is not locked out
    assert one.ask(at="192.0.2.78", client="watch") is not Outcome.LIMITED  # nor is a device that is known
    assert one.ask("john", at="192.0.2.77") is Outcome.ACCEPTED
    one.now += 61
    assert one.ask(at="192.0.2.77") is Outcome.ACCEPTED


def test_where_a_user_is_known_others_who_fail_do_not_count(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=2, address_attempts=4, cache=0.0)
    assert one.ask(client="watch") is Outcome.ACCEPTED
    for number in range(4):
        assert one.ask(f"user{number}", b"guess") is Outcome.REFUSED
    assert one.at_once("john") is Outcome.LIMITED
    assert one.ask() is Outcome.ACCEPTED
    for _ in range(4):
        assert one.ask(password=b"guess") is Outcome.REFUSED  # another client, or somebody who pretends to be mary
    assert one.at_once() is Outcome.LIMITED
    assert one.ask(client="watch") is Outcome.ACCEPTED
    for _ in range(2):
        assert one.ask(password=b"guess", client="watch") is Outcome.REFUSED
    assert one.at_once(client="watch") is Outcome.LIMITED  # somebody knows even that
    assert one.ask(client="watch", at="10.0.0.2") is Outcome.ACCEPTED


def test_a_session_tells_a_device(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=1)
    assert one.ask(password=b"guess") is Outcome.REFUSED
    assert one.at_once(client="watch") is Outcome.LIMITED
    assert one.ask(client="watch", session=True) is Outcome.ACCEPTED
    assert one.ask(password=b"guess", client="phone", session=True) is Outcome.REFUSED
    assert one.ask(password=b"guess", client="phone", session=True, at="10.0.0.9") is Outcome.REFUSED
    assert one.at_once(client="phone", session=True, at="10.0.0.9") is Outcome.LIMITED


def test_no_client_identifier_is_no_device(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=1, cache=0.0)
    assert one.ask(at="10.0.0.1") is Outcome.ACCEPTED
    assert one.ask(password=b"guess", at="10.0.0.2") is Outcome.REFUSED
    assert one.at_once(at="10.0.0.2") is Outcome.LIMITED


def test_users_that_do_not_exist_are_limited_as_others(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(attempts=2)
    for _ in range(2):
        assert one.ask("ghost", stored=None, at="192.0.2.1") is Outcome.REFUSED
    assert one.at_once("ghost", stored=None, at="192.0.2.1") is Outcome.LIMITED


def test_who_was_here_before_does_not_wait_behind_a_flood(desk: Callable[..., Desk], argon: Recorder) -> None:
    one = desk(workers=1, waiting=2, cache=0.0)
    assert one.ask(client="watch") is Outcome.ACCEPTED
    argon.started.acquire()
    argon.go.clear()
    flood = [one.start("mary", b"guess", at=f"192.0.2.{number}") for number in range(3)]
    assert argon.started.acquire(timeout=20)
    assert one.at_once("mary", at="192.0.2.9") is Outcome.BUSY
    device = one.start(client="watch", at="10.0.0.2")
    assert device == []  # it is not turned away, although as many wait as may
    argon.go.set()
    one.turn()
    one.turn()
    assert device == [Outcome.ACCEPTED]
    assert [len(each) for each in flood] == [1, 0, 0]
    one.turn()
    one.turn()
    assert one.passwords.pending == 0


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("/run/socket", "/run/other", False),
    ],
)
def test_what_counts_as_one_address(
    desk: Callable[..., Desk], argon: Recorder, first: str, second: str, same: bool
) -> None:
    one = desk(attempts=1)
    assert one.ask("a", b"guess", at=first) is Outcome.REFUSED
    assert one.ask("a", at=second) is (Outcome.LIMITED if same else Outcome.ACCEPTED)


def test_waiting_attempts_are_limited_too(desk: Callable[..., Desk], argon: Recorder) -> None:
    """A burst that was let in before the first failure does not get more guesses than the limit."""
    argon.go.clear()
    one = desk(workers=1, attempts=2)
    answers = [one.start(password=b"guess%d" % number) for number in range(6)]
    argon.go.set()
    for _ in range(6):
        one.turn()
    assert [each[0] for each in answers] == [Outcome.REFUSED] * 2 + [Outcome.LIMITED] * 4
    assert len(argon.hashes) == 2


def test_waiting_attempts_share_one_computation(desk: Callable[..., Desk], argon: Recorder) -> None:
    argon.go.clear()
    one = desk(workers=1)
    answers = [one.start(at=f"10.0.0.{number}") for number in range(50)]
    argon.go.set()
    for _ in range(50):
        one.turn()
    assert [each[0] for each in answers] == [Outcome.ACCEPTED] * 50
    assert len(argon.hashes) == 1


def test_busy_when_too_many_wait(desk: Callable[..., Desk], argon: Recorder) -> None:
    argon.go.clear()
    one = desk(workers=2, waiting=3)
    waiting = [one.start(f"user{number}") for number in range(5)]
    assert one.at_once("late") is Outcome.BUSY
    assert one.at_once("late") is Outcome.BUSY
    assert one.at_once("alice", b"x", "plain:x") is Outcome.ACCEPTED
    argon.go.set()
    for _ in waiting:
        one.turn()
    assert [each[0] for each in waiting] == [Outcome.ACCEPTED] * 5
    assert one.ask("late") is Outcome.ACCEPTED


def test_close_drops_what_waits(desk: Callable[..., Desk], argon: Recorder) -> None:
    argon.go.clear()
    one = desk(workers=1)
    answers = [one.start(f"user{number}") for number in range(3)]
    assert argon.started.acquire(timeout=20)
    threading.Timer(0.05, argon.go.set).start()
    one.passwords.close()
    while not one.calls.empty():
        one.turn()
    assert answers == [[], [], []]
    assert len(argon.hashes) == 1
    assert one.at_once() is Outcome.BUSY
    one.passwords.close()


def test_memories_are_bounded(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "ENTRIES", 5)
    one = desk(attempts=1)
    for number in range(20):
        assert one.at_once(f"user{number}", b"x", "plain:x", at=f"192.0.2.{number}") is Outcome.ACCEPTED
        assert one.ask(f"user{number}", b"y", SECRET, at=f"198.51.100.{number}") is Outcome.REFUSED
    for memory in (one.passwords._verified, one.passwords._known, one.passwords._failures):
        assert len(memory) == 5
    one.now += 10_000_000
    one.at_once("last", b"x", "plain:x")
    assert len(one.passwords._verified) == len(one.passwords._known) == 1


async def test_on_a_real_loop_the_loop_goes_on() -> None:
    loop = asyncio.get_running_loop()
    stored = hash_password(b"secret")
    one = Passwords(loop.call_soon_threadsafe)
    thread = threading.get_ident()
    futures: list[asyncio.Future[Outcome]] = []
    for password in (b"secret", b"wrong", b"secret"):
        future: asyncio.Future[Outcome] = loop.create_future()
        futures.append(future)

        def answer(outcome: Outcome, future: asyncio.Future[Outcome] = future) -> None:
            assert threading.get_ident() == thread
            future.set_result(outcome)

        one.verify("mary", password, stored, "127.0.0.1", answer)
        assert not future.done()
    assert await asyncio.gather(*futures) == [Outcome.ACCEPTED, Outcome.REFUSED, Outcome.ACCEPTED]
    one.close()


SALT = b"twelve bytes"


def mosquitto_hash(kind: str, digest: bytes) -> str:
    return f"${kind}${b64encode(SALT).decode()}${b64encode(digest).decode()}"


PBKDF2 = mosquitto_hash("7$101", pbkdf2_hmac("sha512", b"secret", SALT, 101))
SHA512 = mosquitto_hash("6", sha512(b"secret" + SALT).digest())


@pytest.mark.parametrize("stored", [PBKDF2, SHA512])
def test_a_hash_of_mosquitto_is_verified_and_made_anew(desk: Callable[..., Desk], stored: str) -> None:
    one = desk()
    told: list[tuple[str, str, str]] = []
    one.passwords.on_rehash = lambda *told_of: told.append(told_of)
    answers = one.start(stored=stored)
    while not answers:
        one.turn()
    assert answers == [Outcome.ACCEPTED]
    [(user, before, hashed)] = told
    assert (user, before) == ("mary", stored)
    assert one.ask(stored=hashed) is Outcome.ACCEPTED
    assert one.ask(password=b"wrong", stored=stored) is Outcome.REFUSED
    assert len(told) == 1


@pytest.mark.parametrize("stored", [PBKDF2, SHA512, "$7$101$?$?", "$7$1"])
def test_a_hash_of_mosquitto_costs_as_much(desk: Callable[..., Desk], argon: Recorder, stored: str) -> None:
    one = desk()
    assert one.ask(password=b"wrong", stored=stored) is Outcome.REFUSED
    assert len(argon.hashes) == 1


def test_the_loop_goes_first_where_both_have_one_core(
    desk: Callable[..., Desk], argon: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of wrong passwords took half of a node's only core."""
    nice: list[int] = []

    def verify(stored: str, password: bytes) -> bool:
        nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return CHEAP.verify(stored, password)

    monkeypatch.setattr(argon, "verify", verify)
    mine = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert desk().ask(password=b"wrong") is Outcome.REFUSED
    assert nice == [max(mine, passwords.NICE)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == mine
