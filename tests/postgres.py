"""A real PostgreSQL server for tests: Debian's, in a folder of its own, on loopback.

PostgreSQL refuses to run as root; then it runs as `postgres`, the user that its package makes, or as `nobody`. It is a
child of the test process and is stopped at the end. Commits are not forced to the disk: tests kill the server, never
the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from harness import free_port
from processes import missing

USER = "tidegate"
PASSWORD = "p@ss/w%rd"  # one that a URL cannot hold as it is
STARTING = 30.0
STOPPING = 15.0


def programs() -> Path:
    """The folder of the server's programs; without one the test is skipped, or fails where nothing may be skipped."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda home: float(home.parent.name), reverse=True)
    for folder in [*homes, *map(Path, os.get_exec_path())]:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    missing("postgresql is not installed")
    raise AssertionError


def _unprivileged() -> dict[str, Any]:
    """Who the server runs as: ourselves, unless we are root."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name for entry in pwd.getpwall()}
    entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Server:
    """One server. `url()` is that of a schema of its own, so that tests do not meet."""

    def __init__(self) -> None:
        self.port = free_port()
        self._programs = programs()
        self._as = _unprivileged()
        # Not below pytest's folders: only their owner may enter those.
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        try:
            self._create()
        except BaseException:
            self.remove()
            raise

    def _create(self) -> None:
        word = self.folder / "password"
        word.write_text(PASSWORD)
        self._log.touch()
        if self._as:
            for path in (self.folder, word, self._log):
                os.chown(path, self._as["user"], self._as["group"])
        command = [self._programs / "initdb", "--pgdata", self.folder / "data", "--username", USER, "--pwfile", word]
        command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        made = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, **self._as)
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 40,
        }
        command = [self._programs / "postgres", "-D", self.folder / "data"]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self._as
            )
        deadline = time.monotonic() + STARTING
        while True:
            assert self._process.poll() is None, self._log.read_text()
            with contextlib.suppress(psycopg.OperationalError):
                self.connect().close()
                return
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT sends its clients away; SIGQUIT is a crash: nothing is tidied up."""
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, schema: str = "public") -> psycopg.Connection[Any]:
        """A connection of the test's own."""
        return psycopg.connect(self.address(schema=schema), autocommit=True, connect_timeout=5)

    def address(
        self, *, schema: str, user: str = USER, password: str = PASSWORD, port: int = 0, database: str = "postgres"
    ) -> str:
        place = f"{quote(user)}:{quote(password, safe='')}@127.0.0.1:{port or self.port}"
        return f"postgresql://{place}/{database}?options=-csearch_path%3D{schema}"

    def schema(self) -> str:
        """A new, empty schema."""
        name = f"s{os.getpid()}_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return name


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A server, until the block ends."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        try:
            server.stop(signal.SIGQUIT)  # nothing of it is needed any more
        finally:
            server.remove()
