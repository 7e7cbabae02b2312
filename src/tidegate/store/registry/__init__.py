"""What people administer: policies, preferences, views, monitors, the directory, rules, sources, keys and tokens.

Documents are JSON objects with a version and a history; secrets are small binary records. One class (`Registry`),
two databases: an SQLite file for one node, a PostgreSQL server for several. Sessions and messages are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from tidegate.errors import StoreError
from tidegate.store.registry.database import Connection
from tidegate.store.registry.documents import (
    Answer,
    Applied,
    Body,
    Change,
    Conflict,
    Entry,
    Limits,
    Reason,
    Refused,
    Secret,
    Snapshot,
)
from tidegate.store.registry.identities import IDENTITIES
from tidegate.store.registry.listener import Listener
from tidegate.store.registry.registry import Registry
from tidegate.store.registry.secrets import Secrets
from tidegate.store.registry.sqlite import SqliteConnection

__all__ = [
    "IDENTITIES",
    "Answer",
    "Applied",
    "Body",
    "Change",
    "Conflict",
    "Entry",
    "Limits",
    "Listener",
    "Reason",
    "Refused",
    "Registry",
    "Secret",
    "Secrets",
    "Snapshot",
    "registry",
]


def registry(url: str, *, limits: Limits | None = None, patience: float = 10.0, wait: float = 5.0) -> Registry:
    """A registry that is not open yet.

    `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql://…`. `patience` is how many seconds a call
    tries to reach a database that is away, `wait` how long it waits for another writer.
    """
    return Registry(_connection_factory(url, wait), limits=limits or Limits(), patience=patience)


def _connection_factory(url: str, wait: float) -> Callable[[], Connection]:
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1 and "?" not in rest and "#" not in rest:
        path = Path(unquote(rest[1:]))
        return lambda: SqliteConnection(path, wait=wait)
    if scheme in ("postgresql", "postgres"):
        try:
            from tidegate.store.registry.postgres import PostgresConnection
        except ImportError as error:
            text = "PostgreSQL needs the package psycopg. Remedy: pip install 'tidegate[postgres]'."
            raise StoreError(text) from error
        return lambda: PostgresConnection(url, wait=wait)
    # Without the rest: there may be a password in it.
    raise StoreError(
        f"there is no registry in {scheme[:20]!r}. Remedy: write sqlite:///PATH or postgresql://USER@HOST/DATABASE."
    )
