"""Capabilities end: by the clock, whatever is done to it, and because somebody revokes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import BOTH, asking, come, dismissed, go, inbox, payloads, say, secure, setting
from sockets.holding import DEVICE, Holder, answer, denied, gated
from tidegate import wire

Clock = Callable[[str], None]
NOON = datetime(2026, 2, 11, 12, tzinfo=UTC).timestamp()


def will(payload: bytes = b"will", **fields: Any) -> wire.Will:
    properties = wire.Properties(**fields)
    return wire.Will(topic="w", payload=payload, qos=0, retain=False, properties=properties)


async def by_password(node: Served, certificates: Path, holder: Holder, version: int, **fields: Any) -> Client:
    given = {"username": "mary", "password": holder.token.encode()}
    return await come(node, None, client="m", version=version, tls=secure(certificates), **given, **fields)


# -- expiry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_expiry_disconnects_and_drops_the_will(tmp_path: Path, certificates: Path, version: int) -> None:
    """*expiry disconnects with 0x87*, by a timer of its own."""
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        bob = await come(node, "bob")
        await bob.subscribe("#")
        holder = Holder(lasts=0.8)
        mary = await by_password(node, certificates, holder, version, will=will())
        assert await say(mary, "t", qos=1) == 0
        await dismissed(mary, 0x87)
        assert [message.topic for message in await inbox(bob)] == ["t"]
        await by_password(node, certificates, holder, version, expect=0x86 if version == wire.V5 else 4)
        assert await denied(node, holder.rule, "connect", "expired")


@on_uvloop
async def test_it_is_decided_by_the_clock_and_not_by_the_timer(tmp_path: Path, clock: Clock) -> None:
    """*Validity is tested at each decision*: the wall clock is put forward past the end, between two messages."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(now=NOON, lasts=600)
        mary, bob, carol = await holder.come(node, will=will()), await come(node, "bob"), await come(node, "carol")
        await bob.subscribe("t", "w")
        await mary.subscribe("in")
        for end, topic in ((mary, "t"), (carol, "in")):
            for _ in range(2):
                await say(end, topic, b"before")
        assert await payloads(mary) == [b"before"] * 2
        assert await payloads(bob) == [b"before"] * 2
        clock("2026-02-11T12:10:00")
        await say(carol, "in", b"after")
        await mary.send(wire.Publish(topic="t", payload=b"after"))
        await dismissed(mary, 0x87)  # and soon it is sent away
        assert await inbox(bob) == []
        assert await denied(node, holder.rule, "write", "expired")
        assert await denied(node, holder.rule, "read", "expired")


@on_uvloop
async def test_a_clock_that_is_put_back_opens_nothing(tmp_path: Path, clock: Clock) -> None:
    """Expired by the clock that only measures time: the wall clock says otherwise, and is not believed."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(now=NOON, lasts=0.6)
        mary = await holder.come(node)
        clock("2026-02-11T08:00:00")
        await dismissed(mary, 0x87)
        await holder.come(node, expect=0x87)
        assert await denied(node, holder.rule, "connect", "expired")


@on_uvloop
async def test_a_clock_that_is_put_forward_begins_nothing(tmp_path: Path, clock: Clock) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        early = Holder(now=NOON, lasts=86400, nbf=NOON + 3600)
        await early.come(node, expect=0x87)
        clock("2026-02-11T14:00:00")
        await early.come(node, expect=0x87)
        assert await denied(node, early.rule, "connect", "not valid yet")


@on_uvloop
async def test_a_clock_that_is_put_back_before_its_beginning_suspends_it(tmp_path: Path, clock: Clock) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(now=NOON, lasts=3600, nbf=NOON - 60)
        mary, bob = await holder.come(node), await come(node, "bob")
        await bob.subscribe("#")
        assert await say(mary, "t", b"1", qos=1) == 0
        clock("2026-02-11T11:00:00")
        assert await say(mary, "t", b"2", qos=1) == 0x87
        clock("2026-02-11T12:00:01")
        assert await say(mary, "t", b"3", qos=1) == 0
        assert await payloads(bob) == [b"1", b"3"]


@on_uvloop
async def test_a_fresh_one_in_time_keeps_the_connection(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        mary = await Holder(lasts=1.0).come(node)
        assert isinstance(await Holder(lasts=3600).again(mary), wire.Auth)
        (end,) = (session for session in node.node.scopes["main"].sessions.values() if session.client == "mary")
        started = node.node.site.now
        await until(lambda: node.node.site.now > started + 1.3)  # the timer of the first one would have fired
        await mary.silent()
        assert end.connection is not None


@on_uvloop
async def test_a_will_that_waited_too_long_is_denied(tmp_path: Path, clock: Clock) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob = await come(node, "bob")
        await bob.subscribe("#")
        holder = Holder(now=NOON, lasts=600)
        mary = await holder.come(node, stays=True, will=will(will_delay_interval=1))
        await go(node, mary)
        clock("2026-02-11T12:11:00")
        session = next(one for one in node.node.scopes["main"].sessions.values() if one.client == "mary")
        await until(lambda: session.will is None)
        assert await inbox(bob) == []
        assert await denied(node, holder.rule, "write", "expired")


@on_uvloop
async def test_what_waits_is_not_sent_without_a_valid_one(tmp_path: Path, clock: Clock) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        old = Holder(now=NOON, lasts=600)
        mary, bob = await old.come(node, stays=True), await come(node, "bob")
        await mary.subscribe("#", qos=1)
        await go(node, mary)
        await say(bob, "t", b"1", qos=1)
        clock("2026-02-11T12:11:00")
        await say(bob, "t", b"2", qos=1)
        await old.come(node, stays=True, expect=0x87)
        mary = await Holder(now=NOON, lasts=6000).come(node, stays=True)
        assert mary.connack.session_present
        assert await payloads(mary) == [b"1", b"2"]


# -- revoked -------------------------------------------------------------------------------------------------------


async def by_file(node: Served, folder: Path, holder: Holder, **more: Any) -> None:
    await node.reload(gated(folder, revoked=[holder.id], **more))


async def by_command(node: Served, folder: Path, holder: Holder, **more: Any) -> None:
    answer = await node.node.revoke(holder.id)
    assert answer["revoked"] == holder.id


@pytest.mark.parametrize("revoke", [by_file, by_command])
@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_revoking_disconnects_and_drops_the_will(
    tmp_path: Path, certificates: Path, version: int, revoke: Any
) -> None:
    async with from_file(tmp_path, gated(tmp_path, certificates=certificates)) as node:
        bob = await come(node, "bob")
        await bob.subscribe("#")
        holder, other = Holder(), Holder()
        mary = await by_password(node, certificates, holder, version, will=will())
        stays = await other.come(node, "other")
        await revoke(node, tmp_path, holder, certificates=certificates)
        await dismissed(mary, 0x87)
        await stays.silent()
        assert await inbox(bob) == []
        refused = 0x86 if version == wire.V5 else 4
        await by_password(node, certificates, holder, version, expect=refused)
        assert await denied(node, holder.rule, "connect", "revoked")


@pytest.mark.parametrize("revoke", [by_file, by_command])
@on_uvloop
async def test_whoever_is_away_has_nothing_any_more(tmp_path: Path, revoke: Any) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(key=DEVICE)
        mary, bob = await holder.come(node, stays=True, will=will(will_delay_interval=1)), await come(node, "bob")
        await mary.subscribe("#", qos=1)
        await bob.subscribe("w")
        await go(node, mary)
        await revoke(node, tmp_path, holder)
        session = next(one for one in node.node.scopes["main"].sessions.values() if one.client == "mary")
        await until(lambda: session.will is None)
        assert await inbox(bob) == []
        await say(bob, "t", qos=1)
        assert session.queued == 0


@on_uvloop
async def test_a_revocation_by_command_survives_a_restart_and_a_reload(tmp_path: Path) -> None:
    holder = Holder()
    async with from_file(tmp_path, gated(tmp_path, data=True)) as node:
        mary = await holder.come(node)
        assert (await node.node.revoke(holder.id)) == {
            "revoked": holder.id,
            "before": False,
            "disconnected": 1,
            "kept": True,
        }
        await dismissed(mary, 0x87)
        await node.reload()
        await holder.come(node, expect=0x87)
    async with from_file(tmp_path, gated(tmp_path, data=True)) as node:
        await holder.come(node, expect=0x87)
        assert (await node.node.revoke(holder.id))["before"] is True


@pytest.mark.parametrize("change", ["command", "file", "issuer", "section"])
@on_uvloop
async def test_it_is_judged_by_what_holds_when_the_challenge_is_answered(tmp_path: Path, change: str) -> None:
    """Not when the node asked: the client takes as long as it likes."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        first, holder = Holder("read:x"), Holder()
        new, old = await holder.begins(node, "new"), await first.come(node, "old")
        await answer(old, holder.token.encode(), wire.Reason.RE_AUTHENTICATE)
        asked = [(await end.expect(wire.Auth)).properties.authentication_data or b"" for end in (new, old)]
        match change:
            case "command":
                await by_command(node, tmp_path, holder)
            case "file":
                await by_file(node, tmp_path, holder)
            case "issuer":
                await node.reload(gated(tmp_path, key=Ed25519PrivateKey.generate()))
            case "section":
                await node.reload(setting())
        await answer(new, holder.responds(asked[0], "new"))
        assert (await new.expect(wire.Connack)).reason == 0x87
        if change in ("command", "file"):
            await answer(old, holder.responds(asked[1], "old"))
        await dismissed(old, 0x87)  # in the other cases because of what it came with


# -- restarts ------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_after_a_restart_nothing_is_known_until_the_client_comes_again(tmp_path: Path) -> None:
    """Its will is denied; what is sent to it waits, and is decided by what it comes with."""
    text = gated(tmp_path, data=True)
    async with from_file(tmp_path, text) as node:
        mary = await Holder("read:a", "read:b", "write:#").come(node, stays=True, will=will(will_delay_interval=2))
        await mary.subscribe("a", "b", qos=1)
        await go(node, mary)
    async with from_file(tmp_path, text) as node:
        bob = await come(node, "bob")
        await bob.subscribe("w")
        for topic in ("a", "b"):
            await say(bob, topic, topic.encode(), qos=1)
        session = next(one for one in node.node.scopes["main"].sessions.values() if one.client == "mary")
        await until(lambda: session.will is None)
        assert await inbox(bob) == []
        mary = await Holder("read:a").come(node, stays=True)
        assert mary.connack.session_present
        assert (await mary.message()).payload == b"a"
        await mary.silent()


@on_uvloop
async def test_somebody_who_is_not_in_the_directory_keeps_the_session(tmp_path: Path) -> None:
    holder = Holder(subject="user:stranger")
    text = gated(tmp_path, data=True)
    async with from_file(tmp_path, text) as node:
        end = await holder.come(node, "s", stays=True)
        await end.subscribe("t", qos=1)
        await go(node, end)
    async with from_file(tmp_path, text) as node:
        bob = await come(node, "bob")
        await say(bob, "t", b"kept", qos=1)
        end = await holder.come(node, "s", stays=True)
        assert (await end.message()).payload == b"kept"
        # nobody else has it, not even by that name
        other = await come(node, None, client="s", properties=asking(session_expiry_interval=10), clean_start=False)
        assert not other.connack.session_present
