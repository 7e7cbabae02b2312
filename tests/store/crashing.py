"""A process that writes, says what was acknowledged, and is killed.

`load FOLDER ROUND`: publishes until it is killed. Each turn of the loop hands one message to three sessions, and
some turns strike earlier ones out or take a QoS 2 message through its steps. Every line on stdout is written with
one system call: `note X` before X is noted, `safe X` from its callback.

`points FOLDER WHAT`: does one thing (open, migrate, write, close) again and again on copies of the same files, and is
killed before the first SQL statement of it, before the second, and so on; reports as JSON whether the callback had run.
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

from store import version1
from store.trial import Trial, message, stored
from tidegate.session.message import Delivery, Message
from tidegate.session.store import StoredSession
from tidegate.wire import Subscription

SESSIONS = ("one", "two", "three")


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def load(folder: Path, round: int) -> None:
    trial = Trial(folder / "t.db", interval=0.001)
    store = trial.store
    chance = Random(round)
    sessions: dict[str, StoredSession] = {s.client: s for s in trial.found.sessions}
    for name in SESSIONS:
        if name not in sessions:
            sessions[name] = stored(name)
            store.save_session(sessions[name])
    owed: dict[int, list[Delivery]] = {}
    incoming: list[tuple[int, Message]] = []
    pids = 0
    number = round * 1_000_000
    say("ready")
    while True:
        number += 1
        m = message(b"%d " % number + bytes(chance.randrange(3000)))
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
                say(f"note receive {pid} {number}")
                store.receive(sessions["one"].row, pid, m)
                incoming.append((pid, m))
                store.after(say, f"safe receive {pid} {number}")
            case 4 if incoming:
                pid, received = incoming.pop(0)
                n = int(received.payload.split()[0])
                say(f"note handed {pid} {n}")
                owed[n] = [Delivery(received, 2) for _ in SESSIONS]
                for name, delivery in zip(SESSIONS, owed[n], strict=True):
                    store.enqueue(sessions[name].row, delivery)
                store.release(sessions["one"].row, pid)
                store.after(say, f"safe handed {pid} {n}")
            case _:
                say(f"note publish {number}")
                owed[number] = [Delivery(m, 1) for _ in SESSIONS]
                for name, delivery in zip(SESSIONS, owed[number], strict=True):
                    store.enqueue(sessions[name].row, delivery)
                store.retain("a/b", m)
                store.subscribe(sessions["one"].row, Subscription(filter="a/b"), None, b"%d" % number)
                store.remember("last", str(number))
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
    if what in ("open", "migrate"):

        def connect(*args: object, **options: object) -> sqlite3.Connection:
            connection = real(*args, **options)  # type: ignore[call-overload]
            killed_before(connection, nth)
            return connection

        sqlite3.connect = connect
    trial = Trial(folder / "t.db", start=False)
    if what in ("open", "migrate"):
        say(f"opened {trial.found.boot}")
        os._exit(0)
    (session,) = trial.found.sessions
    for delivery in session.deliveries[:3]:
        trial.store.done(delivery)
    for n in range(7):
        trial.store.enqueue(session.row, Delivery(message(b"new %d" % n), 1))
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
    elif what == "migrate":
        version1.make(start / "t.db")
    else:
        trial = Trial(start / "t.db")
        session = trial.session()
        for n in range(5):
            trial.store.enqueue(session.row, Delivery(message(b"old %d" % n), 1))
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
