"""Wrong, huge, slow and hostile requests get a clear answer, or none, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from api.pretending import Api, served
from harness import PATIENCE
from processes import until
from tidegate.api.channel import PLACES, WAITING, Channel
from tidegate.api.limits import Rates
from tidegate.api.problems import Kind


async def raw(api: Api, data: bytes) -> bytes:
    """What is answered until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_every_answer_is_closed_to_others(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for path in ("/health/live", "/me", "/nothing", "/docs"):
            answer = await api.ask("GET", path, headers={"Origin": "https://evil.example"})
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert "server" not in answer.headers
        asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "PUT"}
        assert (await api.ask("OPTIONS", "/policies", headers=asked)).status_code == 405


async def test_routes_and_methods_that_are_none(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        nothing = await api.ask("GET", "/nothing/here")
        assert (nothing.status_code, nothing.json()["type"]) == (404, "urn:tidegate:problem:unknown")
        assert (await api.ask("GET", "/policies/")).status_code == 404
        wrong = await api.ask("PATCH", "/policies/p1")
        assert wrong.status_code == 405
        assert wrong.headers["allow"] == "DELETE, GET, PUT"
        assert (await api.ask("HEAD", "/policies")).status_code == 405


async def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    async with served(tmp_path, max_body=1000) as api:
        announced = await api.ask("PUT", "/policies/p1", content=b"x" * 1001)
        assert announced.status_code == 413

        async def pieces() -> object:
            for _ in range(10):
                yield b"x" * 200

        hidden = await api.ask("PUT", "/policies/p1", content=pieces(), headers={"Content-Type": "application/json"})
        assert hidden.status_code == 413
        assert "1,000 bytes" in hidden.json()["detail"]
        assert (await api.ask("GET", "/health/live")).status_code == 200


async def test_a_body_that_does_not_come(tmp_path: Path) -> None:
    async with served(tmp_path, timeout=0.3) as api:
        head = b"PUT /policies/p1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        answer = await raw(api, head)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"urn:tidegate:problem:timeout" in answer


async def test_a_head_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.api.server.HEAD", 0.2)
    async with served(tmp_path) as api:
        assert await raw(api, b"") == b""
        assert await raw(api, b"GET / HTTP/1.1\r\nHost") == b""
        monkeypatch.setattr("tidegate.api.server.HEAD", PATIENCE)
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b'{"alive":true}')).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr("tidegate.api.server.HEAD", 0.2)
        writer.write(b"GET /health")  # the second request of a connection has to come, too
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE):
                assert await reader.read() == b""
        writer.close()


async def test_what_is_no_http(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        for nonsense in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
            b"\x10\x0c\x00\x04MQTT\x04\x02\x00<\x00\x00",
        ):
            answer = await raw(api, nonsense + b"\r\n\r\n")
            assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 505"), answer
            assert b"Traceback" not in answer
            assert b"uvicorn" not in answer.lower()
        assert (await api.ask("GET", "/health/live")).status_code == 200


async def test_somebody_who_does_not_read(tmp_path: Path) -> None:
    """An answer that is not taken is given up, and with it the place that it takes."""
    async with served(tmp_path, timeout=0.3) as api:
        for number in range(1000):
            api.node.put("view", f"v{number:04}", {"x": "y" * 10_000})
        with socket.create_connection(("127.0.0.1", api.port)) as deaf:
            deaf.sendall(b"GET /views?limit=1000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n" * 3)
            await until(lambda: len(api.server.server_state.connections) == 1)
            await until(lambda: not api.server.server_state.connections)
        assert (await api.ask("GET", "/health/live")).status_code == 200


async def test_a_failure_that_nobody_foresaw(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.documents["policy", "p1"] = {"id": "p1"}  # no body
        with capture_logs() as logged:
            answer = await api.ask("GET", "/policies/p1")
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert "KeyError" not in answer.text
        reference = answer.json()["remedy"].split("reference ")[1].split(";")[0]
        assert [line["reference"] for line in logged if line["event"] == "request failed"] == [reference]


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes for what is counted by the second, however busy the machine is."""
    monkeypatch.setattr("tidegate.api.app.Rates", partial(Rates, clock=lambda: 0.0))


@pytest.mark.usefixtures("standing")
async def test_one_address_asks_too_often(tmp_path: Path) -> None:
    async with served(tmp_path, address_rate=5.0) as api:
        answers = [await api.ask("GET", "/nothing", None) for _ in range(30)]
        refused = [each for each in answers if each.status_code == 429]
        assert len(refused) == 20
        assert int(refused[0].headers["retry-after"]) >= 1
        assert (await api.ask("GET", "/health/live", None)).status_code == 200, "whoever watches is never refused"


@pytest.mark.usefixtures("standing")
async def test_one_token_asks_too_often(tmp_path: Path) -> None:
    async with served(tmp_path, rate=5.0) as api:
        codes = [(await api.ask("GET", "/me", "auditor")).status_code for _ in range(30)]
        assert codes == [200] * 10 + [429] * 20
        assert (await api.ask("GET", "/me", "admin")).status_code == 200


async def test_the_node_is_away(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.ask("GET", "/me")
        await api.control.close()
        await api.ask("GET", "/me")
        answer = await api.ask("GET", "/policies")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        ready = await api.ask("GET", "/health/ready", None)
        assert ready.status_code == 503
        assert ready.json()["checks"]["node"] is False
        assert (await api.ask("GET", "/health/live", None)).status_code == 200


async def test_the_node_goes_away_in_the_middle_of_a_change(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        await api.ask("GET", "/me")
        api.node.pause.clear()
        asking = asyncio.create_task(api.ask("PUT", "/policies/p1", json={}))
        await until(lambda: bool(api.control._answering))
        await api.control.close(patience=0)
        answer = await asking
        assert (answer.status_code, answer.json()["type"]) == (504, "urn:tidegate:problem:uncertain")


async def test_more_than_the_node_is_asked_waits_or_is_told_to(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.pause.clear()
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(
            base_url=api.base_url, limits=limits, timeout=PATIENCE, headers={"Authorization": "Bearer admin"}
        ) as many:
            await many.get("/me")
            asking = [asyncio.create_task(many.put(f"/policies/p{number}", json={})) for number in range(100)]
            await until(lambda: sum(each.done() for each in asking) >= 36)
            assert len(api.control._peers) <= 8, "no more than its share of the node's places"
            assert (await many.get("/health/ready")).status_code == 200, "changes leave places for others"
            api.node.pause.set()
            codes = [each.status_code for each in await asyncio.gather(*asking)]
        assert codes.count(201) == 64
        assert codes.count(429) == 36


async def test_the_node_is_asked_so_much_and_no_more(tmp_path: Path) -> None:
    channel = Channel(tmp_path / "nobody.sock")
    async with AsyncExitStack() as places:
        for _ in range(PLACES):
            await places.enter_async_context(channel._place())
        waiting = [asyncio.create_task(channel.ask("status")) for _ in range(WAITING + 1)]
        done, _ = await asyncio.wait(waiting, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception()) for each in done] == ["too much is being asked of the node"]
    late = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum("cannot be reached" in str(each) for each in late) == WAITING


def test_kinds_have_words_of_their_own() -> None:
    assert len({kind.word for kind in Kind}) == len(Kind)
