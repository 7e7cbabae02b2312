"""A flood from one address keeps neither health checks nor an administrator out."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from api.pretending import Api, served
from harness import PATIENCE
from tidegate.api.channel import PLACES, WAITING
from tidegate.api.places import KEPT

Open = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SLOW = b"PUT /policies/p HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{"


@contextlib.asynccontextmanager
async def flood(api: Api, count: int, sent: bytes = b"") -> AsyncIterator[list[Open]]:
    opened: list[Open] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
            opened.append((reader, writer))
            writer.write(sent)
            await writer.drain()
        yield opened
    finally:
        for _, writer in opened:
            writer.close()


async def asked(
    api: Api, path: str, token: str | None = None, *, tls: ssl.SSLContext | None = None
) -> tuple[int, bytes]:
    """Over a connection of its own: the status, and everything else."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=tls)
    authorization = "" if token is None else f"Authorization: Bearer {token}\r\n"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head.lower()


@pytest.mark.parametrize("sent", [b"", SLOW.replace(b"\r\nHost", b"\r\nAuthorization: Bearer operator\r\nHost")])
@pytest.mark.parametrize("places", [{"address_connections": 5}, {"max_connections": 5}])
async def test_connections_that_hold_all_places(tmp_path: Path, sent: bytes, places: dict[str, int]) -> None:
    async with served(tmp_path, **places) as api, flood(api, 60, sent) as opened:
        assert (await asked(api, "/health/live"))[0] == 200
        assert (await asked(api, "/health/ready"))[0] == 200
        code, head = await asked(api, "/policies", "admin")
        assert (code, b"connection: close" in head) == (200, True)
        for token, wanted in (("auditor", 503), ("wrong", 503), (None, 503)):
            code, head = await asked(api, "/policies", token)
            assert (code, b"retry-after" in head, b"connection: close" in head) == (wanted, True, True)
        for _, writer in opened:
            writer.close()
        async with asyncio.timeout(PATIENCE):
            while (await asked(api, "/policies", "auditor"))[0] != 200:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("places", [{"address_connections": 5}, {"max_connections": 5}])
async def test_handshakes_that_hold_all_places(tmp_path: Path, places: dict[str, int]) -> None:
    """They have the places of connections: those of whoever begins many and ends none are bounded, too."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    async with served(tmp_path, tls=server, **places) as api, flood(api, 60) as opened:
        over = [reader for reader, _ in opened[5:-KEPT]]
        async with asyncio.timeout(PATIENCE):
            for reader in over:
                assert await reader.read() == b""
        assert (await asked(api, "/health/live", tls=client))[0] == 200
        assert (await asked(api, "/policies", "admin", tls=client))[0] == 200
        assert (await asked(api, "/policies", "auditor", tls=client))[0] == 503
        assert not any(reader.at_eof() for reader, _ in opened[:5])
        for _, writer in opened:
            writer.close()
        async with asyncio.timeout(PATIENCE):
            while (await asked(api, "/policies", "auditor", tls=client))[0] != 200:
                await asyncio.sleep(0.01)


async def test_many_requests_of_the_same_address(tmp_path: Path) -> None:
    async with served(tmp_path, address_rate=5.0) as api:
        codes = [(await api.ask("GET", "/policies", "auditor")).status_code for _ in range(30)]
        assert codes[-1] == 429
        assert (await api.ask("GET", "/policies", "admin")).status_code == 200
        assert (await api.ask("GET", "/health/ready", None)).status_code == 200


async def test_questions_that_hold_all_places_at_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.health.FRESH", 0.0)
    async with served(tmp_path) as api:
        channel = api.server.config.app.app._app.state.channel
        async with contextlib.AsyncExitStack() as places:
            for _ in range(PLACES):
                await places.enter_async_context(channel._place())
            waiting = [asyncio.create_task(channel.ask("readiness")) for _ in range(WAITING)]
            await asyncio.sleep(0)
            assert (await api.ask("GET", "/health/ready", None)).status_code == 200
            assert (await api.ask("GET", "/policies", "admin")).status_code == 200
            assert (await api.ask("GET", "/policies", "auditor")).status_code == 503
        await asyncio.gather(*waiting)


async def test_changes_of_users_do_not_keep_an_administrator_waiting(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        turns = api.server.config.app.app._app.state.turns
        async with turns.turn("user:a", 2), turns.turn("user:b", 2):
            assert (await api.ask("PUT", "/policies/p1", json={})).status_code == 201
