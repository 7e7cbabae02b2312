"""A link to a node that is not trusted, over real TLS: SEC-REDS, 2.4.1, a connection that is degraded to untrusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import on_uvloop, until
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, connected, pair, row
from tidegate import wire

HERE, THERE = FROM_GYM.replace("CN=b", "CN=b, trusted: false"), FROM_REMOTE.replace("CN=a", "CN=a, trusted: false")


@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_what_everybody_may_have_crosses_and_is_worth_its_encryption(folder: Path, qos: int) -> None:
    async with pair(folder, HERE, THERE) as both:
        await connected(both.gym, both.remote)
        assert row(both.gym)["level"] == row(both.remote)["level"] == "tls"
        assert both.gym.node.links.groups() == [["gym@a"]]
        here, there, strict = (
            await both.gym.connect("a"),
            await both.remote.connect("b"),
            await both.remote.connect("c"),
        )
        await there.subscribe("#", qos=2)
        secure = wire.Properties(user_properties=(("require", "mtls"),))
        await strict.subscribe("#", qos=2, properties=secure)
        view = wire.Properties(user_properties=(("view", '{"user:alice": "all"}'),))
        await here.publish("t", b"for alice", qos=qos, properties=view)
        for number in range(3):
            await here.publish("t", b"%d" % number, qos=qos)
            assert (await there.message()).payload == b"%d" % number
        await strict.silent()


@on_uvloop
async def test_where_only_one_end_trusts_the_other_nothing_is_believed(folder: Path) -> None:
    async with pair(folder, HERE, FROM_REMOTE) as both:
        await connected(both.gym, both.remote)
        here, there = await both.gym.connect("a"), await both.remote.connect("b")
        await there.subscribe("#", qos=1)
        await here.publish("t", b"1", qos=1)
        await until(lambda: row(both.gym)["queue"] == 0)
        await there.silent()  # nobody whom the link speaks for has published it
        assert both.remote.node.links.groups() == [["remotegym@b"]]  # a link counts where both ends say so
