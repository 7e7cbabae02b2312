"""A connection to a PostgreSQL server: several nodes on one registry.

The options of the URL are libpq's; ours only fill in what it leaves open. Everything has a limit in time, so that a
server or a network that hangs is noticed: also a server that was stopped, whose kernel still acknowledges what it is
sent. A change is told to the others with NOTIFY in the very transaction that
makes it, and they listen over a connection of their own.

No password gets into an error: libpq quotes the URL when it cannot read it, so that text is not passed on.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Generator
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidegate.errors import StoreError
from tidegate.store.registry.database import ConnectionLost, Dialect, Mode, Row

CHANNEL: Final = "tidegate"
LOCK: Final = 0x5447_7265  # the advisory lock of whoever makes or migrates tables
BEAT: Final = 0.5  # seconds without a notice before the listener looks anyway
MIGRATING: Final = 60.0  # seconds to wait for another node that migrates
STATEMENT: Final = 30.0  # seconds that a statement may take
SILENCE: Final = 3.0  # seconds without a word from the server, beyond what it may wait, before it counts as lost
IDLE: Final = 10.0  # seconds before the server ends the transaction of a node that has stopped

POSTGRES: Final = Dialect(
    integer="BIGINT",
    real="DOUBLE PRECISION",
    text='TEXT COLLATE "C"',  # sorted by bytes, as SQLite does
    bytes="BYTEA",
    end="",
    lock=" FOR UPDATE",
    # Not to_regclass: it remembers what was not there, and would miss what another node has just made.
    exists="SELECT count(*) FROM pg_tables WHERE tablename = ? AND schemaname = ANY (current_schemas(false))",
    now="SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    notify=f"SELECT pg_notify('{CHANNEL}', ?)",
)

_DEFAULTS: Final[dict[str, str]] = {
    "application_name": "tidegate",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",  # of several servers the one that takes changes
}
# Errors by SQLSTATE, or its class, that a new connection may mend.
_PASSING: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006", "40001", "40P01")
_REMEDIES: Final = {
    "53100": "free some space on the server's disk",
    "53200": "give the server more memory",
    "53300": "raise max_connections of the server, or end some clients",
    "55P03": "find who holds the lock in pg_stat_activity, and end it",
    "57014": "find out in pg_stat_activity why the server is so slow",
    "42501": "grant it to the user; to make the tables: GRANT USAGE, CREATE ON SCHEMA",
    "42P01": "restore the registry's tables from a backup, or start the node again to begin with empty ones",
    "25006": "name a server that takes changes: this one is a standby or read-only",
    "58": "mend the server's disk",
    "XX": "restore the database from a backup",
}
# The server does not say the SQLSTATE when it refuses a connection. What is not recognised here is tried again.
_REFUSALS: Final = (
    (r"password authentication failed|no password supplied", "mend user and password in the URL"),
    (r"no pg_hba\.conf entry|authentication failed", "let pg_hba.conf of the server admit this node"),
    (r"role .* does not exist", "create that user on the server, or name another one in the URL"),
    (r"database .* does not exist", "create that database on the server, or name another one in the URL"),
    (r"permission denied for database", "grant CONNECT on the database to the user"),
    (r"certificate|does not support SSL|sslmode|root\.crt", "mend sslmode, sslrootcert, sslcert and sslkey in the URL"),
    (r"Name or service not known", "mend the name of the server in the URL"),
)
_AWAY: Final = "start the server, or mend the network or the address in the URL"


class _Connection(psycopg.Connection[Row]):
    """Gives up a server that says nothing for too long; libpq would wait for ever."""

    silence: float = math.inf

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        return super().wait(self._heard(gen), *args, **options)

    def _heard(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The same. psycopg comes back now and then also if nothing has arrived."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                arrived = yield wanted
                now = time.monotonic()
                if arrived:
                    heard = now
                elif now - heard > self.silence:
                    self.close()
                    raise psycopg.OperationalError(f"the server has said nothing for {now - heard:.0f} s")
                wanted = gen.send(arrived)
        except StopIteration as end:
            return end.value


class PostgresConnection:
    """`wait` is how long to wait for another writer, in seconds."""

    dialect: Final = POSTGRES

    def __init__(self, url: str, *, wait: float) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            raise StoreError(
                "the PostgreSQL URL cannot be read. Remedy: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "with %XX for special characters in the password."
            ) from None
        self._options: dict[str, Any] = {**_DEFAULTS, **given}
        self._wait = wait
        host = f"{given.get('host') or 'localhost'}:{given.get('port') or 5432}"
        self.place: Final = f"postgresql://{host}/{given.get('dbname') or given.get('user') or ''}"
        self._silence = wait + SILENCE
        self._connection: _Connection | None = None

    def connect(self) -> None:
        if self._connection is not None and not self._connection.closed:
            return
        self.close()
        try:
            # Prepared statements would not outlive a migration by another node.
            self._connection = _Connection.connect(**self._options, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._refused(error) from error
        self._connection.silence = self._silence
        try:
            self._enter()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def execute(self, sql: str, *values: object) -> list[Row]:
        if self._connection is None:
            raise ConnectionLost(f"{self.place} is not connected.")
        try:
            cursor = self._connection.execute(sql.replace("?", "%s"), values or None)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            raise self._trouble(error, committing=sql == "COMMIT") from error

    def begin(self, mode: Mode) -> None:
        if self._connection is not None:
            self._connection.silence = math.inf if mode is Mode.MIGRATE else self._silence
        level = "REPEATABLE READ, READ ONLY" if mode is Mode.READ else "READ COMMITTED, READ WRITE"
        self.execute(f"BEGIN ISOLATION LEVEL {level}")
        if mode is Mode.MIGRATE:
            self.execute(f"SET LOCAL lock_timeout = {round(MIGRATING * 1000)}")
            self.execute("SET LOCAL statement_timeout = 0")
            self.execute("SELECT pg_advisory_xact_lock(?)", LOCK)

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is None or self._connection.closed:
            return
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def attend(self) -> None:
        self._silence = SILENCE  # it waits for nobody
        self.execute(f"LISTEN {CHANNEL}")

    def wait(self, stop: threading.Event) -> None:
        assert self._connection is not None
        if stop.is_set():
            return
        try:
            for _ in self._connection.notifies(timeout=BEAT, stop_after=1):
                pass
        except psycopg.Error as error:
            raise self._trouble(error) from error

    def _enter(self) -> None:
        ((encoding, *_),) = self.execute(
            "SELECT current_setting('server_encoding'), set_config('lock_timeout', ?, false),"
            " set_config('statement_timeout', ?, false), set_config('idle_in_transaction_session_timeout', ?, false),"
            # What was acknowledged outlives a crash of the server, whatever its default is.
            " set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), false)",
            *(str(round(seconds * 1000)) for seconds in (self._wait, STATEMENT, IDLE)),
        )
        if encoding != "UTF8":
            raise StoreError(
                f"{self.place} has the encoding {encoding}, which cannot hold every text. "
                "Remedy: create the database with ENCODING 'UTF8'."
            )

    def _trouble(self, error: psycopg.Error, *, committing: bool = False) -> StoreError:
        """While connected."""
        state = error.sqlstate or ""
        remedy = _REMEDIES.get(state) or _REMEDIES.get(state[:2]) or "look into the server's log"
        text = " ".join(str(error).split())
        if self._connection is None or self._connection.closed or state.startswith(_PASSING):
            remedy = _REMEDIES.get(state, _AWAY)
            return ConnectionLost(f"{self.place} was lost: {text}. Remedy: {remedy}.", committing=committing)
        return StoreError(f"{self.place}: {text} ({state}). Nothing was changed. Remedy: {remedy}.")

    def _refused(self, error: psycopg.Error) -> StoreError:
        """While connecting."""
        text = " ".join(str(error).split())
        for pattern, remedy in _REFUSALS:
            if re.search(pattern, text):
                return StoreError(f"{self.place} cannot be reached: {text}. Remedy: {remedy}.")
        return ConnectionLost(f"{self.place} cannot be reached: {text}. Remedy: {_AWAY}.")
