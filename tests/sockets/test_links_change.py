"""Links of a running node change: what the file says now holds for the next message, and only links that change notice.

interfaces.md, *Configuration*: *Anything under … `links` can change while the node runs: by editing the file (SIGHUP or
`reload: watch`) or over the API.*
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from processes import Served, on_uvloop, until
from sockets.test_audit_publishers import told
from sockets.test_links import (
    FROM_GYM,
    FROM_REMOTE,
    GYM,
    REMOTE,
    Pair,
    connected,
    greeting,
    over_tls,
    pair,
    row,
)
from tidegate import wire

AUDIT = "\naudit: {}\n"


def gym(shares: str) -> str:
    return FROM_GYM.replace("peer: CN=b}", f"peer: CN=b, share: [{shares}]}}")


def remote(shares: str) -> str:
    return FROM_REMOTE.replace("peer: CN=a}", f"peer: CN=a, share: [{shares}]}}")


def out(topic: str, more: str = "") -> tuple[str, str]:
    """A share from the gym to the other node, as each of the two files says it."""
    back = more.replace("remote_prefix", "local_prefix")
    return f'{{topic: "{topic}", direction: out{more}}}', f'{{topic: "{topic}", direction: in{back}}}'


async def change(both: Pair, *shares: tuple[str, str]) -> None:
    """Both files say that these cross, and the link is up again."""
    here, there = (", ".join(each) for each in zip(*shares, strict=True))
    await both.remote.reload(both.text(REMOTE, remote(there)))
    await both.gym.reload(both.text(GYM, gym(here)))
    await agreed(both)


async def agreed(both: Pair) -> None:
    """The connection that there is was opened under the rules in force."""

    def settled(served: Served) -> bool:
        (end,) = served.node.realm.node_links.ends.values()
        return end.session.connection is not None and end.agreed == end.link.directions

    await until(lambda: settled(both.gym) and settled(both.remote))


@on_uvloop
async def test_other_shares_hold_for_the_next_message(folder: Path) -> None:
    one = out("one/#")
    async with pair(folder, gym(one[0]), remote(one[1])) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#", qos=2)
        await here.publish("two/a", b"not yet", qos=1)
        await here.publish("one/a", b"1", qos=1)
        assert (await there.message()).payload == b"1"
        await change(both, out("two/#"))
        await here.publish("one/a", b"not any more", qos=1)
        await here.publish("two/a", b"2", qos=1)
        assert (await there.message()).payload == b"2"
        await there.silent()


@on_uvloop
async def test_another_prefix_also_names_what_is_retained(folder: Path) -> None:
    before = out("one/#", ', remote_prefix: "old/"')
    async with pair(folder, gym(before[0]), remote(before[1])) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        await here.publish("one/a", b"1", qos=1, retain=True)
        assert (await there.message()).topic == "old/one/a"
        await change(both, out("one/#", ', remote_prefix: "new/"'))
        message = await there.message()
        assert (message.topic, message.payload) == ("new/one/a", b"1")
        late = await both.remote.connect("late")
        await late.subscribe("#")
        assert (await late.message()).topic == "new/one/a"
        await late.silent()  # under its old name it is gone


@pytest.mark.parametrize("first", ["here", "there"])
@on_uvloop
async def test_the_ends_of_a_link_change_one_after_the_other(folder: Path, first: str) -> None:
    """Meanwhile nothing crosses, and what had crossed under its old name is gone; then it crosses under the new one."""
    before, after = (out("one/#", f', remote_prefix: "{name}/"') for name in ("old", "new"))
    async with pair(folder, gym(before[0]), remote(before[1])) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        await here.publish("one/a", b"1", qos=1, retain=True)
        assert (await there.message()).topic == "old/one/a"
        changes = [
            both.gym.reload(both.text(GYM, gym(after[0]))),
            both.remote.reload(both.text(REMOTE, remote(after[1]))),
        ]
        for change in changes if first == "here" else reversed(changes):
            await change
            await agreed(both)
            kept = both.remote.node.realm.scopes["remotegym"].retained
            await until(lambda kept=kept: kept.get("old/one/a") is None)
        message = await there.message()
        assert (message.topic, message.payload) == ("new/one/a", b"1")
        await there.silent()


@on_uvloop
async def test_another_name_that_the_receiving_end_shared_before(folder: Path) -> None:
    """The receiving file is changed first, as the how-to has it, and then shares both names for a while."""
    before, after = (out("one/#", f', remote_prefix: "{name}/"') for name in ("old", "new"))
    both_names = ", ".join(f'{{topic: "{name}/one/#", direction: in}}' for name in ("old", "new"))
    async with pair(folder, gym(before[0]), remote('{topic: "old/one/#", direction: in}')) as both:
        await connected(both.gym, both.remote)
        here = await both.gym.connect("here")
        await here.publish("one/a", b"1", qos=1, retain=True)
        kept = both.remote.node.realm.scopes["remotegym"].retained
        await until(lambda: kept.get("old/one/a") is not None)
        await both.remote.reload(both.text(REMOTE, remote(both_names)))
        await agreed(both)
        await both.gym.reload(both.text(GYM, gym(after[0])))
        await until(lambda: kept.get("old/one/a") is None and kept.get("new/one/a") is not None)


@on_uvloop
async def test_another_name_while_the_other_node_was_away(folder: Path) -> None:
    before, after = (out("one/#", f', remote_prefix: "{name}/"') for name in ("old", "new"))
    both = Pair(folder)
    async with both.gyms(gym(before[0])):
        here = await both.gym.connect("here")
        async with both.remotes(remote('{topic: "old/one/#", direction: in}')):
            await connected(both.gym, both.remote)
            await here.publish("one/a", b"1", qos=1, retain=True)
            kept = both.remote.node.realm.scopes["remotegym"].retained
            await until(lambda: kept.get("old/one/a") is not None)
        await both.gym.reload(both.text(GYM, gym(after[0])))
        async with both.remotes(remote('{topic: "new/one/#", direction: in}')):
            kept = both.remote.node.realm.scopes["remotegym"].retained
            await until(lambda: kept.get("old/one/a") is None and kept.get("new/one/a") is not None)


@on_uvloop
async def test_another_qos(folder: Path) -> None:
    one = out("one/#")
    async with pair(folder, gym(one[0]), remote(one[1])) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#", qos=2)
        await here.publish("one/a", qos=2)
        assert (await there.message()).qos == 2
        await change(both, out("one/#", ", qos: 1"))
        await here.publish("one/a", qos=2)
        assert (await there.message()).qos == 1


@on_uvloop
async def test_what_waits_is_decided_by_the_shares_of_now(folder: Path) -> None:
    both = Pair(folder)
    async with both.gyms():
        here = await both.gym.connect("here")
        await here.publish("one/a", b"1", qos=1)
        await here.publish("two/a", b"2", qos=1)
        here_says, there_says = out("two/#")
        await both.gym.reload(both.text(GYM, gym(here_says)))
        async with both.remotes(remote(there_says)):
            there = await both.remote.connect("there")
            await there.subscribe("#", qos=1)
            await connected(both.gym, both.remote)
            assert (await there.message()).payload == b"2"
            await until(lambda: row(both.gym)["queue"] == 0)
            await there.silent()


@on_uvloop
async def test_what_is_not_shared_any_more_is_not_released(folder: Path) -> None:
    both = Pair(folder)
    async with both.remotes(remote('{topic: "one/#", direction: in}') + AUDIT):
        there = await both.remote.connect("there")
        await there.subscribe("#", qos=2)
        neighbour = await over_tls(both, "a", properties=greeting())
        envelope = neighbour_message("one/a")
        await neighbour.send(wire.Publish(topic="one/a", payload=envelope, qos=2, packet_id=7))
        while not isinstance(await neighbour.receive(), wire.Pubrec):
            pass
        await both.remote.reload(both.text(REMOTE, remote('{topic: "two/#", direction: in}') + AUDIT))
        await neighbour.closed()
        neighbour = await over_tls(both, "a", properties=greeting())
        await neighbour.send(wire.Pubrel(packet_id=7))
        while not isinstance(await neighbour.receive(), wire.Pubcomp):
            pass
        await there.silent()
        assert [rule for (rule,) in await told(both.remote, "deny", "rule")] == ["share"]


def neighbour_message(topic: str) -> bytes:
    static = wire.envelope.encode_static(
        wire.envelope.Static(
            origin="ab" * 8,
            publisher={"kind": "client", "client": "x", "domain": "a"},
            topic=topic,
            floor="trusted",
            path=(f"gym@{'ab' * 8}",),
        )
    )
    return wire.envelope.seal(static, bytes.fromhex("ab" * 8) + bytes(6), 1, 0, 1.0, None, 2, False, b"x", None)


@on_uvloop
async def test_a_link_that_does_not_change_stays_connected(folder: Path) -> None:
    async with pair(folder) as both:
        await connected(both.gym, both.remote)
        ends = [end for each in (both.gym, both.remote) for end in each.node.realm.node_links.ends.values()]
        connections = [end.session.connection for end in ends]
        more = "links: [{from: remotegym, to: gym, peer: CN=a}, {from: remotegym, to: other, peer: CN=c}]"
        await both.remote.reload(both.text(REMOTE, more))
        await both.gym.reload(both.text(GYM, FROM_GYM.replace("peer: CN=b", "peer: CN=b, overflow: refuse")))
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#")
        await here.publish("a")
        assert (await there.message()).topic == "a"
        assert [end.session.connection for end in ends] == connections
        assert len(both.remote.node.links.rows()) == 2


@on_uvloop
async def test_a_link_that_is_removed_drops_its_queue_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = Pair(folder)
    async with both.gyms(FROM_GYM + AUDIT):
        here = await both.gym.connect("here")
        for _ in range(3):
            await here.publish("a", qos=1)
        await both.gym.reload(both.text(GYM, AUDIT))
        logs = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line["dropped"] for line in logs if line["event"] == "link removed"] == [3]
        changes = await told(both.gym, "change", "action", "detail")
        assert changes["remove", "link gym->remotegym: 3 messages that were owed over it are dropped"] == 1
        assert both.gym.node.links.rows() == []
        await both.gym.reload(both.text(GYM, FROM_GYM + AUDIT))
        async with both.remotes():
            there = await both.remote.connect("there")
            await there.subscribe("#", qos=1)
            await connected(both.gym, both.remote)
            await here.publish("b", qos=1)
            assert (await there.message()).topic == "b"  # nothing of what was owed over the old one


@on_uvloop
async def test_another_address(folder: Path) -> None:
    both = Pair(folder)
    elsewhere = FROM_GYM.replace("REMOTE", "1")
    async with both.remotes(), both.gyms(elsewhere):
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("#", qos=1)
        await here.publish("a", b"1", qos=1)
        await until(lambda: row(both.gym)["error"])
        await both.gym.reload(both.text(GYM, FROM_GYM))
        assert (await there.message()).payload == b"1"  # what was owed stays owed
        assert row(both.gym)["address"] == f"mqtts://127.0.0.1:{both.port}"


@on_uvloop
async def test_the_watched_file(folder: Path) -> None:
    both = Pair(folder)
    watched = GYM + "reload: watch\n"
    async with both.remotes(), both.node("gym", watched, ""):
        both.gym.file.write(both.text(watched, FROM_GYM))
        await until(lambda: len(both.gym.node.links.rows()) == 1)
        await connected(both.gym, both.remote)


@pytest.mark.parametrize("overflow", ["drop", "refuse"])
@on_uvloop
async def test_overflow_changes(folder: Path, overflow: str) -> None:
    both = Pair(folder)
    limits = "\nlimits: {queue: {messages: 2}}\n" + AUDIT
    async with both.node("gym", GYM, FROM_GYM + limits):
        here = await both.gym.connect("here")
        for _ in range(2):
            await here.publish("a", qos=1)
        changed = FROM_GYM.replace("peer: CN=b", f"peer: CN=b, overflow: {overflow}")
        await both.gym.reload(both.text(GYM, changed + limits))
        ack = await here.publish("a", qos=1)
        assert isinstance(ack, wire.Puback)
        refused = overflow == "refuse"
        assert (ack.reason == wire.Reason.QUOTA_EXCEEDED) == refused
        denials = await told(both.gym, "deny", "rule", "link", "action")
        # what had to go is audited
        assert denials["overflow", "scope:gym->scope:remotegym", "forward"] == (not refused)
