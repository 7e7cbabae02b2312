"""What both ends of a link write down of a message: rows that are found by its id, and a clock that is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harness import PATIENCE
from processes import Served, on_uvloop, until
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, GYM, REMOTE, Pair, connected, row
from sockets.test_audit_publishers import rows
from tidegate.store.journal import TRAFFIC, Reader
from tidegate.store.journal.rows import AuditRow

REFUSING = """policies:
  - {id: in, subject: "link:gym->remotegym", topic: "#", action: read, when: "o.payload.open"}
  - {id: people, subject: "*", topic: "free/#", action: [read, write], when: "s.kind == 'client'"}
"""


async def found(node: Served, rule: str) -> AuditRow:
    """The one row of a rule."""
    async with asyncio.timeout(PATIENCE):
        while not (those := [each for each in await rows(node, "deny") if each.rule == rule]):
            await asyncio.sleep(0.01)
    (one,) = those
    return one


@on_uvloop
async def test_rows_of_both_ends_have_the_id_of_the_message(folder: Path) -> None:
    both = Pair(folder)
    remote = REMOTE.replace("policies: open\n", REFUSING) + "audit: {}\n"
    gym = GYM + "record: traffic\naudit: {}\n"
    async with both.node("remote", remote, FROM_REMOTE), both.node("gym", gym, FROM_GYM):
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("here"), await both.remote.connect("there")
        await there.subscribe("free/#")
        await here.publish("free/1", b'{"open": false}', qos=1)  # the link may not bring it in
        refused = await found(both.remote, "default")
        assert (refused.link, refused.publisher) == ("scope:gym->scope:remotegym", "client:here")
        assert refused.detail is not None
        await here.publish("free/1", b'{"open": true}', qos=1)
        assert (await there.message()).payload == b'{"open": true}'
        numbers: list[str] = []
        for _ in range(1000):  # it is written a moment later
            if numbers:
                break
            with Reader(Path(both.gym.node.config.node.data or ""), TRAFFIC) as reader:
                numbers = [each["id"] for each in reader.rows() if each["topic"] == "free/1"]
            await asyncio.sleep(0.01)
        assert refused.detail == f"message {numbers[0]}"
        await until(lambda: row(both.gym)["queue"] == 0)


@on_uvloop
async def test_what_makes_room_in_a_full_queue_is_named(folder: Path) -> None:
    both = Pair(folder)
    gym = GYM + "audit: {}\nlimits: {queue: {messages: 1}}\n"
    async with both.node("gym", gym, FROM_GYM):
        here = await both.gym.connect("here")
        for number in range(2):
            await here.publish("free/1", b"%d" % number, qos=1)
        dropped = await found(both.gym, "overflow")
        node = both.gym.node.site.origin.node
        assert dropped.detail is not None
        assert dropped.detail.startswith("the queue of the link is full; message ")
        assert node in dropped.detail
