"""A link to a node that is not trusted, over real TLS: SEC-REDS, 2.4.1, a connection that is degraded to untrusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import free_port
from processes import Served, on_uvloop, until
from reliability.links import Proxy
from sockets.linked_pair import FROM_GYM, FROM_REMOTE, GYM, REMOTE, Pair, connected, pair, row
from sockets.test_audit_publishers import rows
from sockets.test_links import greeting
from tidegate import wire
from tidegate.errors import ConfigError

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
async def test_where_only_one_end_trusts_the_other_both_know_it(folder: Path) -> None:
    async with pair(folder, HERE, FROM_REMOTE) as both:
        await connected(both.gym, both.remote)
        assert row(both.remote)["degraded"] == "the other node does not trust this one"
        here, there = await both.gym.connect("a"), await both.remote.connect("b")
        await there.subscribe("#", qos=1)
        await here.publish("t", b"1", qos=1)
        assert (await there.message()).payload == b"1"
        assert both.remote.node.links.groups() == [["remotegym@b"]]  # a link counts where both ends say so


# -- trust that is withdrawn -----------------------------------------------------------------------------------------

LISTED = FROM_GYM.replace(", peer: CN=b", ""), FROM_REMOTE.replace("CN=a", "listed")
TLS = wire.Properties(user_properties=(("require", "tls"),))
VIEW = wire.Properties(user_properties=(("view", '{"*": ["/a"]}'),))


def listing(text: str, name: str, otherwise: str = "degrade") -> str:
    """A file whose trust list has one name."""
    return text.replace("otherwise: degrade", f"accept: [CN={name}], otherwise: {otherwise}") + "audit: {}\n"


async def audited(served: Served, action: str) -> list[str]:
    return [found.detail for found in await rows(served, "change") if found.action == action]


@on_uvloop
async def test_a_node_that_is_not_on_the_list_any_more_is_degraded_until_it_is_again(folder: Path) -> None:
    """SEC-REDS, 2.4.1: the connection policy `degrade`, at both ends, though one of them alone has changed its mind."""
    both = Pair(folder)
    gym = listing(GYM, "b")
    async with (
        both.node("remote", listing(REMOTE, "a"), LISTED[1]) as remote,
        both.node("gym", gym, LISTED[0]) as served,
    ):
        await connected(served, remote)
        assert row(served)["level"] == row(remote)["level"] == "trusted"
        here, there = await served.connect("a"), await remote.connect("b")
        await there.subscribe("#", qos=1)
        for names, level in (("other", "tls"), ("b", "trusted")):
            await served.reload(both.text(listing(GYM, names), LISTED[0]))
            await until(lambda level=level: all(row(each)["level"] == level for each in (served, remote)))  # type: ignore[misc]
            if level == "tls":
                await here.publish("t/1", b'{"a": 1, "b": 2}', qos=1, properties=VIEW)
                await here.publish("t/2", b"for all", qos=1)
                assert (await there.message()).payload == b"for all"
                assert row(served)["degraded"] == "its certificate is not on the trust list"
                assert row(remote)["degraded"] == "the other node does not trust this one"
                assert served.node.links.groups() == [["gym@a"]]
        assert (await there.message()).payload == b'{"a":1}'  # it has waited
        for each, why in ((served, "not on the trust list"), (remote, "does not trust this one")):
            (degraded,) = await audited(each, "degrade")
            assert why in degraded
            assert len(await audited(each, "trust")) == 1


@on_uvloop
async def test_a_node_that_is_not_on_the_list_any_more_is_closed(folder: Path) -> None:
    both = Pair(folder)
    async with (
        both.node("remote", listing(REMOTE, "a"), LISTED[1]) as remote,
        both.node("gym", listing(GYM, "b"), LISTED[0]) as served,
    ):
        await connected(served, remote)
        await remote.reload(both.text(listing(REMOTE, "other", "close"), LISTED[1]))
        await until(lambda: row(remote)["state"] == "waiting" and row(served)["state"] != "connected")
        await until(lambda: "CN=a is not on the trust list" in (row(served)["error"] or ""))
        assert any("not on the trust list" in each for each in await audited(remote, "close"))
        await remote.reload(both.text(listing(REMOTE, "a", "close"), LISTED[1]))
        await connected(served, remote)
        assert row(served)["level"] == "trusted"


# -- a backup without certificates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["on_demand", "active"])
@on_uvloop
async def test_a_plain_backup_carries_what_may_go_over_it_and_the_rest_waits(folder: Path, mode: str) -> None:
    """SEC-REDS, figure 1.6: what needs guarantees goes over the connection that has them, the rest falls back."""
    both = Pair(folder)
    proxy = Proxy(free_port(), int(both.port))
    plain = str(free_port())
    await proxy.start()
    via = f'"mqtts://127.0.0.1:{proxy.port}", "mqtt://127.0.0.1:{plain}"'
    strategy = f"mode: {mode}, attempts: 2, interval: 300ms, heartbeat: 10s, restore: 300ms"
    here = f"links: [{{from: gym, to: remotegym, via: [{via}], peer: CN=b, failover: {{{strategy}}}}}]"
    remote = REMOTE.replace("scopes:", f'  - {{url: "mqtt://127.0.0.1:{plain}", scope: remotegym}}\nscopes:')
    there = FROM_REMOTE.replace("CN=a", "CN=a, plain_backup: true")
    try:
        async with both.node("remote", remote, there) as far, both.node("gym", GYM, here) as near:
            await connected(near, far)
            await until(lambda: row(near)["level"] == row(far)["level"] == "trusted")
            if mode == "active":
                await until(lambda: row(near)["standby"] == row(far)["standby"] == 1)
                with pytest.raises(ConfigError, match="a trusted connection carries this link"):
                    await near.node.links.set_default("gym->remotegym", "1")
                await until(lambda: row(near)["standby"] == row(far)["standby"] == 1)
            sender, receiver = await near.connect("a"), await far.connect("b")
            await receiver.subscribe("#", qos=2)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: row(near)["level"] == row(far)["level"] == "plain")
            assert row(near)["degraded"] == row(far)["degraded"] == "it shows no certificate"
            await sender.publish("t/1", b"tls", qos=2, properties=TLS)
            await sender.publish("t/2", b'{"a": 1, "b": 2}', qos=1, properties=VIEW)
            await sender.publish("t/3", b"free", qos=2)
            assert (await receiver.message()).payload == b"free"
            await until(lambda: row(near)["queue"] == 2)
            proxy.refusing = False
            await until(lambda: row(near)["level"] == row(far)["level"] == "trusted")
            assert (await receiver.message()).payload == b'{"a":1}'  # nobody's connection here is worth `tls`
            await until(lambda: row(near)["queue"] == 0)
            await receiver.silent()
    finally:
        await proxy.close()


@pytest.mark.parametrize("plain", [False, True])
@on_uvloop
async def test_nobody_takes_a_link_without_a_certificate_unless_that_is_wanted(folder: Path, plain: bool) -> None:
    there = FROM_REMOTE.replace("CN=a", f"CN=a, plain_backup: {str(plain).lower()}")
    async with pair(folder, remote=there) as both:
        await connected(both.gym, both.remote)
        why = "a trusted connection carries this link" if plain else "shows its certificate"
        reason = wire.Reason.SERVER_BUSY if plain else wire.Reason.NOT_AUTHORIZED
        client = await both.remote.connect("gym->remotegym", expect=reason, clean_start=False, properties=greeting())
        assert why in str(client.connack.properties.reason_string)
        assert row(both.gym)["state"] == "connected"
