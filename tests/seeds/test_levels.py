"""TLS Beyond the Broker ("levels"): its cases, scenarios and figures over real plain and TLS connections.

Table I (what a TLS connection costs a small device) and the 500 runs of section V-C are measurements. Figures 2 and 3
are scenarios 1 and 2.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from seeds.real import Visitor, authority, mixed
from tidegate import wire

MODIFIED = "policies: open\nlevels: {implied: false}\n"
UNMODIFIED = "policies: open\nlevels: {implied: true}\n"
DEMANDS = ({"require": "tls"}, {"s": "1"})
RELAXES = ({"require": "none"}, {"require": "plain"}, {"s": "0"})
VERSIONS = (wire.V311, wire.V5)
BOTH = list(product(VERSIONS, VERSIONS))
# publisher, subscriber: cases 1 to 4
FIGURE_1 = (("tls", "tls"), ("tls", "plain"), ("plain", "tls"), ("plain", "plain"))


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("levels"), "sensor", "phone")


async def received(subscriber: Visitor) -> bool:
    """Whether exactly one message came, or none."""
    found = await subscriber.got()
    assert len(found) <= 1
    return bool(found)


@pytest.mark.parametrize(("source", "target"), BOTH)
async def test_levels_figure_1_four_cases_of_forwarding(certs: Path, source: int, target: int) -> None:
    """A mixed-mode broker relays messages whatever the protection of the connections."""
    async with mixed(certs, MODIFIED) as node:
        for at_publisher, at_subscriber in FIGURE_1:
            publisher = await node.come(at_publisher, version=source)
            subscriber = await node.come(at_subscriber, version=target)
            await subscriber.subscribe("t")
            await publisher.publish("t")
            assert await subscriber.floors() == [at_publisher if target == wire.V5 else ""]


async def test_levels_section_2d_problem_1_subscribers_know_how_a_message_was_published(certs: Path) -> None:
    """For a subscriber a message that was published plainly (case 3) looks different from one that was not (case 1)."""
    async with mixed(certs, MODIFIED) as node:
        subscriber, secure, insecure = await node.come("tls"), await node.come("tls"), await node.come("plain")
        await subscriber.subscribe("t")
        await secure.publish("t")
        await insecure.publish("t", says={"floor": "trusted"})  # nobody can claim one
        assert await subscriber.floors() == ["tls", "plain"]


async def test_levels_section_2d_problem_2_publishers_decide_over_the_connections_of_subscribers(certs: Path) -> None:
    """For a publisher case 1 and case 2 differ: it can have the one without the other."""
    async with mixed(certs, MODIFIED) as node:
        publisher, secure, insecure = await node.come("tls"), await node.come("tls"), await node.come("plain")
        for subscriber in (secure, insecure):
            await subscriber.subscribe("t")
        await publisher.publish("t", says={"require": "tls"})
        assert (await received(secure), await received(insecure)) == (True, False)


# -- the four scenarios ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("where", ["CONNECT", "PUBLISH"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_levels_scenario_1_and_figure_2_the_publisher_extends(
    certs: Path, demand: dict[str, str], where: str, version: int
) -> None:
    """Section IV-B, 1: who is connected over TLS receives it, who is not does not."""
    async with mixed(certs, MODIFIED) as node:
        publisher = await node.come("tls", says=demand if where == "CONNECT" else None)
        secure, insecure = await node.come("tls", version=version), await node.come("plain", version=version)
        for subscriber in (secure, insecure):
            await subscriber.subscribe("t")
        await publisher.publish("t", says=demand if where == "PUBLISH" else None)
        assert (await received(secure), await received(insecure)) == (True, False)
        if where == "PUBLISH":  # it was for that message
            await publisher.publish("t")
            assert (await received(secure), await received(insecure)) == (True, True)


@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("where", ["CONNECT", "SUBSCRIBE"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_levels_scenario_2_and_figure_3_the_subscriber_extends(
    certs: Path, demand: dict[str, str], where: str, version: int
) -> None:
    """Section IV-B, 2: of a plain publisher it receives nothing; all others do, over TCP and over TLS."""
    async with mixed(certs, MODIFIED) as node:
        strict = await node.come("tls", says=demand if where == "CONNECT" else None)
        await strict.subscribe("t", demand if where == "SUBSCRIBE" else None)
        others = [await node.come(how, version=version) for how in ("tls", "plain")]
        for other in others:
            await other.subscribe("t")
        secure, insecure = await node.come("tls", version=version), await node.come("plain", version=version)
        await insecure.publish("t")
        assert [await received(one) for one in (strict, *others)] == [False, True, True]
        await secure.publish("t")
        assert [await received(one) for one in (strict, *others)] == [True, True, True]
        if where == "SUBSCRIBE":  # it was for that subscription
            await strict.subscribe("other")
            await insecure.publish("other")
            assert await received(strict)


@pytest.mark.parametrize("relax", RELAXES)
@pytest.mark.parametrize("how", ["demanded", "implied"])
async def test_levels_scenario_3_the_publisher_relaxes(certs: Path, relax: dict[str, str], how: str) -> None:
    async with mixed(certs, UNMODIFIED if how == "implied" else MODIFIED) as node:
        publisher = await node.come("tls", says=None if how == "implied" else DEMANDS[0])
        secure, insecure = await node.come("tls"), await node.come("plain")
        for subscriber in (secure, insecure):
            await subscriber.subscribe("t")
        await publisher.publish("t")
        assert (await received(secure), await received(insecure)) == (True, False)
        await publisher.publish("t", says=relax)
        assert (await received(secure), await received(insecure)) == (True, True)
        await publisher.publish("t")
        assert (await received(secure), await received(insecure)) == (True, False)


@pytest.mark.parametrize("relax", RELAXES)
@pytest.mark.parametrize("how", ["demanded", "implied"])
async def test_levels_scenario_4_the_subscriber_relaxes(certs: Path, relax: dict[str, str], how: str) -> None:
    async with mixed(certs, UNMODIFIED if how == "implied" else MODIFIED) as node:
        subscriber = await node.come("tls", says=None if how == "implied" else DEMANDS[0])
        insecure = await node.come("plain")
        await subscriber.subscribe("t")
        await insecure.publish("t")
        assert not await received(subscriber)
        await subscriber.subscribe("t", relax)
        await insecure.publish("t")
        assert await received(subscriber)


# -- who receives ----------------------------------------------------------------------------------------------------

# connection, and what is said in CONNECT
CLIENTS = {
    "plain": ("plain", None),
    "plain, demands": ("plain", {"require": "tls"}),
    "tls": ("tls", None),
    "tls, demands": ("tls", {"require": "tls"}),
    "tls, relaxes": ("tls", {"require": "none"}),
}


@pytest.mark.parametrize("implied", [False, True])
async def test_levels_section_4b_the_table_of_who_receives(certs: Path, implied: bool) -> None:
    """Every publisher with every subscriber: a demand is met, or the message is not forwarded (cases 1 to 3)."""
    async with mixed(certs, UNMODIFIED if implied else MODIFIED) as node:
        subscribers = {name: await node.come(how, says=says) for name, (how, says) in CLIENTS.items()}
        for subscriber in subscribers.values():
            await subscriber.subscribe("t")
        for name, (how, says) in CLIENTS.items():
            publisher = await node.come(how, says=says)
            await publisher.publish("t")
            for other, (theirs, say) in CLIENTS.items():
                extends = says == {"require": "tls"} or (implied and says is None and how == "tls")
                insists = say == {"require": "tls"} or (implied and say is None and theirs == "tls")
                expected = (theirs == "tls" or not extends) and (how == "tls" or not insists)
                assert await received(subscribers[other]) is expected, f"{name} -> {other}"


@pytest.mark.parametrize(("source", "target"), BOTH)
async def test_levels_section_5a_unmodified_clients(certs: Path, source: int, target: int) -> None:
    """Who connects with the extra burden of TLS wants to hear only what came so, and to be heard only so."""
    async with mixed(certs, UNMODIFIED) as node:
        for at_publisher, at_subscriber in FIGURE_1:
            publisher = await node.come(at_publisher, version=source)
            subscriber = await node.come(at_subscriber, version=target)
            await subscriber.subscribe("t")
            await publisher.publish("t")
            assert await received(subscriber) is (at_publisher == at_subscriber)


async def test_levels_section_5a_legacy_clients_may_be_left_as_they_are(certs: Path) -> None:
    """For increased interconnection: without `implied` nobody demands what he does not say."""
    async with mixed(certs, MODIFIED) as node:
        publisher, subscriber = await node.come("tls", version=wire.V311), await node.come("plain", version=wire.V311)
        await subscriber.subscribe("t")
        await publisher.publish("t")
        assert await received(subscriber)


# -- finer levels ----------------------------------------------------------------------------------------------------


async def test_levels_section_4c_a_list_of_cipher_suites(certs: Path) -> None:
    """More specific than TLS: the suites that are good enough."""
    finer = """
policies: open
levels:
  order: [plain, tls, strong]
  define:
    strong: s.tls.version == 'TLSv1.2' && s.tls.cipher in ['ECDHE-ECDSA-AES256-GCM-SHA384']
"""
    async with mixed(certs, finer) as node:
        strong = await node.come("tls", context=_only(certs, "ECDHE-ECDSA-AES256-GCM-SHA384"))
        weak = await node.come("tls", context=_only(certs, "ECDHE-ECDSA-AES128-GCM-SHA256"))
        plain = await node.come("plain")
        publisher = await node.come("tls", context=_only(certs, "ECDHE-ECDSA-AES256-GCM-SHA384"))
        for subscriber in (strong, weak, plain):
            await subscriber.subscribe("t")
        await publisher.publish("t", says={"require": "strong"})
        assert [await received(one) for one in (strong, weak, plain)] == [True, False, False]
        await publisher.publish("t", says={"require": "tls"})
        assert [await received(one) for one in (strong, weak, plain)] == [True, True, False]
        other = await node.come("tls", context=_only(certs, "ECDHE-ECDSA-AES128-GCM-SHA256"))
        await other.publish("t")
        assert await strong.floors() == ["tls"]


def _only(certs: Path, cipher: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certs / "ca.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    return context


@pytest.mark.parametrize(("network", "receives"), [("127.0.0.0/8", True), ("10.0.0.0/8", False)])
async def test_levels_section_4c_network_location(certs: Path, network: str, receives: bool) -> None:
    """Communication can be segregated by where in the network somebody is."""
    finer = f"""
policies: open
levels: {{order: [plain, inside], define: {{inside: "cidr(s.address, '{network}')"}}}}
"""
    async with mixed(certs, finer) as node:
        publisher, subscriber = await node.come("plain"), await node.come("plain")
        await subscriber.subscribe("t")
        await publisher.publish("t", says={"require": "inside"})
        assert await received(subscriber) is receives


async def test_levels_section_4c_more_than_two_levels_with_client_certificates(certs: Path) -> None:
    async with mixed(certs, MODIFIED) as node:
        publisher, phone, anonymous = await node.come("sensor"), await node.come("phone"), await node.come("tls")
        for subscriber in (phone, anonymous):
            await subscriber.subscribe("t")
        await publisher.publish("t", says={"require": "mtls"})
        assert (await phone.floors(), await anonymous.floors()) == (["mtls"], [])
        await publisher.publish("t", says={"require": "tls"})
        assert (await phone.floors(), await anonymous.floors()) == (["mtls"], ["mtls"])


# -- section V-C -----------------------------------------------------------------------------------------------------


def connecting(properties: wire.Properties) -> wire.Packet:
    return wire.Connect(version=wire.V5, client_id="c", clean_start=True, keep_alive=0, properties=properties)


def publishing(properties: wire.Properties) -> wire.Packet:
    return wire.Publish(topic="t", payload=b"x", properties=properties)


def subscribing(properties: wire.Properties) -> wire.Packet:
    return wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="t", qos=0),), properties=properties)


@pytest.mark.parametrize("packet", [connecting, publishing, subscribing])
def test_levels_section_5c_a_demand_takes_seven_bytes(packet: Callable[[wire.Properties], wire.Packet]) -> None:
    demand = wire.Properties(user_properties=(("s", "1"),))
    assert len(wire.encode(packet(demand), wire.V5)) - len(wire.encode(packet(wire.NONE), wire.V5)) == 7


async def test_levels_section_5c_implied_demands_cost_no_byte(certs: Path) -> None:
    """Where the connection says it, messages stay as they are: the floor aside, subscribers get what was published."""
    async with mixed(certs, UNMODIFIED) as node:
        publisher, subscriber = await node.come("tls", version=wire.V311), await node.come("tls", version=wire.V311)
        await subscriber.subscribe("t")
        await publisher.publish("t", b"payload")
        (message,) = await subscriber.got()
        assert message == wire.Publish(topic="t", payload=b"payload")


async def test_levels_section_5c_what_clients_say_to_the_broker_is_not_passed_on(certs: Path) -> None:
    async with mixed(certs, MODIFIED) as node:
        publisher, subscriber = await node.come("tls"), await node.come("tls")
        await subscriber.subscribe("t")
        await publisher.publish("t", says={"require": "tls", "s": "1", "unit": "°C"})
        (message,) = await subscriber.got()
        assert dict(message.properties.user_properties) == {"unit": "°C", "floor": "tls"}
