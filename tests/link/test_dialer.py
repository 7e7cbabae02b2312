"""The end of a link that connects, against real sockets: who it trusts, when it tries again, how it ends."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from harness import PATIENCE, Client, free_port
from link.other_node import (
    ACCEPTED,
    HERE,
    THERE,
    TRUSTED,
    Dialing,
    authority,
    dialing,
    linked,
    node_tls,
    refuse,
    serving,
)
from processes import on_uvloop
from tidegate import wire
from tidegate.cli import certificates
from tidegate.link import State, attempt, dialer
from tidegate.net import Tls
from tidegate.policy.trust_list import fingerprint
from tidegate.session import Phase


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority(tmp_path, HERE, THERE)
    return tmp_path


async def up(running: Dialing, times: int = 1) -> None:
    async with asyncio.timeout(PATIENCE):
        while running.end.attached < times or running.dialer.state is not State.CONNECTED:
            await asyncio.sleep(0.005)


# -- who is at the other end -------------------------------------------------------------------------------------


@on_uvloop
async def test_connects_and_greets(folder: Path) -> None:
    async with linked(folder) as (server, running):
        via = f"mqtts://127.0.0.1:{server.port}"
        await server.next()
        await up(running)
        (connect,) = server.connects
        assert (connect.client_id, connect.clean_start, connect.keep_alive) == ("main->far", False, 30)
        assert connect.properties.maximum_packet_size == 2**20
        peer = running.end.peer
        assert peer is not None
        assert (peer.subject, peer.level, peer.address, peer.listener) == ("CN=there", "trusted", "127.0.0.1", via)
        assert peer.tls["version"] == "TLSv1.3"
        assert running.dialer.status()["state"] == "connected"
        assert running.dialer.status()["address"] == via


@on_uvloop
async def test_messages_go_both_ways(folder: Path) -> None:
    async with linked(folder) as (server, running):
        client = await server.next()
        await client.expect(wire.Pingreq)
        await client.send(wire.Publish(topic="t", payload=b"x", qos=1, packet_id=7))
        assert (await client.expect(wire.Puback)).packet_id == 7
        await up(running)


@on_uvloop
async def test_what_comes_with_connack_is_not_lost(folder: Path) -> None:
    async def at_once(client: Client, packet: wire.Connect) -> None:
        publish = wire.Publish(topic="t", payload=b"x", qos=1, packet_id=7)
        await client.raw(wire.encode(ACCEPTED, wire.V5) + wire.encode(publish, wire.V5))

    async with linked(folder, script=at_once) as (server, _running):
        client = await server.next()
        assert {type(await client.receive()) for _ in range(2)} == {wire.Pingreq, wire.Puback}


@pytest.mark.parametrize(
    ("trust", "peer", "why"),
    [
        ('trust: {by: subject, accept: ["CN=other"]}', None, "CN=there is not on the trust list"),
        ("", None, "its certificate is not on the trust list, and no link names it"),
        (TRUSTED, "CN=other", "CN=there is not on the trust list"),
        (TRUSTED, "sha256:" + "ab" * 32, "its certificate is not on the trust list"),
    ],
)
@on_uvloop
async def test_who_is_not_on_the_list_is_told_nothing(folder: Path, trust: str, peer: str | None, why: str) -> None:
    async with linked(folder, trust=trust, peer=peer) as (server, running):
        assert why in await running.fails()
        assert not server.connects
        assert not running.end.attached


@on_uvloop
async def test_who_is_not_on_the_list_is_degraded_where_that_is_the_policy(folder: Path) -> None:
    trust = 'trust: {by: subject, accept: ["CN=other"], otherwise: degrade}'
    async with linked(folder, trust=trust) as (_server, running):
        await up(running)
        peer = running.end.peer
        assert peer is not None
        assert (peer.degraded, peer.name, peer.level) == ("its certificate is not on the trust list", "", "tls")


@pytest.mark.parametrize("by", ["subject", "certificate"])
@on_uvloop
async def test_a_link_names_its_peer(folder: Path, by: str) -> None:
    der = ssl.PEM_cert_to_DER_cert((folder / "there.pem").read_text())
    peer = "cn=THERE" if by == "subject" else f"sha256:{fingerprint(der)}"
    async with linked(folder, peer=peer) as (_server, running):
        await up(running)
        assert running.end.peer is not None
        assert running.end.peer.level == "trusted"


@on_uvloop
async def test_revoked_certificate(folder: Path) -> None:
    der = ssl.PEM_cert_to_DER_cert((folder / "there.pem").read_text())
    trust = f'trust: {{by: subject, accept: ["CN=there"], revoked: ["{fingerprint(der)}"]}}'
    async with linked(folder, trust=trust, peer="CN=there") as (server, running):
        assert await running.fails() == "the certificate is not accepted: it was revoked"
        assert not server.connects


@on_uvloop
async def test_without_tls_nobody_is_known() -> None:
    async with serving() as server, dialing(f"mqtt://127.0.0.1:{server.port}", trust=TRUSTED) as running:
        assert "this connection has none" in await running.fails()
        assert not server.connects


@on_uvloop
async def test_certificate_of_another_authority(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    authority(other, THERE)
    async with linked(folder, tls=node_tls(other)) as (_server, running):
        assert "its certificate is not accepted" in await running.fails()


@on_uvloop
async def test_other_side_does_not_know_our_authority(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    authority(other)
    tls = Tls(cert=folder / "there.pem", key=folder / "there.key", client_ca=other / "ca.pem", client_cert="required")
    async with linked(folder, tls=tls) as (server, running):
        assert "does it accept this node's certificate?" in await running.fails()
        assert not server.connects


@on_uvloop
async def test_expired_certificate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_until", lambda days: datetime.now(UTC) - timedelta(minutes=30))
    certificates.issue(folder, "old", ["127.0.0.1"], client=True, days=2)
    trust = 'trust: {by: subject, accept: ["CN=old"]}'
    async with linked(folder, tls=node_tls(folder, "old"), trust=trust) as (_server, running):
        assert await running.fails() == "its certificate is not accepted: certificate has expired"


@on_uvloop
async def test_own_certificate_cannot_be_read(folder: Path) -> None:
    async with linked(folder, name="missing") as (_server, running):
        assert "cannot load the certificate" in await running.fails()
        certificates.issue(folder, "missing", [], client=True, days=2)
        running.go_on.release()  # read anew with each connection
        await up(running)


# -- what it answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (wire.encode(wire.Pingresp(), wire.V5), "the first packet is not CONNACK"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the first packet is not CONNACK"),
        (b"\x20\xff\xff\xff\x7f", "it does not answer as a broker does: packet of"),
    ],
)
@on_uvloop
async def test_answers_that_are_none(folder: Path, said: bytes, why: str) -> None:
    async def answer(client: Client, packet: wire.Connect) -> None:
        await client.raw(said)

    async with linked(folder, script=answer) as (server, running):
        assert why in await running.fails()
        assert await (await server.next()).closed() == b""


@on_uvloop
async def test_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(client: Client, packet: wire.Connect) -> None:
        pass

    monkeypatch.setattr(attempt, "CONNECTING", 0.2)
    async with linked(folder, script=nothing) as (server, running):
        assert await running.fails() == "no answer in 0.2 s"
        assert await (await server.next()).closed() == b""


@on_uvloop
async def test_refused_is_logged_once(folder: Path) -> None:
    async with serving(node_tls(folder)) as server:
        server.script = refuse(wire.Reason.NOT_AUTHORIZED, "no link main->far here")
        with structlog.testing.capture_logs() as logs:
            async with dialing(f"mqtts://127.0.0.1:{server.port}", folder=folder, trust=TRUSTED) as running:
                for _ in range(3):
                    assert await running.fails() == "not authorized (0x87): no link main->far here"
                    running.go_on.release()
        assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["link does not open"]


@on_uvloop
async def test_reasons_of_several_addresses_are_logged_once_each(folder: Path) -> None:
    nobody = free_port()
    async with serving(node_tls(folder)) as server:
        server.script = refuse(wire.Reason.SERVER_BUSY)
        via = [f"mqtts://127.0.0.1:{port}" for port in (nobody, server.port)]
        with structlog.testing.capture_logs() as logs:
            async with dialing(*via, folder=folder, trust=TRUSTED) as running:
                for _ in range(3):
                    await running.fails()
                    running.go_on.release()
        assert [line["address"] for line in logs if line["log_level"] == "warning"] == via


@on_uvloop
async def test_the_session_does_not_take_it(folder: Path) -> None:
    async with linked(folder) as (server, running):
        running.end.objection = "the other side is no Tidegate node"
        assert await running.fails() == "the other side is no Tidegate node"
        assert await (await server.next()).closed() == b""


# -- again and again ---------------------------------------------------------------------------------------------


@on_uvloop
async def test_pauses_become_longer_up_to_a_bound() -> None:
    async with dialing(f"mqtt://127.0.0.1:{free_port()}") as running:
        for _ in range(12):
            assert "refused" in (await running.fails()).lower()
            running.go_on.release()
    bounds = [min(dialer.LONGEST, dialer.FIRST * 2**n) for n in range(12)]
    assert bounds[-1] == dialer.LONGEST
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(running.slept, bounds, strict=False))
    assert len({round(pause / bound, 6) for pause, bound in zip(running.slept, bounds, strict=False)}) > 1  # chance


@on_uvloop
async def test_pauses_begin_anew_after_a_connection(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "STEADY", 0.005)
    port = free_port()
    async with dialing(f"mqtts://127.0.0.1:{port}", folder=folder, trust=TRUSTED) as running:
        for _ in range(4):
            await running.fails()
            running.go_on.release()
        await running.fails()
        async with serving(node_tls(folder), port) as server:
            running.go_on.release()
            client = await server.next()
            await asyncio.sleep(0.05)  # so long it lasts
            client.abort()
            await running.fails()
    assert running.slept[4] > dialer.FIRST
    assert running.slept[5] <= dialer.FIRST


@on_uvloop
async def test_connections_that_do_not_last_are_no_success(folder: Path) -> None:
    async with linked(folder) as (server, running):
        for _ in range(6):
            (await server.next()).abort()
            await running.fails()
            running.go_on.release()
    assert all(before * 4 >= after for before, after in pairwise(running.slept))
    assert running.slept[5] > dialer.FIRST


@on_uvloop
async def test_changes_of_the_rules_are_no_failures_as_long_as_they_are_not_too_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "CHANGES", 4.0)
    monkeypatch.setattr(dialer, "STEADY", 1e9)
    changed = wire.Disconnect(reason=wire.Reason.ADMINISTRATIVE_ACTION)
    async with linked(folder) as (server, running):
        for number in range(12):
            client = await server.next()
            await up(running, number + 1)
            if number < 4:
                running.dialer.drop(wire.Reason.ADMINISTRATIVE_ACTION, "what crosses this link has changed")
            else:
                await client.send(changed)
            await running.fails()
            running.go_on.release()
    assert max(running.slept[:8]) <= dialer.FIRST
    assert running.slept[11] > dialer.FIRST


@on_uvloop
async def test_addresses_are_tried_in_order(folder: Path) -> None:
    async with serving(node_tls(folder)) as first, serving(node_tls(folder)) as second:
        via = [f"mqtts://127.0.0.1:{port}" for port in (free_port(), first.port, second.port)]
        async with dialing(*via, folder=folder, trust=TRUSTED) as running:
            (await first.next()).abort()
            await running.fails()
            assert running.dialer.status()["address"] == via[1]
            first.script = refuse(wire.Reason.SERVER_BUSY)
            running.go_on.release()
            await second.next()
            await up(running, 2)
            assert running.dialer.status()["address"] == via[2]


# -- while it is open, and its end -------------------------------------------------------------------------------


@on_uvloop
async def test_round_trip(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "SILENCE", 1000)
    async with linked(folder, keep_alive=0.05) as (server, running):
        client = await server.next()
        for _ in range(3):
            await client.expect(wire.Pingreq)
            await client.send(wire.Pingresp())
        async with asyncio.timeout(PATIENCE):
            while running.dialer.status()["round_trip"] is None:
                await asyncio.sleep(0.005)
        assert 0 < running.dialer.status()["round_trip"] < PATIENCE


@on_uvloop
async def test_silence_ends_it(folder: Path) -> None:
    async with linked(folder, keep_alive=0.1) as (server, running):
        client = await server.next()
        await up(running)
        assert await running.fails() == "nothing came for 0.15 s"
        assert running.end.session.connection is None
        await client.closed()
        running.go_on.release()
        await server.next()
        await up(running, 2)


@on_uvloop
async def test_the_other_side_sets_the_keep_alive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def shorter(client: Client, packet: wire.Connect) -> None:
        await client.send(wire.Connack(session_present=True, reason=0, properties=wire.Properties(server_keep_alive=1)))

    monkeypatch.setattr(attempt, "SILENCE", 0.1)
    async with linked(folder, script=shorter) as (server, running):
        await server.next()
        assert await running.fails() == "nothing came for 0.1 s"


@on_uvloop
async def test_takes_leave(folder: Path) -> None:
    async with linked(folder) as (server, running):
        client = await server.next()
        await client.expect(wire.Pingreq)
        await up(running)
        connection = running.end.session.connection
        await running.dialer.close()
        assert (await client.expect(wire.Disconnect)).reason == wire.Reason.NORMAL_DISCONNECTION
        assert await client.closed() == b""
        assert connection is not None
        assert connection.phase is Phase.CLOSED
        assert running.end.session.connection is None


@on_uvloop
async def test_dropped_with_a_reason_it_connects_again(folder: Path) -> None:
    async with linked(folder) as (server, running):
        client = await server.next()
        await client.expect(wire.Pingreq)
        await up(running)
        running.dialer.drop(wire.Reason.NOT_AUTHORIZED, "not trusted any more")
        assert (await client.expect(wire.Disconnect)).reason == wire.Reason.NOT_AUTHORIZED
        assert await running.fails() == "not trusted any more"
        assert running.dialer.state is State.WAITING


@on_uvloop
async def test_closed_while_it_connects(folder: Path) -> None:
    async def nothing(client: Client, packet: wire.Connect) -> None:
        pass

    async with linked(folder, script=nothing) as (server, running):
        client = await server.next()
        await running.dialer.close()
        assert await client.closed() == b""
