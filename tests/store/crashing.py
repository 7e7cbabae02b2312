"""A process that writes, says what was acknowledged, and is killed.

`load FOLDER ROUND`: publishes until it is killed. Each turn of the loop hands one message to three sessions, and
some turns strike earlier ones out or take a QoS 2 publish, with none to three messages, through its steps. Every line
on stdout is written with one system call: `note X` before X is noted, `safe X` from its callback.

`points FOLDER WHAT`: does one thing (open, migrate2, migrate3, expire, write, close) again and again on copies of the
same files, and is killed before the first SQL statement of it, before the second, and so on; reports as JSON whether
the callback had run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from random import Random

from store import version2, version3, version4
from store.trial import MAIN, Trial, message, stored
from tidegate.session.message import Delivery, Message
from tidegate.session.store import StoredSession
from tidegate.wire import Subscription

OTHER = "other"
# the first two have the same client id, the last two the same scope
SESSIONS = {"one": (MAIN, "c"), "two": (OTHER, "c"), "three": (OTHER, "d")}
OPENING = ("open", "migrate2", "migrate3", "migrate4", "expire")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def named(sessions: list[StoredSession]) -> dict[str, StoredSession]:
    """By the names in `SESSIONS`; one that has none there is an error."""
    names = {where: name for name, where in SESSIONS.items()}
    found = {names[one.scope, one.client]: one for one in sessions}
    assert len(found) == len(sessions)
    return found


def load(folder: Path, round: int) -> None:
    trial = Trial(folder / "t.db", interval=0.001)
    store = trial.store
    chance = Random(round)
    sessions = named(trial.found.sessions)
    for name, (scope, client) in SESSIONS.items():
        if name not in sessions:
            sessions[name] = stored(client, scope=scope)
            store.save_session(sessions[name])
    owed: dict[int, list[Delivery]] = {}
    incoming: list[tuple[int, dict[int, Message]]] = []
    pids = 0
    number = round * 1_000_000

    def made() -> Message:
        nonlocal number
        number += 1
        return message(b"%d " % number + bytes(chance.randrange(3000)))

    def owe(n: int, m: Message, qos: int) -> None:
        owed[n] = [Delivery(m, qos) for _ in SESSIONS]
        for name, delivery in zip(SESSIONS, owed[n], strict=True):
            delivery.seen = n % 2 == 1
            store.enqueue(sessions[name].row, delivery)

    say("ready")
    while True:
        match chance.randrange(10):
            case 0 | 1 if len(owed) > 5:
                done = chance.choice(list(owed))
                say(f"note done {done}")
                for delivery in owed.pop(done):
                    store.done(delivery)
                store.after(say, f"safe done {done}")
            case 2 | 3 if pids < 60000:
                pids += 1
                pid = pids
                messages = [made() for _ in range(pid % 4)]
                numbered = {int(m.payload.split()[0]): m for m in messages}
                words = " ".join(map(str, ["receive", pid, *numbered]))
                say(f"note {words}")
                store.receive(sessions["one"].row, pid, tuple(messages))
                incoming.append((pid, numbered))
                store.after(say, f"safe {words}")
            case 4 if incoming:
                pid, numbered = incoming.pop(0)
                words = " ".join(map(str, ["handed", pid, *numbered]))
                say(f"note {words}")
                for n, received in numbered.items():
                    owe(n, received, 2)
                store.release(sessions["one"].row, pid)
                store.after(say, f"safe {words}")
            case _:
                m = made()
                say(f"note publish {number}")
                owe(number, m, 1)
                store.retain(MAIN, "a/b", m)
                store.retain(OTHER, "a/b", m if number % 2 else None)
                store.subscribe(sessions["one"].row, Subscription(filter="a/b"), None, b"%d" % number)
                store.remember("last", str(number))
                store.keep("last", str(number % 3), b"%d" % number)
                store.keep("last", str((number + 1) % 3), None)
                store.after(say, f"safe publish {number}")
        while not trial.loop.queue.empty():
            trial.loop.turn()
        if len(owed) > 400:  # no faster than the disk
            trial.commit()
            for n in list(owed)[:300]:
                say(f"note done {n}")
                for delivery in owed.pop(n):
                    store.done(delivery)
                store.after(say, f"safe done {n}")


def killed_before(connection: sqlite3.Connection, nth: int) -> None:
    seen = 0

    def trace(sql: str) -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_trace_callback(trace)


def point(folder: Path, what: str, nth: int) -> None:
    """One attempt; ends by SIGKILL, or with 0 when it came to its end."""
    real = sqlite3.connect
    if what in OPENING:

        def connect(*args: object, **options: object) -> sqlite3.Connection:
            connection = real(*args, **options)  # type: ignore[call-overload]
            killed_before(connection, nth)
            return connection

        sqlite3.connect = connect
    trial = Trial(folder / "t.db", start=False)
    if what in OPENING:
        say(f"opened {trial.found.boot}")
        os._exit(0)
    (session,) = trial.found.sessions
    for delivery in session.deliveries[:3]:
        trial.store.done(delivery)
    for n in range(7):
        trial.store.enqueue(session.row, Delivery(message(b"new %d" % n), 1))
    session.deliveries[3].seen = True
    trial.store.update(session.deliveries[3])
    trial.store.release(session.row, 2)
    trial.store.receive(session.row, 1, (message(b"x"),))  # used again, for fewer
    trial.store.receive(session.row, 3, (message(b"y"), message(b"z")))
    trial.store.receive(session.row, 4, ())
    trial.store.keep("room", "replaced", b"new")
    trial.store.keep("room", "removed", None)
    trial.store.keep("room", "added", b"new")
    session.ended = 1.0
    trial.store.save_session(session)
    trial.store.after(say, "safe")
    if what == "write":
        trial.store.start()
        killed_before(trial.connection, nth)
        trial.commit()
    else:
        killed_before(trial.connection, nth)
        trial.close()
    os._exit(0)


def points(folder: Path, what: str) -> None:
    start = folder / "start"
    if what == "open":
        start.mkdir()
    elif what == "migrate2":
        version2.make(start / "t.db")
    elif what == "migrate3":
        version3.make(start / "t.db")
    elif what == "migrate4":
        version4.make(start / "t.db")
    elif what == "expire":
        trial = Trial(start / "t.db")
        session = trial.session()
        late = -1e9  # long before any boot
        payloads = (b"a", b"late", b"b", b"late", b"c")
        mixed = tuple(message(p, expires=late if p == b"late" else None) for p in payloads)
        trial.store.receive(session.row, 1, mixed)
        trial.store.receive(session.row, 2, (message(expires=late), message(expires=late)))
        trial.store.receive(session.row, 3, (message(b"d"), message(b"e")))
        trial.close()
    else:
        trial = Trial(start / "t.db")
        session = trial.session()
        for n in range(5):
            trial.store.enqueue(session.row, Delivery(message(b"old %d" % n), 1))
        trial.store.receive(session.row, 1, (message(b"a"), message(b"b"), message(b"c")))
        trial.store.receive(session.row, 2, ())
        trial.store.keep("room", "replaced", b"old")
        trial.store.keep("room", "removed", b"old")
        trial.close()
    results = []
    nth = 0
    status = -1
    while status != 0:
        nth += 1
        place = folder / str(nth)
        shutil.copytree(start, place)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writing, 1)
            point(place, what, nth)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            results.append({"nth": nth, "said": pipe.read().split("\n")[:-1], "status": status})
    say(json.dumps(results))


if __name__ == "__main__":
    command, where, what = sys.argv[1:]
    if command == "load":
        load(Path(where), int(what))
    else:
        points(Path(where), what)
