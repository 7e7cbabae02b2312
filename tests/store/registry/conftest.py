"""Every test that takes `place` runs twice: with an SQLite file, and with a real PostgreSQL server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres
from store.registry.places import Place, PostgresPlace, SqlitePlace


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqlitePlace]:
    with contextlib.closing(SqlitePlace(tmp_path)) as place:
        yield place


@pytest.fixture
def postgresql(server: postgres.Server) -> Iterator[PostgresPlace]:
    with contextlib.closing(PostgresPlace(server)) as place:
        yield place


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found
